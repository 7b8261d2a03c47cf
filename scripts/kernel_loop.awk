# kernel_loop.awk - the instructions of a step of the inner loop of a kernel, from its machine code.
#
#   od -An -v -tx4 -w16 ... | awk -f scripts/kernel_loop.awk -v name=NAME
#
# Reads the instructions of sm_90, four words of eight digits a line. Of a loop it takes the way that meets
# the most products on tensor cores and asynchronous copies, and then the fewest instructions: a step that
# is followed by another, in which nothing is masked, dropped or rescaled. Loops within count once. Of all
# loops it takes the one with the most products, then with the most instructions. Prints "loop", the name,
# instructions and products; nothing for kernels without products.

function hex(s,    i, v) {
    for (i = 1; i <= length(s); i++) v = 16 * v + index("0123456789abcdef", substr(s, i, 1)) - 1
    return v
}

# The instruction that a branch goes to: 8 bits of words and 32 of 64 words, relative to the next.
function target(i, low, high,    at) {
    at = hex(high)
    if (at >= 2147483648) at -= 4294967296
    return i + 1 + (at * 256 + hex(substr(low, 3, 2)) * 4) / 16
}

{
    n = NR - 1
    op = substr($1, 6)
    product[n] = op == "23c"
    products += product[n]
    copy[n] = op == "fae"
    if (op == "947") to[n] = target(n, $1, $2)
    always[n] = substr($1, 5, 1) == "7" && int(hex(substr($3, 1, 3)) / 8) % 16 == 7
    if (op == "94d" && always[n]) ends[n] = 1
}

# Goes the best way from instruction `first` to the branch `last` back to it.
function walk(first, last,    i) {
    value[last] = -1
    for (i = last - 1; i >= first; i--) {
        after[i] = i in ends || (i in to && always[i] && to[i] > i) ? "" : i + 1
        if (i in to && to[i] > i && to[i] <= last && (after[i] == "" || value[to[i]] > value[i + 1]))
            after[i] = to[i]
        value[i] = (after[i] == "" ? -1e15 : value[after[i]]) + 1e6 * (product[i] + copy[i]) - 1
    }
    met = steps = 0
    for (i = first; i != "" && i <= last; i = i == last ? "" : after[i]) {
        met += product[i]
        steps++
    }
}

END {
    for (i = 0; i <= n && products; i++) {
        if (!(i in to) || to[i] >= i) continue
        walk(to[i], i)
        if (met < most || (met == most && steps < dearest)) continue
        most = met
        dearest = steps
    }
    if (most) print "loop", name, dearest, most
}

# kernel_loop.awk - counts the instructions of an inner-loop step of a kernel in its machine code.
#
#   od -An -v -tx4 -w16 ... | awk -f scripts/kernel_loop.awk -v name=NAME
#
# Reads sm_90 instructions, four words of eight digits per line. In each loop it takes the path with
# the most tensor-core products and asynchronous copies, then the fewest instructions: a step that
# is followed by another and in which nothing is masked, dropped or rescaled. Nested loops count
# once. Among all loops it takes the one with the most products, then the most instructions. Prints
# "loop", the name, instructions and products; nothing for kernels without products.

function hex(s,    i, v) {
    for (i = 1; i <= length(s); i++) v = 16 * v + index("0123456789abcdef", substr(s, i, 1)) - 1
    return v
}

# The target of a branch, relative to the next instruction: 8 bits in words and 32 in units of 64
# words.
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

# Follows the best path from instruction `first` to the branch `last` back to it.
function walk(first, last,    i) {
    value[last] = -1
    for (i = last - 1; i >= first; i--) {
        after[i] = i in ends || (i in to && always[i] && to[i] > i) ? "" : i + 1
        if (i in to && to[i] > i && to[i] <= last &&
            (after[i] == "" || value[to[i]] > value[i + 1]))
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

# kernel_stores.awk - counts how a kernel's machine code moves bytes of global memory.
#
#   od -An -v -tx4 -w16 ... | awk -f scripts/kernel_stores.awk -v name=NAME
#
# Reads sm_90 instructions, four words of eight digits per line. Prints "stores", the name, the
# number of loads of 16 bytes, of all stores, of stores of 16 bytes, and of split packs: 16
# contiguous bytes that stores of at most 4 bytes write, from one register and under one predicate,
# without a branch between them. One store would do.

function hex(s,    i, v) {
    for (i = 1; i <= length(s); i++) v = 16 * v + index("0123456789abcdef", substr(s, i, 1)) - 1
    return v
}

# Does a split pack of stores of `width` bytes contain the one to `at`? If so, they count for no
# other.
function completes(from, width, at,    first, k) {
    for (first = at + width - 16; first <= at; first += width) {
        for (k = 0; k < 16 && ((from, width, first + k) in seen); k += width) {}
        if (k < 16) continue
        for (k = 0; k < 16; k += width) delete seen[from, width, first + k]
        return 1
    }
    return 0
}

BEGIN { split("1 1 2 2 4 8 16", bytes, " ") }

{
    op = substr($1, 6)
    width = bytes[1 + int(hex(substr($3, 6, 1)) / 2)]
}
op == "947" || op == "94d" { split("", seen) } # a branch, an exit
op == "981" && width == 16 { loads++ }
op == "986" {
    stores++
    if (width == 16) wide++
    if (width != 2 && width != 4) next
    from = substr($1, 1, 2) " " substr($1, 5, 1)
    at = hex(substr($2, 1, 6))
    if (at >= 8388608) at -= 16777216
    seen[from, width, at] = 1
    packs += completes(from, width, at)
}

END { print "stores", name, loads + 0, stores + 0, wide + 0, packs + 0 }

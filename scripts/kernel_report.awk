# kernel_report.awk - reads the logs of scripts/kernel-report.sh: for each file that of sm_80, if it
# exists, then that of sm_90. Prints for each kernel, separated by tabs: file, mangled name,
# threads; for both architectures registers, shared bytes, spilled bytes and blocks per
# multiprocessor; then, for sm_90, instructions and products of a step, and the four numbers of
# scripts/kernel_stores.awk.

function least(a, b) { return a < b ? a : b }

# Registers are allocated to a warp in units of 256 and warps in units of four; a block reserves 1
# KiB of shared memory.
function resident(arch, threads, registers, shared,    warps, by_registers, memory)
{
    warps = threads / 32
    by_registers = int(65536 / (int((registers + 7) / 8) * 256) / 4) * 4
    memory = arch == "sm_80" ? 164 * 1024 : 228 * 1024
    return least(32, least(int(least(64, by_registers) / warps), int(memory / (shared + 1024))))
}

FNR == 1 {
    n = split(FILENAME, part, "/")
    arch = part[n - 1]
    file = part[n]
    sub(/log$/, "cu", file)
}
/^threads / { threads[$2] = $3 }
/Compiling entry function/ { split($0, quoted, "'"); name = quoted[2] }
/bytes stack frame/ { match($0, /[0-9]+ bytes spill stores/); spills = substr($0, RSTART) + 0 }
/^loop / { step[$2] = $3 "\t" $4 }
/^stores / { stores[$2] = $3 "\t" $4 "\t" $5 "\t" $6 }
/: Used [0-9]+ registers/ {
    shared = match($0, /[0-9]+ bytes smem/) ? substr($0, RSTART) + 0 : 0
    registers = $5
    if (!(name in threads)) threads[name] = 1024
    row = registers " " shared " " spills " " resident(arch, threads[name], registers, shared)
    if (arch == "sm_80") {
        first[name] = row
    } else {
        split((name in first ? first[name] : "0 0 0 0") " " row, v, " ")
        printf "%s\t%s\t%d", file, name, threads[name]
        for (i = 1; i <= 4; i++) printf "\t%d\t%d", v[i], v[4 + i]
        print "\t" (name in step ? step[name] : "0\t0") "\t" stores[name]
    }
}

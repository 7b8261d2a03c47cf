#!/usr/bin/env bash
# kernel-report.sh - reports ptxas's figures for every CUDA kernel on compute capabilities 8.0 and
# 9.0: threads per block, registers per thread, bytes of shared memory and of spills, and resident
# blocks per multiprocessor (without shared memory sized at launch). For kernels that use tensor
# cores it also reports the instructions and products of an inner-loop step on 9.0
# (scripts/kernel_loop.awk), and for those that load 16 bytes at once but store less, their stores
# (scripts/kernel_stores.awk). Fails if an attention kernel spills, if a kernel that loads 16 bytes
# at once splits 16 bytes among several stores on 9.0, or if a step exceeds the budget in its source
# by more than 3%:
#
#   budget: NAME<...> sm_90 620 instructions
#
#   scripts/kernel-report.sh                all of cuda/; recompiles only what has changed
#   scripts/kernel-report.sh softmax ls_    files whose names contain one of the words
#   scripts/kernel-report.sh --newest       only 9.0, in half the time; words may follow
source "$(dirname "$0")/setup.sh"
case ${1:-} in
-h | --help)
    manual "$0"
    exit 0
    ;;
esac
archs="sm_80 sm_90"
[ "${1:-}" != --newest ] || {
    archs=sm_90
    shift
}
cd "$ROOT"
nvcc=$(find_nvcc) || die "nvcc is not installed, so kernels cannot be compiled."
need c++filt:binutils readelf:binutils
out=build/kernels
mkdir -p "$out"

# Prints of each kernel of a cubin the threads of a block (attribute 5 of .nv.info) and, on 9.0,
# the inner-loop step and the stores.
describe() {
    local arch=$3 kind kernel offset size
    readelf -SW "$1" 2>/dev/null |
        sed -n 's/^ *\[ *[0-9]*\] \.\(nv\.info\|text\)\.\([^ ]*\)/\1 \2/p' |
        while read -r kind kernel _ _ offset size _; do
            if [ "$kind" = nv.info ]; then
                od -An -v -td4 -w4 -j $((16#$offset)) -N $((16#$size)) "$1" |
                    awk -v name="$kernel" '$1 == 787716 { # 0x000c0504
                        getline x; getline y; getline z; print "threads", name, x * y * z; exit
                    }'
            elif [ "$arch" = sm_90 ]; then
                od -An -v -tx4 -w16 -j $((16#$offset)) -N $((16#$size)) "$1" >"$2"
                awk -v name="$kernel" -f scripts/kernel_loop.awk "$2"
                awk -v name="$kernel" -f scripts/kernel_stores.awk "$2"
            fi
        done
}

# Writes build/kernels/sm_80/softmax.log: what `describe` prints, then ptxas's output.
compile() {
    local arch=$1 file=$2
    local name dir=build/kernels/$arch
    name=$(basename "$file" .cu)
    local sources="$file cuda/*/*.cuh cuda/*/*.h tensor/*.h tensor/geometry/*.h
        include/tapegrad/*.h include/tapegrad/*/*.h
        scripts/kernel_loop.awk scripts/kernel_stores.awk"
    [ -f "$dir/$name.log" ] && [ -z "$(find $sources -newer "$dir/$name.log")" ] && return
    mkdir -p "$dir"
    ${CMAKE_CUDA_COMPILER_LAUNCHER-} "$NVCC" -std=c++17 -O3 -c -cubin -arch="$arch" -Xptxas -v \
        -Xcompiler -Wall,-Wextra -DTP_NO_SITE -I. -Iinclude -o "$dir/$name.cubin" "$file" \
        2>"$dir/$name.err" || {
        cat "$dir/$name.err" >&2
        return 255
    }
    {
        describe "$dir/$name.cubin" "$dir/$name.code" "$arch"
        cat "$dir/$name.err"
    } >"$dir/$name.log"
    find "$dir" -name "$name.*" ! -name "$name.log" -delete
}
export -f compile describe
export NVCC=$nvcc

files=()
for file in cuda/*.cu cuda/attention/*.cu cuda/conv/*.cu cuda/recurrent/*.cu; do
    [ $# = 0 ] && files+=("$file")
    for word in "$@"; do
        case $file in *"$word"*) files+=("$file") ;; esac
    done
done
mapfile -t files < <(printf '%s\n' "${files[@]}" | sort -u)
[ "${files[0]}" ] || die "No file name in cuda/ contains: $*"
for arch in $archs; do printf "$arch %s\n" "${files[@]}"; done |
    xargs -P "$(nproc)" -n 2 bash -c 'compile "$@"' compile ||
    die "A kernel does not compile: see above."

budgets() {
    sed -n 's/.*budget: \(.*\) sm_90 \([0-9]*\) instructions.*/\1\t\2/p' \
        cuda/*.cu cuda/*/*.cu cuda/*/*.cuh
}

for file in "${files[@]}"; do
    for arch in $archs; do printf '%s\n' "$out/$arch/$(basename "$file" .cu).log"; done
done | xargs awk -f scripts/kernel_report.awk | c++filt -p |
    sed 's/void //; s/__nv_bfloat16/bf16/g' | awk -F '\t' -v all=$# '
    budgets { budget[$1] = $2; next }
    $1 != file {
        file = $1
        printf "\n%-66s %7s %9s %13s %9s %8s\n", file, "threads", "registers", "shared",
            "spills", "blocks"
    }
    {
        over = budget[$2] && ($12 == 0 || $12 > 1.03 * budget[$2])
        printf "%-66s %7d %4d %4d %6d %6d %4d %4d %4d %3d%s", $2, $3, $4, $5, $6, $7, $8, $9, $10,
            $11, $8 + $9 ? "  spills" : ""
        if ($13) printf "  step %d, mma %d", $12, $13
        if (budget[$2]) printf ", budget %d%s", budget[$2], over ? ": exceeded" : ""
        if ($14 && $15 && !$16) printf "  %d stores, all narrow", $15
        if ($14 && $17) printf "  16 bytes in several stores: %d times", $17
        print ""
        split_packs += $14 && $17
        kernels++
        known[$2] = 1
        dear += over
    }
    $8 + $9 { n++; if (file ~ /attention/) bad++ }
    END {
        for (name in budget)
            if (all == 0 && !(name in known)) {
                print "A budget names an unknown kernel: " name
                dear++
            }
        printf "\n%d kernels, %d of them spill, %d split stores of 16 bytes\n", kernels, n,
            split_packs
        exit bad + dear + split_packs > 0
    }' budgets=1 <(budgets) budgets=0 - ||
    die "A kernel breaks a rule. Spills or a budget exceeded: reduce its live values or the work" \
        "of its steps. Split stores: store packs with tp_store (cuda/kit/kernel.cuh)."

#!/usr/bin/env bash
# kernel-report.sh - what ptxas says of every CUDA kernel, for compute capabilities 8.0 and 9.0: threads
# of a block, registers of a thread, bytes of shared memory and of spills, and the blocks that a
# multiprocessor holds (not counting shared memory that is sized at launch). Fails if an attention
# kernel spills.
#
#   scripts/kernel-report.sh                all of cuda/; what has not changed is not compiled again
#   scripts/kernel-report.sh softmax ls_    files whose names contain a word
source "$(dirname "$0")/setup.sh"
case ${1:-} in
-h | --help)
    sed -n '2,7s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac
cd "$ROOT"
nvcc=$(find_nvcc) || die "nvcc is not installed: kernels cannot be compiled."
need c++filt:binutils
out=build/kernels
mkdir -p "$out"

# build/kernels/sm_80/cuda_softmax.log: the launch bounds in the PTX, then what ptxas says.
compile() {
    local arch=$1 file=$2
    local name dir=build/kernels/$arch
    name=$(basename "$file" .cu)
    [ -f "$dir/$name.log" ] && [ -z "$(find "$file" cuda/*.cuh cuda/*.h tensor/*.h include/tapegrad/*.h -newer "$dir/$name.log")" ] && return
    mkdir -p "$dir"
    "$NVCC" -std=c++17 -O3 -cubin -arch="$arch" -Xptxas -v -Xcompiler -Wall,-Wextra -DTP_NO_SITE -I. \
        -Iinclude --keep --keep-dir "$dir" -o "$dir/$name.cubin" "$file" 2>"$dir/$name.err" || {
        cat "$dir/$name.err" >&2
        return 255
    }
    grep -E '^\.visible \.entry|^\.maxntid' "$dir/$name.ptx" | cat - "$dir/$name.err" >"$dir/$name.log"
    find "$dir" -name "$name.*" ! -name "$name.log" -delete
}
export -f compile
export NVCC=$nvcc

files=()
for file in cuda/*.cu; do
    [ $# = 0 ] && files+=("$file")
    for word in "$@"; do
        case $file in *"$word"*) files+=("$file") ;; esac
    done
done
[ "${#files[@]}" -gt 0 ] || die "No file of cuda/ is named so: $*"
for arch in sm_90 sm_80; do printf "$arch %s\n" "${files[@]}"; done |
    xargs -P "$(nproc)" -n 2 bash -c 'compile "$@"' compile || die "A kernel does not compile: see above."

for file in "${files[@]}"; do
    for arch in sm_80 sm_90; do printf '%s\n' "$out/$arch/$(basename "$file" .cu).log"; done
done | xargs awk -f scripts/kernel_report.awk | c++filt -p | sed 's/void //; s/__nv_bfloat16/bf16/g' | awk -F '\t' '
    $1 != file {
        file = $1
        printf "\n%-66s %7s %9s %13s %9s %8s\n", file, "threads", "registers", "shared", "spills", "blocks"
    }
    {
        printf "%-66s %7d %4d %4d %6d %6d %4d %4d %4d %3d%s\n", $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $8 + $9 ? "  spills" : ""
    }
    $8 + $9 { n++; if (file ~ /attention/) bad++ }
    END { printf "\n%d kernels, %d of them spill\n", NR, n; exit bad > 0 }' ||
    die "An attention kernel spills registers: give its threads less to hold."

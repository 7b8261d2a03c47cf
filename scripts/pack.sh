#!/usr/bin/env bash
# pack.sh - one archive that checks and measures tapegrad on another machine's NVIDIA card: programs, tests,
# benchmarks and every library they need but CUDA's, the C library included, so that it runs on any recent
# x86-64 Linux with an NVIDIA driver and cuBLAS (of a toolkit, or of PyTorch's wheels).
#
#   scripts/pack.sh [FILE]    default: build/tapegrad-gpu.tar.xz
#
# There: tar xf tapegrad-gpu.tar.xz && tapegrad-gpu/gpu-report.sh
source "$(dirname "$0")/setup.sh"
case ${1:-} in
-h | --help)
    sed -n '2,8s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac
most=$((60 * 1000 * 1000)) # bytes of the archive
file=${1:-$ROOT/build/tapegrad-gpu.tar.xz}
[[ $file == /* ]] || file=$PWD/$file

CUDACXX=$(find_nvcc) || die "nvcc is not installed: there are no kernels to pack."
export CUDACXX
need $BUILD_NEEDS $TEST_NEEDS g++:g++ xz:xz-utils patchelf:patchelf
programs=(enwik8 tp-models tp-parity bench_ops bench_models)
# Those that need neither the source tree nor other programs.
tests=(test_capture test_cuda test_cuda_linear test_cuda_moves test_decode test_ls_attention test_models test_optim test_profile test_refs test_tape)
configure cuda -DTAPEGRAD_TESTS=ON -DTAPEGRAD_EXAMPLES=ON -DTAPEGRAD_BENCH=ON
build cuda "${programs[@]}" "${tests[@]}" >&2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
to=$work/tapegrad-gpu
mkdir -p "$to"/{bin,lib,peers}

# The libraries of a program, with the loader, but for those of the driver and of CUDA.
libraries() { ldd "$1" | awk '$2 == "=>" { print $3 } $1 ~ /^\// { print $1 }'; }

# patchelf goes with them: gpu-report.sh makes the programs use this loader, wherever the archive lies.
cp "$(command -v patchelf)" "$to/bin/"
for name in "${programs[@]}" "${tests[@]}"; do
    strip -o "$to/bin/$name" "$ROOT/build/cuda/bin/$name"
done
for name in patchelf "${programs[@]}" "${tests[@]}"; do
    libraries "$to/bin/$name"
done | sort -u | xargs -I{} cp -L {} "$to/lib/"
cp "$ROOT"/scripts/{gpu-report.sh,bench_tables.awk} "$ROOT/LICENSE" "$to/"
cp "$ROOT"/bench/peers/*.py "$to/peers/"

mkdir -p "$(dirname "$file")"
tar -C "$work" -cf - tapegrad-gpu | xz -T0 --lzma2=preset=6,dict=64MiB >"$file.part"
mv "$file.part" "$file"
size=$(stat -c %s "$file")
say "$file: $((size / 1000000)) MB"
[ "$size" -le $most ] || die "That is more than $((most / 1000000)) MB."

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
need $BUILD_NEEDS $TEST_NEEDS g++:g++ xz:xz-utils
programs=(enwik8 tp-models tp-parity bench_ops bench_models)
# Those that need neither the source tree nor other programs.
tests=(test_capture test_cuda test_cuda_moves test_decode test_ls_attention test_models test_optim test_profile test_refs test_tape)
configure cuda -DTAPEGRAD_TESTS=ON -DTAPEGRAD_EXAMPLES=ON -DTAPEGRAD_BENCH=ON
build cuda "${programs[@]}" "${tests[@]}" >&2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
to=$work/tapegrad-gpu
mkdir -p "$to"/{bin,lib,libexec,peers}

# The libraries of a program, with the loader, but for those of the driver and of CUDA.
libraries() { ldd "$1" | awk '$2 == "=>" { print $3 } $1 ~ /^\// { print $1 }'; }

for name in "${programs[@]}" "${tests[@]}"; do
    cp "$ROOT/build/cuda/bin/$name" "$to/libexec/"
    strip "$to/libexec/$name"
    libraries "$to/libexec/$name"
done | sort -u | xargs -I{} cp -L {} "$to/lib/"
cp "$ROOT"/scripts/{gpu-report.sh,bench_tables.awk} "$ROOT/LICENSE" "$to/"
cp "$ROOT"/bench/peers/*.py "$to/peers/"

# A program runs with the loader and the libraries that came with it; CUDA's are looked for as ever.
for name in "${programs[@]}" "${tests[@]}"; do
    cat >"$to/bin/$name" <<'EOF'
#!/bin/sh
here=$(cd "$(dirname "$0")/.." && pwd)
exec "$here/lib/ld-linux-x86-64.so.2" --library-path "$here/lib:$LD_LIBRARY_PATH" "$here/libexec/$(basename "$0")" "$@"
EOF
    chmod +x "$to/bin/$name"
done

mkdir -p "$(dirname "$file")"
tar -C "$work" -cf - tapegrad-gpu | xz -T0 --lzma2=preset=6,dict=64MiB >"$file.part"
mv "$file.part" "$file"
size=$(stat -c %s "$file")
say "$file: $((size / 1000000)) MB"
[ "$size" -le $most ] || die "That is more than $((most / 1000000)) MB."

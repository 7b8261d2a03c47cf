#!/usr/bin/env bash
# pack.sh - makes an archive that checks and measures tapegrad on another machine's NVIDIA GPU. It
# contains programs, tests (those with the CTest label `device` that need only a GPU), their data,
# benchmarks and all libraries they need except CUDA's, so that it runs on any x86-64 Linux with an
# NVIDIA driver and cuBLAS (from a toolkit or PyTorch's wheels). It includes the C library for
# machines with an older one.
#
#   scripts/pack.sh [--check] [FILE]    default: build/tapegrad-gpu.tar.xz
#   --check    also unpacks it elsewhere and runs its tests on the CPU, with only its own libraries
#
# A shared library has the kernels for all architectures of the build (cmake/cuda.cmake), once for
# all programs.
#
# On the other machine: tar xf tapegrad-gpu.tar.xz, or, without xz, python3 -m tarfile -e
# tapegrad-gpu.tar.xz; then tapegrad-gpu/gpu-report.sh, whose --help has a plan for a quarter of an
# hour.
source "$(dirname "$0")/setup.sh"
case ${1:-} in
-h | --help)
    manual "$0"
    exit 0
    ;;
esac
check=""
if [ "${1:-}" = --check ]; then
    check=yes
    shift
fi
most=$((40 * 1000 * 1000)) # bytes of the archive: far above what ops add, below what a mistake adds
file=${1:-$ROOT/build/tapegrad-gpu.tar.xz}
[[ $file == /* ]] || file=$PWD/$file

CUDACXX=$(find_nvcc) || die "nvcc is not installed, so there are no kernels to pack."
export CUDACXX
need $BUILD_NEEDS $TEST_NEEDS g++:g++ xz:xz-utils patchelf:patchelf
configure cuda -DBUILD_SHARED_LIBS=ON -DTAPEGRAD_TESTS=ON -DTAPEGRAD_EXAMPLES=ON -DTAPEGRAD_BENCH=ON
programs=(enwik8 tp-models tp-parity bench_ops bench_models)
mapfile -t tests < <(gpu_tests cuda)
[ ${#tests[@]} -gt 0 ] || die "CTest lists no tests with the label device."
build cuda "${programs[@]}" "${tests[@]}" >&2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
to=$work/tapegrad-gpu
mkdir -p "$to"/{bin,lib,libc,peers}

# patchelf is included because gpu-report.sh may have to make the programs use the archive's C
# library.
cp "$(command -v patchelf)" "$to/bin/"
for name in "${programs[@]}" "${tests[@]}"; do
    strip -o "$to/bin/$name" "$ROOT/build/cuda/bin/$name"
done
printf '%s\n' "${tests[@]}" >"$to/tests.txt"

# All libraries of the programs, and the loader. The driver and cuBLAS also need libdl, libpthread
# and librt, which are empty today, so an archive with its own C library must have them.
loader=$(patchelf --print-interpreter "$to/bin/patchelf")
for name in "$to"/bin/*; do
    ldd "$name" | awk '$2 == "=>" { print $3 } $1 ~ /^\// { print $1 }'
done | sort -u >"$work/libraries"
libc=$(dirname "$(grep '/libc\.so\.6$' "$work/libraries")")
ls "$libc"/lib{dl.so.2,pthread.so.0,rt.so.1} >>"$work/libraries"
while read -r path; do
    case ${path##*/} in
    libicudata.so.*)
        # A stub in place of 31 MB of tables, which only libarchive's xar reader needs, through
        # libxml2.
        printf 'const char icudt%s_dat[64] = {0};\n' "${path##*.so.}" |
            cc -shared -fPIC -x c - -Wl,-soname,"${path##*/}" -o "$to/lib/${path##*/}"
        ;;
    libtapegrad*)
        strip -o "$to/lib/${path##*/}" "$path"
        patchelf --force-rpath --set-rpath '$ORIGIN' "$to/lib/${path##*/}"
        ;;
    ld-linux* | lib[cm].so.6 | libdl.so.* | libpthread.so.* | librt.so.* | libresolv.so.* | \
        libmvec.so.*)
        cp -L "$path" "$to/libc/"
        ;;
    *) cp -L "$path" "$to/lib/" ;;
    esac
done < <(sort -u "$work/libraries")
[ -e "$to/libc/${loader##*/}" ] || die "The loader $loader was not found among the libraries."
for name in "${programs[@]}" "${tests[@]}"; do
    patchelf --force-rpath --set-rpath '$ORIGIN/../lib' "$to/bin/$name"
done

cp "$ROOT"/scripts/{gpu-report.sh,setup.sh,bench_tables.awk,gpu_targets.awk} "$ROOT/LICENSE" "$to/"
cp "$ROOT"/bench/peers/*.py "$to/peers/"
cp -r "$ROOT/tests/fixtures" "$to/"

mkdir -p "$(dirname "$file")"
tar -C "$work" -cf - tapegrad-gpu | xz -T0 --x86 --lzma2=preset=6 >"$file.part"
mv "$file.part" "$file"
size=$(stat -c %s "$file")
say "$file: $((size / 1000000)) MB. Unpack it with tar xf or, without xz, with" \
    "python3 -m tarfile -e."
[ "$size" -le $most ] || die "$file is larger than the limit of $((most / 1000000)) MB."

if [ "$check" ]; then
    mkdir "$work/elsewhere"
    tar -C "$work/elsewhere" -xf "$file"
    rm -r "$to"
    "$work/elsewhere/tapegrad-gpu/gpu-report.sh" --only cpu --out "$work/report" \
        >"$work/said" 2>&1 || {
        cat "$work/said" >&2
        die "The archive does not work."
    }
    sed -n '/^| test/,/^$/p' "$work/report/report.md"
fi

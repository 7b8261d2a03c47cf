#!/usr/bin/env bash
# check-compilers.sh - what the main build does not cover: clang, every public header alone as C17 and
# C++17, a cross compilation of the library for ARM64, and the parallel loop under ThreadSanitizer.
source "$(dirname "$0")/setup.sh"
need $BUILD_NEEDS $CLANG_NEEDS g++:g++ aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu
cd "$ROOT"
out=build/compilers
mkdir -p "$out"
warn="-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror"
# clang calls the { NULL } that ends a table an unfinished initialiser.
clang_warn="$warn -Wno-missing-field-initializers"
inner="-std=c17 -D_POSIX_C_SOURCE=200809L -DTP_NO_SITE -Iinclude -I."

for h in include/tapegrad/*.h; do
    name=$(basename "$h")
    echo "#include <tapegrad/$name>" | gcc -std=c17 $warn -Iinclude -fsyntax-only -x c - 
    echo "#include <tapegrad/$name>" | clang -std=c17 $warn -Iinclude -fsyntax-only -x c -
    echo "#include <tapegrad/$name>" | g++ -std=c++17 -Wall -Wextra -Werror -Iinclude -fsyntax-only -x c++ -
done
say "headers: each compiles alone, C17 (gcc, clang) and C++17"

# The library itself needs OpenBLAS's and jansson's headers only, which do not depend on the machine.
includes="$(pkg-config --cflags openblas jansson libarchive libjpeg libpng)"
for f in tensor/*.c tensor/cpu/*.c autograd/*.c autograd/ops/*.c nn/*.c train/*.c train/engine/*.c models/*.c data/*.c; do
    printf '%s\0' "$f"
done >"$out/sources"
mkdir -p "$out/cross"
cp /usr/include/jansson*.h /usr/include/*/jconfig.h "$out/cross/"
xargs -0 -a "$out/sources" -P "$(nproc)" -I{} sh -c \
    "aarch64-linux-gnu-gcc $inner -O2 -fopenmp -fopenmp-simd -DTP_ISA_DISPATCH $warn $includes -I$out/cross -c {} -o $out/cross/\$(basename {}).o"
say "aarch64: the library compiles"
xargs -0 -a "$out/sources" -P "$(nproc)" -I{} sh -c \
    "clang $inner -O1 -fopenmp-simd -DTP_ISA_DISPATCH $clang_warn $includes -fsyntax-only {}"
say "clang: the library compiles without warnings"

# LLVM's OpenMP tells ThreadSanitizer (through libarcher) what its barriers order; GCC's does not.
clang $inner -g -O1 -fsanitize=thread -fopenmp tests/tsan_parallel.c tensor/parallel.c tensor/device.c tensor/dry.c tensor/profile.c \
    tensor/alloc.c tensor/error.c tensor/shape.c tensor/cpu/blas.c -o "$out/tsan_parallel" \
    $(pkg-config --cflags --libs openblas) -lpthread -lm
TSAN_OPTIONS="halt_on_error=1 ignore_noninstrumented_modules=1" "$out/tsan_parallel"
say "ThreadSanitizer: the parallel loop is clean"

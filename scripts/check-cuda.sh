#!/usr/bin/env bash
# check-cuda.sh - what can be known of the CUDA build on a machine without a GPU: nvcc compiles and links
# everything without warnings, the programs need no library of CUDA to start, run on the CPU, and say
# in one sentence that there is no driver; no attention kernel spills. Without nvcc: says so, and
# checks nothing. CUDAARCHS=90 compiles for that architecture alone.
source "$(dirname "$0")/setup.sh"
nvcc=$(find_nvcc) || {
    say "nvcc is not installed: the CUDA build is not checked."
    exit 0
}
need $BUILD_NEEDS $TEST_NEEDS g++:g++
export CUDACXX=$nvcc
configure cuda -DBUILD_SHARED_LIBS=OFF -DTAPEGRAD_WERROR=ON -DTAPEGRAD_TESTS=ON -DTAPEGRAD_EXAMPLES=ON -DTAPEGRAD_BENCH=ON
build cuda
bin=$ROOT/build/cuda/bin

! ldd "$bin/enwik8" | grep -E 'lib(cuda|cublas|nv)' || die "enwik8 needs these libraries to start; load them when a device opens."
ctest --test-dir build/cuda --output-on-failure --no-tests=error -R '^test_(errors|gemm|optim|tape|models.*)$'

if ! command -v nvidia-smi >/dev/null; then
    said=$("$bin/enwik8" train --data "$ROOT/README.md" --device cuda 2>&1) && die "enwik8 trains without a GPU."
    [ "$said" = "enwik8 train: device cuda:0: this machine has no NVIDIA driver (libcuda.so.1); use cpu" ] || die "enwik8 --device cuda says: $said"
fi
scripts/kernel-report.sh ${CUDAARCHS:+--newest}

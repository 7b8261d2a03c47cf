#!/usr/bin/env bash
# check-cuda.sh - checks the CUDA build on a machine without a GPU: kernels, library, programs and
# some tests compile and link without warnings; they start without CUDA libraries, run on the CPU,
# and report a missing driver in one sentence; no attention kernel spills. Checks nothing if nvcc is
# not installed. CUDAARCHS=90-virtual compiles for that architecture only, without assembling.
source "$(dirname "$0")/setup.sh"
nvcc=$(find_nvcc) || {
    say "nvcc is not installed, so the CUDA build was not checked."
    exit 0
}
need $BUILD_NEEDS $TEST_NEEDS g++:g++
export CUDACXX=$nvcc
configure cuda -DBUILD_SHARED_LIBS=ON -DTAPEGRAD_WERROR=ON -DTAPEGRAD_TESTS=ON \
    -DTAPEGRAD_EXAMPLES=ON -DTAPEGRAD_BENCH=ON
tests="test_errors test_optim test_tape $(cd tests/models && echo test_models*.c)"
tests=${tests//.c/}
build cuda tapegrad enwik8 gpt imagenet imdb lra coco bench_ops bench_models $tests
bin=$ROOT/build/cuda/bin

! ldd "$bin/enwik8" | grep -E 'lib(cuda|cublas|nv)' ||
    die "enwik8 links these libraries; load them when a device opens instead."
ctest --test-dir build/cuda --output-on-failure --no-tests=error \
    -R "^(${tests// /|})\$"

if ! command -v nvidia-smi >/dev/null; then
    why="device cuda:0: this machine has no NVIDIA driver (libcuda.so.1); use cpu"
    said=$("$bin/enwik8" train --data "$ROOT/README.md" --device cuda 2>&1) &&
        die "enwik8 --device cuda trains without a GPU."
    [ "$said" = "enwik8 train: $why" ] || die "enwik8 --device cuda prints: $said"
fi
scripts/kernel-report.sh ${CUDAARCHS:+--newest}

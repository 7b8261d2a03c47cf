#!/usr/bin/env bash
# test.sh - builds everything and runs the test suite.
#
#   scripts/test.sh                 release build
#   scripts/test.sh --sanitize      with AddressSanitizer and UndefinedBehaviorSanitizer
#   scripts/test.sh --clang         release build with the newest clang of Debian 12
#   scripts/test.sh --threads       the multithreaded tests (label `threads`) with ThreadSanitizer (clang)
#   scripts/test.sh --device cuda   the tests for any device (label `device`) on CUDA: on the GPU if there
#                                   is one, else on its emulation
#   scripts/test.sh --races         the same on the emulation, which also detects races of kernels
#   scripts/test.sh -R NAME         other arguments go to ctest: here, run only matching tests
source "$(dirname "$0")/setup.sh"

preset=release
device=cpu
args=()
while [ $# -gt 0 ]; do
    case $1 in
    --sanitize) preset=asan ;;
    --clang) preset=clang ;;
    --threads)
        preset=tsan
        args+=(-L threads)
        ;;
    --device)
        [ $# -gt 1 ] || die "--device needs a value: cpu or cuda"
        device=$2
        shift
        ;;
    --races)
        preset=emulate-race
        device=cuda
        ;;
    -h | --help)
        manual "$0"
        exit 0
        ;;
    *) args+=("$1") ;;
    esac
    shift
done
case $device in
cpu) ;;
cuda)
    if [ $preset = emulate-race ]; then
        :
    elif command -v nvidia-smi >/dev/null 2>&1; then
        preset=cuda
    else
        [ $preset = asan ] && preset=emulate-asan || preset=emulate
    fi
    export TAPEGRAD_DEVICE=cuda
    args+=(-L device)
    ;;
*) die "There is no device '$device'; use --device cpu or cuda." ;;
esac

need $BUILD_NEEDS $TEST_NEEDS $PLOT_NEEDS
case $preset in clang | tsan) need $CLANG_NEEDS ;; esac
[ "$device" = cpu ] || need g++:g++ # kernels are C++
configure "$preset" -DTAPEGRAD_TESTS=ON
if [ "$device" = cuda ]; then
    build "$preset" device_tests
elif [ $preset = tsan ]; then
    build "$preset" thread_tests
else
    build "$preset"
fi
# Each program runs its tests in sequence; CTest runs programs in parallel, on a GPU only two.
[ $preset = cuda ] && jobs=2 || jobs=$(nproc)
ctest --test-dir "build/$preset" -j "$jobs" --output-on-failure --no-tests=error ${args[@]+"${args[@]}"}

#!/usr/bin/env bash
# test.sh - builds everything and runs the whole test suite.
#
#   scripts/test.sh                 Release build
#   scripts/test.sh --sanitize      AddressSanitizer and UndefinedBehaviorSanitizer
#   scripts/test.sh --device cuda   the tests that run on any device (tests/CMakeLists.txt lists them) on
#                                   CUDA: on the card if there is one, else on its emulation
#   scripts/test.sh -R NAME         further arguments go to ctest: here, only matching tests
source "$(dirname "$0")/setup.sh"

preset=release
device=cpu
args=()
while [ $# -gt 0 ]; do
    case $1 in
    --sanitize) preset=asan ;;
    --device)
        [ $# -gt 1 ] || die "--device needs a value: cpu or cuda"
        device=$2
        shift
        ;;
    -h | --help)
        sed -n '2,9s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    *) args+=("$1") ;;
    esac
    shift
done
case $device in
cpu) ;;
cuda)
    if command -v nvidia-smi >/dev/null 2>&1; then
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
[ "$device" = cpu ] || need g++:g++ # kernels are C++
configure "$preset" -DTAPEGRAD_TESTS=ON
if [ "$device" = cpu ]; then
    build "$preset"
else
    build "$preset" device_tests
fi
# Each program runs its tests one after another, CTest the programs side by side; on a card two.
[ $preset = cuda ] && jobs=2 || jobs=$(nproc)
ctest --test-dir "build/$preset" -j "$jobs" --output-on-failure --no-tests=error ${args[@]+"${args[@]}"}

#!/usr/bin/env bash
# test.sh - builds everything and runs the whole test suite.
#
#   scripts/test.sh                 Release build
#   scripts/test.sh --sanitize      AddressSanitizer and UndefinedBehaviorSanitizer
#   scripts/test.sh --device cpu    the device that the tests run on (cuda where a build has it)
#   scripts/test.sh -R NAME         further arguments go to ctest: here, only matching tests
source "$(dirname "$0")/setup.sh"

preset=release
device=cpu
args=()
while [ $# -gt 0 ]; do
    case $1 in
    --sanitize) preset=asan ;;
    --device)
        [ $# -gt 1 ] || die "--device needs a value: cpu"
        device=$2
        shift
        ;;
    -h | --help)
        sed -n '2,8s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    *) args+=("$1") ;;
    esac
    shift
done
[ "$device" = cpu ] || die "This build of tapegrad has no device '$device'; use --device cpu."

need $BUILD_NEEDS $TEST_NEEDS $PLOT_NEEDS
configure "$preset" -DTAPEGRAD_TESTS=ON
build "$preset"
# Test programs start two jobs of their own, so CTest runs them one after another.
ctest --test-dir "build/$preset" --output-on-failure --no-tests=error ${args[@]+"${args[@]}"}

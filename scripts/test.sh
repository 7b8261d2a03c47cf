#!/usr/bin/env bash
# test.sh - builds the tests and runs them.
#
#   scripts/test.sh                 what a user wants to know, in a few minutes: ops, gradients,
#                                   models, files, one run of each program, on this processor
#   scripts/test.sh --all           everything, for all instruction sets: also every fault, signal
#                                   and lack of memory, the guides, installed copies
#   scripts/test.sh --sanitize      all but the label `plain` (tests/CMakeLists.txt), with
#                                   AddressSanitizer and UndefinedBehaviorSanitizer
#   scripts/test.sh --clang         tests of ops (label `ops`), built with the newest clang of
#                                   Debian 12
#   scripts/test.sh --threads       the multithreaded tests (label `threads`) with ThreadSanitizer
#   scripts/test.sh --device cuda   the tests for any device (label `device`) on CUDA: on the GPU if
#                                   there is one, else on its emulation
#   scripts/test.sh --races         the same on the emulation, which also detects races of kernels
#   scripts/test.sh -R NAME         other arguments go to ctest: here, run only matching tests
#
# A failed test prints its output. The last line has the counts and the time.
source "$(dirname "$0")/setup.sh"

preset=release
device=cpu
targets=(quick_tests)
args=(-LE thorough)
quick=yes
everything() { targets=() args=(-LE "^quick\$${1:-}") quick=; } # quick ones are parts of others
selected=()
while [ $# -gt 0 ]; do
    case $1 in
    --all) everything ;;
    --sanitize)
        preset=asan
        everything '|^plain$'
        ;;
    --clang)
        preset=clang
        targets=(ops_tests) args=(-L '^ops$') quick=
        ;;
    --threads)
        preset=tsan
        targets=(thread_tests) args=(-L threads) quick=
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
    *) selected+=("$1") ;;
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
    targets=(device_tests) args=(-L device) quick=
    ;;
*) die "There is no device '$device'; use --device cpu or cuda." ;;
esac

need $BUILD_NEEDS $TEST_NEEDS $PLOT_NEEDS
case $preset in clang | tsan) need $CLANG_NEEDS ;; esac
[ "$device" = cpu ] || need g++:g++ # kernels are C++
# Only --all tests the kernels of all instruction sets, others those of this processor. The quick
# check takes what an existing folder has.
isa=native
[ $preset != release ] || [ -n "$quick" ] || isa=all
options=(-DTAPEGRAD_TESTS=ON "-DTAPEGRAD_ISA=$isa")
[ -z "$quick" ] || ! configured release || options=(-DTAPEGRAD_TESTS=ON)
if [ ${#selected[@]} != 0 ] && [ "${targets[*]-}" = quick_tests ]; then
    targets=() args=() # a named test may be any
fi
configure "$preset" "${options[@]}"
if [ "$device" = cuda ] && [ ${#selected[@]} != 0 ]; then # tests for any device are targets
    mapfile -t targets < <(ctest --test-dir "build/$preset" -N "${args[@]}" "${selected[@]}" |
        sed -n 's/^ *Test *#[0-9]*: //p')
fi
build "$preset" ${targets[@]+"${targets[@]}"}
built=$SECONDS

temporary_in_memory
# Each program runs its tests in sequence; CTest runs programs in parallel, on a GPU only two.
[ $preset = cuda ] && jobs=2 || jobs=$(nproc)
log=build/$preset/tests.log
failed=0
ctest --test-dir "build/$preset" -j "$jobs" --output-on-failure --no-tests=error \
    ${args[@]+"${args[@]}"} ${selected[@]+"${selected[@]}"} 2>&1 | tee "$log" || failed=1
spent() { printf '%d:%02d min' $(($1 / 60)) $(($1 % 60)); }
sed -n 's/^\([0-9]*\)% tests passed, \([0-9]*\) tests failed out of \([0-9]*\)$/\2 \3/p' "$log" | {
    read -r wrong total || exit 0
    printf '%s of %s tests passed: %s to build, %s to run.' $((total - wrong)) "$total" \
        "$(spent $built)" "$(spent $((SECONDS - built)))"
    [ -z "$quick" ] || printf ' scripts/test.sh --all runs everything.'
    echo
}
exit $failed

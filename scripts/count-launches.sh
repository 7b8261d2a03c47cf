#!/usr/bin/env bash
# count-launches.sh - counts, without a GPU, what a training step of a model does on one: kernels,
# products, copies, bytes uploaded, allocations. The emulation of CUDA counts and executes nothing,
# so models may have their real sizes.
#
#   scripts/count-launches.sh                   the models that have a budget, a line each
#   scripts/count-launches.sh --kernels yes     also their kernels, by op
#   scripts/count-launches.sh --ops yes         also their ops
#   scripts/count-launches.sh --model vil-small --batch 8      any model that tp-models lists
#   scripts/count-launches.sh --model ls_lm-tiny --graph yes   the launch of a recorded step
#   scripts/count-launches.sh --attention yes   the attention kernels of models, in bf16
#   scripts/count-launches.sh --check yes       fails if a model exceeds its budget, or if its
#                                               attention falls back to a kernel without tensor
#                                               cores: the test count_launches
#   scripts/count-launches.sh --write yes       writes tests/cuda_emulation/budgets.txt and
#                                               fallbacks.txt as things are now
source "$(dirname "$0")/setup.sh"
case ${1:-} in
-h | --help)
    manual "$0"
    exit 0
    ;;
esac
need $BUILD_NEEDS $TEST_NEEDS g++:g++
# An existing build folder keeps its instruction sets.
configured emulate && isa= || isa=-DTAPEGRAD_ISA=native
configure emulate -DTAPEGRAD_TESTS=ON ${isa:+"$isa"}
build emulate count_launches >&2
exec build/emulate/bin/count_launches "$@"

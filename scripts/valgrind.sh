#!/usr/bin/env bash
# valgrind.sh - a few steps of training, an evaluation and a generation of enwik8 under memcheck: no
# read of unset memory, no read or write out of bounds, no leak. Half a minute.
#
# Nothing is suppressed. What is only "possibly lost", the stacks of OpenMP's threads, does not count.
# Memcheck hides AVX-512 from programs, so the AVX2 kernels run.
source "$(dirname "$0")/setup.sh"

need $BUILD_NEEDS valgrind:valgrind
cd "$ROOT"
configured release || configure release
build release enwik8 >/dev/null
run=$(mktemp -d)
trap 'rm -rf "$run"' EXIT
export OMP_WAIT_POLICY=passive
head -c 6000 docs/design.md >"$run/text"

check() {
    valgrind --quiet --error-exitcode=99 --leak-check=full --show-leak-kinds=definite,indirect \
        --errors-for-leak-kinds=definite,indirect build/release/bin/enwik8 "$@" >"$run/out" 2>&1 || {
        cat "$run/out" >&2
        die "valgrind: enwik8 $1 is not clean"
    }
}

small="--data $run/text --threads 2 --layers 1 --dim 16 --hidden 16 --heads 2 --chunk 4 --window 8
    --tokens 16 --mem-len 16 --batch 2 --eval-tokens 50 --dropout 0.1 --ema 0.9 --clip 0.5"
check train $small --steps 2 --recompute block --run-dir "$run/a"
check train --resume --steps 3 --threads 2 --run-dir "$run/a"
check train $small --steps 2 --dtype bf16 --accumulation 2 --masked --run-dir "$run/b"
check train $small --steps 2 --model txl --d-head 8 --att-dropout 0.1 --run-dir "$run/c"
check eval --data "$run/text" --run-dir "$run/a" --threads 2 --protocol windows --context 32 --step 16 --limit 100
check generate --run-dir "$run/a" --threads 2 --prompt "the " --length 20 --top-k 5
say "valgrind: clean"

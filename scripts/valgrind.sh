#!/usr/bin/env bash
# valgrind.sh - runs a few training steps, a resumed run, an evaluation and a prediction of each
# kind of program under memcheck: no use of uninitialised memory, no access out of bounds, no leak.
# Takes a minute.
#
# There are no suppressions. Memcheck hides AVX-512 from programs, so the AVX2 kernels run.
source "$(dirname "$0")/setup.sh"

need $BUILD_NEEDS valgrind:valgrind
cd "$ROOT"
configure release -DTAPEGRAD_ISA=all
build release enwik8 gpt imagenet imdb lra coco tp-bpe first_text first_image >/dev/null
run=$(mktemp -d)
trap 'rm -rf "$run"' EXIT
head -c 6000 docs/design.md >"$run/text"
for n in {10..39}; do printf 'ends in %d\tnumber %d\n' $((n % 10)) "$n"; done >"$run/lines"

# Runs PROGRAM ARGUMENT... under memcheck.
check() {
    valgrind --quiet --error-exitcode=99 --leak-check=full --show-leak-kinds=definite,indirect \
        --errors-for-leak-kinds=definite,indirect "build/release/bin/$1" "${@:2}" \
        >"$run/$$" 2>&1 || {
        cat "$run/$$" >&2
        die "valgrind: $1 ${2:-} is not clean"
    }
}

check_enwik8() {
    local small="--data $run/text --threads 2 --layers 1 --dim 16 --hidden 16 --heads 2 --chunk 4
        --window 8 --tokens 16 --mem-len 16 --batch 2 --eval-tokens 50 --dropout 0.1 --ema 0.9
        --clip 0.5"
    check enwik8 train $small --steps 2 --recompute block --run-dir "$run/a"
    check enwik8 train --resume --steps 3 --threads 2 --run-dir "$run/a"
    check enwik8 train $small --steps 2 --dtype bf16 --accumulation 2 --masked --run-dir "$run/b"
    check enwik8 train $small --steps 2 --model txl --d-head 8 --att-dropout 0.1 --run-dir "$run/c"
    check enwik8 eval --data "$run/text" --run-dir "$run/a" --threads 2 --protocol windows \
        --context 32 --step 16 --limit 100
    check enwik8 generate --run-dir "$run/a" --threads 2 --prompt "the " --length 20 --top-k 5
    check enwik8 scale --dry --preset tiny --lengths 64,128 --batches 1 --threads 2
    check enwik8 norms --fresh --preset ls_lm-tiny --set mem_len=64 --segments 1 --threads 2
}

check_gpt() {
    local gpt="--data $run/text --tokens 16 --batch 2 --steps 2 --schedule constant --threads 2
        --run-dir $run/q"
    check gpt train $gpt --set n_layer=1,n_embd=16,n_inner=16,n_head=2 --dropout 0.1
    check gpt train --resume --steps 3 --threads 2 --run-dir "$run/q"
    check gpt eval --data "$run/text" --run-dir "$run/q" --threads 2
    check gpt generate --run-dir "$run/q" --threads 2 --prompt "the " --length 40 --top-k 5
    check gpt train $gpt --model llama-mini --set num_hidden_layers=1 --dtype bf16 --overwrite
}

check_imagenet() {
    check imagenet train --shapes 20 --batch 2 --steps 2 --ema 0.9 --threads 2 --run-dir "$run/d"
    check imagenet train --resume --steps 3 --threads 2 --run-dir "$run/d"
    check imagenet eval --shapes 10 --run-dir "$run/d" --threads 2
}

check_lra() {
    local lra="--examples 8 --valid-examples 5 --test-examples 5 --shortest 5 --longest 30
        --length 32 --layers 2 --dim 16 --hidden 16 --rank 4 --batch 4 --threads 2 --dropout 0.1
        --run-dir $run/g" attention
    check lra train $lra --attention ls --bucket 2 --steps 2
    check lra train --resume --threads 2 --run-dir "$run/g"
    check lra eval --run-dir "$run/g" --threads 2
    for attention in performer nystrom reformer linformer; do
        check lra train $lra --attention $attention --steps 1 --overwrite
    done
    check lra scale --dry --lengths 64,128 --attentions softmax,ls --threads 2
}

check_imdb() {
    mkdir -p "$run/texts/a" "$run/texts/b"
    local i
    for i in 1 2 3 4 5 6; do
        echo "a dull film, no. $i" >"$run/texts/a/$i.txt"
        echo "a fine film, no. $i" >"$run/texts/b/$i.txt"
    done
    build/release/bin/tp-bpe train "$run"/texts/*/*.txt --size 270 --output "$run/words" >/dev/null
    local imdb="--tokenizer $run/words --layers 1 --dim 16 --heads 2 --hidden 16 --length 16
        --batch 2 --steps 2 --threads 2"
    check imdb pretrain --data "$run/texts" $imdb --preset roberta_ls-mini --window 4 --rank 2 \
        --held-out 0.2 --run-dir "$run/h"
    check imdb train --data "$run/texts" $imdb --init "$run/h/best.safetensors" --run-dir "$run/i"
    check imdb train --resume --threads 2 --run-dir "$run/i"
    check imdb eval --data "$run/texts" --part train --run-dir "$run/i" --threads 2
    check imdb predict "$run/texts/a" --explain --run-dir "$run/i" --threads 2
    check imdb convert "$run/h/best.safetensors" "$run/long.safetensors" --preset longformer-mini \
        --length 32 --window 8
}

# Mask R-CNN takes minutes here; the sanitizers run it.
check_coco() {
    check coco train --preset retinanet-resnet-mini --scenes 2 --valid-scenes 1 --scene-size 64 \
        --sizes 64 --size 64 --longest 64 --batch 1 --warmup 1 --steps 1 --threads 2 \
        --run-dir "$run/j"
    check coco predict --run-dir "$run/j" --threads 2 --limit 1 --score 0.1 --truth \
        --sheet "$run/sheet.png"
}

check_first() {
    check first_image --size 8 --batch 2 --steps 2 --threads 2 --run-dir "$run/e"
    check first_image --resume --steps 3 --threads 2 --run-dir "$run/e"
    check first_text --data "$run/lines" --batch 2 --steps 2 --threads 2 --run-dir "$run/f"
    check first_text --resume --steps 3 --threads 2 --run-dir "$run/f"
}

# Valgrind runs the threads of a program in turns, so programs run side by side.
export -f say die check $(compgen -A function check_)
export run
printf 'check_%s\n' enwik8 imdb lra gpt imagenet coco first |
    xargs -P "$(nproc)" -I{} bash -euo pipefail -c '{}' || exit 1
say "valgrind: clean"

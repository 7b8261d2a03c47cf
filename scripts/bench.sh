#!/usr/bin/env bash
# bench.sh - compares training steps, single ops and image loading with PyTorch, and prints tables.
#
#   scripts/bench.sh                  Transformer-LS small, 2048 tokens after 2048 cached; minutes
#   scripts/bench.sh --quick          512 tokens after 512, few repetitions; half a minute
#   scripts/bench.sh --long           also 8192 after 8192, contexts up to 64K, and decoding; the
#                                     encoders of the Long Range Arena at 4096 tokens beside
#                                     PyTorch, alone at 1K to 64K; published image models beside
#                                     torchvision and timm, text models beside transformers; without
#                                     tables, detectors beside torchvision and data of text models
#   scripts/bench.sh --threads N      CPU threads (default: all cores)
#   scripts/bench.sh --rounds N       rounds (default: 3, with --quick 1)
#   scripts/bench.sh --python PATH    the Python with the PyTorch to compare with (default python3)
#   scripts/bench.sh --install-torch  installs PyTorch into build/bench-venv and uses it
#
# tapegrad and PyTorch take turns in the same run; a figure is the median over the rounds. The JSON
# lines are kept in build/bench/. Without PyTorch only tapegrad's figures are printed.
source "$(dirname "$0")/setup.sh"

mode=normal
threads=$(nproc)
rounds=""
python=""
while [ $# -gt 0 ]; do
    case $1 in
    --quick | --long) mode=${1#--} ;;
    --threads | --python | --rounds)
        [ $# -gt 1 ] || die "$1 needs a value; see scripts/bench.sh --help"
        case $1 in
        --threads) threads=$2 ;;
        --rounds) rounds=$2 ;;
        --python)
            python=$(command -v "$2") ||
                die "There is no program $2; give the path of a Python with PyTorch."
            [[ $python == /* ]] || python=$PWD/$python
            ;;
        esac
        shift
        ;;
    --install-torch) python=install ;;
    -h | --help)
        manual "$0"
        exit 0
        ;;
    *) die "Unknown argument $1; see scripts/bench.sh --help" ;;
    esac
    shift
done

[[ ${rounds:-1} =~ ^[1-9][0-9]*$ ]] || die "--rounds $rounds: must be a whole number of at least 1"

need $BUILD_NEEDS
cd "$ROOT"
configure release -DTAPEGRAD_BENCH=ON
build release bench_ops bench_models bench_data >&2
[ $mode != long ] || build release bench_detectors bench_texts tp-bpe >&2
bin=build/release/bin

venv=build/bench-venv
if [ "$python" = install ]; then
    [ -x $venv/bin/pip ] || python3 -m venv $venv ||
        die "No environment could be created in $venv; apt-get install python3-venv, or give" \
            "--python PATH."
    $venv/bin/pip install -q torch numpy >&2 ||
        die "PyTorch could not be installed into $venv; see the lines above."
    python=$venv/bin/python
elif [ -z "$python" ]; then
    python=python3
    [ -x $venv/bin/python ] && python=$venv/bin/python
fi
peer=yes
"$python" -c 'import torch' 2>/dev/null || {
    peer=no
    say "$python has no PyTorch, so only tapegrad is measured. Give --python PATH, or run" \
        "scripts/bench.sh --install-torch once."
}

case $mode in
quick) tokens=512 rounds=${rounds:-1} steps=1 seconds=0.05 images=128 ;;
*) tokens=2048 rounds=${rounds:-3} steps=3 seconds=0.5 images=1024 ;;
esac

out=build/bench/$(date +%Y%m%d-%H%M%S).jsonl
mkdir -p build/bench
: >"$out"

# The number and threads of training steps, for our programs and the peers.
with=(--steps "$steps" --threads "$threads")

# A round of training steps of `small` with $1 tokens after $1 cached ones.
steps_of() {
    local recompute
    for recompute in none attention block; do
        $bin/bench_models --tokens "$1" "${with[@]}" --recompute $recompute
        if [ $peer = yes ] && [ $recompute = none ]; then
            "$python" bench/peers/ls_lm_pytorch.py --bench --tokens "$1" "${with[@]}"
        fi
    done >>"$out"
}

# A round of training steps of the image models and of image loading.
images_of() {
    local -A batch=([vil-tiny]=8 [cvt-ls-13]=4 [vit_lsla]=4)
    local model script
    for model in vil-tiny cvt-ls-13 vit_lsla; do
        script="images_pytorch.py --bench $model"
        [ $model = vit_lsla ] && script="vit_lsla_pytorch.py --bench"
        $bin/bench_models --model $model --batch ${batch[$model]} "${with[@]}"
        if [ $peer = yes ]; then
            "$python" bench/peers/$script --batch ${batch[$model]} "${with[@]}"
        fi
    done >>"$out"
    $bin/bench_data --folder build/bench/images --images $images >>"$out"
    if "$python" -c 'import torchvision' 2>/dev/null; then
        "$python" bench/peers/data_pytorch.py --folder build/bench/images --images $images >>"$out"
    fi
}

# Training steps of the encoders of the Long Range Arena: beside PyTorch, eager and compiled, in f32
# and bf16.
encoders="ls ls-best dp ls-linformer softmax linformer performer nystrom nystrom-conv reformer"
encoders="$encoders linear"
encoders_of() {
    local name dtype compile
    for name in $encoders; do
        $bin/bench_models --model lra-text-$name --tokens "$1" --batch 4 "${with[@]}"
        [ $peer = yes ] || continue
        for dtype in f32 bf16; do
            for compile in "" --compile; do
                "$python" bench/peers/lra_pytorch.py --bench lra-text-$name --tokens "$1" \
                    "${with[@]}" --dtype $dtype $compile
            done
        done
    done >>"$out"
}

# Training steps of published image models: beside PyTorch, eager and compiled, in both layouts.
baselines_of() {
    local model compile layout
    for model in resnet50 deit-s swin-t pvt2-b1 cswin-t coat-lite-small mpvit-xs; do
        $bin/bench_models --model $model --batch 4 "${with[@]}"
        [ $peer = yes ] || continue
        for compile in "" --compile; do
            for layout in "" --channels-last; do
                "$python" bench/peers/baselines_pytorch.py --bench $model --batch 4 "${with[@]}" \
                    $compile $layout
            done
        done
    done >>"$out"
}

# Training steps of the text models, as classifiers and with masked tokens: beside transformers,
# eager and compiled.
texts_of() {
    local name shape dtype compile
    for name in {roberta,longformer,roberta_ls}-base{,-mlm}; do
        shape="--tokens 2048 --batch 2"
        [[ $name = roberta-* ]] && shape="--tokens 512 --batch 8"
        for dtype in f32 bf16; do
            $bin/bench_models --model $name $shape "${with[@]}" --dtype $dtype
            if [[ $peer = no || $name = roberta_ls* ]]; then continue; fi
            for compile in "" --compile; do
                "$python" bench/peers/roberta_transformers.py --bench $name $shape "${with[@]}" \
                    --dtype $dtype $compile
            done
        done
    done >>"$out"
}

# Training steps and inference of detectors: beside torchvision, in both dtypes and layouts. A peer
# that takes more than 20 minutes, as a compiled one may, is stopped.
detectors_of() {
    local model dtype compile layout
    for model in retinanet mask-rcnn; do
        for dtype in f32 bf16; do
            $bin/bench_detectors --preset $model-resnet50 --dtype $dtype "${with[@]}"
            [ $peer = yes ] || continue
            for compile in "" --compile; do
                for layout in "" --channels-last; do
                    timeout 1200 "$python" bench/peers/detectors_torchvision.py --model $model \
                        --dtype $dtype "${with[@]}" $compile $layout ||
                        say "No figures of torchvision's $model in" \
                            "$dtype${compile:+, compiled}${layout:+, channels last}"
                done
            done
        done
    done >>"$out"
}

# Tokens and masked batches of 20 copies of our documents, with a vocabulary learnt from them,
# beside transformers.
data_of_texts() {
    local folder=build/bench/texts
    mkdir -p $folder
    for ((copy = 0; copy < 20; copy++)); do cat docs/*.md README.md; done >$folder/text.txt
    [ -e $folder/words/vocab.json ] ||
        $bin/tp-bpe train docs/*.md README.md --size 4000 --output $folder/words >&2
    $bin/bench_texts $folder/text.txt --vocab $folder/words >>"$out"
    if [ $peer = yes ] && "$python" -c 'import transformers' 2>/dev/null; then
        "$python" bench/peers/mlm_transformers.py $folder/words >>"$out"
    fi
}

# Time and memory of a step by length, one line each. Full attention stops at 16K.
lengths_of() {
    local name tokens
    for tokens in 1024 2048 4096 8192 16384 32768 65536; do
        for name in $encoders; do
            [ $name = softmax ] && [ $tokens -gt 16384 ] && continue
            $bin/bench_models --model lra-text-$name --tokens $tokens --batch 1 --steps 1 \
                --threads "$threads"
        done
    done >>"$out"
}

for ((round = 0; round < rounds; round++)); do
    say "round $((round + 1)) of $rounds"
    steps_of $tokens
    images_of
    $bin/bench_ops --threads "$threads" --seconds $seconds >>"$out"
    if [ $peer = yes ]; then
        "$python" bench/peers/ops_pytorch.py --threads "$threads" --seconds $seconds >>"$out"
    fi
done
if [ $mode = long ]; then
    say "long contexts"
    steps_of 8192
    $bin/bench_ops --threads "$threads" --filter tokens --long yes >>"$out"
    $bin/bench_models --threads "$threads" --generate yes >>"$out"
    say "encoders of the Long Range Arena"
    encoders_of 4096
    lengths_of
    if [ $peer = no ] || "$python" -c 'import torchvision, timm' 2>/dev/null; then
        say "published image models"
        baselines_of
    fi
    if [ $peer = no ] || "$python" -c 'import transformers' 2>/dev/null; then
        say "text models"
        texts_of
    fi
    if [ $peer = no ] || "$python" -c 'import torchvision' 2>/dev/null; then
        say "detectors"
        detectors_of
    fi
    say "data of text models"
    data_of_texts
fi

# The tables have one row per measurement, with the medians over its lines.
awk -f "$ROOT/scripts/bench_tables.awk" "$out"
say ""
say "JSON lines: $out"

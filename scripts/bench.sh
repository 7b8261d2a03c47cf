#!/usr/bin/env bash
# bench.sh - compares training steps, single ops and image loading with PyTorch and JAX, and prints
# tables.
#
#   scripts/bench.sh                  Transformer-LS small, 2048 tokens after 2048 cached; minutes
#   scripts/bench.sh --quick          512 tokens after 512, few repetitions; half a minute
#   scripts/bench.sh --long           also 8192 after 8192, contexts up to 64K, and decoding; the
#                                     encoders of the Long Range Arena at 4096 tokens beside
#                                     PyTorch, alone at 1K to 64K; published image models beside
#                                     torchvision and timm (eager and compiled, both also with
#                                     --channels-last), text models beside transformers; without
#                                     tables, detectors beside torchvision and data of text models
#   scripts/bench.sh --headline       nine training steps beside PyTorch (eager, compiled; images
#                                     also eager with channels last) and JAX (jit); the table has
#                                     the ratio to the best
#   scripts/bench.sh --models NAMES   implies --headline: only the steps of these eight models, of
#                                     which gpt2 has two: resnet50,deit-s,roberta-base,gpt2,
#                                     ls_lm-small,cvt-ls-13,vit_lsla,vil-tiny
#   scripts/bench.sh --dtypes NAMES   of the headline steps: f32, bf16 or f32,bf16 (default: f32,
#                                     and bf16 if the processor has instructions for it)
#   scripts/bench.sh --minutes N      headline: after N minutes stops the running peer, and starts
#                                     no further step; our own steps run to their end
#   scripts/bench.sh --threads N      CPU threads (default: all cores)
#   scripts/bench.sh --rounds N       rounds (default: 3, with --quick and --headline 1)
#   scripts/bench.sh --python PATH    the Python with the peers to compare with (default python3)
#   scripts/bench.sh --install-peers  installs the peers into build/bench-venv and uses them
#
# tapegrad and its peers take turns in the same run; a figure is the median over the rounds. The
# JSON lines are kept in build/bench/, and so is what the peers compiled: the next run need not wait
# for it. Peers that are not installed are skipped with a line that says so.
source "$(dirname "$0")/setup.sh"

mode=normal
threads=$(nproc)
rounds=""
python=""
models="" # all
dtypes=""
minutes=""
while [ $# -gt 0 ]; do
    case $1 in
    --quick | --long | --headline) mode=${1#--} ;;
    --threads | --python | --rounds | --models | --dtypes | --minutes)
        [ $# -gt 1 ] || die "$1 needs a value; see scripts/bench.sh --help"
        case $1 in
        --models) mode=headline models=$2 ;;
        --dtypes) dtypes=$2 ;;
        --minutes) minutes=$2 ;;
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
    --install-peers) python=install ;;
    -h | --help)
        manual "$0"
        exit 0
        ;;
    *) die "Unknown argument $1; see scripts/bench.sh --help" ;;
    esac
    shift
done

for number in "--rounds $rounds" "--minutes $minutes"; do
    [[ $number =~ ^[a-z-]+\ ([1-9][0-9]*)?$ ]] ||
        die "$number: must be a whole number of at least 1"
done
[ $mode = headline ] || [ -z "$models$dtypes$minutes" ] ||
    die "--models, --dtypes and --minutes select headline steps: give --headline, and no other mode"
[[ $dtypes =~ ^((f32|bf16)(,(f32|bf16))?)?$ ]] ||
    die "--dtypes $dtypes: must be f32, bf16 or f32,bf16"
headline=(
    "resnet50 --batch 4"
    "deit-s --batch 4"
    "roberta-base --batch 2 --tokens 512"
    "gpt2 --batch 4 --tokens 64"
    "gpt2 --batch 1 --tokens 1024"
    "ls_lm-small --batch 1 --tokens 2048"
    "cvt-ls-13 --batch 4"
    "vit_lsla --batch 4"
    "vil-tiny --batch 8"
)
known=" $(printf '%s\n' "${headline[@]%% *}" | uniq | tr '\n' ' ')"
for name in ${models//,/ }; do
    [[ $known == *" $name "* ]] || die "--models $name: must be among$known"
done

need $BUILD_NEEDS
cd "$ROOT"
configure release -DTAPEGRAD_BENCH=ON
build release bench_models >&2
[ $mode = headline ] || build release bench_ops bench_data >&2
[ $mode != long ] || build release bench_detectors bench_texts tp-bpe >&2
bin=build/release/bin

venv=build/bench-venv
if [ "$python" = install ]; then
    [ -x $venv/bin/pip ] || python3 -m venv $venv ||
        die "No environment could be created in $venv; apt-get install python3-venv, or give" \
            "--python PATH."
    $venv/bin/pip install -q torch torchvision timm transformers jax numpy >&2 ||
        die "The peers could not be installed into $venv; see the lines above."
    python=$venv/bin/python
elif [ -z "$python" ]; then
    python=python3
    [ -x $venv/bin/python ] && python=$venv/bin/python
fi
packages="torch torchvision timm transformers jax"
absent=$("$python" -c 'import importlib.util as u, sys
print(*(name for name in sys.argv[1:] if not u.find_spec(name)))' $packages 2>/dev/null) ||
    absent=$packages
has() { [[ " $absent " != *" $1 "* ]]; }
[ -z "$absent" ] || say "Skipped, because $python does not have them: $absent. Give --python" \
    "PATH, or run scripts/bench.sh --install-peers once."

instructions=""
for name in amx_bf16 avx512_bf16 avx512f avx2; do
    ! grep -qw $name /proc/cpuinfo || instructions+="${instructions:+, }$name"
done
if [ -z "$dtypes" ]; then
    dtypes=f32
    [[ $instructions != *bf16* ]] || dtypes=f32,bf16
fi

case $mode in
quick) tokens=512 rounds=${rounds:-1} steps=1 seconds=0.05 images=128 ;;
headline) rounds=${rounds:-1} steps=2 ;;
*) tokens=2048 rounds=${rounds:-3} steps=3 seconds=0.5 images=1024 ;;
esac

out=build/bench/$(date +%Y%m%d-%H%M%S).jsonl
mkdir -p build/bench
: >"$out"
export TORCHINDUCTOR_CACHE_DIR=$PWD/build/bench/compiled/inductor
export JAX_COMPILATION_CACHE_DIR=$PWD/build/bench/compiled/jax

# The number and threads of training steps, for our programs and the peers.
with=(--steps "$steps" --threads "$threads")

# Sets the script of a model's peer in PyTorch and the package that it needs; false if it has none.
peer_of() {
    needs=torch
    case $1 in
    ls_lm-small) script="ls_lm_pytorch.py --bench" ;;
    vil-tiny | cvt-ls-13) script="images_pytorch.py --bench $1" ;;
    vit_lsla) script="vit_lsla_pytorch.py --bench" ;;
    lra-*) script="lra_pytorch.py --bench $1" ;;
    gpt2) script="gpt_transformers.py --bench" needs=transformers ;;
    roberta_ls*) return 1 ;;
    roberta* | longformer*) script="roberta_transformers.py --bench $1" needs=transformers ;;
    *)
        script="baselines_pytorch.py --bench $1"
        case $1 in
        resnet*) needs=torchvision ;;
        cswin* | mpvit*) ;;
        *) needs=timm ;;
        esac
        ;;
    esac
}

# Runs a peer: model, its flags, dtype and form, which is jax or flags of PyTorch's scripts. The
# peer is stopped when the minutes of --minutes are over. Without --minutes it is stopped after 20,
# which a compiled one may exceed.
left=1200
peer_takes() {
    local model=$1 flags=$2 dtype=$3 form=$4 script needs
    if [ "$form" = jax ]; then
        script="jax_models.py --bench $model" needs=jax form=""
    else
        peer_of "$model" && has torch || return 0
    fi
    has $needs || return 0
    [ -z "$minutes" ] || left=$((60 * minutes - SECONDS))
    [ "$left" -gt 0 ] && timeout "$left" "$python" bench/peers/$script $flags "${with[@]}" \
        --dtype "$dtype" $form >>"$out" || say No figures of $script $flags $form in $dtype
}

# A turn: a step of our model in dtype $3, then of its peers in these forms.
turn() {
    local model=$1 flags=$2 dtype=$3 form
    shift 3
    $bin/bench_models --model "$model" $flags "${with[@]}" --dtype "$dtype" >>"$out"
    for form in "$@"; do peer_takes "$model" "$flags" "$dtype" "$form"; done
}
layouts=("" --channels-last --compile "--compile --channels-last")

# A round of training steps of `small` with $1 tokens after $1 cached ones.
steps_of() {
    local recompute
    turn ls_lm-small "--tokens $1" f32 ""
    for recompute in attention block; do
        $bin/bench_models --tokens "$1" "${with[@]}" --recompute $recompute >>"$out"
    done
}

# A round of training steps of the image models and of image loading.
images_of() {
    turn vil-tiny "--batch 8" f32 ""
    turn cvt-ls-13 "--batch 4" f32 ""
    turn vit_lsla "--batch 4" f32 ""
    $bin/bench_data --folder build/bench/images --images $images >>"$out"
    if has torchvision; then
        "$python" bench/peers/data_pytorch.py --folder build/bench/images --images $images >>"$out"
    fi
}

# The headline steps that --models and --dtypes select.
headline_of() {
    local step dtype forms
    for dtype in ${dtypes//,/ }; do
        for step in "${headline[@]}"; do
            [[ -z $models || ",$models," == *",${step%% *},"* ]] || continue
            [ -z "$minutes" ] || [ $SECONDS -lt $((60 * minutes)) ] || continue
            say "$step, $dtype"
            forms=("" --compile jax)
            [[ $step == *tokens* ]] || forms=("" --channels-last --compile jax)
            turn "${step%% *}" "${step#* }" "$dtype" "${forms[@]}"
        done
    done
}

# Training steps of GPT-2 (124M), many short texts and a long one.
gpt_of() {
    local dtype
    for dtype in f32 bf16; do
        turn gpt2 "--batch 4 --tokens 64" $dtype "" --compile jax
        turn gpt2 "--batch 1 --tokens 1024" $dtype "" --compile jax
    done
}

# Training steps of the encoders of the Long Range Arena.
encoders="ls ls-best dp ls-linformer softmax linformer performer nystrom nystrom-conv reformer"
encoders="$encoders linear"
encoders_of() {
    local name dtype
    for name in $encoders; do
        for dtype in f32 bf16; do
            turn lra-text-$name "--tokens $1 --batch 4" $dtype "" --compile
        done
    done
}

# Training steps of published image models.
baselines_of() {
    local model
    for model in resnet50 deit-s; do turn $model "--batch 4" f32 "${layouts[@]}" jax; done
    for model in swin-t pvt2-b1 cswin-t coat-lite-small mpvit-xs; do
        turn $model "--batch 4" f32 "${layouts[@]}"
    done
}

# Training steps of the text models, as classifiers and with masked tokens.
texts_of() {
    local name shape dtype forms
    for name in {roberta,longformer,roberta_ls}-base{,-mlm}; do
        shape="--tokens 2048 --batch 2" forms=("" --compile)
        [[ $name = roberta-* ]] && shape="--tokens 512 --batch 8"
        [ $name != roberta-base ] || forms+=(jax)
        for dtype in f32 bf16; do
            turn $name "$shape" $dtype "${forms[@]}"
        done
    done
}

# Training steps and inference of detectors: beside torchvision, in both dtypes and layouts. A peer
# that takes more than 20 minutes, as a compiled one may, is stopped.
detectors_of() {
    local model dtype compile layout
    for model in retinanet mask-rcnn; do
        for dtype in f32 bf16; do
            $bin/bench_detectors --preset $model-resnet50 --dtype $dtype "${with[@]}"
            has torchvision || continue
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
    if has transformers; then
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

SECONDS=0
for ((round = 0; round < rounds; round++)); do
    say "round $((round + 1)) of $rounds"
    if [ $mode = headline ]; then
        headline_of
        continue
    fi
    steps_of $tokens
    images_of
    $bin/bench_ops --threads "$threads" --seconds $seconds >>"$out"
    if has torch; then
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
    say "published image models"
    baselines_of
    say "text models"
    texts_of
    say "GPT-2"
    gpt_of
    say "detectors"
    detectors_of
    say "data of text models"
    data_of_texts
fi

# The tables have one row per measurement, with the medians over its lines.
printf 'Processor: %s, %s threads, %s\n' \
    "$(awk -F ': ' '/^model name/ { print $2; exit }' /proc/cpuinfo)" "$threads" "$instructions"
tables=("$ROOT"/scripts/bench_tables.awk)
[ $mode != headline ] || tables=("$ROOT"/scripts/{bench_headline,bench_tables}.awk)
awk "${tables[@]/#/-f}" "$out"
say ""
say "JSON lines: $out"

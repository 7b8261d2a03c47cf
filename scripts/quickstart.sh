#!/usr/bin/env bash
# quickstart.sh - from a fresh checkout to a trained language model in a few minutes.
#
#   scripts/quickstart.sh                 trains on this project's own sources
#   scripts/quickstart.sh --data FILE     trains on any text, or enwik8 (also .gz, .xz, .zip, .zst)
#   scripts/quickstart.sh --steps N       trains N steps instead of about two minutes
#   scripts/quickstart.sh --run-dir DIR   the run's folder (default runs/quickstart)
#
# It installs missing packages (and names them), builds, trains a tiny Transformer-LS, evaluates
# bits per character on held-out text, prints a sample, and writes checkpoints, a log and the
# learning curve.
source "$(dirname "$0")/setup.sh"

data=""
steps=""
run=runs/quickstart
while [ $# -gt 0 ]; do
    case $1 in
    --data | --steps | --run-dir)
        [ $# -gt 1 ] || die "$1 needs a value; see scripts/quickstart.sh --help"
        case $1 in
        --data) data=$(realpath -m "$2") ;;
        --steps) steps=$2 ;;
        --run-dir) run=$(realpath -m "$2") ;;
        esac
        shift
        ;;
    -h | --help)
        manual "$0"
        exit 0
        ;;
    *) die "Unknown argument $1; see scripts/quickstart.sh --help" ;;
    esac
    shift
done

need $BUILD_NEEDS $PLOT_NEEDS
cd "$ROOT"
# A new build folder has the kernels of this processor alone, and no tests.
configured release ||
    configure release -DTAPEGRAD_TESTS=OFF -DTAPEGRAD_BENCH=OFF -DTAPEGRAD_ISA=native
build release enwik8 tp-report
mkdir -p "$run" 2>/dev/null ||
    die "The folder $run cannot be created; choose another one with --run-dir."

if [ -z "$data" ]; then
    data=$run/corpus.txt
    git ls-files -z -- '*.c' '*.h' '*.md' '*.sh' '*.cmake' '*.txt' |
        xargs -0 cat >"$data.new" 2>/dev/null ||
        die "The project's sources could not be read; give a text with --data FILE."
    mv "$data.new" "$data"
fi

budget=(--time 120)
[ -n "$steps" ] && budget=(--steps "$steps")
[ "$run" = runs/quickstart ] && budget+=(--overwrite) # other runs are never overwritten
bin=build/release/bin
$bin/enwik8 train --preset tiny --data "$data" --run-dir "$run" "${budget[@]}"
$bin/enwik8 eval --run-dir "$run" --data "$data" --protocol windows --context 2048 --step 512 \
    --limit 20000
say ""
say "A sample of what it has learned:"
$bin/enwik8 generate --run-dir "$run" --prompt "The " --length 400 --temperature 0.8 --top-k 40 |
    tee "$run/samples.txt"
scripts/plot.sh "$run"
$bin/tp-report "$run"
say ""
say "In $run: best.safetensors, last.safetensors, log.jsonl, curve.png, report.html for a browser."
say "Continue training: $bin/enwik8 train --resume --run-dir $run --data $data --time 600"

#!/usr/bin/env bash
# compare.sh - measures the contribution of each part of Transformer-LS: trains its variants and
# Transformer-XL for equal times, then prints a Markdown table and draws the curves.
#
#   examples/enwik8/compare.sh --data FILE --run-dir DIR [--extra FILE] [--seconds N] [--threads 1]
#       [--jobs 2] [--preset tiny] [--variants "ls txl"] [--bin FILE] [-- TRAIN FLAG ...]
#
#   --seconds N     training time of each variant (default 600); --jobs of them run at a time
#   --variants      some of: ls no-dual-ln window-only projection-only paper txl (default: all)
#   --bin FILE      the program (default build/release/bin/enwik8)
#   after --        flags for every training run (`enwik8 train --help`)
#
# All variants use the preset's layers, width, batch, segment and cache, the same seed, and a
# constant learning rate after the warm-up, so that one run gives figures at any time and step.
# The variants of Transformer-LS share one rate. Transformer-XL has its own optimiser and the best
# of four rates, each tried for a tenth of the time. `paper` is the paper's formulation where it
# differs from the official code.
#
# bpc at equal time and at equal steps is from validation, interpolated where the slowest variant
# ended; seconds count only training. Finished variants are not trained again.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
die() {
    echo "compare.sh: $*" >&2
    exit 1
}

data="" extra="" folder="" seconds=600 threads=1 jobs=2 preset=tiny
bin=$root/build/release/bin/enwik8
variants="ls no-dual-ln window-only projection-only paper txl"
more=()
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help)
        sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    --)
        shift
        more=("$@")
        break
        ;;
    --data | --extra | --run-dir | --seconds | --threads | --jobs | --preset | --variants | --bin)
        [ $# -gt 1 ] || die "$1: a value is missing"
        case $1 in
        --data) data=$2 ;;
        --extra) extra=$2 ;;
        --run-dir) folder=${2%/} ;;
        --seconds) seconds=$2 ;;
        --threads) threads=$2 ;;
        --jobs) jobs=$2 ;;
        --preset) preset=$2 ;;
        --variants) variants=$2 ;;
        --bin) bin=$2 ;;
        esac
        shift
        ;;
    *) die "unknown argument $1; see examples/enwik8/compare.sh --help" ;;
    esac
    shift
done
[ -n "$data" ] && [ -n "$folder" ] || die "--data FILE and --run-dir DIR are required; see --help"
[ -x "$bin" ] || die "$bin is missing: build the target enwik8, or name the program with --bin"
[[ $seconds =~ ^[0-9]*\.?[0-9]+$ && $seconds =~ [1-9] ]] ||
    die "--seconds $seconds: must be a positive number"
[[ $jobs =~ ^[1-9][0-9]*$ ]] || die "--jobs $jobs: must be a whole number of at least 1"
[ -n "${variants// /}" ] || die "--variants is empty; see --help"
mkdir -p "$folder"

flags_of() {
    case $1 in
    ls) ;;
    no-dual-ln) echo "--no-dual-ln" ;;
    window-only) echo "--rank 0" ;;
    projection-only) echo "--window 0" ;;
    paper) echo "--masked --segment-window --ln-local --project-first" ;;
    txl) echo "--model txl" ;;
    *) die "'$1' is not one of the variants ls no-dual-ln window-only projection-only paper txl" ;;
    esac
}

# The last value of $2 in the log of run $1.
last() {
    awk -v key="\"$2\":" '{ if (split($0, a, key) > 1) x = a[2] + 0 } END { print x + 0 }' \
        "$folder/$1/log.jsonl"
}

# The validation bpc of run $1 where $2 is $3, interpolated linearly between reports; - before the
# first report.
reading() {
    awk -v key="\"$2\":" -v at="$3" '{
        if (split($0, a, key) < 2 || split($0, b, "\"valid_bpc\":") < 2 || done) next
        x = a[2] + 0; y = b[2] + 0
        done = x >= at
        if (x > at) { y = n ? y0 + (y - y0) * (at - x0) / (x - x0) : 0 }
        x0 = x; y0 = y; n++
    } END { printf y0 ? "%.4f" : "-", y0 }' "$folder/$1/log.jsonl"
}

# The smallest last value of $1 over all variants.
least() {
    for v in $variants; do last "$v" "$1"; done | sort -g | head -n 1
}

# Trains run $1 for $2 seconds with the flags that follow, unless it is complete.
train() {
    local run=$folder/$1 time=$2
    shift 2
    local flags=(--preset "$preset" --data "$data" ${extra:+--extra "$extra"} --threads "$threads"
        --time "$time" --steps 1000000000 --schedule constant "$@" ${more[@]+"${more[@]}"})
    [ "$(cat "$run/compared" 2>/dev/null)" = "${flags[*]}" ] && return
    rm -f "$run/compared"
    "$bin" train --run-dir "$run" --overwrite "${flags[@]}" >"$run.out" 2>&1 &
    local pid=$!
    trap 'kill $pid 2>/dev/null' TERM
    wait "$pid" || die "$run: $(tail -n 1 "$run.out")"
    echo "${flags[*]}" >"$run/compared"
}

# Runs train for each line of standard input, $jobs at a time, until one fails.
train_all() {
    local running=0 words
    while read -r -a words; do
        if [ "$running" -ge "$jobs" ]; then
            wait -n || return 1
            running=$((running - 1))
        fi
        train "${words[@]}" </dev/null &
        running=$((running + 1))
    done
    while [ "$running" -gt 0 ]; do
        wait -n || return 1
        running=$((running - 1))
    done
}
trap 'jobs -p | xargs -r kill 2>/dev/null || true' EXIT
trap 'exit 130' INT TERM

for v in $variants; do
    flags_of "$v" >/dev/null
done

# ---- training ----

rate=""
if [[ " $variants " == *" txl "* ]]; then
    tried=$(awk -v s="$seconds" 'BEGIN { print s / 10 }')
    rates="5e-4 1e-3 2e-3 3e-3"
    train_all < <(for r in $rates; do echo "txl-lr-$r $tried $(flags_of txl) --lr $r"; done)
    rate=$(for r in $rates; do echo "$(last "txl-lr-$r" valid_bpc) $r"; done | sort -g |
        awk 'NR == 1 { print $2 }')
fi
train_all < <(for v in $variants; do
    echo "$v $seconds $(flags_of "$v") $([ "$v" != txl ] || echo "--lr $rate")"
done)

# ---- the table ----

T=$(least seconds)
S=$(least step)
{
    echo "| variant | parameters | tokens/s | steps | bpc after $(printf %.0f "$T") s" \
        "| bpc after $S steps | test bpc | memory, MB |"
    echo "|---|---|---|---|---|---|---|---|"
    for v in $variants; do
        test=$("$bin" eval --data "$data" --run-dir "$folder/$v" --protocol fast \
            --threads "$threads" | sed -n 's/.*: \([0-9.]*\) bpc.*/\1/p')
        echo "| $v | $(sed -n 's/.*"parameters": \([0-9]*\).*/\1/p' "$folder/$v/config.json")" \
            "| $(awk -v n="$(last "$v" tokens)" -v s="$(last "$v" seconds)" \
                'BEGIN { printf "%.0f", n / s }')" \
            "| $(last "$v" step) | $(reading "$v" seconds "$T") | $(reading "$v" step "$S")" \
            "| $test" \
            "| $(awk -v m="$(last "$v" memory)" 'BEGIN { printf "%.0f", m / 1e6 }') |"
    done
    echo
    echo "Rate of txl: ${rate:-not trained}. Seed, batch, segment and layers as in" \
        "$folder/*/config.json."
} >"$folder/table.md.new"
mv "$folder/table.md.new" "$folder/table.md"
cat "$folder/table.md"

if command -v gnuplot >/dev/null; then
    runs=()
    for v in $variants; do runs+=("$v=$folder/$v"); done
    for x in seconds steps; do
        "$root/scripts/plot.sh" -o "$folder/over-$x.png" --x "$x" --y valid_bpc "${runs[@]}"
    done
else
    echo "compare.sh: no curves were drawn, because gnuplot is missing" >&2
fi

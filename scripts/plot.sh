#!/usr/bin/env bash
# plot.sh - draws the learning curves of training runs.
#
#   scripts/plot.sh RUN...              draws each RUN/log.jsonl, into curve.png in the first RUN
#   scripts/plot.sh -o FILE.png RUN...  draws into FILE.png
#
#   --x steps|tokens|epochs|seconds  the horizontal axis: updates, tokens seen, epochs, or seconds of
#                                    training (default steps)
#   --y NAME                         one curve per run: valid_bpc, bpc or loss; for classifiers top1,
#                                    top5, train_loss, test_loss or loss. If not given: training (thin)
#                                    and validation (thick); for classifiers top1
#
# Write a RUN as NAME=FOLDER to choose its name in the legend.
set -euo pipefail
die() {
    echo "plot.sh: $*" >&2
    exit 1
}

image=""
x=steps
y=""
runs=()
while [ $# -gt 0 ]; do
    case $1 in
    -o)
        [ $# -gt 1 ] || die "-o needs a file name"
        image=$2
        shift
        ;;
    --x)
        case ${2:-} in
        steps | tokens | epochs | seconds) x=$2 ;;
        *) die "--x must be steps, tokens, epochs or seconds, not '${2:-}'" ;;
        esac
        shift
        ;;
    --y)
        case ${2:-} in
        valid_bpc | bpc | loss | top1 | top5 | train_loss | test_loss) y=$2 ;;
        *) die "--y must be valid_bpc, bpc, loss, top1, top5, train_loss or test_loss, not '${2:-}'" ;;
        esac
        shift
        ;;
    -h | --help)
        sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    -*) die "unknown argument $1; see scripts/plot.sh --help" ;;
    *) runs+=("${1%/}") ;;
    esac
    shift
done
[ ${#runs[@]} -gt 0 ] || die "no run was given; see scripts/plot.sh --help"
command -v gnuplot >/dev/null || die "gnuplot is missing: apt-get install gnuplot-nox"
image=${image:-${runs[0]#*=}/curve.png}

case $x in
steps | epochs) at=${x%s} ;;
*) at=$x ;;
esac
grep -qs '"top1":' "${runs[0]#*=}/log.jsonl" && y=${y:-top1}

# Prints "x value" for the reports that have both keys.
column() {
    awk -v at="\"$at\":" -v key="\"$2\":" '{
        if (split($0, a, at) < 2 || split($0, b, key) < 2) next
        split(b[2], value, /[,}]/)
        if (value[1] != "null") print a[2] + 0, value[1]
    }' "$1"
}

# Adds the curve of column $1 of run number $2 with the log $3, the title $4 and the style $5.
curves=""
curve() {
    column "$3" "$1" >"$tmp/$1$2"
    [ -s "$tmp/$1$2" ] || return 1
    curves+="${curves:+, }'$tmp/$1$2' with $5 lc $2 title '$4'"
}

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
thin="lines lw 1"
thick="linespoints lw 3 pt 7 ps 0.8"
n=0
for run in "${runs[@]}"; do
    folder=${run#*=}
    log=$folder/log.jsonl
    [ -r "$log" ] || die "$log cannot be read: $folder may not be the folder of a run"
    n=$((n + 1))
    title=$(basename "${run%%=*}" | tr -d "'\"\\\\")
    if [ -n "$y" ]; then
        curve "$y" $n "$log" "$title" "$([[ $y = valid_bpc || $y = t* ]] && echo "$thick" || echo "$thin")" ||
            die "$log has no report with $y and $x yet"
    else
        curve bpc $n "$log" "$title, training" "$thin" || die "$log has no report with bpc and $x yet"
        curve valid_bpc $n "$log" "$title, validation" "$thick" || true
    fi
done
case $x in
steps) across=updates ;;
tokens) across="tokens seen" ;;
epochs) across=epochs ;;
seconds) across="seconds of training" ;;
esac
case $y in
*loss) up="$y, nats" ;;
top*) up="$y of the validation, %" ;;
*) up="bits per character" ;;
esac

gnuplot <<GNUPLOT || die "gnuplot could not draw $image"
set terminal pngcairo size 1000,640 noenhanced font "sans,11"
set output '$tmp/curve.png'
set xlabel "$across"
set ylabel "$up"
set grid lt 1 lw 0.5 lc rgb "#e0e0e0"
set key outside below horizontal samplen 3 width 2
set bmargin $((6 + n / 3))
set border 3
set tics nomirror
set linetype 1 lc rgb "#1f77b4"
set linetype 2 lc rgb "#d62728"
set linetype 3 lc rgb "#2ca02c"
set linetype 4 lc rgb "#ff7f0e"
set linetype 5 lc rgb "#9467bd"
set linetype 6 lc rgb "#8c564b"
set linetype 7 lc rgb "#17becf"
set linetype 8 lc rgb "#000000"
set linetype 9 lc rgb "#bcbd22"
set linetype cycle 9
set offsets graph 0, 0, 0.02, 0.02
plot $curves
GNUPLOT
mv "$tmp/curve.png" "$image" || die "$image cannot be written"
echo "$image"

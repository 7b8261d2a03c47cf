#!/usr/bin/env bash
# plot.sh - the learning curves of training runs as a picture.
#
#   scripts/plot.sh RUN...              draws RUN/log.jsonl of each into (first RUN)/curve.png
#   scripts/plot.sh -o FILE.png RUN...  into FILE.png
#
# Bits per character over updates: thin lines are training, thick ones with dots validation.
set -euo pipefail
die() {
    echo "plot.sh: $*" >&2
    exit 1
}

picture=""
runs=()
while [ $# -gt 0 ]; do
    case $1 in
    -o)
        [ $# -gt 1 ] || die "-o needs a file name"
        picture=$2
        shift
        ;;
    -h | --help)
        sed -n '2,7s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    -*) die "unknown argument $1; see scripts/plot.sh --help" ;;
    *) runs+=("${1%/}") ;;
    esac
    shift
done
[ ${#runs[@]} -gt 0 ] || die "give the folder of a run; see scripts/plot.sh --help"
command -v gnuplot >/dev/null || die "gnuplot is missing: apt-get install gnuplot-nox"
picture=${picture:-${runs[0]}/curve.png}

# "step value" of the reports that have the key.
column() {
    awk -v key="\"$2\":" '{
        if (split($0, a, "\"step\":") < 2 || split($0, b, key) < 2) next
        split(b[2], value, /[,}]/)
        if (value[1] != "null") print a[2] + 0, value[1]
    }' "$1"
}

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
curves=""
n=0
for run in "${runs[@]}"; do
    [ -r "$run/log.jsonl" ] || die "$run/log.jsonl cannot be read: is $run the folder of a run?"
    n=$((n + 1))
    column "$run/log.jsonl" bpc >"$tmp/train$n"
    column "$run/log.jsonl" valid_bpc >"$tmp/valid$n"
    [ -s "$tmp/train$n" ] || die "$run/log.jsonl holds no report yet"
    title=$(printf '%s' "$(basename "$run")" | tr -d "'\"\\\\")
    curves+="${curves:+, }'$tmp/train$n' with lines lc $n lw 1 title '$title, training'"
    [ -s "$tmp/valid$n" ] &&
        curves+=", '$tmp/valid$n' with linespoints lc $n lw 3 pt 7 ps 0.8 title '$title, validation'"
done

gnuplot <<GNUPLOT || die "gnuplot could not draw $picture"
set terminal pngcairo size 1000,640 noenhanced font "sans,11"
set output '$tmp/curve.png'
set xlabel "updates"
set ylabel "bits per character"
set grid lt 1 lw 0.5 lc rgb "#e0e0e0"
set key outside below horizontal samplen 3 width 2
set bmargin 6
set border 3
set tics nomirror
set linetype 1 lc rgb "#1f77b4"
set linetype 2 lc rgb "#d62728"
set linetype 3 lc rgb "#2ca02c"
set linetype 4 lc rgb "#ff7f0e"
set linetype 5 lc rgb "#9467bd"
set linetype 6 lc rgb "#8c564b"
set linetype cycle 6
set offsets graph 0, 0, 0.02, 0.02
plot $curves
GNUPLOT
mv "$tmp/curve.png" "$picture" || die "$picture cannot be written"
echo "$picture"

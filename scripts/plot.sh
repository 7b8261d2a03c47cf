#!/usr/bin/env bash
# plot.sh - draws the learning curves of training runs.
#
#   scripts/plot.sh RUN...              draws each RUN/log.jsonl into curve.png in the first RUN
#   scripts/plot.sh -o FILE RUN...      draws into FILE, which ends in .png or .svg
#
#   --x steps|tokens|epochs|seconds  the horizontal axis: updates, tokens seen, epochs, or seconds
#                                    of training (default steps); large numbers in millions
#   --y NAME                         one curve per run: valid_bpc, bpc or loss; for masked language
#                                    modelling valid_bits, bits or loss; for classifiers of images
#                                    top1, top5, train_loss, test_loss or loss, of documents
#                                    accuracy, valid_loss or loss. Default: training (thin) and
#                                    validation (thick); for classifiers top1 or accuracy
#
# Write a RUN as NAME=FOLDER to choose its name in the legend.
set -euo pipefail
here=$(dirname "$0")
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
        valid_bpc | bpc | valid_bits | bits | loss | top1 | top5) y=$2 ;;
        train_loss | test_loss | accuracy | valid_loss) y=$2 ;;
        *)
            die "--y must be valid_bpc, bpc, valid_bits, bits, loss, top1, top5, train_loss," \
                "test_loss, accuracy or valid_loss, not '${2:-}'"
            ;;
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

# Splits a RUN into name and folder; a folder that exists may have '=' in its name.
split() {
    name=${1%%=*} folder=${1#*=}
    [ ! -d "$1" ] || name=$1 folder=$1
    [ "$name" != . ] || name=$PWD
}
split "${runs[0]}"
command -v gnuplot >/dev/null || die "gnuplot is missing: apt-get install gnuplot-nox"
image=${image:-$folder/curve.png}
case $image in # sizes of fonts are points in PNG, pixels in SVG
*?.[Pp][Nn][Gg]) format=pngcairo font=9 large=11.25 ;;
*?.[Ss][Vv][Gg]) format=svg font=12 large=15 ;;
*) die "$image: end the name in .png or .svg" ;;
esac

case $x in
steps | epochs) at=${x%s} ;;
*) at=$x ;;
esac
grep -qs '"top1":' "$folder/log.jsonl" && y=${y:-top1}
grep -qs '"accuracy":' "$folder/log.jsonl" && y=${y:-accuracy}
bits=bpc
grep -qs '"bits":' "$folder/log.jsonl" && bits=bits

# Prints "x value" for the reports that have both keys.
column() {
    awk -v at="\"$at\":" -v key="\"$2\":" '{
        if (split($0, a, at) < 2 || split($0, b, key) < 2) next
        split(b[2], value, /[,}]/)
        if (value[1] != "null") print a[2] + 0, value[1]
    }' <"$1" # as an argument, a=b/log.jsonl would be a variable
}

# A text as a gnuplot string: every byte as an octal number, so that none is a quote or a command.
quote() {
    printf '"%s"' "$(printf %s "$1" | od -An -v -to1 | tr -d '\n' | tr ' ' '\\')"
}

# Adds the curve of column $1 of run number $2 with the log $3, the title $4 and the style $5.
curves=""
curve() {
    column "$3" "$1" >"$tmp/$1$2"
    [ -s "$tmp/$1$2" ] || return 1
    curves+="${curves:+, }'$1$2' using (\$1/unit):2 with $5 lt $2 title $(quote "$4")"
}

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
thin="lines lw 1"
thick="linespoints lw 3"
n=0
for run in "${runs[@]}"; do
    split "$run"
    log=$folder/log.jsonl
    [ -r "$log" ] || die "$log cannot be read: $folder may not be the folder of a run"
    n=$((n + 1))
    title=$(basename -- "$name" | tr '[:cntrl:]' ' ')
    title=${title% }
    if [ -n "$y" ]; then
        look=$thin
        [[ $y = valid_* || $y = t* || $y = accuracy ]] && look=$thick
        curve "$y" $n "$log" "$title" "$look" || die "$log has no report with $y and $x yet"
    else
        curve $bits $n "$log" "$title, training" "$thin" ||
            die "$log has no report with $bits and $x yet"
        curve valid_$bits $n "$log" "$title, validation" "$thick" || true
    fi
done
case $x in
steps) across=updates ;;
tokens) across="tokens seen" ;;
epochs) across=epochs ;;
seconds) across="training time, s" ;;
esac
# Numbers of seven digits and more are shown in millions.
unit=$(cat "$tmp"/* | awk '$1 > m { m = $1 }
    END { print (m >= 1e9 ? "1e9" : m >= 1e6 ? "1e6" : 1) }')
case $unit in
1e6) scale=", millions" ;;
1e9) scale=", billions" ;;
*) scale="" ;;
esac
kind=${y/_/ } kind=${kind/top/top-}
case $y in
*loss) up="$kind, nats" head=$kind ;;
top* | accuracy) up="$kind of the validation, %" head="validation $kind" ;;
*)
    up="bits per character"
    [ $bits = bpc ] && [ "${y#valid_}" != bits ] || up="bits per masked token"
    head=$up
    ;;
esac
head="${head^} by ${across%, s}"
[ $n -gt 1 ] || head+=": $title"

# Prints the style of all pictures of the programs.
style() {
    sed -n 's/^ *"\(.*\)\\n".*/\1/p' "$here/../examples/shared/pictures/picture_inner.h"
}
(cd "$tmp" && gnuplot -d) <<GNUPLOT || die "gnuplot could not draw $image"
set terminal $format size 900,500 noenhanced background '#ffffff' font 'sans-serif,$font'
set output 'picture'
$(style)
set label $(quote "$head") at screen 0.013,0.965 left font 'sans-serif,$large'
set tmargin 3
set xlabel $(quote "$across$scale")
unit = $unit
set ylabel $(quote "$up")
set key outside right top vertical Left reverse samplen 2 spacing 1.3
set offsets graph 0, 0, 0.02, 0.02
plot $curves
set output
GNUPLOT
new=$image.tmp-$$
cp -- "$tmp/picture" "$new" && sync -- "$new" && mv -fT -- "$new" "$image" || {
    rm -f -- "$new"
    die "$image cannot be written"
}
printf '%s\n' "$image"

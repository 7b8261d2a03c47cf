#!/usr/bin/env bash
# fuzz.sh - builds the fuzzers of tests/fuzz (clang, libFuzzer, AddressSanitizer and
# UndefinedBehaviorSanitizer) and runs them. Fails if one finds anything.
#
#   scripts/fuzz.sh                  all of them, a minute together
#   scripts/fuzz.sh SECONDS          the same, longer
#   scripts/fuzz.sh SECONDS NAME     one: safetensors, data, config, image, image_set, runs, table or ops
#   scripts/fuzz.sh merge            copies inputs that reach new code into tests/fuzz/corpus
#
# What they learn stays in build/fuzz/corpus/NAME, inputs that break something in build/fuzz/crashes.
source "$(dirname "$0")/setup.sh"

names=(safetensors data config image image_set runs table ops)
case ${1:-} in
-h | --help)
    sed -n '2,11s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac
seconds=${1:-60}
[[ $seconds =~ ^([1-9][0-9]*|merge)$ ]] || die "'$seconds' is no number of seconds; see scripts/fuzz.sh --help"
if [ $# -gt 1 ]; then
    names=("$2")
    [ -f "$ROOT/tests/fuzz/fuzz_$2.c" ] || die "There is no fuzzer '$2'; there are safetensors, data, config, image, image_set, runs, table and ops."
fi

need $BUILD_NEEDS $CLANG_NEEDS
configure fuzz
build fuzz

cd "$ROOT"
work=$ROOT/build/fuzz seeds=$ROOT/tests/fuzz/corpus # absolute: fuzz_runs works in a folder of its own
crashes=$work/crashes
mkdir -p "$crashes"
# Memory beyond what so small a file can need is a finding too.
limits="-max_len=4096 -timeout=20 -rss_limit_mb=1024 -malloc_limit_mb=512"
export OMP_WAIT_POLICY=passive

if [ "$seconds" = merge ]; then
    for name in "${names[@]}"; do
        mkdir -p "$work/corpus/$name"
        "$work/bin/fuzz_$name" $limits -merge=1 "$seeds/$name" "$work/corpus/$name"
    done
    exit 0
fi

# As many at a time as there are cores, so that all of it takes the time that was asked for.
waves=$(((${#names[@]} + $(nproc) - 1) / $(nproc)))
each=$((seconds / waves))
[ "$each" -gt 0 ] || each=1 # 0 would be for ever
export each crashes limits work seeds
one() {
    mkdir -p "$work/corpus/$1"
    "$work/bin/fuzz_$1" $limits -max_total_time="$each" -print_final_stats=1 -artifact_prefix="$crashes/$1-" \
        "$work/corpus/$1" "$seeds/$1" >"$work/$1.log" 2>&1 || {
        tail -n 60 "$work/$1.log" >&2
        return 1
    }
    say "fuzz_$1: $(grep -oE 'stat::number_of_executed_units: [0-9]+' "$work/$1.log" | grep -oE '[0-9]+') inputs, nothing found"
}
export -f one say
printf '%s\n' "${names[@]}" | xargs -P "$(nproc)" -I{} bash -c 'one {}' ||
    die "A fuzzer found something: the input is in $crashes. Run build/fuzz/bin/fuzz_NAME FILE to see it again."

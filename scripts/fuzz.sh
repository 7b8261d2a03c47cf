#!/usr/bin/env bash
# fuzz.sh - builds the fuzzers of tests/fuzz (clang, libFuzzer, AddressSanitizer and
# UndefinedBehaviorSanitizer) and runs them. Fails if one finds anything.
#
#   scripts/fuzz.sh                  all of them with new random inputs, a minute in total
#   scripts/fuzz.sh SECONDS          the same, longer
#   scripts/fuzz.sh SECONDS NAME     one of them: safetensors, torch, numpy, data, config,
#                                    published, settings, image, image_set, table, dataset,
#                                    documents, texts, bpe, coco, report, ops, runs or programs
#   scripts/fuzz.sh --runs [NAME]    a fixed number of inputs, the same ones every time: for CI
#   scripts/fuzz.sh merge [NAME]     copies inputs that reach new code into tests/fuzz/corpus
#
# Inputs of the random runs that reach new code are kept in build/fuzz/corpus/NAME, inputs that
# break something in build/fuzz/crashes.
source "$(dirname "$0")/setup.sh"

# The fuzzers, each with its number of inputs for --runs: about five seconds of one core.
counts="programs:300 runs:2000 ops:6000 config:10000 published:5000 settings:5000"
counts="$counts safetensors:60000 torch:10000 numpy:10000 data:20000 image:12500"
counts="$counts image_set:30000 table:75000 dataset:15000 documents:30000 texts:6000"
counts="$counts bpe:15000 coco:30000 report:3000"
case ${1:-} in
-h | --help)
    manual "$0"
    exit 0
    ;;
esac
mode=${1:-60}
[[ $mode =~ ^([1-9][0-9]*|merge|--runs)$ ]] ||
    die "'$mode' is not a number of seconds; see scripts/fuzz.sh --help"
if [ $# -gt 1 ]; then
    [[ " $counts" = *" $2:"* ]] || die "There is no fuzzer '$2'; see scripts/fuzz.sh --help"
    counts=$(grep -oE "(^| )$2:[0-9]+" <<<"$counts")
fi

need $BUILD_NEEDS $CLANG_NEEDS
configure fuzz -DTAPEGRAD_WERROR=ON -DTAPEGRAD_ISA=base # the same on every machine
build fuzz

cd "$ROOT"
work=$ROOT/build/fuzz seeds=$ROOT/tests/fuzz/corpus # absolute: fuzz_runs works in another folder
crashes=$work/crashes
mkdir -p "$crashes"
# Using more memory than such a small file can need is a finding too.
limits="-max_len=4096 -timeout=20 -rss_limit_mb=1024 -malloc_limit_mb=512"
temporary_in_memory

if [ "$mode" = merge ]; then
    for entry in $counts; do
        name=${entry%:*}
        mkdir -p "$work/corpus/$name"
        "$work/bin/fuzz_$name" $limits -merge=1 "$seeds/$name" "$work/corpus/$name"
    done
    exit 0
fi

# Runs one fuzzer per core at a time, so that all of them together take the requested time.
waves=$((($(wc -w <<<"$counts") + $(nproc) - 1) / $(nproc)))
each=0
[ "$mode" = --runs ] || each=$((mode / waves))
[ "$mode" = --runs ] || [ "$each" -gt 0 ] || each=1 # 0 would be for ever
export mode each crashes limits work seeds

# Runs the same inputs each time: the corpus in an order that does not depend on the file system, a
# fixed seed, the same addresses, no mutations from compared values (-use_cmp), and no inputs
# read back from the output folder (-reload).
fixed() {
    local same_addresses=
    ! setarch -R true 2>/dev/null || same_addresses="setarch -R" # some containers forbid it
    rm -rf "$work/runs/$1"
    mkdir -p "$work/runs/$1"
    ls "$seeds/$1" | LC_ALL=C sort | sed "s|^|$seeds/$1/|" | paste -sd, | tr -d '\n' \
        >"$work/runs/$1.list"
    $same_addresses "$work/bin/fuzz_$1" $limits -seed=1 -runs="$2" -use_cmp=0 -reload=0 \
        -seed_inputs="@$work/runs/$1.list" \
        -print_final_stats=1 -artifact_prefix="$crashes/$1-" "$work/runs/$1"
}
random() {
    mkdir -p "$work/corpus/$1"
    "$work/bin/fuzz_$1" $limits -max_total_time="$each" -print_final_stats=1 \
        -artifact_prefix="$crashes/$1-" "$work/corpus/$1" "$seeds/$1"
}
one() {
    local name=${1%:*} kind=random inputs covered
    [ "$mode" != --runs ] || kind=fixed
    $kind "$name" "${1#*:}" >"$work/$name.log" 2>&1 || {
        tail -n 60 "$work/$name.log" >&2
        return 1
    }
    inputs=$(sed -n 's/.*stat::number_of_executed_units: \([0-9]*\).*/\1/p' "$work/$name.log")
    covered=$(grep DONE "$work/$name.log" | grep -oE 'cov: [0-9]+ ft: [0-9]+')
    say "fuzz_$name: $inputs inputs, $covered, nothing found"
}
export -f one fixed random say
printf '%s\n' $counts | xargs -P "$(nproc)" -I{} bash -c 'one {}' ||
    die "A fuzzer found something: the input is in $crashes." \
        "Run build/fuzz/bin/fuzz_NAME FILE to see it again."

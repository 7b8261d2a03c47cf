#!/usr/bin/env bash
# gpu-report.sh - checks and measures tapegrad on this machine's NVIDIA card, and prints a report.
#
#   gpu-report.sh                  everything: about ten minutes
#   gpu-report.sh --quick          tests, and the smallest models
#   gpu-report.sh --no-tests       measures only
#   gpu-report.sh --no-peers       without PyTorch, though python3 has it
#   gpu-report.sh --python PATH    the Python whose PyTorch is the peer (default python3)
#   gpu-report.sh --out DIR        where report.md, gpu-report.json and the logs go (default ./gpu-report)
#
# Runs from the source tree, where it builds, or from an archive made by pack.sh, where it needs neither a
# compiler nor a network. Tests: each op in f32 and bf16 against f64 on the CPU, models, determinism, memory;
# under compute-sanitizer too where it is installed. Measures: each op as a share of the card's rate of
# products or copies, which are measured in the same run, and training steps, beside PyTorch (eager, and
# through torch.compile). Status 0: every test has passed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
say() { printf '%s\n' "$*" >&2; }
die() {
    say "$*"
    exit 1
}

quick="" tests=yes peers=yes python=python3 out=$PWD/gpu-report
while [ $# -gt 0 ]; do
    case $1 in
    --quick) quick=yes ;;
    --no-tests) tests="" ;;
    --no-peers) peers="" ;;
    --python | --out)
        [ $# -gt 1 ] || die "$1 needs a value; see gpu-report.sh --help"
        [ "$1" = --python ] && python=$2 || out=$2
        shift
        ;;
    -h | --help)
        sed -n '2,16s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
        exit 0
        ;;
    *) die "Unknown argument $1; see gpu-report.sh --help" ;;
    esac
    shift
done

# Programs of an archive get its loader and libraries by their absolute paths, so once in each place.
settle() {
    local name loader=$here/lib/ld-linux-x86-64.so.2
    [ "$(cat "$here/lib/place" 2>/dev/null)" != "$here" ] || return 0
    for name in "$bin"/*; do
        [ "$name" = "$bin/patchelf" ] || "$loader" --library-path "$here/lib" "$bin/patchelf" \
            --set-interpreter "$loader" --force-rpath --set-rpath "$here/lib" "$name"
    done
    echo "$here" >"$here/lib/place"
}

if [ -d "$here/lib" ]; then # an archive
    bin=$here/bin peer_dir=$here/peers tables=$here/bench_tables.awk
    settle
else
    source "$here/setup.sh"
    CUDACXX=$(find_nvcc) || die "nvcc is not installed; build an archive elsewhere by scripts/pack.sh."
    export CUDACXX
    need $BUILD_NEEDS $TEST_NEEDS g++:g++
    configure cuda -DTAPEGRAD_TESTS=ON -DTAPEGRAD_BENCH=ON
    build cuda >&2
    bin=$ROOT/build/cuda/bin peer_dir=$ROOT/bench/peers tables=$ROOT/scripts/bench_tables.awk
fi
mkdir -p "$out"
out=$(cd "$out" && pwd)
lines=$out/measured.jsonl results=$out/tests.txt
: >"$lines"
: >"$results"
export OMP_WAIT_POLICY=passive

# ---- the card ----

# cuBLAS: where the loader looks, a toolkit, or PyTorch's wheels.
find_cublas() {
    local dir site paths=${LD_LIBRARY_PATH:-}
    site=$("$python" -c 'import nvidia; print(list(nvidia.__path__)[0])' 2>/dev/null || true)
    for dir in ${paths//:/ } /usr/local/cuda/lib64 /usr/local/cuda/targets/x86_64-linux/lib \
        "$site/cu13/lib" "$site/cublas/lib" /usr/lib/x86_64-linux-gnu /usr/lib64; do
        if compgen -G "$dir/libcublas.so*" >/dev/null; then
            echo "$dir"
            return
        fi
    done
}
cublas=$(find_cublas)
[ -z "$cublas" ] || export LD_LIBRARY_PATH=$cublas${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

query() { nvidia-smi --query-gpu="$1" --format=csv,noheader -i 0 2>/dev/null || echo unknown; }
card=$(query name) driver=$(query driver_version)
why=$("$bin/bench_models" --device cuda --preset tiny --tokens 256 --steps 1 2>&1 >/dev/null) || die "The card cannot be used: $why"
say "card: $card, driver $driver, cuBLAS in ${cublas:-a folder of the loader}"

# ---- tests ----

failed=0
# Runs one test program by a command, adds a line "name ok|FAILED seconds".
check() {
    local name=$1 began=$SECONDS said=ok
    shift
    "$@" >"$out/$name.log" 2>&1 || {
        said=FAILED
        failed=$((failed + 1))
    }
    printf '%s %s %d\n' "$name" "$said" $((SECONDS - began)) | tee -a "$results" >&2
}
if [ "$tests" ]; then
    export TAPEGRAD_DEVICE=cuda
    for path in "$bin"/test_cuda "$bin"/test_cuda_* "$bin"/test_capture "$bin"/test_profile "$bin"/test_models \
        "$bin"/test_decode "$bin"/test_ls_attention "$bin"/test_refs "$bin"/test_optim "$bin"/test_tape; do
        [ ! -x "$path" ] || check "$(basename "$path")" "$path" --jobs 1
    done
    if command -v compute-sanitizer >/dev/null && [ -z "$quick" ]; then
        for tool in memcheck racecheck; do
            TAPEGRAD_OP=softmax check "$tool" compute-sanitizer --tool $tool --target-processes all --error-exitcode 1 \
                "$bin/test_cuda" --jobs 1 --filter 'cuda/every*'
        done
    fi
    unset TAPEGRAD_DEVICE
fi

# ---- measures ----

ours() { "$bin/$1" --device cuda "${@:2}" >>"$lines" 2>>"$out/errors.log" || say "$* failed: $(tail -n 1 "$out/errors.log")"; }
peer() {
    [ "$peers" ] || return 0
    "$python" "$peer_dir/$1" --device cuda "${@:2}" >>"$lines" 2>>"$out/peers.log" || say "$* failed; see $out/peers.log"
}
"$python" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null || {
    say "$python has no PyTorch that sees the card: only tapegrad is measured."
    peers=""
}

# A training step of `small`: batch, tokens.
model() {
    ours bench_models --dtype bf16 --batch "$1" --tokens "$2" --steps 20
    peer ls_lm_pytorch.py --bench --dtype bf16 --batch "$1" --tokens "$2" --steps 10
    peer ls_lm_pytorch.py --bench --dtype bf16 --batch "$1" --tokens "$2" --steps 10 --compile
}
say "training steps"
ours bench_models --dtype bf16 --preset tiny --tokens 256 --batch 8 --steps 50
ours bench_models --dtype bf16 --preset tiny --tokens 256 --batch 8 --steps 50 --graph yes
model 1 2048
if [ -z "$quick" ]; then
    model 8 2048
    model 8 8192
    ours bench_models --dtype bf16 --batch 8 --tokens 8192 --steps 10 --recompute block
    ours bench_models --dtype f32 --batch 8 --tokens 2048 --steps 10
    say "ops"
    ours bench_ops --dtype bf16 --seconds 0.05
    ours bench_ops --dtype f32 --seconds 0.05
    peer ops_pytorch.py --dtype bf16 --seconds 0.05
    peer ops_pytorch.py --dtype bf16 --seconds 0.05 --compile
fi

# ---- the report ----

{
    echo "# tapegrad on $card"
    echo
    echo "$(date +%F), driver $driver."
    if [ -s "$results" ]; then
        printf '\n| test | result | seconds |\n|---|---|---|\n'
        awk '{ printf "| %s | %s | %s |\n", $1, $2, $3 }' "$results"
    fi
    echo
    awk -f "$tables" "$lines"
} >"$out/report.md"
{
    printf '{"date": "%s", "card": "%s", "driver": "%s",\n"tests": [' "$(date +%FT%T)" "$card" "$driver"
    awk '{ printf "%s\n{\"name\": \"%s\", \"result\": \"%s\", \"seconds\": %s}", (NR > 1 ? "," : ""), $1, $2, $3 }' "$results"
    printf '],\n"measured": ['
    awk '{ printf "%s\n%s", (NR > 1 ? "," : ""), $0 }' "$lines"
    printf ']}\n'
} >"$out/gpu-report.json"
cat "$out/report.md"
say "
$out/report.md, $out/gpu-report.json"
[ $failed = 0 ] || die "$failed tests failed; their logs are in $out."

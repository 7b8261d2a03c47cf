#!/usr/bin/env bash
# gpu-report.sh - checks and measures tapegrad on this machine's NVIDIA GPU, and prints a report.
#
#   gpu-report.sh                  all parts, in order; takes half an hour
#   gpu-report.sh --only PARTS     comma-separated parts: tests, sanitizer, ops, models, peers; or, without
#                                  a GPU, `report`, which reports on the results of --add, or `cpu`, the
#                                  tests on the CPU (from an archive, with only its own libraries)
#   gpu-report.sh --minutes N      ends within N minutes and lists what it had to skip
#   gpu-report.sh --add DIR        includes the results of an earlier run in DIR; may be repeated
#   gpu-report.sh --out DIR        the folder of the results (default ./gpu-report)
#   gpu-report.sh --python PATH    the Python with the PyTorch to compare with (default python3)
#   gpu-report.sh --preset NAME    the build preset, in the source tree (default cuda)
#   gpu-report.sh --smoke          tiny shapes and one test, to try this script; its figures mean nothing
#
# Runs from the source tree, where it builds, or from an archive made by pack.sh, where it needs neither a
# compiler nor a network. Parts: tests (each op in f32 and bf16 against f64 on the CPU, models, determinism,
# memory), the same under compute-sanitizer, single ops as a fraction of the GPU's rate of products or
# copies, training steps, and both in PyTorch (eager and with torch.compile). Results are written to DIR as
# soon as they are known: report.md, gpu-report.json, log.txt and their raw lines. Exits with status 0 if no
# test failed.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/setup.sh"

all="tests sanitizer ops models peers"
only="" minutes="" python=python3 out=$PWD/gpu-report preset=cuda smoke="" added=()
while [ $# -gt 0 ]; do
    case $1 in
    --smoke) smoke=yes ;;
    --only | --minutes | --add | --out | --python | --preset)
        [ $# -gt 1 ] || die "$1 needs a value; see gpu-report.sh --help"
        case $1 in
        --only) only="$only ${2//,/ }" ;;
        --minutes) minutes=$2 ;;
        --add) added+=("$(cd "$2" && pwd)") || die "There is no folder $2." ;;
        --out) out=$2 ;;
        --python) python=$2 ;;
        --preset) preset=$2 ;;
        esac
        shift
        ;;
    -h | --help)
        manual "${BASH_SOURCE[0]}"
        exit 0
        ;;
    *) die "Unknown argument $1; see gpu-report.sh --help" ;;
    esac
    shift
done
parts=${only:-$all}
for part in $parts; do
    [[ " $all report cpu " == *" $part "* ]] || die "There is no part '$part'; see gpu-report.sh --help"
done
[[ ${minutes:-1} =~ ^[1-9][0-9]*$ ]] || die "--minutes $minutes: must be a whole number of at least 1"
ends=$((${minutes:-100000} * 60 - 10)) # compared with SECONDS; the report takes less than ten

wants() { [[ " $parts " == *" $1 "* ]]; }

# ---- files ----

mkdir -p "$out"
out=$(cd "$out" && pwd)
lines=$out/measured.jsonl results=$out/tests.txt notes=$out/notes.txt log=$out/log.txt
for file in "$lines" "$results" "$notes" "$log"; do
    for dir in ${added[@]+"${added[@]}"}; do
        [ ! -e "$dir/${file##*/}" ] || cat "$dir/${file##*/}"
    done >"$file.part"
    mv "$file.part" "$file"
done

note() { echo "$*" | tee -a "$notes" >&2; }

# The complete lines: a stopped run may have left half of one.
whole_lines() { grep -a '^{.*}$' "$lines" || true; }
# The last result of each test: name, ok or FAILED or stopped, seconds.
last_results() { awk '{ at[$1] = $0; if (!($1 in seen)) name[++n] = $1; seen[$1] } END { for (i = 1; i <= n; i++) print at[name[i]] }' "$results"; }

report() {
    echo "# tapegrad on CUDA"
    echo
    whole_lines | sed -n 's/^{"gpu": "\(.*\)", "driver": "\(.*\)", "cublas": .*"date": "\(.*\)".*/\1, driver \2, \3./p'
    if whole_lines | grep -q '"smoke": true'; then echo "Tiny shapes: the figures mean nothing."; fi
    if [ -s "$results" ]; then
        printf '\n| test | result | seconds |\n|---|---|---|\n'
        last_results | awk '{ printf "| %s | %s | %s |\n", $1, $2, $3 }'
    fi
    echo
    whole_lines | awk -f "$tables/gpu_targets.awk" -f "$tables/bench_tables.awk"
    [ ! -s "$notes" ] || printf '\n%s\n' "$(sed 's/^/* /' "$notes")"
}
json() {
    printf '{"tests": ['
    last_results | awk '{ printf "%s\n{\"name\": \"%s\", \"result\": \"%s\", \"seconds\": %s}", (NR > 1 ? "," : ""), $1, $2, $3 }'
    printf '],\n"measured": ['
    whole_lines | awk '{ printf "%s\n%s", (NR > 1 ? "," : ""), $0 }'
    printf '],\n"notes": ['
    sed 's/\\/\\\\/g; s/"/\\"/g' "$notes" | awk '{ printf "%s\n\"%s\"", (NR > 1 ? "," : ""), $0 }'
    printf ']}\n'
}
# Writes both reports; called after each new result.
save() {
    report >"$out/report.md.part" && mv "$out/report.md.part" "$out/report.md"
    json >"$out/gpu-report.json.part" && mv "$out/gpu-report.json.part" "$out/gpu-report.json"
}

# True if at least 15 seconds are left. If not, notes that $1 was skipped.
time_for() {
    [ $((ends - SECONDS)) -ge 15 ] || {
        note "no time for $1"
        return 1
    }
}
# Runs a command for at most $1 seconds, with messages to the log. Status 124 or 137: it was stopped.
limited() {
    local most=$1
    shift
    [ $((ends - SECONDS)) -ge "$most" ] || most=$((ends - SECONDS))
    printf '\n=== %s\n' "$*" >>"$log"
    timeout -k 5 "$most" "$@" 2>>"$log"
}

# ---- programs ----

tables=$here
finish() {
    save
    cat "$out/report.md"
    say "
In $out: report.md, gpu-report.json, log.txt"
    failed=$(last_results | grep -c FAILED) || true
    [ "$failed" = 0 ] || die "$failed tests failed; see log.txt."
    exit 0
}
[ "${parts// /}" != report ] || finish

# The archive's programs use this machine's C library or, if that is too old, the archive's own. The latter
# needs absolute paths of loader and libraries, so it is set up once in each location.
settle() {
    local name loader=$here/libc/ld-linux-x86-64.so.2
    if ! wants cpu && "$bin/tp-models" --help >/dev/null 2>&1; then return 0; fi
    for name in "$bin"/*; do
        [ "$name" = "$bin/patchelf" ] || "$loader" --library-path "$here/libc:$here/lib" "$bin/patchelf" \
            --set-interpreter "$loader" --force-rpath --set-rpath "$here/libc:$here/lib" "$name"
    done
    "$bin/tp-models" --help >/dev/null || die "The programs of the archive do not run on this machine."
    ! wants cpu || for name in $tests; do
        ! "$loader" --list "$bin/$name" | awk '$2 == "=>" { print $3 }' | grep -v "^$here/" >&2 ||
            die "$name uses these libraries of this machine."
    done
}

if [ -d "$here/libc" ]; then # an archive
    bin=$here/bin peer_dir=$here/peers tests=$(cat "$here/tests.txt")
    export TAPEGRAD_FIXTURES=$here/fixtures
    settle
else
    if [ "$preset" = cuda ]; then
        CUDACXX=$(find_nvcc) || die "nvcc is not installed; make an archive elsewhere with scripts/pack.sh."
        export CUDACXX
    fi
    need $BUILD_NEEDS $TEST_NEEDS g++:g++
    configure "$preset" -DTAPEGRAD_TESTS=ON -DTAPEGRAD_BENCH=ON
    tests=$(gpu_tests "$preset")
    [ -z "$smoke" ] || tests=test_profile
    build "$preset" bench_ops bench_models $tests >&2
    bin=$ROOT/build/$preset/bin peer_dir=$ROOT/bench/peers
    export TAPEGRAD_FIXTURES=$ROOT/tests/fixtures
fi
[ -z "$smoke" ] || tests=test_profile
export PATH=$PATH:/usr/local/cuda/bin:/usr/local/nvidia/bin

# ---- tests ----

# Adds "NAME RESULT SECONDS". RESULT is ok for status 0, $stopped after a timeout, else FAILED.
result() {
    local name=$1 status=$2 began=$3 stopped=$4 said=FAILED
    case $status in
    0) said=ok ;;
    124 | 137) said=$stopped ;;
    esac
    [ $said = ok ] || tail -n 12 "$log" >&2
    printf '%s %s %d\n' "$name" $said $((SECONDS - began)) | tee -a "$results" >&2
    save
}
# Runs a test; on the CPU without LD_LIBRARY_PATH.
check() {
    local began=$SECONDS status=0 name=$1 where=(TAPEGRAD_DEVICE=cuda)
    [ "$2" = cuda ] || name=cpu/$1 where=(-u LD_LIBRARY_PATH)
    time_for "$name" || return 0
    limited 300 env "${where[@]}" "$bin/$1" --jobs 4 >>"$log" || status=$?
    # A timeout is a failure unless --minutes cut the test short.
    result "$name" $status "$began" "$([ $((ends - began)) -lt 300 ] && echo stopped || echo FAILED)"
}
if wants cpu; then
    for name in $tests; do check "$name" cpu; done
    [ "${parts// /}" != cpu ] || finish
fi

# ---- the GPU ----

own_path=${LD_LIBRARY_PATH:-} # for PyTorch, which has its own libraries
# The driver and cuBLAS come from the loader's path, a toolkit, or PyTorch's wheels.
add_libraries() { export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$1; }
ldconfig=$(command -v ldconfig || echo /sbin/ldconfig)
is_known() { "$ldconfig" -p 2>/dev/null | grep "$1" >/dev/null; }
for dir in /usr/local/nvidia/lib64 /usr/local/nvidia/lib /usr/lib/wsl/lib; do
    is_known libcuda.so.1 || [ ! -e $dir/libcuda.so.1 ] || add_libraries $dir
done
site=$("$python" -c 'import nvidia; print(list(nvidia.__path__)[0])' 2>/dev/null || true)
cublas="the loader's path"
is_known 'libcublas\.so\.1[23]' || for dir in /usr/local/cuda/lib64 /usr/local/cuda/targets/x86_64-linux/lib "$site/cu13/lib" "$site/cublas/lib"; do
    compgen -G "$dir/libcublas.so*" >/dev/null || continue
    add_libraries "$dir"
    cublas=$dir
    break
done

query() { nvidia-smi --query-gpu="$1" --format=csv,noheader -i 0 2>/dev/null || echo unknown; }
small="--smoke yes --model ls_lm-tiny --tokens 64 --batch 1 --steps 1"
why=$("$bin/bench_models" --device cuda $small 2>&1 >/dev/null) || {
    [[ $why != "device cuda"* ]] || die "The GPU cannot be used: ${why%%$'\n'*}"
    note "bench_models fails: ${why%%$'\n'*}"
}
printf '{"gpu": "%s", "driver": "%s", "cublas": "%s", "smoke": %s, "date": "%s"}\n' "$(query name)" \
    "$(query driver_version)" "$cublas" "$([ "$smoke" ] && echo true || echo false)" "$(date +%FT%T)" | tee -a "$lines" >&2

if wants tests; then
    for name in $tests; do check "$name" cuda; done
fi

# ---- compute-sanitizer ----

# Runs a program under a tool. Findings are failures; a timeout without findings is not.
sanitize() {
    local tool=$1 began=$SECONDS status=0 size
    time_for "$tool/$2" || return 0
    size=$(stat -c %s "$log")
    TAPEGRAD_DEVICE=cuda limited 120 compute-sanitizer --tool "$tool" --target-processes all --error-exitcode 9 \
        --print-limit 10 "$bin/$2" "${@:3}" >>"$log" || status=$?
    tail -c +$((size + 1)) "$log" >"$log.part"
    ! grep -aqE 'SUMMARY: [1-9]' "$log.part" || status=9
    result "$tool/$2" $status "$began" stopped
}
if wants sanitizer; then
    if ! command -v compute-sanitizer >/dev/null; then
        note "skipped the sanitizer part: compute-sanitizer is not installed"
    elif ! limited 120 compute-sanitizer --tool memcheck "$bin/bench_models" --device cuda $small >"$out/sanitizer.part" 2>&1 ||
        ! grep -aq 'ERROR SUMMARY' "$out/sanitizer.part"; then
        note "skipped the sanitizer part: compute-sanitizer does not work here ($(grep -a '=====' "$out/sanitizer.part" | sed -n 2p))"
    else
        for tool in memcheck racecheck synccheck initcheck; do
            sanitize $tool bench_models --device cuda $small --dtype bf16
            [ -z "$smoke" ] || continue
            sanitize $tool test_cuda_attention --jobs 1
            sanitize $tool test_ls_attention --jobs 1 --filter 'ls_attention/cuda*'
            sanitize $tool test_cuda --jobs 1 --filter 'cuda/every_op_bf16'
        done
    fi
    cat "$out/sanitizer.part" >>"$log" 2>/dev/null || true
    rm -f "$out/sanitizer.part" "$log.part"
fi

# ---- measurements ----

# Runs a program that prints figures, for at most $1 seconds.
figures() {
    local status=0 what=${*:2}
    what=${what##"$bin/"}
    time_for "$what" || return 0
    limited "$@" | tee -a "$lines" >&2 || status=$?
    case $status in
    0) ;;
    124 | 137) note "stopped after $1 s: $what" ;;
    *) note "failed: $what: $(grep -av '^  at ' "$log" | tail -n 1)" ;;
    esac
    save
}
ops() { figures 240 "$bin/bench_ops" --device cuda --seconds 0.05 "$@"; }
model() { figures 240 "$bin/bench_models" --device cuda --dtype bf16 "$@"; }
if wants ops && [ "$smoke" ]; then
    ops --smoke yes --dtype bf16 --filter layernorm
    ops --smoke yes --dtype f32 --filter adamw
elif wants ops; then
    ops --dtype bf16
    ops --dtype f32
fi
if wants models && [ "$smoke" ]; then
    model $small
    model $small --graph yes
elif wants models; then
    model --model ls_lm-tiny --tokens 256 --batch 8 --steps 50
    model --model ls_lm-tiny --tokens 256 --batch 8 --steps 50 --graph yes
    model --batch 8 --tokens 8192 --steps 10
    model --batch 8 --tokens 2048 --steps 20
    model --batch 1 --tokens 2048 --steps 20
    model --batch 1 --tokens 2048 --steps 20 --graph yes
    model --batch 8 --tokens 8192 --steps 10 --recompute block
    model --batch 8 --tokens 2048 --steps 10 --dtype f32
fi

# ---- PyTorch ----

peer() { figures 300 "$python" "$peer_dir/$1" --device "$peer_device" ${smoke:+--smoke} "${@:2}"; }
has_torch() { "$python" -c "import torch; assert $1" 2>/dev/null; }
if wants peers; then
    export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True PYTHONUNBUFFERED=1 LD_LIBRARY_PATH=$own_path
    peer_device=cuda
    if [ "$smoke" ] && has_torch True; then
        peer_device=cpu
        peer ls_lm_pytorch.py --bench --dtype bf16 --tokens 64 --steps 1
        peer ops_pytorch.py --dtype bf16 --seconds 0.001 --filter layernorm
    elif has_torch 'torch.cuda.is_available()'; then
        for size in "8 8192" "8 2048" "1 2048"; do
            for how in "" --compile; do
                peer ls_lm_pytorch.py --bench --dtype bf16 --batch ${size% *} --tokens ${size#* } --steps 10 $how
            done
        done
        peer ops_pytorch.py --dtype bf16 --seconds 0.05
        peer ops_pytorch.py --dtype bf16 --seconds 0.05 --compile
        peer ops_pytorch.py --dtype f32 --seconds 0.05 --filter adamw
    else
        note "skipped the peers: $python has no PyTorch that can use the GPU"
    fi
fi
finish

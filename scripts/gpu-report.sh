#!/usr/bin/env bash
# gpu-report.sh - checks and measures tapegrad on this machine's NVIDIA GPU, and prints a report.
#
#   gpu-report.sh                  all parts, in this order; takes half an hour:
#       smoke       steps of a tiny language model, also recorded; the GPU's product and copy rates
#       deciding    four tests that cover most: every op in f32 and bf16 against f64, attention,
#                   recorded steps
#       ops         each case of bench_ops in bf16, as a fraction of those rates
#       models      training steps, with the time of each op
#       sanitizer   the tiny model under compute-sanitizer
#       tests       the other tests: models, determinism, memory
#       peers       the language model and the ops in PyTorch, eager and with torch.compile
#       more        other sizes, f32, three deciding tests under compute-sanitizer
#   gpu-report.sh --only PARTS     comma-separated parts, in the order given; or, without a GPU,
#                                  `report`, which reports on the results of --add, or `cpu`, all
#                                  tests on the CPU (from an archive, with only its own libraries)
#   gpu-report.sh --minutes N      ends within N minutes and lists what it skipped
#   gpu-report.sh --add DIR        includes the results of an earlier run in DIR; may be repeated
#   gpu-report.sh --out DIR        the folder of the results (default ./gpu-report)
#   gpu-report.sh --python PATH    the Python with the PyTorch to compare with (default python3)
#   gpu-report.sh --preset NAME    the build preset, in the source tree (default cuda)
#   gpu-report.sh --smoke          tiny shapes and two tests, to try this script; the figures mean
#                                  nothing
#
# Runs from the source tree, where it builds, or from an archive made by pack.sh, where it needs
# neither a compiler nor a network. On a machine available for a quarter of an hour, with ten
# minutes a command:
#
#   tar xf tapegrad-gpu.tar.xz     or, without xz: python3 -m tarfile -e tapegrad-gpu.tar.xz
#   tapegrad-gpu/gpu-report.sh --minutes 9 --out a --only smoke,deciding,ops,models,sanitizer
#   tapegrad-gpu/gpu-report.sh --minutes 4 --out b --only tests,peers --add a
#
# The first results take half a minute. All are written to DIR as soon as they are known: report.md,
# gpu-report.json, log.txt and the raw lines. Exits with status 0 if no test and no case failed.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/setup.sh"

all="smoke deciding ops models sanitizer tests peers more"
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
    [[ " $all report cpu " == *" $part "* ]] ||
        die "There is no part '$part'; see gpu-report.sh --help"
done
[[ ${minutes:-1} =~ ^[1-9][0-9]*$ ]] ||
    die "--minutes $minutes: must be a whole number of at least 1"
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
last_results() {
    awk '{ at[$1] = $0; if (!($1 in seen)) name[++n] = $1; seen[$1] }
        END { for (i = 1; i <= n; i++) print at[name[i]] }' "$results"
}

report() {
    echo "# tapegrad on CUDA"
    echo
    local gpu='"gpu": "\(.*\)", "driver": "\(.*\)"' date='"date": "\(.*\)"'
    whole_lines | sed -n "s/^{$gpu, \"cublas\": .*$date.*/\\1, driver \\2, \\3./p"
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
    last_results | awk '{
        printf "%s\n{\"name\": \"%s\", \"result\": \"%s\", \"seconds\": %s}",
            (NR > 1 ? "," : ""), $1, $2, $3
    }'
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
# Runs a command for at most $1 seconds, with messages to the log. Status 124 or 137: it was
# stopped.
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
    local failed errors
    save
    cat "$out/report.md"
    say "
In $out: report.md, gpu-report.json, log.txt"
    failed=$(last_results | grep -c FAILED) || true
    errors=$(whole_lines | grep -c '"error": ') || true
    [ "$failed$errors" = 00 ] ||
        die "$failed tests and $errors cases failed; see report.md and log.txt."
    exit 0
}
[ "${parts// /}" != report ] || finish

# Makes the archive's programs use its own C library if this machine's is too old. That needs
# absolute paths of loader and libraries, so it is set up once in each location.
settle() {
    local name loader=$here/libc/ld-linux-x86-64.so.2 own=$here/libc:$here/lib
    if ! wants cpu && "$bin/tp-models" --help >/dev/null 2>&1; then return 0; fi
    for name in "$bin"/*; do
        [ "$name" = "$bin/patchelf" ] || "$loader" --library-path "$own" "$bin/patchelf" \
            --set-interpreter "$loader" --force-rpath --set-rpath "$own" "$name"
    done
    "$bin/tp-models" --help >/dev/null ||
        die "The programs of the archive do not run on this machine."
    ! wants cpu || for name in $tests; do
        ! "$loader" --list "$bin/$name" | awk '$2 == "=>" { print $3 }' | grep -v "^$here/" >&2 ||
            die "$name uses these libraries of this machine."
    done
}

deciding="test_cuda test_cuda_attention test_ls_attention test_capture"
[ -z "$smoke" ] || deciding=test_profile
if [ -d "$here/libc" ]; then # an archive
    bin=$here/bin peer_dir=$here/peers tests=$(cat "$here/tests.txt")
    export TAPEGRAD_FIXTURES=$here/fixtures
    settle
else
    if [ "$preset" = cuda ]; then
        CUDACXX=$(find_nvcc) ||
            die "nvcc is not installed; make an archive elsewhere with scripts/pack.sh."
        export CUDACXX
    fi
    need $BUILD_NEEDS $TEST_NEEDS g++:g++
    configure "$preset" -DTAPEGRAD_TESTS=ON -DTAPEGRAD_BENCH=ON
    tests=$(gpu_tests "$preset")
    [ -z "$smoke" ] || tests="test_profile test_finite"
    build "$preset" bench_ops bench_models $tests >&2
    bin=$ROOT/build/$preset/bin peer_dir=$ROOT/bench/peers
    export TAPEGRAD_FIXTURES=$ROOT/tests/fixtures
fi
[ -z "$smoke" ] || tests="test_profile test_finite"
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
# check NAME DEVICE SECONDS runs a test; on the CPU without LD_LIBRARY_PATH.
check() {
    local began=$SECONDS status=0 name=$1 where=(TAPEGRAD_DEVICE=cuda) stopped=FAILED
    [ "$2" = cuda ] || name=cpu/$1 where=(-u LD_LIBRARY_PATH)
    time_for "$name" || return 0
    limited "$3" env "${where[@]}" "$bin/$1" --jobs 4 >>"$log" || status=$?
    # A timeout is a failure unless --minutes cut the test short.
    [ $((ends - began)) -ge "$3" ] || stopped=stopped
    result "$name" $status "$began" $stopped
}
part_cpu() {
    local name
    for name in $tests; do check "$name" cpu 300; done
}
part_deciding() {
    local name
    for name in $deciding; do check "$name" cuda 60; done
}
# With --minutes, takes at most half of the time that is left, because the peers come after it.
part_tests() {
    local name until=$((SECONDS + (ends - SECONDS) / 2))
    for name in $tests; do
        [[ " $deciding " == *" $name "* ]] && continue
        if [ "$minutes" ] && [ $SECONDS -ge $until ]; then
            note "no time for $name"
        else
            check "$name" cuda 120
        fi
    done
}

if [ "${parts// /}" = cpu ]; then
    part_cpu
    finish
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
toolkit=/usr/local/cuda
is_known 'libcublas\.so\.1[23]' || for dir in $toolkit/lib64 $toolkit/targets/x86_64-linux/lib \
    "$site/cu13/lib" "$site/cublas/lib"; do
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
printf '{"gpu": "%s", "driver": "%s", "cublas": "%s", "smoke": %s, "date": "%s"}\n' \
    "$(query name)" "$(query driver_version)" "$cublas" \
    "$([ "$smoke" ] && echo true || echo false)" "$(date +%FT%T)" | tee -a "$lines" >&2

# Keeps the GPU open, so that the driver does not set it up for each program.
if command -v nvidia-smi >/dev/null; then
    nvidia-smi -l 60 >/dev/null 2>&1 </dev/null &
    holder=$!
    trap 'kill $holder 2>/dev/null' EXIT
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
ops() { figures 240 "$bin/bench_ops" --device cuda --seconds 0.02 ${smoke:+--smoke yes} "$@"; }
model() {
    if [ "$smoke" ]; then
        figures 60 "$bin/bench_models" --device cuda --dtype bf16 $small "$@"
    else
        figures 60 "$bin/bench_models" --device cuda --dtype bf16 "$@"
    fi
}
# A model's steps, then the time of each op in them.
profiled() {
    model "$@"
    model "$@" --profile yes
}
tiny="--model ls_lm-tiny --tokens 256 --batch 8 --steps 50"
[ -z "$smoke" ] || tiny=""
part_smoke() {
    model $tiny
    model $tiny --graph yes
    ops --dtype bf16 --filter "y = 2x"
}
part_ops() {
    if [ "$smoke" ]; then
        ops --dtype bf16 --filter layernorm
    else
        ops --dtype bf16
    fi
    ops --dtype f32 --filter adamw # always in f32
}
part_models() {
    if [ "$smoke" ]; then
        profiled
        return
    fi
    profiled --batch 8 --tokens 8192 --steps 10
    profiled --model vil-tiny --batch 128 --steps 10
    profiled --model resnet50 --batch 64 --steps 10
    profiled --model roberta-base --batch 8 --tokens 512 --steps 10
    model $tiny --graph yes
}
part_more() {
    [ -z "$smoke" ] || return 0
    model --batch 8 --tokens 2048 --steps 20
    model --batch 1 --tokens 2048 --steps 20
    model --batch 1 --tokens 2048 --steps 20 --graph yes
    model --batch 8 --tokens 8192 --steps 10 --recompute block
    model --batch 8 --tokens 2048 --steps 10 --dtype f32
    ops --dtype f32
    peer_steps "8 2048" "1 2048"
    sanitized test_cuda_attention --jobs 1
    sanitized test_ls_attention --jobs 1 --filter 'ls_attention/cuda*'
    sanitized test_cuda --jobs 1 --filter 'cuda/every_op_bf16'
}

# ---- compute-sanitizer ----

# sanitize TOOL PROGRAM ... runs a program under a tool. Findings are failures; a timeout without
# findings is not. False if the tool does not work here.
sanitize() {
    local tool=$1 began=$SECONDS status=0 size why
    time_for "$tool/$2" || return 0
    size=$(stat -c %s "$log")
    TAPEGRAD_DEVICE=cuda limited 120 compute-sanitizer --tool "$tool" --target-processes all \
        --error-exitcode 9 --print-limit 10 "$bin/$2" "${@:3}" >>"$log" || status=$?
    tail -c +$((size + 1)) "$log" >"$log.part"
    if [[ ! $status =~ ^(0|124|137)$ ]] && ! grep -aq 'SUMMARY:' "$log.part"; then
        why=$(grep -a '=====' "$log.part" | sed -n 2p)
        note "skipped: compute-sanitizer does not work here ($why)"
        return 1
    fi
    ! grep -aqE 'SUMMARY: [1-9]' "$log.part" || status=9
    rm -f "$log.part"
    result "$tool/$2" $status "$began" stopped
}
has_sanitizer() {
    command -v compute-sanitizer >/dev/null ||
        { note "skipped: compute-sanitizer is not installed" && false; }
}
part_sanitizer() {
    local tool
    has_sanitizer || return 0
    for tool in memcheck racecheck initcheck synccheck; do
        sanitize $tool bench_models --device cuda $small --dtype bf16 || return 0
    done
}
sanitized() {
    local tool
    has_sanitizer || return 0
    for tool in memcheck racecheck initcheck; do sanitize $tool "$@" || return 0; done
}

# ---- PyTorch ----

# peer SECONDS PROGRAM ...
peer() {
    figures "$1" env PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True PYTHONUNBUFFERED=1 \
        LD_LIBRARY_PATH="$own_path" "$python" "$peer_dir/$2" --device "$peer_device" \
        ${smoke:+--smoke} "${@:3}"
}
has_torch() { LD_LIBRARY_PATH=$own_path "$python" -c "import torch; assert $1" 2>/dev/null; }
has_peer() {
    peer_device=cuda
    [ -z "$smoke" ] || peer_device=cpu
    has_torch "$([ "$smoke" ] && echo True || echo 'torch.cuda.is_available()')" ||
        { note "skipped the peers: $python has no PyTorch that can use the GPU" && false; }
}
# Each argument is a batch and a number of tokens.
peer_steps() {
    local size how
    has_peer || return 0
    for size in "$@"; do
        for how in "" --compile; do
            peer 200 ls_lm_pytorch.py --bench --dtype bf16 --batch ${size% *} --tokens ${size#* } \
                --steps 10 $how
        done
    done
}
part_peers() {
    has_peer || return 0
    if [ "$smoke" ]; then
        peer 200 ls_lm_pytorch.py --bench --dtype bf16 --tokens 64 --steps 1
        peer 200 ops_pytorch.py --program "$bin/bench_ops" --dtype bf16 --seconds 0.001 \
            --filter layernorm
        return
    fi
    peer_steps "8 8192"
    peer 200 ops_pytorch.py --program "$bin/bench_ops" --dtype bf16 --seconds 0.02
    peer 100 ops_pytorch.py --program "$bin/bench_ops" --dtype f32 --seconds 0.02 --filter adamw
    peer 200 ops_pytorch.py --program "$bin/bench_ops" --dtype bf16 --seconds 0.02 --compile
}

for part in $parts; do
    [ "$part" = report ] || "part_$part"
done
finish

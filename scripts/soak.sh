#!/usr/bin/env bash
# soak.sh - trains the tiny model for a long time and compares the end with the beginning.
#
#   scripts/soak.sh                 10,000 steps, then 200 kills of each program; takes minutes
#   scripts/soak.sh --steps N       number of steps (at least 200)
#   scripts/soak.sh --kills N       kills of each program by test_kill; 0: none
#   scripts/soak.sh --run-dir DIR   the folder of its runs (default build/soak)
#
# Prints a table: memory after the warm-up and at the end (resident, and the device's peak), median
# time of a step in the first and the last tenth, the loss, and short runs on 1, 2 and 8 threads
# whose bits are compared. Memory growth of more than 1 %, a NaN or infinite loss and different bits
# are failures. Speed is only reported, because it depends on the load of the machine.
source "$(dirname "$0")/setup.sh"

steps=10000
kills=200
run=build/soak
while [ $# -gt 0 ]; do
    case $1 in
    --steps | --kills | --run-dir)
        [ $# -gt 1 ] || die "$1 needs a value; see scripts/soak.sh --help"
        case $1 in
        --steps) steps=$2 ;;
        --kills) kills=$2 ;;
        --run-dir) run=$(realpath -m "$2") ;;
        esac
        shift
        ;;
    -h | --help)
        manual "$0"
        exit 0
        ;;
    *) die "Unknown argument $1; see scripts/soak.sh --help" ;;
    esac
    shift
done
[[ $steps =~ ^[1-9][0-9]*$ && $steps -ge 200 ]] ||
    die "--steps $steps: must be a whole number of at least 200"
[[ $kills =~ ^[0-9]+$ ]] || die "--kills $kills: must be a whole number"

need $BUILD_NEEDS $TEST_NEEDS python3:python3
cd "$ROOT"
configure release -DTAPEGRAD_TESTS=ON
build release enwik8 test_kill # and the programs of test_kill >&2
bin=build/release/bin
mkdir -p "$run"
rm -rf "$run"/{long,threads1,threads2,threads8}
git ls-files -z -- '*.c' '*.h' '*.md' | xargs -0 cat >"$run/text"

# The tiny model with short steps: a batch of 2 x 64 tokens. Validations and checkpoints begin
# before the memory is first measured.
train=($bin/enwik8 train --preset tiny --data "$run/text" --batch 2 --tokens 64 --mem-len 64
    --log-every 1 --eval-tokens 2048 --eval-every $((steps / 20))
    --checkpoint-every $((steps / 20)))

"${train[@]}" --steps "$steps" --run-dir "$run/long" >"$run/out" 2>&1 &
pid=$!
trap 'kill $pid 2>/dev/null || true' EXIT
lines() { [ -f "$run/long/log.jsonl" ] && wc -l <"$run/long/log.jsonl" || echo 0; }
rss() { awk '/^VmRSS/ { print $2 }' /proc/$pid/status 2>/dev/null; }
# Measures resident memory after a tenth of the steps, and repeatedly until the process ends.
early="" late=""
while kill -0 $pid 2>/dev/null; do
    now=$(rss) || true
    if [ -n "$now" ]; then
        [ -z "$early" ] && [ "$(lines)" -ge $((steps / 10)) ] && early=$now
        late=$now
    fi
    sleep 0.2
done
wait $pid || die "The run failed: $(tail -n 1 "$run/out")"
trap - EXIT
[ -n "$early" ] || die "The run was too short to measure; give more --steps"

for n in 1 2 8; do
    "${train[@]}" --steps 100 --threads $n --run-dir "$run/threads$n" >/dev/null
    mv "$run/threads$n/best.safetensors" "$run/best$n"
done

python3 - "$run" "$early" "$late" <<'P'
import json, math, statistics, sys
run, early, late = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
def rows(name): return [json.loads(l) for l in open(f'{run}/{name}/log.jsonl')]
def ms(part): return statistics.median(128e3 / r['tokens_per_s'] for r in part)
log, bad = rows('long'), []
tenth = len(log) // 10
def line(what, a, b, limit=None):
    change = b / a - 1
    fails = limit is not None and change > limit
    if fails: bad.append(what)
    print(f'{what:28} {a:12.4g} {b:12.4g} {100 * change:+8.2f} % {"FAILED" if fails else ""}')
print(f'{"":28} {"first":>12} {"last":>12}')
line('resident memory, MB', early / 1e3, late / 1e3, 0.01)
line('device peak, MB', log[tenth]['memory'] / 1e6, log[-1]['memory'] / 1e6, 0)
line('median step, ms', ms(log[:tenth]), ms(log[-tenth:]))
def loss(part): return statistics.mean(r['loss'] for r in part)
line('loss', loss(log[:tenth]), loss(log[-tenth:]))
if not all(r['loss'] is not None and math.isfinite(r['loss']) for r in log):
    bad.append('a loss is NaN or infinite')
first = open(f'{run}/best1', 'rb').read()
for n in (1, 2, 8):
    same = open(f'{run}/best{n}', 'rb').read() == first
    if not same: bad.append(f'{n} threads')
    bits = 'same bits' if same else 'DIFFERENT BITS'
    print(f'{n} threads: median step {ms(rows(f"threads{n}")):.3g} ms, {bits}')
print(f'{len(log)} steps: ' + ('FAILED: ' + ', '.join(bad) if bad else 'passed'))
sys.exit(bool(bad))
P

[ "$kills" = 0 ] || KILLS=$kills $bin/test_kill --verbose

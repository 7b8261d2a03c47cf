#!/usr/bin/env bash
# kill_ranks.sh - kills random processes of a run that run-elastic.sh continues.
#
#   kill_ranks.sh KILLS SEED DIR COMMAND ...
#
# COMMAND is run-elastic.sh with its arguments; DIR is the run's folder, by whose name the processes
# are found. A process dies at a random moment after a checkpoint, in one case of four also before
# it, while they start. Prints the kills; the status is that of COMMAND.
set -euo pipefail
kills=$1 RANDOM=$2 dir=$(realpath -m "$3")
shift 3

update() {
    [ ! -s "$dir/last.safetensors" ] || head -c 1000000 "$dir/last.safetensors" |
        LC_ALL=C grep -ao '"update":"[0-9]*"' | head -n 1 | tr -dc 0-9 || true
}

"$@" &
run=$!
killed=0 dead=" " before=""
while [ "$killed" -lt "$kills" ]; do
    kill -0 "$run" 2>/dev/null || break
    sleep "0.$((RANDOM % 10))$((RANDOM % 10))"
    mapfile -t ranks < <(pgrep -f "^[^ ]*program .*$dir" || true)
    new=()
    for process in "${ranks[@]}"; do [[ $dead == *" $process "* ]] || new+=("$process"); done
    [ "${#new[@]}" -gt 0 ] || continue
    now=$(update)
    [ -n "$now" ] || continue
    [ "$now" != "$before" ] || [ $((RANDOM % 4)) = 0 ] || continue
    victim=${new[$((RANDOM % ${#new[@]}))]}
    kill -KILL "$victim" 2>/dev/null || continue
    killed=$((killed + 1)) before=$now
    for process in "${ranks[@]}"; do dead+="$process "; done # the others end with it
    echo "kill $killed: one of ${#new[@]} processes, checkpoint of update $now"
done
status=0
wait "$run" || status=$?
echo "kills: $killed, status $status"
exit "$status"

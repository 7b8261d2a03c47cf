#!/usr/bin/env bash
# run-elastic.sh - trains under mpirun and, after a failure, continues with what is left.
#
#   scripts/run-elastic.sh [-n RANKS] [--hosts FILE] [--mpirun COMMAND] PROGRAM FLAG ...
#
#   scripts/run-elastic.sh -n 2 build/release/bin/enwik8 train --data enwik8.zip --run-dir runs/two
#
#   -n RANKS          processes (default: all slots of the hosts, or the cores of this machine)
#   --hosts FILE      lines "HOST slots=N"; a host that does not answer ssh within 5 seconds is left
#                     out when the run begins or continues
#   --mpirun COMMAND  the launcher with its own flags (default: mpirun)
#
# PROGRAM FLAG ... must have --run-dir DIR. The last checkpoint of a run that has ended says so
# ("ended"); the launcher's status does not tell. Any other end is a failure: the run continues from
# its last checkpoint (--resume), in the most processes that the hosts have slots for and that
# divide the batch. After three failures without a new checkpoint it gives up.
#
# SIGINT, SIGTERM and SIGUSR1 stop the run with a checkpoint: the launcher gets SIGUSR1, since Open
# MPI kills its processes one second after the others. So does --time, which ends a run early.
set -euo pipefail

die() {
    echo "run-elastic.sh: $*" >&2
    exit 2
}

ranks="" hosts="" launcher=mpirun
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help)
        sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    -n | --hosts | --mpirun)
        [ $# -gt 1 ] || die "$1 needs a value"
        case $1 in
        -n) ranks=$2 ;;
        --hosts) hosts=$2 ;;
        --mpirun) launcher=$2 ;;
        esac
        shift
        ;;
    -*) die "there is no flag $1; see --help" ;;
    *) break ;;
    esac
    shift
done
[ $# -gt 0 ] || die "a program is needed; see --help"
[ -z "$hosts" ] || [ -r "$hosts" ] || die "$hosts cannot be read"
case $ranks in *[!0-9]* | 0) die "-n needs a number of processes, not '$ranks'" ;; esac

dir=""
for ((i = 1; i <= $#; i++)); do
    case ${!i} in
    --run-dir)
        j=$((i + 1))
        dir=${!j:-}
        ;;
    --run-dir=*) dir=${!i#--run-dir=} ;;
    esac
done
[ -n "$dir" ] || die "give the program --run-dir DIR, where the run can be found again"

# A number of the checkpoint's metadata or of config.json; nothing if there is none yet.
saved() { # KEY
    [ ! -s "$dir/last.safetensors" ] || head -c 1000000 "$dir/last.safetensors" |
        LC_ALL=C grep -ao "\"$1\":\"[0-9]*\"" | head -n 1 | tr -dc 0-9 || true
}
configured() { # KEY
    [ ! -s "$dir/config.json" ] ||
        sed -n "s/^ *\"$1\": \([0-9]*\),\{0,1\}$/\1/p" "$dir/config.json" | head -n 1
}

# Writes the hosts that answer to $answering, with their slots, and prints the sum.
answering=""
count_slots() {
    if [ -z "$hosts" ]; then
        echo "${ranks:-$(nproc)}"
        return
    fi
    local line host sum=0 n
    : >"$answering"
    while read -r line; do
        line=${line%%#*}
        host=${line%%[[:space:]]*}
        [ -n "$host" ] || continue
        n=$(sed -n 's/.*slots=\([0-9]*\).*/\1/p' <<<"$line")
        if ! ssh -n -o BatchMode=yes -o ConnectTimeout=5 "$host" true 2>/dev/null; then
            echo "run-elastic.sh: $host does not answer and is left out" >&2
            continue
        fi
        echo "$line" >>"$answering"
        sum=$((sum + ${n:-1}))
    done <"$hosts"
    [ -z "$ranks" ] || [ "$ranks" -ge "$sum" ] || sum=$ranks
    echo "$sum"
}

# The most processes, up to that many, that divide the batch of the run; 0: none.
dividing() { # SLOTS
    local batch k=$1
    batch=$(configured batch)
    while [ -n "$batch" ] && [ "$k" -gt 0 ] && [ $((batch % k)) -gt 0 ]; do k=$((k - 1)); done
    echo "$k"
}

child="" stopped=""
stop() {
    stopped=yes
    [ -z "$child" ] || kill -USR1 "$child" 2>/dev/null || true
}
trap stop INT TERM USR1

# Waits for the launcher; sets $status. After a process has named a silent one the launcher should
# end the rest, but it may wait in vain for a host whose cable is cut.
await() {
    local ticks=0
    while kill -0 "$child" 2>/dev/null; do
        sleep 0.2 &
        wait "$!" || true # ends early when a signal comes
        ! grep -q ' has not answered rank ' "$said" || ticks=$((ticks + 1))
        if [ "$ticks" = 50 ]; then
            echo "run-elastic.sh: the launcher does not end within 10 s and is killed" >&2
            kill -TERM "$child" 2>/dev/null || true
        fi
        [ "$ticks" -lt 60 ] || kill -KILL "$child" 2>/dev/null || true
    done
    status=0
    wait "$child" || status=$?
}
[ -z "$hosts" ] || answering=$(mktemp)
said=$(mktemp) # what the launcher wrote to standard error
trap 'rm -f "$said" ${answering:+"$answering"}' EXIT
# Open MPI's own daemons notice a lost host.
export OMPI_MCA_oob_tcp_keepalive_time=${OMPI_MCA_oob_tcp_keepalive_time:-5}
export OMPI_MCA_oob_tcp_keepalive_intvl=${OMPI_MCA_oob_tcp_keepalive_intvl:-2}
export OMPI_MCA_oob_tcp_keepalive_probes=${OMPI_MCA_oob_tcp_keepalive_probes:-3}

# A checkpoint from before this script began may have ended another run, or this one with a lower
# --steps.
stamp() { [ ! -s "$dir/last.safetensors" ] || stat -c '%i %y' "$dir/last.safetensors"; }
began=$(stamp)
has_ended() { # STATUS
    [ "$(saved ended)" = 1 ] && { [ "$1" = 0 ] || [ "$(stamp)" != "$began" ]; }
}

failures=0 last=$(saved update) resumed=()
for flag in "$@"; do [ "$flag" != --resume ] || resumed=(--resume); done
while :; do
    slots=$(dividing "$(count_slots)")
    [ "$slots" -gt 0 ] || die "no host answers"
    [ -z "$stopped" ] || exit 1
    # Flags that begin a run are of no use to one that continues.
    flags=() skip=""
    for flag in "$@"; do
        if [ -n "$skip" ]; then
            skip=""
            continue
        fi
        case ${#resumed[@]}$flag in
        1--overwrite | 1--resume) ;;
        1--init) skip=yes ;;
        1--init=*) ;;
        *) flags+=("$flag") ;;
        esac
    done
    : >"$said"
    # In a session of its own, so that Ctrl-C reaches only this script.
    # shellcheck disable=SC2086 # the launcher's own flags are words
    setsid $launcher ${answering:+--hostfile "$answering"} -n "$slots" "${flags[@]}" \
        ${resumed[@]+"${resumed[@]}"} 2> >(trap '' INT TERM USR1 && exec tee "$said" >&2) &
    child=$!
    await
    child=""
    update=$(saved update)
    [ -z "$stopped" ] || exit "$status"
    ! has_ended "$status" || exit 0
    [ "$(stamp)" != "$began" ] || [ "${#resumed[@]}" -gt 0 ] ||
        exit "$((status ? status : 1))" # it never began
    if [ "$update" = "$last" ]; then failures=$((failures + 1)); else failures=0; fi
    [ "$failures" -lt 3 ] || die "three failures without a new checkpoint after update $update"
    echo "run-elastic.sh: the run ended with status $status; continuing after update $update" >&2
    last=$update
    resumed=(--resume)
    sleep 3 # a launcher that meets a network which just comes back may wait for ever
done

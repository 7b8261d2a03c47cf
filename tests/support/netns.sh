#!/usr/bin/env bash
# netns.sh - several hosts on one machine: network namespaces joined by a bridge.
#
#   netns.sh possible            status 0 if this machine allows them (root, ip, veth, tbf)
#   netns.sh up HOSTS [RATE]     hosts tp1, tp2, ... at 10.77.0.1, ...; RATE limits what each sends,
#                                as "200mbit"
#   netns.sh rate HOSTS RATE     changes the rate
#   netns.sh delay HOSTS TIME    delays what each sends, as "50ms"; needs netem
#   netns.sh run MPI HOSTS PROGRAM ...   one process on each host; MPI is openmpi or mpich
#   netns.sh cut HOST            cuts the cable of host number HOST
#   netns.sh mend HOST           joins it again
#   netns.sh down                removes all hosts
#   netns.sh agent [FLAG ...] ADDRESS COMMAND ...   what the launchers call in place of ssh
set -euo pipefail
me=$(readlink -f "$0")

hosts() { ip netns list 2>/dev/null | awk '/^tp[0-9]/ { print $1 }'; }

limit() { # HOST RATE
    ip netns exec "tp$1" tc qdisc replace dev "tpv$1" root tbf rate "$2" burst 256kb latency 400ms
}

up() { # HOSTS [RATE]
    local k
    ip link add tpbridge type bridge
    ip link set tpbridge up
    for ((k = 1; k <= $1; k++)); do
        ip netns add "tp$k"
        ip link add "tpv$k" netns "tp$k" type veth peer name "tpb$k"
        ip link set "tpb$k" master tpbridge up
        ip -n "tp$k" addr add "10.77.0.$k/24" dev "tpv$k"
        ip -n "tp$k" link set "tpv$k" up
        ip -n "tp$k" link set lo up
        [ -z "${2:-}" ] || limit "$k" "$2"
    done
}

down() {
    local host
    for host in $(hosts); do
        ip netns pids "$host" | xargs -r kill -9 2>/dev/null || true
        ip link del "tpb${host#tp}" 2>/dev/null || true # with both ends; a dying process keeps it
        ip netns del "$host"
    done
    ip link del tpbridge 2>/dev/null || true
}

run() { # MPI HOSTS PROGRAM ...
    local mpi=$1 n=$2 list="" k
    shift 2
    [ "$1" != -n ] || shift 2 # of run-elastic.sh
    for ((k = 1; k <= n; k++)); do list+=${list:+,}10.77.0.$k; done
    case $mpi in
    openmpi)
        exec ip netns exec tp1 env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
            mpirun.openmpi --mca plm_rsh_agent "$me agent" --mca btl tcp,self --mca pml ob1 \
            --mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24 \
            --bind-to none --host "$list" -n "$n" "$@"
        ;;
    mpich) # which would see one host, by its name, and go past the network
        exec ip netns exec tp1 env MPIR_CVAR_NOLOCAL=1 UCX_TLS=tcp,self mpirun.mpich \
            -launcher ssh -launcher-exec "$me" -iface tpv1 -hosts "$list" -n "$n" "$@"
        ;;
    *) echo "netns.sh: there is no MPI '$mpi'" >&2 && exit 2 ;;
    esac
}

agent() { # [FLAG ...] ADDRESS COMMAND ...
    while [ "${1#-}" != "$1" ]; do
        [ "$1" != -l ] || shift
        shift
    done
    local address=$1
    shift
    exec ip netns exec "tp${address##*.}" sh -c "$*"
}

case ${1:-} in
possible)
    [ "$(id -u)" = 0 ] && command -v ip >/dev/null && command -v tc >/dev/null || exit 1
    status=0
    up 1 1gbit 2>/dev/null || status=1
    down
    exit "$status"
    ;;
up | rate | delay | run | agent)
    command=$1
    shift
    case $command in
    rate) for ((k = 1; k <= $1; k++)); do limit "$k" "$2"; done ;;
    delay)
        for ((k = 1; k <= $1; k++)); do
            ip netns exec "tp$k" tc qdisc replace dev "tpv$k" root netem delay "$2"
        done
        ;;
    *) "$command" "$@" ;;
    esac
    ;;
cut) ip -n "tp$2" link set "tpv$2" down ;;
mend) ip -n "tp$2" link set "tpv$2" up ;;
down) down ;;
-* | 10.77.*) agent "$@" ;; # MPICH gives the agent no arguments of its own
*) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" ;;
esac

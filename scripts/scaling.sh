#!/usr/bin/env bash
# scaling.sh - checks the model of scaling.py against emulated networks of 2 to 4 processes.
#
#   scripts/scaling.sh [--mpi openmpi|mpich] [--mb N] [--seconds S]
#
#   --mpi      the launcher (default: openmpi)
#   --mb       MB of gradients (default: 16)
#   --seconds  length of the backward pass (default: 0.8)
#
# Needs root, for network namespaces whose sending rate is limited to 200 and 1000 Mbit/s, and an
# otherwise idle machine. bench_exchange measures in each an exchange alone, and a loop of backward
# passes without and with it. The lines stay in build/scaling.jsonl.
source "$(dirname "$0")/setup.sh"
mpi=openmpi mb=16 seconds=0.8
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help)
        manual "$0"
        exit 0
        ;;
    --mpi | --mb | --seconds)
        [ $# -gt 1 ] || die "$1 needs a value"
        declare "${1#--}=$2"
        shift
        ;;
    *) die "there is no flag $1; see --help" ;;
    esac
    shift
done
cd "$ROOT"
net=tests/support/netns.sh bench=build/release/bin/bench_exchange out=build/scaling.jsonl
[ -x $bench ] || die "$bench is missing: configure with -DTAPEGRAD_BENCH=ON and build it"
$net possible || die "this machine has no network namespaces for us: root, ip and tc are needed"
trap '$net down' EXIT
: >$out
measure() { # RANKS RATE
    $net down
    $net up "$1" "$2mbit"
    timeout 300 $net run $mpi "$1" "$PWD/$bench" --mb "$mb" --seconds "$seconds" --runs 5 |
        sed "s/}\$/, \"rate\": $2}/" >>$out
}
for ranks in 2 3 4; do
    for rate in 200 1000; do measure $ranks $rate; done
done
scripts/scaling.py --check $out

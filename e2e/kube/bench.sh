#!/bin/bash
# Measures the running cluster's CNI, whichever it is; prints a table and writes JSON. Takes about 5 minutes on 2 cores.
# usage: bench.sh [OUT.json]          (default ROOT/bench-CONFLIST.json; needs gcc, python3 and at least 2 Ready nodes)
#        bench.sh --compare A.json B.json...         medians side by side
#        bench.sh --apiserver-args                   prints RIG_APISERVER_ARGS for up.sh that switch the audit log on, without which
#                                                    the "API requests" rows are missing
# Environment: BENCH_LABEL (name of the column), BENCH_TPUT_ROUNDS=5 BENCH_RR_ROUNDS=9 BENCH_CHURN_ROUNDS=3 BENCH_REPLICAS=60 BENCH_CNI_ADDS=100,
# BENCH_BUDGET=330 (seconds; later rounds are left out when it is used up), BENCH_ONLY (regex of phases: tput rr cni idle churn),
# BENCH_AGENTS (regex over NAMESPACE/POD: the pods of the CNI; default: pods of hostNetwork DaemonSets, and all pods in their namespaces
# except kube-system), BENCH_PROCS (regex over process names in the nodes, for agents that are no pods).
set -euo pipefail
RIG=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd); . "$RIG/lib.sh"
case ${1:-} in
--apiserver-args) echo "--audit-policy-file=$RIG/bench/audit.yaml --audit-log-path=$RUN/cp/audit.log --audit-log-maxsize=1000"; exit 0;;
--compare) shift; exec python3 "$RIG/bench/bench.py" --compare "$@";;
esac
[ -n "$(initpid cp)" ] || die "the cluster is not up"
mkdir -p "$RIG_ROOT/tmp"; RR=$RIG_ROOT/tmp/rr
[ "$RR" -nt "$RIG/bench/rr.c" ] || gcc -O2 -static -w -o "$RR" "$RIG/bench/rr.c" 2>/dev/null
export RIG RIG_ROOT RUN RR
export PATH="$BIN:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
exec python3 "$RIG/bench/bench.py" "$@"

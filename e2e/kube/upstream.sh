#!/bin/bash
# Runs upstream Kubernetes e2e tests against the running cluster, from the control plane's network namespace.
# usage: [E2E=bin/e2e.test] [E2E_PROCS=4] [E2E_SKIP=REGEX] [E2E_TIMEOUT=60m] upstream.sh FOCUS-REGEX [FLAG OF e2e.test...]
set -euo pipefail
RIG=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd); . "$RIG/lib.sh"
focus=$1; shift
p=$(initpid cp); [ -n "$p" ] || die "the cluster is not up"
export PATH=$BIN:$PATH KUBECONFIG=$RUN/admin.conf
flags=(--provider=skeleton --kubeconfig="$RUN/admin.conf" --disable-log-dump --num-nodes="$(members | grep -c node)")
exec nsenter -t "$p" --net -- "$BIN/ginkgo" run --procs="${E2E_PROCS:-4}" --focus="$focus" --skip="${E2E_SKIP-SCTP|\[Disruptive\]|\[Slow\]|\[Flaky\]|\[Serial\]}" \
    --no-color --silence-skips --timeout="${E2E_TIMEOUT:-60m}" "$RIG_ROOT/${E2E:-bin/e2e.test}" -- "${flags[@]}" "$@"

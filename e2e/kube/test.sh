#!/bin/bash
# Starts the rig with headway on it, runs the tests of e2e/tests/kube against it, and takes the rig down again; with KUBECONFIG:
# what needs no rig, against that cluster. usage: HEADWAY_AGENT=FILE HEADWAY_PLUGIN=FILE test.sh [ARGUMENT OF THE TESTS...]
# Environment: RIG_PROXY, RIG_FAMILY (see lib.sh), RIG_INSTALL=helm|standalone, RIG_NODES=2, RIG_KEEP=1 (leaves the rig running).
set -euo pipefail
RIG=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd); . "$RIG/lib.sh"
tests() {
    cargo test -p e2e --test kube -- --nocapture "$@"
    # These change the cluster for a while: one at a time.
    cargo test -p e2e --test kube_nodes -- --nocapture --test-threads=1 "$@"
    cargo test -p e2e --test kube_chart -- --nocapture "$@"
    cargo test -p e2e --test kube_upstream -- --nocapture --test-threads=1 "$@"
}
if [ -n "${KUBECONFIG:-}" ]; then tests "$@"; exit; fi

[ -x "$BIN/hyperkube" ] && [ -d "$RIG_ROOT/seed" ] || die "the rig is not built: make e2e-kube-setup (20 minutes, once)"
[ -z "$(members)" ] || [ -n "${RIG_KEEP:-}" ] || die "a cluster runs in $RUN: take it down (e2e/kube/down.sh), or name another folder in RIG_RUN"
finish() {
    local code=$?
    if [ $code != 0 ]; then
        echo "== the agents' last lines" >&2
        if [ "$(cat "$RUN/installed" 2> /dev/null)" = standalone ]; then
            tail -n 20 "$RUN"/node*/headway.log
        else
            k -n kube-system logs -l app.kubernetes.io/name=headway --prefix --tail=20
        fi >&2 || true
    fi
    [ -n "${RIG_KEEP:-}" ] || "$RIG/down.sh"
    exit $code
}
trap finish EXIT
export RIG_PROXY RIG_FAMILY RIG_RUN=$RUN RIG_ROOT HEADWAY_RIG=$RIG
"$RIG/up.sh" "${RIG_NODES:-2}"
"$RIG/install.sh" "${RIG_INSTALL:-helm}"
[ "${RIG_INSTALL:-helm}" != helm ] || KUBECTL="$RIG/kubectl" "$RIG/../../scripts/admission-test.sh"
tests "$@"

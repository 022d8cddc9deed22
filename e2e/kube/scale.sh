#!/bin/bash
# One real agent and a real API server with N Nodes and Locators that have no machines behind them: what the agent costs, and
# how soon it has taken a change. usage: HEADWAY_AGENT=FILE scale.sh [N...] (default 100 1000 5000); prints a table, which
# docs/scale.md explains. Needs root and the rig's binaries (setup.sh); two network namespaces, no other traces.
set -euo pipefail
RIG=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export RIG_RUN; RIG_RUN=$(mktemp -d --tmpdir hw-scale.XXXXXX)
. "$RIG/lib.sh"
agent=${HEADWAY_AGENT:?names the headway-agent to measure}
[ -x "$BIN/hyperkube" ] || die "the rig is not built: make e2e-kube-setup (20 minutes, once)"
cp_ns=hwsc$$-cp node_ns=hwsc$$-node pids=()

stop() {
    local pid
    for pid in "${pids[@]}"; do kill -9 "$pid" 2> /dev/null || true; done
    for pid in "${pids[@]}"; do wait "$pid" 2> /dev/null || true; done
    pids=()
    ip netns del $node_ns 2> /dev/null || true
    ip netns del $cp_ns 2> /dev/null || true
    rm -rf "${RIG_RUN:?}/etcd"
}
trap 'stop; rm -rf "${RIG_RUN:?}"' EXIT

# Two routers lead to the nodes: a peer that moves from one to the other shows in the routes.
links() {
    ip netns add $cp_ns; ip netns add $node_ns
    ip link add eth0 netns $cp_ns type veth peer name eth0 netns $node_ns
    ip -n $cp_ns link set lo up; ip -n $node_ns link set lo up
    ip -n $cp_ns link set eth0 up; ip -n $node_ns link set eth0 up
    ip -n $cp_ns addr add $UL4.1/24 dev eth0; ip -n $node_ns addr add $UL4.11/24 dev eth0
    for host in 1 2; do ip -n $cp_ns addr add "${UL6}:$host/64" dev eth0 nodad; done
    ip -n $node_ns addr add "${UL6}:11/64" dev eth0 nodad
    ip -n $node_ns -6 route add fd31::/64 via "${UL6}:1" dev eth0
    ip -n $node_ns -6 route add fd32::/64 via "${UL6}:2" dev eth0
    ip netns exec $node_ns nft -f - <<'END'
table inet count {
    counter received {}
    counter sent {}
    chain in { type filter hook input priority -300; tcp sport 6443 counter name received; }
    chain out { type filter hook output priority -300; tcp dport 6443 counter name sent; }
}
END
}

serve() {
    (umask 077; "$RIG/pki.sh")
    ip netns exec $cp_ns "$BIN/etcd" --data-dir="$RUN/etcd" --unsafe-no-fsync --log-level=error --quota-backend-bytes=2147483648 \
        --listen-client-urls=http://127.0.0.1:2379 --advertise-client-urls=http://127.0.0.1:2379 \
        --listen-peer-urls=http://127.0.0.1:2380 &> "$RUN/etcd.log" & pids+=($!)
    ip netns exec $cp_ns "$BIN/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 --advertise-address="$API_IP" --bind-address=:: \
        --secure-port=6443 --service-cluster-ip-range=$SVC4 --authorization-mode=RBAC --client-ca-file="$RUN/pki/ca.crt" \
        --tls-cert-file="$RUN/pki/apiserver.crt" --tls-private-key-file="$RUN/pki/apiserver.key" \
        --service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$RUN/pki/sa.pub" \
        --service-account-signing-key-file="$RUN/pki/sa.key" --cert-dir="$RUN/certs" --profiling=false &> "$RUN/apiserver.log" & pids+=($!)
    for _ in $(seq 600); do
        ip netns exec $cp_ns "$BIN/kubectl" --kubeconfig "$RUN/admin.conf" get --raw /readyz &> /dev/null && return
        sleep 0.2
    done
    tail -n 5 "$RUN/apiserver.log" >&2; die "the API server is not ready"
}

for count in "${@:-100 1000 5000}"; do for n in $count; do
    log "$n nodes"
    links; serve
    ip netns exec $cp_ns "$BIN/kubectl" --kubeconfig "$RUN/admin.conf" apply -f "$RIG/../../charts/headway/files/crds.yaml" > /dev/null
    ip netns exec $cp_ns python3 "$RIG/scale.py" --count "$n" --folder "$RUN" --namespace $node_ns --agent "$agent" --api "$API_IP"
    stop
done; done

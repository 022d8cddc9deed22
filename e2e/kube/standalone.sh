#!/bin/bash
# Runs headway on the rig's nodes from configuration files, one agent process a node, without its Kubernetes side: the datapath
# under real kubelets, containerd and kube-proxy. usage: HEADWAY_AGENT=FILE HEADWAY_PLUGIN=FILE standalone.sh
# Idempotent; a restarted node needs it again. The agents end with their nodes (down.sh).
set -euo pipefail
RIG=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd); . "$RIG/lib.sh"; . "$RUN/settings"
: "${HEADWAY_AGENT:?names the built headway-agent}" "${HEADWAY_PLUGIN:?names the built CNI plugin}"
list() { local l; l=$(printf '"%s", ' "$@"); echo "[${l%, }]"; }

config() {  # config NODE
    local n
    cat <<YAML
node: {name: $1, number: ${1#node}, podCIDRs: $(list $(cat "$RUN/$1/pod-cidrs")), uplinks: [eth0]}
sidBlock: 5f00:77::/32
clusterCIDRs: $(IFS=,; list $(fam $POD4 $POD6))
cni: {version: 1.0.0, chain: [{type: portmap, capabilities: {portMappings: true}}]}
peers:
YAML
    for n in $(nodes); do
        [ "$n" = "$1" ] || echo "- {name: $n, number: ${n#node}, podCIDRs: $(list $(cat "$RUN/$n/pod-cidrs")), address: \"${UL6}:$(underlay_number "$n")\"}"
    done
}
for n in $(nodes); do
    d=$RUN/$n
    config "$n" > "$d/headway.new"; mv "$d/headway.new" "$d/headway.yaml"
    inside "$n" sh -c "cp '$HEADWAY_PLUGIN' /opt/cni/bin/.headway && mv /opt/cni/bin/.headway /opt/cni/bin/headway"
    inside "$n" test -e /run/headway/agent.sock || inside "$n" setsid bash -c \
        'while :; do "$0" run --config "$1" && true; echo "--- exit $?"; sleep 1; done' "$HEADWAY_AGENT" "$d/headway.yaml" >> "$d/headway.log" 2>&1 < /dev/null &
done
for n in $(nodes); do k wait --for=condition=Ready "node/$n" --timeout=120s > /dev/null || { tail -n 5 "$RUN/$n/headway.log" >&2; die "$n did not become Ready"; }; done
log "agents run, all nodes Ready"

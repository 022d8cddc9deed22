#!/bin/bash
# Installs headway on the rig, and waits until all nodes are Ready. usage: HEADWAY_AGENT=FILE HEADWAY_PLUGIN=FILE install.sh [helm|standalone]
#   helm (the default)   the image is made from the two binaries, then the chart is installed or upgraded
#   standalone           one agent process a node with a configuration file, without its Kubernetes side
# Idempotent; without an argument it installs as the last time.
set -euo pipefail
RIG=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd); . "$RIG/lib.sh"; . "$RUN/settings"
: "${HEADWAY_AGENT:?names the built headway-agent}" "${HEADWAY_PLUGIN:?names the built CNI plugin}"
mode=${1:-$(cat "$RUN/installed" 2> /dev/null || echo helm)}
IMAGE=headway.test/headway:rig
list() { local l; l=$(printf '"%s", ' "$@"); echo "[${l%, }]"; }

config() {  # config NODE: its configuration file
    local n
    cat <<YAML
node: {name: $1, number: ${1#node}, podCIDRs: $(list $(cat "$RUN/$1/pod-cidrs")), uplinks: [eth0]}
sidBlock: 5f00:77::/32
clusterCIDRs: $(IFS=,; list $(fam $POD4 $POD6))
cni: {version: 1.0.0, chain: [{type: portmap, capabilities: {portMappings: true}, snat: true}]}
peers:
YAML
    for n in $(nodes); do
        [ "$n" = "$1" ] || echo "- {name: $n, number: ${n#node}, podCIDRs: $(list $(cat "$RUN/$n/pod-cidrs")), address: \"${UL6}:$(underlay_number "$n")\"}"
    done
}
standalone() {
    local n d
    for n in $(nodes); do
        d=$RUN/$n
        config "$n" > "$d/headway.new"; mv "$d/headway.new" "$d/headway.yaml"
        inside "$n" sh -c "cp '$HEADWAY_PLUGIN' /opt/cni/bin/.headway && mv /opt/cni/bin/.headway /opt/cni/bin/headway"
        ! inside "$n" test -e /run/headway/agent.sock || continue
        # Nothing of ours stays open in it: whoever reads our output sees its end.
        inside "$n" setsid bash -c 'while :; do "$0" run --config "$1" && true; echo "--- exit $?"; sleep 1; done' \
            "$HEADWAY_AGENT" "$d/headway.yaml" >> "$d/headway.log" 2>&1 < /dev/null &
    done
}
by_helm() {
    local tar=$RUN/headway.tar project=$RIG/../..
    "$project/scripts/build-image.sh" "$tar" "$IMAGE" > /dev/null
    "$RIG/load.sh" "$tar"
    innet cp env KUBECONFIG="$RUN/admin.conf" "$BIN/helm" upgrade --install headway "$project/charts/headway" --namespace kube-system \
        --set-json "clusterCIDRs=$(IFS=,; list $(fam $POD4 $POD6))" --set "image.repository=${IMAGE%:*},image.tag=${IMAGE#*:}" \
        --set cni.version=1.0.0 --wait --timeout 2m ${RIG_HELM_ARGS:-} > /dev/null
}
start=$(date +%s%N)
case $mode in
helm) by_helm ;;
standalone) standalone ;;
*) die "unknown way to install: $mode (helm or standalone)" ;;
esac
echo "$mode" > "$RUN/installed"
for n in $(nodes); do
    k wait --for=condition=Ready "node/$n" --timeout=120s > /dev/null || die "$n did not become Ready: $(tail -n 5 "$RUN/$n/headway.log" 2> /dev/null || k -n kube-system get pods -o wide)"
done
# A Ready node takes pods only once the node controller has removed its taint.
for _ in $(seq 300); do [ -n "$(k get nodes -o 'jsonpath={.items[*].spec.taints[*].key}')" ] || break; sleep 0.2; done
taints=$(k get nodes -o 'jsonpath={.items[*].spec.taints[*].key}')
[ -z "$taints" ] || die "nodes keep taints: $taints"
log "headway runs ($mode), all nodes Ready after $(( ($(date +%s%N) - start) / 1000000 )) ms"

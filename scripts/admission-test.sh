#!/bin/bash
# Tests the chart's admission policies and roles with tokens of two nodes, at a real API server where the chart is installed.
#   scripts/admission-test.sh [NAMESPACE [SERVICE_ACCOUNT]]
# Uses kubectl (KUBECTL) and jq as a cluster administrator. Makes two Nodes without machines, and removes them.
set -euo pipefail

namespace=${1:-kube-system} account=${2:-headway}
read -ra kubectl <<< "${KUBECTL:-kubectl}"
work=$(mktemp -d)
first=headway-test-$$-1 second=headway-test-$$-2
failures=0

admin() { "${kubectl[@]}" "$@"; }
agent() { local token; token=$(< "$work/$1"); shift; "${kubectl[@]}" --token="$token" --kubeconfig="$work/anonymous" "$@"; }

remove() {
    admin delete --ignore-not-found --wait=false locator,headwaynode "$first" "$second" > /dev/null
    admin delete --ignore-not-found --grace-period=0 --force -n "$namespace" pod "$first" "$second" > /dev/null 2>&1
    admin delete --ignore-not-found node "$first" "$second" > /dev/null
    rm -rf "$work"
}
trap remove EXIT

# allowed|denied WHAT PATTERN COMMAND...: PATTERN is in what is said of a denial
allowed() {
    local what=$1 said; shift 2
    if ! said=$("$@" 2>&1); then
        echo "FAIL $what: should be allowed: $said"
        failures=$((failures + 1))
        return
    fi
    echo "ok   $what"
}
denied() {
    local what=$1 pattern=$2 said; shift 2
    if said=$("$@" 2>&1); then
        echo "FAIL $what: should be denied"
    elif ! grep -qE "$pattern" <<< "$said"; then
        echo "FAIL $what: denied for another reason: $said"
    else
        echo "ok   $what"
        return
    fi
    failures=$((failures + 1))
}

# The administrator's way to the server, without the administrator's right.
admin config view --raw --minify -o json | jq '.users[].user = {}' > "$work/anonymous"

number=$((RANDOM % 200 + 1))
for node in "$first" "$second"; do
    digit=${node##*-}
    cat << END | admin apply -f - > /dev/null
apiVersion: v1
kind: Node
metadata: {name: $node}
spec:
  podCIDR: 10.244.$((number + digit)).0/24
  podCIDRs: [10.244.$((number + digit)).0/24, "fd00:10:244:$digit::/64"]
  # Nobody is to run there.
  unschedulable: true
  taints: [{key: headway.dev/agent-not-ready, effect: NoSchedule}, {key: example.com/other, effect: NoSchedule}]
---
apiVersion: v1
kind: Pod
metadata: {name: $node, namespace: $namespace}
spec: {nodeName: $node, serviceAccountName: $account, containers: [{name: agent, image: none}]}
END
    admin create token "$account" -n "$namespace" --bound-object-kind Pod --bound-object-name "$node" > "$work/$node"
done
admin create token "$account" -n "$namespace" > "$work/unbound"

# write AGENT KIND NODE [JQ]: has an agent write the object of a node, changed by a jq program
write() {
    local kind=$2 node=$3 uid digit=${3##*-}
    uid=$(admin get node "$node" -o jsonpath='{.metadata.uid}')
    jq -n --arg node "$node" --arg uid "$uid" --arg kind "$kind" --argjson number $((number + digit)) '{
        apiVersion: "headway.dev/v1alpha1", kind: $kind,
        metadata: {name: $node, ownerReferences: [{apiVersion: "v1", kind: "Node", name: $node, uid: $uid}]}
    } + if $kind == "Locator" then {spec: {
        nodeNumber: 16, locator: "5f00:1:10::/48", mtu: 1500, capabilities: [], underlayAddresses: ["fd30::11"],
        podCIDRs: ["10.244.\($number).0/24", "fd00:10:244:'"$digit"'::/64"]
    }} else {} end | '"${4:-.}" | agent "$1" apply --server-side --force-conflicts --field-manager=headway-agent -f -
}
# apply AGENT KIND NODE WHAT [ARGUMENT]: server-side, which needs no right to read
apply() {
    local version=v1
    [ "$2" = Node ] || version=headway.dev/v1alpha1
    jq -n --arg version $version --arg kind "$2" --arg node "$3" "{apiVersion: \$version, kind: \$kind, metadata: {name: \$node}} * $4" |
        agent "$1" apply --server-side --force-conflicts --field-manager=headway-agent -f - "${@:5}"
}
status() { apply "$@" --subresource=status; }
condition() { printf '{"status":{"conditions":[{"type":"%s","status":"False","reason":"HeadwayIsUp","message":"up"}]}}' "$1"; }
# taints JQ: those of the first Node, changed; controllers have added some
taints() { admin get node "$first" -o json | jq -c "{spec: {taints: (.spec.taints | $1)}}"; }
without() { taints "map(select(.key != \"$1\"))"; }
# Again, if a controller comes in between.
remove_taint() {
    local attempt
    for attempt in 1 2 3; do
        ! apply "$first" Node "$first" "$(without headway.dev/agent-not-ready)" || return 0
    done
    return 1
}

report='{"status": {"agentVersion": "0.1.0", "datapath": "tc", "podCIDRs": [], "uplinks": [], "conditions": [], "endpoints": 1,
    "headroom": {"wanted": 64, "supported": false}, "peers": {"known": 0, "routed": 0, "reachable": 0, "probed": 0}}}'
own='own node only' forbidden='Forbidden|forbidden|cannot'

denied  "another node's Locator" "$own" write "$first" Locator "$second"
denied  "another node's HeadwayNode" "$own" write "$first" HeadwayNode "$second"
denied  "a Locator by a token of no node" "$own" write unbound Locator "$first"
denied  "a Locator with another's podCIDRs" 'are not those of Node' write "$first" Locator "$first" '.spec.podCIDRs[0] = "10.244.0.0/24"'
denied  "a Locator with podCIDRs in another order" 'are not those of Node' write "$first" Locator "$first" '.spec.podCIDRs |= reverse'
denied  "a Locator without an owner" 'owned by its Node' write "$first" Locator "$first" 'del(.metadata.ownerReferences)'
denied  "a Locator owned by another Node" 'owned by its Node' write "$first" Locator "$first" '.metadata.ownerReferences[0].name = "'"$second"'"'
allowed "the own Locator" - write "$first" Locator "$first"
allowed "the own Locator again" - write "$first" Locator "$first" '.spec.mtu = 9000'
denied  "the own Locator with changed podCIDRs" 'are not those of Node' write "$first" Locator "$first" '.spec.podCIDRs = [.spec.podCIDRs[0]]'
denied  "another's existing Locator" "$own" write "$second" Locator "$first" '.spec.mtu = 1500'
allowed "the own HeadwayNode" - write "$first" HeadwayNode "$first"
allowed "the status of the own HeadwayNode" - status "$first" HeadwayNode "$first" "$report"
denied  "the status of another's HeadwayNode" "$own" status "$second" HeadwayNode "$first" "$report"
allowed "reading Locators" - agent "$second" get locators
allowed "reading the own Node" - agent "$first" get nodes --field-selector "metadata.name=$first"
allowed "the condition NetworkUnavailable" - status "$first" Node "$first" "$(condition NetworkUnavailable)"
denied  "another's NetworkUnavailable" 'own Node only' status "$first" Node "$second" "$(condition NetworkUnavailable)"
denied  "another condition" 'NetworkUnavailable only' status "$first" Node "$first" "$(condition Ready)"
denied  "addresses of the own Node" 'NetworkUnavailable only' status "$first" Node "$first" '{"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.1"}]}}'
denied  "capacity of the own Node" 'NetworkUnavailable only' status "$first" Node "$first" '{"status":{"capacity":{"example.com/x":"1"}}}'
denied  "a label by way of the status" 'metadata' status "$first" Node "$first" '{"metadata":{"labels":{"a":"b"}}}'
denied  "a label of the own Node" 'metadata' apply "$first" Node "$first" '{"metadata":{"labels":{"a":"b"}}}'
denied  "an annotation of the own Node" 'metadata' apply "$first" Node "$first" '{"metadata":{"annotations":{"headway.dev/node-number":"7"}}}'
denied  "making the own Node schedulable" 'taints only' apply "$first" Node "$first" '{"spec":{"unschedulable":false}}'
denied  "another's start-up taint" 'own Node only' apply "$second" Node "$first" "$(without headway.dev/agent-not-ready)"
denied  "a taint of somebody else" 'agent-not-ready only' apply "$first" Node "$first" "$(without example.com/other)"
denied  "a new taint" 'agent-not-ready only' apply "$first" Node "$first" "$(taints '. + [{key: "x", effect: "NoExecute"}]')"
allowed "the own start-up taint" - remove_taint
denied  "deleting a Node" "$forbidden" agent "$first" delete node "$first"
denied  "reading Secrets" "$forbidden" agent "$first" get secrets -n "$namespace"
denied  "reading Pods" "$forbidden" agent "$first" get pods -n "$namespace"
denied  "deleting a Locator" "$forbidden" agent "$first" delete locator "$first"
allowed "the UID of kube-system" - agent "$first" get namespace kube-system
denied  "other namespaces" "$forbidden" agent "$first" get namespaces

echo "$failures failed"
[ "$failures" = 0 ]

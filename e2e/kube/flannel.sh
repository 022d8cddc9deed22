#!/bin/bash
# A peer to compare with: flannel (VXLAN, kube subnet manager) as a DaemonSet on the rig. usage: flannel.sh up [N]|down|build
# up: builds flanneld and its image when missing, starts the rig when it does not run (N nodes, default 2),
#     loads the image, applies upstream's manifest (see below), waits for Ready nodes. Idempotent.
# down: takes flannel off a running cluster again (nodes go back to NotReady; delete your own pods before). down.sh ends everything too.
# Differences from upstream's kube-flannel.yml:
#  - the flannel CNI plugin (another repository) is not on the Go module proxy: a postStart hook writes what that plugin would hand
#    to its delegate (bridge + host-local, MTU and subnets of /run/flannel/subnet.env) straight into the conflist; so a CNI ADD
#    has one exec less than upstream's;
#  - flanneld is built without its Tencent cloud backend (its SDK version is not on the proxy either) and its UDP backend (cgo);
#  - pod networks follow RIG_FAMILY; IPv6 pod traffic goes over the IPv6 underlay (device flannel-v6.1).
set -euo pipefail
RIG=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd); . "$RIG/lib.sh"
FLANNEL_VERSION=${FLANNEL_VERSION:-v0.28.10}
P=$RIG_ROOT/peer/flannel TAR=$RIG_ROOT/peer/flannel/image-$FLANNEL_VERSION.tar IMG=ghcr.io/flannel-io/flannel:$FLANNEL_VERSION
build() {
    [ -s "$TAR" ] && return 0
    local src t=$P/src; mkdir -p "$P"
    src=$(cd / && go mod download -json "github.com/flannel-io/flannel@$FLANNEL_VERSION" | jq -r .Dir)
    rm -rf "$t"; cp -r --no-preserve=mode "$src" "$t"; rm -rf "$t"/pkg/backend/{tencentvpc,udp}; sed -i -E "/backend.(tencentvpc|udp)\"/d" "$t/main.go"
    (cd "$t" && CGO_ENABLED=0 GOFLAGS=-mod=mod go build -p "${BUILD_JOBS:-2}" -trimpath \
        -ldflags "-s -w -X github.com/flannel-io/flannel/pkg/version.Version=$FLANNEL_VERSION" -o "$P/flanneld" .)
    cat > "$P/spec.json" <<END
{"layers": {"flannel": {
   "bins": ["bash", "/usr/bin/sleep", "/usr/bin/mv", "/usr/bin/rm", "/usr/sbin/ip", "nft", "/usr/sbin/xtables-nft-multi"],
   "files": {"usr/lib/x86_64-linux-gnu/xtables": "/usr/lib/x86_64-linux-gnu/xtables", "etc/protocols": "/etc/protocols", "opt/bin/flanneld": "$P/flanneld"},
   "links": {"bin/bash": "/usr/bin/bash", "bin/sh": "/usr/bin/bash", "usr/sbin/iptables": "/usr/bin/xtables-nft-multi", "usr/sbin/ip6tables": "/usr/bin/xtables-nft-multi",
     "usr/sbin/iptables-save": "/usr/bin/xtables-nft-multi", "usr/sbin/iptables-restore": "/usr/bin/xtables-nft-multi",
     "usr/sbin/ip6tables-save": "/usr/bin/xtables-nft-multi", "usr/sbin/ip6tables-restore": "/usr/bin/xtables-nft-multi"}}},
 "images": [{"names": ["$IMG"], "layers": ["flannel"], "config": {"Entrypoint": ["/opt/bin/flanneld"], "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]}}]}
END
    python3 "$RIG/mkimages.py" "$TAR" "$P/spec.json"; rm -rf "$t"
}
manifest() {
    local net; case $RIG_FAMILY in
        ipv4) net="\"Network\": \"$POD4\"";;
        ipv6) net="\"EnableIPv4\": false, \"EnableIPv6\": true, \"IPv6Network\": \"$POD6\"";;
        dual) net="\"Network\": \"$POD4\", \"EnableIPv6\": true, \"IPv6Network\": \"$POD6\"";;
    esac
    cat <<END
apiVersion: v1
kind: Namespace
metadata: {name: kube-flannel, labels: {pod-security.kubernetes.io/enforce: privileged}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: flannel, namespace: kube-flannel}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: flannel}
rules:
- {apiGroups: [""], resources: [pods], verbs: [get]}
- {apiGroups: [""], resources: [nodes], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [nodes/status], verbs: [patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: flannel}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: flannel}
subjects: [{kind: ServiceAccount, name: flannel, namespace: kube-flannel}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kube-flannel-cfg, namespace: kube-flannel}
data:
  net-conf.json: |
    {$net, "EnableNFTables": false, "Backend": {"Type": "vxlan"}}
  install.sh: |
    for i in {1..600}; do [ ! -s /run/flannel/subnet.env ] || break; sleep 0.1; done
    . /run/flannel/subnet.env
    ranges= routes=
    add() { ranges+="\${ranges:+,}[{\"subnet\":\"\$1\"}]"; routes+="\${routes:+,}{\"dst\":\"\$2\"}"; }
    # subnet.env has the gateway (a.b.c.1/24, xx::1/64); host-local wants the network, which ends in .0 or :: for the rig's /24 and /64
    [ -z "\${FLANNEL_SUBNET:-}" ] || add "\${FLANNEL_SUBNET%.*}.0/\${FLANNEL_SUBNET#*/}" "\$FLANNEL_NETWORK"
    if [ -n "\${FLANNEL_IPV6_SUBNET:-}" ]; then a=\${FLANNEL_IPV6_SUBNET%/*}; add "\${a%::*}::/\${FLANNEL_IPV6_SUBNET#*/}" "\$FLANNEL_IPV6_NETWORK"; fi
    masq=true; [ "\$FLANNEL_IPMASQ" != true ] || masq=false
    echo '{"name":"cbr0","cniVersion":"1.0.0","plugins":[{"type":"bridge","bridge":"cni0","hairpinMode":true,"isGateway":true,"isDefaultGateway":true,'\
    '"ipMasq":'\$masq',"mtu":'\$FLANNEL_MTU',"ipam":{"type":"host-local","ranges":['"\$ranges"'],"routes":['"\$routes"']}},'\
    '{"type":"portmap","capabilities":{"portMappings":true}}]}' > /etc/cni/net.d/.flannel
    mv /etc/cni/net.d/.flannel /etc/cni/net.d/10-flannel.conflist
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: kube-flannel-ds, namespace: kube-flannel, labels: {app: flannel}}
spec:
  selector: {matchLabels: {app: flannel}}
  template:
    metadata: {labels: {app: flannel}}
    spec:
      hostNetwork: true
      priorityClassName: system-node-critical
      tolerations: [{operator: Exists, effect: NoSchedule}]
      serviceAccountName: flannel
      terminationGracePeriodSeconds: 5
      initContainers:
      - {name: clean, image: "$IMG", command: [rm, -f, /run/flannel/subnet.env], volumeMounts: [{name: run, mountPath: /run/flannel}]}
      containers:
      - name: kube-flannel
        image: $IMG
        command: [/opt/bin/flanneld]
        args: [--ip-masq, --kube-subnet-mgr, --healthz-port=8081]
        lifecycle: {postStart: {exec: {command: [bash, /etc/kube-flannel/install.sh]}}}
        ports: [{name: healthz, containerPort: 8081, protocol: TCP}]
        livenessProbe: {httpGet: {path: /healthz, port: healthz}, initialDelaySeconds: 10, periodSeconds: 30}
        readinessProbe: {httpGet: {path: /readyz, port: healthz}, initialDelaySeconds: 1, periodSeconds: 10}
        resources: {requests: {cpu: 100m, memory: 50Mi}}
        securityContext: {privileged: false, capabilities: {add: [NET_ADMIN, NET_RAW]}}
        env:
        - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
        - {name: EVENT_QUEUE_DEPTH, value: "5000"}
        volumeMounts:
        - {name: run, mountPath: /run/flannel}
        - {name: cni, mountPath: /etc/cni/net.d}
        - {name: cfg, mountPath: /etc/kube-flannel/}
        - {name: xtables-lock, mountPath: /run/xtables.lock}
      volumes:
      - {name: run, hostPath: {path: /run/flannel, type: DirectoryOrCreate}}
      - {name: cni, hostPath: {path: /etc/cni/net.d}}
      - {name: cfg, configMap: {name: kube-flannel-cfg}}
      - {name: xtables-lock, hostPath: {path: /run/xtables.lock, type: FileOrCreate}}
END
}
case ${1:-} in
build) build;;
up)
    build
    [ -n "$(nodes)" ] || "$RIG/up.sh" "${2:-2}"
    . "$RUN/settings"
    T0=$(date +%s%N)
    "$RIG/load.sh" "$TAR"
    for n in $(nodes); do inside "$n" cp -a "$RIG_ROOT"/cni-bin/{bridge,portmap} /opt/cni/bin/; done
    manifest | k apply -f - > /dev/null
    k -n kube-flannel rollout status ds/kube-flannel-ds --timeout=120s > /dev/null || { k -n kube-flannel get pods -o wide; k -n kube-flannel logs ds/kube-flannel-ds --tail=20 || true; die "flannel did not become Ready"; }
    for n in $(nodes); do k wait --for=condition=Ready "node/$n" --timeout=60s > /dev/null; done
    log "flannel $FLANNEL_VERSION: all nodes Ready after $(( ($(date +%s%N) - T0) / 1000000 )) ms";;
down)
    [ -n "$(nodes)" ] || exit 0
    . "$RUN/settings"; manifest | k delete --ignore-not-found --wait=true -f - > /dev/null
    for n in $(nodes); do inside "$n" bash -c 'rm -rf /etc/cni/net.d/10-flannel.conflist /run/flannel /opt/cni/bin/{bridge,portmap}
        for l in flannel.1 flannel-v6.1 cni0; do ip link del $l 2>/dev/null; done
        for x in iptables ip6tables; do command -v $x >/dev/null || continue
            for t in nat/POSTROUTING/FLANNEL-POSTRTG filter/FORWARD/FLANNEL-FWD; do IFS=/ read -r tb c f <<< "$t"
                $x -w -t $tb -S $c 2>/dev/null | sed -n "s/^-A \(.* -j $f\)$/\1/p" | while read -r r; do eval "$x -w -t $tb -D $r"; done
                $x -w -t $tb -F $f 2>/dev/null; $x -w -t $tb -X $f 2>/dev/null; done
        done; true'; done
    log "flannel removed";;
*) die "usage: flannel.sh up [N]|down|build";;
esac

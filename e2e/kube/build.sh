#!/bin/bash
# Builds every binary of the rig from the Go module proxy into ROOT/bin and ROOT/cni-bin.
# usage: build.sh [TARGET...]   (default: hyperkube containerd runc cni tools agnhost coredns)
#        extra targets: e2e, e2e_full (upstream e2e.test), critest
# A target whose binaries exist at the wanted version is skipped (ROOT/.stamp-*).
set -euo pipefail
RIG=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$RIG/lib.sh"; ROOT=$RIG_ROOT
mkdir -p "$ROOT/bin" "$ROOT/cni-bin"
. "$RIG/versions.env"
[ $# -gt 0 ] || set -- hyperkube containerd runc cni tools agnhost coredns
export GOFLAGS=-mod=mod CGO_ENABLED=0 GOBIN="$ROOT/bin"
P=${BUILD_JOBS:-2}

ldk() {   # version flags of the Kubernetes binaries
    local v="v$K8S_VERSION" minor=${K8S_VERSION#*.} p s="-s -w"
    for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
        s+=" -X $p.gitVersion=$v -X $p.gitMajor=1 -X $p.gitMinor=${minor%%.*} -X $p.gitTreeState=clean"
        s+=" -X $p.gitCommit=0000000000000000000000000000000000000000 -X $p.buildDate=2026-01-01T00:00:00Z"
    done
    echo "$s"
}
inst() {  # inst PKG@VERSION [LDFLAGS] [TAGS]: go install of a module without replace lines
    go install -p "$P" -trimpath -ldflags "-s -w ${2:-}" -tags "${3:-}" "$1"
}

hyperkube() {
    (cd "$RIG/hyperkube" && GOFLAGS=-mod=readonly go build -p "$P" -trimpath -ldflags "$(ldk)" -o "$ROOT/bin/hyperkube" .)
    local a; for a in kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl etcd; do
        ln -sfn hyperkube "$ROOT/bin/$a"
    done
}
agnhost() {
    (cd "$RIG/hyperkube" && GOFLAGS=-mod=readonly go build -p "$P" -trimpath \
        -ldflags "-s -w -X main.Version=$AGNHOST_TAG" -o "$ROOT/bin/agnhost" k8s.io/kubernetes/test/images/agnhost
     GOFLAGS=-mod=readonly go build -p "$P" -trimpath -ldflags "-s -w" -o "$ROOT/bin/regression-issue-74839" k8s.io/kubernetes/test/images/regression-issue-74839)
}
e2e() {       # the cut-down suite in hyperkube/e2enet: sig-network, NetworkPolicy, common
    (cd "$RIG/hyperkube" && GOFLAGS=-mod=readonly go test -c -p "$P" -trimpath -ldflags "$(ldk)" -o "$ROOT/bin/e2e.test" ./e2enet)
    (cd "$RIG/hyperkube" && GOFLAGS=-mod=readonly go build -p "$P" -trimpath -ldflags "-s -w" -o "$ROOT/bin/ginkgo" github.com/onsi/ginkgo/v2/ginkgo)
}
e2e_full() {  # upstream's own
    (cd "$RIG/hyperkube" && GOFLAGS=-mod=readonly go test -c -p "$P" -trimpath -ldflags "$(ldk)" -o "$ROOT/bin/e2e-full.test" k8s.io/kubernetes/test/e2e)
}
containerd() {
    local m=github.com/containerd/containerd/v2 v=$CONTAINERD_VERSION
    local ld="-X $m/version.Version=$v -X $m/version.Package=$m"
    local t="no_btrfs no_devmapper no_zfs no_tracing no_aufs"
    inst $m/cmd/containerd@$v "$ld" "$t"
    inst $m/cmd/containerd-shim-runc-v2@$v "$ld" "$t"
    inst $m/cmd/ctr@$v "$ld" "$t"
}
runc() {  # needs gcc, pkg-config and libseccomp-dev
    CGO_ENABLED=1 inst github.com/opencontainers/runc@$RUNC_VERSION \
        "-X main.version=${RUNC_VERSION#v} -extldflags -static" "seccomp netgo osusergo"
}
cni() {
    local v=$CNI_PLUGINS_VERSION m=github.com/containernetworking/plugins/plugins p
    for p in ipam/host-local ipam/static main/bridge main/loopback main/ptp main/host-device main/macvlan \
             meta/portmap meta/bandwidth meta/tuning meta/sbr meta/firewall; do
        GOBIN="$ROOT/cni-bin" inst $m/$p@$v "-X github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion=$v"
    done
}
tools() {
    inst github.com/containernetworking/cni/cnitool@$CNI_VERSION
    inst sigs.k8s.io/cri-tools/cmd/crictl@$CRI_TOOLS_VERSION "-X sigs.k8s.io/cri-tools/pkg/version.Version=${CRI_TOOLS_VERSION#v}"
    inst helm.sh/helm/v3/cmd/helm@$HELM_VERSION "-X helm.sh/helm/v3/internal/version.version=$HELM_VERSION"
}
critest() {
    local d; d=$(mktemp -d)
    (cd "$d" && go mod init x >/dev/null 2>&1 && go get sigs.k8s.io/cri-tools@$CRI_TOOLS_VERSION && \
     go test -c -p "$P" -trimpath -ldflags "-s -w" -o "$ROOT/bin/critest" sigs.k8s.io/cri-tools/cmd/critest); rm -rf "$d"
}
coredns() { inst github.com/coredns/coredns@$COREDNS_VERSION; }

for t in "$@"; do
    stamp="$ROOT/.stamp-$t" want=$(declare -f "$t" ldk inst; cat "$RIG/versions.env" "$RIG/hyperkube/main.go" "$RIG/hyperkube/go.mod")
    want=$(printf %s "$want" | sha256sum)
    if [ "$(cat "$stamp" 2>/dev/null)" = "$want" ]; then echo "== $t: up to date"; continue; fi
    s=$(date +%s); "$t"; printf %s "$want" > "$stamp"; echo "== $t: built in $(( $(date +%s) - s )) s"
done

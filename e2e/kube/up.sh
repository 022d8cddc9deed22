#!/bin/bash
# Starts a cluster: a control plane ("cp") and N nodes, each in its own network, mount, PID, UTS, IPC and cgroup
# namespace, without a network plugin (the nodes are NotReady). usage: [RIG_PROXY=nftables|iptables|none] [RIG_FAMILY=dual|ipv4|ipv6] up.sh [N]
# Idempotent: a member that already runs is left as it is; a missing one is started (so "up.sh 3" grows a 2-node cluster,
# and "down.sh node2; up.sh 2" is a node reboot). Everything it starts is ended by down.sh.
set -euo pipefail
RIG=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd); . "$RIG/lib.sh"
N=${1:-2}
[ "$(id -u)" = 0 ] || die "must be root"
[ -x "$BIN/hyperkube" ] || die "no binaries in $BIN: run build.sh first"
[ -d "$RIG_ROOT/seed" ] || die "no images in $RIG_ROOT/seed: run images.sh first"
case $RIG_ROOT in /etc/*|/var/*|/opt/*|/run/*|/proc/*|/sys/*) die "RIG_ROOT is $RIG_ROOT: it must not be below /etc, /var, /opt or /run (the nodes have their own)";; esac
T0=$(date +%s%N); mkdir -p "$RUN"
NODES=$(for k in $(seq "$N"); do echo "node$k"; done)
echo "RIG_PROXY=$RIG_PROXY RIG_FAMILY=$RIG_FAMILY" > "$RUN/settings"

# Machine-wide settings that kubelet changes, or that need raising: remember what they were (down.sh puts them back).
[ -e "$RUN/sysctl.saved" ] || { for s in vm.overcommit_memory vm.panic_on_oom kernel.panic kernel.panic_on_oops kernel.keys.root_maxkeys \
    kernel.keys.root_maxbytes fs.inotify.max_user_instances fs.inotify.max_user_watches; do echo "$s=$(sysctl -n $s)"; done > "$RUN/sysctl.saved"; }
sysctl -qw fs.inotify.max_user_instances=8192 fs.inotify.max_user_watches=1048576

start() {  # start NAME: its init process up to the point where its mounts are done
    local n=$1 d=$RUN/$1 c g up p
    mkdir -p "$d"; rm -f "$d/mounted" "$d/go"; : > "$d/cgroups"
    for c in $CGROUPS; do
        [ -d "/sys/fs/cgroup/$c" ] || continue
        g=$(cgdir "$c")/headway-rig-$(cluster_name)-$n; mkdir -p "$g"; echo "$g" >> "$d/cgroups"
        [ "$c" != cpuset ] || { cat "${g%/*}/cpuset.cpus" > "$g/cpuset.cpus"; cat "${g%/*}/cpuset.mems" > "$g/cpuset.mems"; }
    done
    setsid bash -c 'while read -r g; do echo $$ > "$g/cgroup.procs"; done < "$2/cgroups"
        exec unshare --net --mount --uts --ipc --pid --cgroup --fork --kill-child --mount-proc bash "$0/node-init.sh" "$1" "$2"' \
        "$RIG" "$n" "$d" < /dev/null > "$d/init.log" 2>&1 &
    up=$!
    for _ in $(seq 200); do
        p=$(cat "/proc/$up/task/$up/children" 2>/dev/null || true); p=${p%% *}
        [ -n "$p" ] && [ -e "$d/mounted" ] && break
        kill -0 "$up" 2>/dev/null || { cat "$d/init.log" >&2; die "$n did not start"; }
        sleep 0.05
    done
    [ -e "$d/mounted" ] || { cat "$d/init.log" >&2; die "$n: mounts did not finish"; }
    echo "$p $(cut -d' ' -f22 "/proc/$p/stat")" > "$d/init.pid"
}

export RIG_PROXY RIG_FAMILY RIG_ROOT RIG_RUN=$RUN
"$RIG/pki.sh" >/dev/null
if [ -z "$(initpid cp)" ]; then
    start cp
    innet cp sh -e -c "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv6.conf.default.accept_dad=0
        sysctl -qw net.bridge.bridge-nf-call-iptables=0 net.bridge.bridge-nf-call-ip6tables=0 || true
        ip link add br0 type bridge; ip link set br0 up
        ip addr add $UL4.1/24 dev br0; ip addr add ${UL6}:1/64 dev br0 nodad"
    touch "$RUN/cp/go"
fi
fresh=
for n in $NODES; do
    [ -z "$(initpid "$n")" ] || continue
    k=${n#node} d=$RUN/$n; mkdir -p "$d"; fresh+=" $n"
    "$RIG/pki.sh" "$n" > /dev/null
    fam "$UL4.$((10 + k))" "${UL6}:$((10 + k))" > "$d/node-ip"
    cat > "$d/containerd.toml" <<END
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.snapshotter.v1.erofs", "io.containerd.snapshotter.v1.blockfile"]
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "registry.k8s.io/pause:$PAUSE_TAG"
[plugins.'io.containerd.cri.v1.runtime']
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["/opt/cni/bin"]
    conf_dir = "/etc/cni/net.d"
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = "runc"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
        BinaryName = "$BIN/runc"
        SystemdCgroup = false
END
    cat > "$d/kubelet.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
failSwapOn: false
clusterDNS: [$(prim $DNS4 $DNS6)]
clusterDomain: cluster.local
resolvConf: /etc/resolv.conf
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $RUN/pki/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $RUN/pki/$n-serving.crt
tlsPrivateKeyFile: $RUN/pki/$n-serving.key
volumePluginDir: /var/lib/kubelet/volumeplugins
evictionHard: {memory.available: 100Mi, nodefs.available: 1Gi, imagefs.available: 1Gi}
imageGCHighThresholdPercent: 100
imageMinimumGCAge: 24h
serializeImagePulls: false
enableDebuggingHandlers: true
END
    cat > "$d/kube-proxy.yaml" <<END
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: $RUN/kube-proxy.conf}
mode: $RIG_PROXY
hostnameOverride: $n
clusterCIDR: $(fam $POD4 $POD6)
conntrack: {maxPerCore: 0, min: 0}
END
    # The images: committed snapshots and blobs never change, so the nodes share them by hard link; the databases are copied.
    rm -rf "$d/lib-containerd"; cp -al "$RIG_ROOT/seed" "$d/lib-containerd"
    (cd "$RIG_ROOT/seed" && find . -name '*.db' -exec cp -a --remove-destination {} "$d/lib-containerd/{}" \;)
    start "$n"
    ip link add "rig$k" netns "$(initpid cp)" type veth peer name eth0 netns "$(initpid "$n")"
    innet cp sh -e -c "ip link set rig$k master br0; ip link set rig$k up"
    innet "$n" sh -e -c "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv6.conf.default.accept_dad=0
        sysctl -qw net.bridge.bridge-nf-call-iptables=1 net.bridge.bridge-nf-call-ip6tables=1 || true
        ip link set eth0 up; ip addr add $UL4.$((10 + k))/24 dev eth0; ip addr add ${UL6}:$((10 + k))/64 dev eth0 nodad
        ip route add default via $UL4.1; ip -6 route add default via ${UL6}:1"
    date -u +%FT%T > "$d/started"; touch "$d/go"
done
log "processes started"
ok=; for _ in $(seq 300); do k get --raw /readyz >/dev/null 2>&1 && { ok=1; break; }; sleep 0.2; done
[ -n "$ok" ] || { tail -n 5 "$RUN/cp/kube-apiserver.log" >&2; die "the API server is not ready"; }
log "API server ready"
for n in $fresh; do   # a node that comes back has a Node object already: wait for its new kubelet's first heartbeat
    ok=; for _ in $(seq 300); do
        t=$(k get node "$n" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].lastHeartbeatTime}' 2>/dev/null) && [[ $t > $(cat "$RUN/$n/started") ]] && { ok=1; break; }; sleep 0.2
    done
    [ -n "$ok" ] || { tail -n 5 "$RUN/$n/kubelet.log" >&2; die "$n did not register"; }
done
for n in $NODES; do
    cidrs=; for _ in $(seq 600); do cidrs=$(k get node "$n" -o 'jsonpath={.spec.podCIDRs[*]}' 2>/dev/null) && [ -n "$cidrs" ] && break; sleep 0.2; done
    [ -n "$cidrs" ] || { tail -n 5 "$RUN/$n/kubelet.log" >&2; die "$n did not register"; }
    echo "$cidrs" > "$RUN/$n/pod-cidrs"
done
log "nodes registered"
# The control plane is off the segment: it reaches pods (webhooks, aggregated APIs) by way of their node, as any machine
# beside the cluster does.
for n in $NODES; do for c in $(cat "$RUN/$n/pod-cidrs"); do
    case $c in *:*) via="${UL6}:$(underlay_number "$n")";; *) via=$UL4.$(underlay_number "$n");; esac
    innet cp ip route replace "$c" via "$via"
done; done
sed -e "s#@IPS@#$(fam "\"$DNS4\"" "\"$DNS6\"")#; s#@IP@#$(prim $DNS4 $DNS6)#; s#@TAG@#$COREDNS_TAG#" "$RIG/coredns.yaml" | k apply -f - > /dev/null
log "$N nodes registered (NotReady: no network plugin yet) after $(( ($(date +%s%N) - T0) / 1000000 )) ms"

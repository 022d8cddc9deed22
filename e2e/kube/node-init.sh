#!/bin/bash
# PID 1 of a cluster member ("cp" or "nodeK"): sets up its mount namespace, waits for its network, runs and
# restarts its daemons. Started by up.sh through unshare(1). Killing it ends everything in the member.
set -euo pipefail
NAME=$1 D=$2
RIG=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd); . "$RIG/lib.sh"
hostname "$NAME"
# A fresh sysfs for this network namespace; the old one goes away entirely, since a hidden cgroup mount would
# still be seen in /proc/self/mountinfo by kubelet and runc.
umount -l -R /sys
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=755,size=1m cgroup /sys/fs/cgroup
for c in $CGROUPS; do
    mkdir "/sys/fs/cgroup/$c"
    case $c in
        unified) mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified || rmdir /sys/fs/cgroup/unified;;
        systemd) mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd || rmdir /sys/fs/cgroup/systemd;;
        *) mount -t cgroup -o "$c" cgroup "/sys/fs/cgroup/$c";;
    esac
done
mount -t bpf bpf /sys/fs/bpf 2>/dev/null || true
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null || true
# Private, disposable /etc, /var and /opt over the machine's, and a private /run.
T=$D/tmpfs; mkdir -p "$T"; mount -t tmpfs -o mode=755,size=512m "rig-$NAME" "$T"
for d in etc var opt; do
    mkdir "$T/$d.upper" "$T/$d.work"
    mount -t overlay -o "lowerdir=/$d,upperdir=$T/$d.upper,workdir=$T/$d.work" overlay "/$d"
done
mount -t tmpfs -o mode=755 tmpfs /run; mkdir -p /run/netns /run/lock /run/containerd
bind() { mkdir -p "$D/$1" "$2"; mount --bind "$D/$1" "$2"; }   # on disk: overlayfs cannot be an upper layer
bind lib-containerd /var/lib/containerd; bind lib-kubelet /var/lib/kubelet; bind log-pods /var/log/pods
rm -rf /etc/cni /opt/cni; mkdir -p /etc/cni/net.d /opt/cni/bin /etc/kubernetes /var/lib/cni /var/log/containers
[ "$NAME" = cp ] || cp -a "$RIG_ROOT"/cni-bin/{loopback,host-local,portmap,bandwidth} /opt/cni/bin/
echo "$NAME" > /etc/hostname; printf '%s' "$RUN $NAME" | md5sum | cut -c1-32 > /etc/machine-id
printf '127.0.0.1 localhost\n::1 localhost\n' > /etc/hosts
printf 'options ndots:0\n' > /etc/resolv.conf 2>/dev/null || { umount /etc/resolv.conf; printf 'options ndots:0\n' > /etc/resolv.conf; }
ip link set lo up
[ -e /dev/kmsg ] || ln -s /dev/null /dev/kmsg
mount --make-rshared /
export PATH=$BIN:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
touch "$D/mounted"
while [ ! -e "$D/go" ]; do sleep 0.05; done

svc() { local n=$1; shift; ( while :; do echo "--- start $(date +%FT%T)"; "$@" && true; echo "--- exit $?"; sleep 1; done ) >> "$D/$n.log" 2>&1 & }
PKI=$RUN/pki
if [ "$NAME" = cp ]; then
    auth() { echo "--kubeconfig=$1 --authentication-kubeconfig=$1 --authorization-kubeconfig=$1 --client-ca-file=$PKI/ca.crt --cert-dir=$D/certs --leader-elect=false --profiling=false"; }
    svc etcd etcd --data-dir="$D/etcd" --unsafe-no-fsync --listen-client-urls=http://127.0.0.1:2379 --advertise-client-urls=http://127.0.0.1:2379 \
        --listen-peer-urls=http://127.0.0.1:2380 --quota-backend-bytes=1073741824 --log-level=warn
    svc kube-apiserver kube-apiserver --etcd-servers=http://127.0.0.1:2379 --advertise-address="$API_IP" --bind-address=:: --secure-port=6443 \
        --service-cluster-ip-range="$(fam $SVC4 $SVC6)" --allow-privileged=true --authorization-mode=Node,RBAC \
        --enable-admission-plugins=NodeRestriction --client-ca-file="$PKI/ca.crt" \
        --tls-cert-file="$PKI/apiserver.crt" --tls-private-key-file="$PKI/apiserver.key" \
        --kubelet-certificate-authority="$PKI/ca.crt" --kubelet-client-certificate="$PKI/kubelet-client.crt" --kubelet-client-key="$PKI/kubelet-client.key" \
        --kubelet-preferred-address-types=InternalIP --service-account-issuer=https://kubernetes.default.svc.cluster.local \
        --service-account-key-file="$PKI/sa.pub" --service-account-signing-key-file="$PKI/sa.key" \
        --requestheader-client-ca-file="$PKI/ca.crt" --requestheader-allowed-names=front-proxy-client --requestheader-extra-headers-prefix=X-Remote-Extra- \
        --requestheader-group-headers=X-Remote-Group --requestheader-username-headers=X-Remote-User \
        --proxy-client-cert-file="$PKI/front-proxy-client.crt" --proxy-client-key-file="$PKI/front-proxy-client.key" --enable-aggregator-routing=true \
        --cert-dir="$D/certs" --profiling=false ${RIG_APISERVER_ARGS:-}
    for _ in $(seq 600); do kubectl --kubeconfig="$RUN/admin.conf" get --raw /readyz > /dev/null 2>&1 && break; sleep 0.1; done
    svc kube-controller-manager kube-controller-manager $(auth "$RUN/kcm.conf") \
        --allocate-node-cidrs=true --cluster-cidr="$(fam $POD4 $POD6)" --service-cluster-ip-range="$(fam $SVC4 $SVC6)" \
        $(case $RIG_FAMILY in dual) echo --node-cidr-mask-size-ipv4=24 --node-cidr-mask-size-ipv6=64;; ipv4) echo --node-cidr-mask-size=24;; *) echo --node-cidr-mask-size=64;; esac) \
        --root-ca-file="$PKI/ca.crt" --service-account-private-key-file="$PKI/sa.key" --cluster-signing-cert-file="$PKI/ca.crt" --cluster-signing-key-file="$PKI/ca.key" \
        --use-service-account-credentials=true --kube-api-qps=200 --kube-api-burst=400 ${RIG_KCM_ARGS:-}
    svc kube-scheduler kube-scheduler $(auth "$RUN/scheduler.conf")
else
    svc containerd containerd --config "$D/containerd.toml"
    for _ in $(seq 200); do ctr version >/dev/null 2>&1 && break; sleep 0.1; done
    svc kubelet kubelet --config="$D/kubelet.yaml" --kubeconfig="$D/kubelet.conf" --hostname-override="$NAME" --node-ip="$(cat "$D/node-ip")" ${RIG_KUBELET_ARGS:-}
    [ "$RIG_PROXY" = none ] || svc kube-proxy kube-proxy --config="$D/kube-proxy.yaml"
fi
[ "$NAME" = cp ] || while :; do wait || true; sleep 1; done
# cp: kubelets set these machine-wide at their start (panic_on_oops=1 among them); put the machine's own values back
grep -v inotify "$RUN/sysctl.saved" > "$D/sysctl.keep"; was=$(sed -n 's/^kernel.panic_on_oops=//p' "$D/sysctl.keep")
while :; do
    read -r v < /proc/sys/kernel/panic_on_oops
    [ "$v" = "$was" ] || { sleep 1; sysctl -qp "$D/sysctl.keep" > /dev/null || true; }
    sleep 1
done

# Settings and functions that the rig's scripts share (sourced).
RIG=${RIG:-$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)}
RIG_ROOT=${RIG_ROOT:-${XDG_CACHE_HOME:-$HOME/.cache}/headway/kube-rig}   # bin/ cni-bin/ images/ seed/: what build.sh and images.sh make
RUN=${RIG_RUN:-$RIG_ROOT/run}                                           # state of one running cluster
BIN=$RIG_ROOT/bin
. "$RIG/versions.env"
RIG_PROXY=${RIG_PROXY:-nftables}         # kube-proxy's mode: nftables, iptables, or none
RIG_FAMILY=${RIG_FAMILY:-dual}           # dual, ipv4 or ipv6
UL4=172.30.0 UL6=fd30:                   # underlay: control plane .1, node K .(10+K)
POD4=10.244.0.0/16 POD6=fd00:10:244::/56 SVC4=10.96.0.0/16 SVC6=fd00:10:96::/112
DNS4=10.96.0.10 DNS6=fd00:10:96::a
fam() { case $RIG_FAMILY in dual) echo "$1,$2";; ipv4) echo "$1";; ipv6) echo "$2";; esac; }
prim() { case $RIG_FAMILY in ipv6) echo "$2";; *) echo "$1";; esac; }
API_IP=$(prim $UL4.1 ${UL6}:1)
case $API_IP in *:*) API_URL="https://[$API_IP]:6443";; *) API_URL="https://$API_IP:6443";; esac
CGROUPS="cpu cpuacct cpuset memory devices freezer blkio pids systemd unified"
log() { echo "[$(date +%T)] $*" >&2; }
die() { echo "error: $*" >&2; exit 1; }

# Names of this cluster's cgroups: two clusters of one machine do not meet.
cluster_name() { printf %s "$RUN" | md5sum | cut -c1-8; }
# Host number of a member on the underlay.
underlay_number() { [ "$1" = cp ] && echo 1 || echo $((10 + ${1#node})); }

# pid of the init process (PID 1 of its own PID namespace) of "cp", "node1", ...; empty when it does not run.
# The start time guards against a reused pid.
initpid() {
    local p t; read -r p t 2>/dev/null < "$RUN/$1/init.pid" || return 0
    [ "$(cut -d' ' -f22 "/proc/$p/stat" 2>/dev/null)" = "$t" ] && echo "$p" || true
}
members() { local d; for d in "$RUN"/cp "$RUN"/node*; do [ -d "$d" ] && basename "$d"; done; true; }
nodes() { members | grep '^node' || true; }
# inside NAME CMD...: a command in all of a member's namespaces
inside() {
    local n=$1 p; shift; p=$(initpid "$n"); [ -n "$p" ] || die "$n does not run"
    nsenter -t "$p" --net --mount --uts --pid --ipc --cgroup -- "$@"
}
# innet NAME CMD...: a command in a member's network namespace only
innet() { local p; p=$(initpid "$1"); [ -n "$p" ] || die "$1 does not run"; shift; nsenter -t "$p" --net -- "$@"; }
k() { innet cp "$BIN/kubectl" --kubeconfig "$RUN/admin.conf" "$@"; }
# cgdir CONTROLLER: the folder for the rig's cgroups: below our own cgroup, so that no limit on the caller is escaped
cgdir() {
    local c=$1 line
    case $c in
        unified) line=$(grep '^0::' /proc/self/cgroup | cut -d: -f3-);;
        systemd) line=$(grep ':name=systemd:' /proc/self/cgroup | cut -d: -f3-);;
        *) line=$(awk -F: -v c="$c" '{n=split($2,a,","); for(i=1;i<=n;i++) if(a[i]==c) print $3}' /proc/self/cgroup);;
    esac
    echo "/sys/fs/cgroup/$c${line%/}"
}

"""Measures of a CNI on the rig; started by bench.sh (see there)."""
import collections, datetime, json, os, re, statistics, subprocess, sys, time

def env(name, default): return type(default)(os.environ.get(name) or default)

def compare(files):
    docs = [json.load(open(f)) for f in files]
    keys = list(dict.fromkeys(k for d in docs for k in d["results"]))
    print(f'{"metric":34} {"unit":10}' + "".join(f' {d["label"][:24]:>24}' for d in docs))
    for k in keys:
        unit = next(d["results"][k]["unit"] for d in docs if k in d["results"])
        cells = []
        for d in docs:
            r = d["results"].get(k)
            cells.append("-" if r is None else f'{num(r["median"])} ({num(r["min"])}..{num(r["max"])})' if r["n"] > 1 else num(r["median"]))
        print(f"{k:34} {unit:10}" + "".join(f" {c:>24}" for c in cells))
    for d in docs: print(f'{d["label"]}: {d["date"]}, {d["seconds"]} s, {d["settings"]}, machine busy before {d["busy_before_pct"]}%'
                         + "".join("; " + w for w in d["warnings"]))

def num(x): return "-" if x is None else f"{x:.0f}" if abs(x) >= 1000 else f"{x:.3g}"

if sys.argv[1:2] == ["--compare"]:
    compare(sys.argv[2:]); sys.exit(0)

RIG, ROOT, RUN = (os.environ[k] for k in ("RIG", "RIG_ROOT", "RUN"))
T0 = time.monotonic(); BUDGET = env("BENCH_BUDGET", 330); ONLY = re.compile(env("BENCH_ONLY", "."))
NS = "rig-bench"
results, warnings, failed = collections.OrderedDict(), [], set()

def say(s): print(f"[{time.monotonic() - T0:5.0f}s] {s}", file=sys.stderr, flush=True)
def warn(s): warnings.append(s); say("warning: " + s)
def left(): return BUDGET - (time.monotonic() - T0)
def sh(cmd, timeout=60, inp=None, check=True):
    p = subprocess.run(cmd, input=inp, capture_output=True, text=True, timeout=timeout)
    if check and p.returncode: raise RuntimeError(f"{' '.join(cmd)[:120]}: {(p.stderr or p.stdout).strip()[-300:]}")
    return p.stdout
def k(*a, **kw): return sh([RIG + "/kubectl", *a], **kw)
def inside(node, *a, **kw): return sh([RIG + "/inside", node, *a], **kw)
def add(name, unit, value):
    if value is not None: results.setdefault(name, {"unit": unit, "values": []})["values"].append(round(float(value), 4))

def busy():  # machine-wide CPU seconds used, and all
    v = [int(x) for x in open("/proc/stat").readline().split()[1:9]]
    return (sum(v) - v[3] - v[4]) / 100, sum(v) / 100
b0 = busy(); time.sleep(2); b1 = busy(); BUSY = round(100 * (b1[0] - b0[0]) / max(b1[1] - b0[1], 1e-9))

# ---- what runs here
nodes = json.loads(k("get", "nodes", "-o", "json"))["items"]
ready = sorted(n["metadata"]["name"] for n in nodes if any(c["type"] == "Ready" and c["status"] == "True" for c in n["status"]["conditions"]))
if len(ready) < 2: sys.exit("bench: needs at least 2 Ready nodes")
A, B = ready[:2]
conf = inside(A, "bash", "-c", "cd /etc/cni/net.d; for f in *.conflist *.conf *.json; do [ -e $f ] && cat $f && break; done", check=False)
try: conflist = json.loads(conf)
except ValueError: conflist = {}; warn("no CNI configuration found in /etc/cni/net.d")
label = os.environ.get("BENCH_LABEL") or conflist.get("name") or "cni"
out = sys.argv[1] if len(sys.argv) > 1 else f"{ROOT}/bench-{label}.json"
settings = open(RUN + "/settings").read().strip()

# ---- the CNI's own pods and processes
AG = os.environ.get("BENCH_AGENTS"); PROCS = os.environ.get("BENCH_PROCS")
dss = json.loads(k("get", "ds", "-A", "-o", "json"))["items"]
hostds = {(d["metadata"]["namespace"], d["metadata"]["name"]) for d in dss if d["spec"]["template"]["spec"].get("hostNetwork")}
agents = []
for p in json.loads(k("get", "pods", "-A", "-o", "json"))["items"]:
    m = p["metadata"]; owner = {(m["namespace"], o["name"]) for o in m.get("ownerReferences", [])}
    own = re.search(AG, m["namespace"] + "/" + m["name"]) if AG else (owner & hostds or m["namespace"] in {n for n, _ in hostds} - {"kube-system"})
    if own and p["spec"].get("nodeName"): agents.append((p["spec"]["nodeName"], m["uid"], m["namespace"] + "/" + m["name"], m["namespace"], p["spec"].get("serviceAccountName", "default")))
users = {f"system:serviceaccount:{a[3]}:{a[4]}" for a in agents}
users |= {u for ns in {a[3] for a in agents} - {"kube-system"} for u in [f"system:serviceaccount:{ns}:"]}
KNOWN = re.compile(r"^(kube|hyperkube|etcd|coredns|containerd|e2e|ginkgo|helm|agnhost|curl)|\b(kubelet|kubectl|kube-\w+|coredns)\b", re.I)
say(f"{label}: nodes {A}, {B}; agents: {', '.join(a[2] for a in agents) or 'no pods'}{'; processes: ' + PROCS if PROCS else ''}")

def node_cg(node, ctl):
    for g in open(f"{RUN}/{node}/cgroups").read().split():
        if g.startswith(f"/sys/fs/cgroup/{ctl}/"): return g
def read_int(f):
    try: return int(open(f).read())
    except (OSError, ValueError): return None
_cg = {}
def pod_cg(node, uid, ctl):
    if (uid, ctl) not in _cg:
        base = node_cg(node, ctl); _cg[uid, ctl] = None
        for d, ds, _ in os.walk(base) if base else ():
            if os.path.basename(d) == "pod" + uid: _cg[uid, ctl] = d; break
    return _cg[uid, ctl]
def agent_cpu():  # seconds, with what their children used
    s = 0.0
    for node, uid, *_ in agents:
        g = pod_cg(node, uid, "cpuacct")
        if g: s += (read_int(g + "/cpuacct.usage") or 0) / 1e9
    if PROCS:
        for n in ready:
            o = inside(n, "bash", "-c", "cat /proc/[0-9]*/stat 2>/dev/null", check=False)
            for l in o.splitlines():
                m = re.match(r"\d+ \((.*)\) (.*)", l)
                if m and re.search(PROCS, m[1]): s += sum(int(x) for x in m[2].split()[11:15]) / 100
    return s
def agent_rss():
    t = 0
    for node, uid, *_ in agents:
        g = pod_cg(node, uid, "memory")
        try: t += int(re.search(r"^total_rss (\d+)", open(g + "/memory.stat").read(), re.M)[1])
        except (OSError, TypeError): pass
    if PROCS:
        for n in ready:
            for l in inside(n, "bash", "-c", "grep -H -e ^Name -e ^RssAnon /proc/[0-9]*/status 2>/dev/null | cut -d: -f3- | paste - -", check=False).splitlines():
                w = l.split()
                if len(w) > 1 and re.search(PROCS, w[0]): t += int(w[1]) * 1024
    return t / 2**20
def nodes_cpu(): return sum((read_int(node_cg(n, "cpuacct") + "/cpuacct.usage") or 0) for n in ready) / 1e9

AUDIT = RUN + "/cp/audit.log"
def audit_pos(): return os.path.getsize(AUDIT) if os.path.exists(AUDIT) else None
def audit(pos):  # requests since pos: those of the CNI {class: n}, all {user agent: {verb: n}}
    if pos is None: return None, None
    mine, ua = collections.Counter(), collections.defaultdict(collections.Counter)
    with open(AUDIT, "rb") as f:
        f.seek(pos)
        for l in f:
            try: e = json.loads(l)
            except ValueError: continue
            a, v, u = e.get("userAgent", "?"), e.get("verb", "?"), e.get("user", {}).get("username", "?")
            ua[a.split(" ")[0].split("/")[0] + (" " + u if u.startswith("system:serviceaccount:") else "")][v] += 1
            if u in users or any(x.endswith(":") and u.startswith(x) for x in users) or not KNOWN.search(a):
                mine["writes" if v in ("create", "update", "patch", "delete", "deletecollection") else "reads"] += 1
                mine[a.split(" ")[0] + " " + v + " " + e.get("objectRef", {}).get("resource", "?") + ("/" + e["objectRef"]["subresource"] if e.get("objectRef", {}).get("subresource") else "")] += 1
    return mine, {a: dict(c) for a, c in ua.items()}
def kubelet_ops():  # sum and count of sandbox operations over all nodes
    r = collections.Counter()
    for n in ready:
        for l in k("get", "--raw", f"/api/v1/nodes/{n}/proxy/metrics", timeout=30).splitlines():
            m = re.match(r'kubelet_runtime_operations_duration_seconds_(sum|count)\{operation_type="(run_podsandbox|stop_podsandbox)"\} (\S+)', l)
            if m: r[m[2], m[1]] += float(m[3])
    return r

# ---- test pods
def pod(name, node, server):
    sec = [{"name": "iperf3", "image": "docker.io/library/toolbox:rig", "command": ["iperf3", "-s", "-p", "5201"]},
           {"name": "rr", "image": "docker.io/library/toolbox:rig", "command": ["/bench/rr", "server", "7000"]}] if server else \
          [{"name": "c", "image": "docker.io/library/toolbox:rig", "command": ["sleep", "100000"]}]
    for c in sec: c.update(imagePullPolicy="IfNotPresent", volumeMounts=[{"name": "b", "mountPath": "/bench"}])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NS, "labels": {"bench": name}},
            "spec": {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": sec, "volumes": [{"name": "b", "hostPath": {"path": "/run/rig-bench"}}]}}
def objs(*o): return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(o)})
NSOBJ = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}}
SVC = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "srv", "namespace": NS}, "spec": {"ipFamilyPolicy": "PreferDualStack", "selector": {"bench": "srv"},
       "ports": [{"name": "iperf", "port": 5201, "protocol": "TCP"}, {"name": "rr", "port": 7000, "protocol": "TCP"}, {"name": "rru", "port": 7000, "protocol": "UDP"}]}}
def fam(ips): return {("v6" if ":" in i else "v4"): i for i in ips}

def client(*cmd, timeout=20): return k("-n", NS, "exec", "cli", "--", *cmd, timeout=timeout)
def tput(name, ip):
    b, t = busy(), time.monotonic()
    r = json.loads(client("iperf3", "-c", ip, "-p", "5201", "-t", "2", "-O", "1", "-J"))
    e = r["end"]; s = (busy()[0] - b[0]); gbit = e["sum_received"]["bits_per_second"] / 1e9
    add(name, "Gbit/s", gbit)
    total = sum(i["sum"]["bytes"] for i in r["intervals"]) / 2**30
    if name == f"tcp xnode pod {P}" and total: add("machine CPU per GiB, " + name, "s", s / total)
def rr(name, mode, ip):
    r = json.loads(client("/bench/rr", mode, ip, "7000", "0.5"))
    add(name + " p50", "us", r["p50_us"]); add(name + " p99", "us", r["p99_us"])
    if mode == "crr": add(name + " rate", "1/s", r["tps"])
    if r["fails"]: warn(f"{name}: {r['fails']} lost or failed")
def attempt(name, f, *a):
    if name in failed: return
    try: f(name, *a)
    except Exception as e:
        try: time.sleep(1); f(name, *a)
        except Exception as e2: failed.add(name); warn(f"{name}: {str(e2)[-200:]}")
def rounds(n, tests, each):
    for i in range(n):   # round robin, so that a disturbance of some seconds hits one value of each, not all of one
        if i and left() < each: warn(f"out of time after {i} of {n} rounds"); break
        for t in tests: attempt(*t)
def uplink(**features):
    for n in (A, B): inside(n, "ethtool", "-K", "eth0", *sum(([f, v] for f, v in features.items()), []), check=False)
def niclike(name, ip):   # as a NIC that can neither segment nor merge this CNI's tunnel by itself: the sender's kernel segments, the receiver's merges
    uplink(tso="off", gro="on")
    try: tput(name, ip)
    finally: uplink(tso="on", gro="off")

CNIADD = r'''
set -u; name=$1 n=$2; export CNI_PATH=/opt/cni/bin NETCONFPATH=/etc/cni/net.d CNI_ARGS="$3"
for i in 0 1 2 3 4; do ip netns del rb$i 2>/dev/null; ip netns add rb$i || exit 1; done
add= del=; times > /tmp/.rb.$$; tail -n 1 /tmp/.rb.$$
for ((i = 0; i < n; i++)); do p=/run/netns/rb$((i % 5))
    a=${EPOCHREALTIME/[.,]/}; cnitool add $name $p > /tmp/.rb.$$ 2>&1 || { cat /tmp/.rb.$$ >&2; rm -f /tmp/.rb.$$; cnitool del $name $p; for i in 0 1 2 3 4; do ip netns del rb$i; done; exit 1; }
    b=${EPOCHREALTIME/[.,]/}; cnitool del $name $p > /tmp/.rb.$$ 2>&1 || cat /tmp/.rb.$$ >&2
    c=${EPOCHREALTIME/[.,]/}; add+=" $((b - a))" del+=" $((c - b))"
done
times > /tmp/.rb.$$; tail -n 1 /tmp/.rb.$$; echo $add; echo $del; rm -f /tmp/.rb.$$
for i in 0 1 2 3 4; do ip netns del rb$i; done
'''
def secs(l):
    return sum(int(m) * 60 + float(s) for m, s in re.findall(r"(\d+)m([\d.]+)s", l))
def cniadd(name, n):
    uid = k("-n", NS, "get", "pod", "cni", "-o", "jsonpath={.metadata.uid}")
    args = f"IgnoreUnknown=1;K8S_POD_NAMESPACE={NS};K8S_POD_NAME=cni;K8S_POD_UID={uid};K8S_POD_INFRA_CONTAINER_ID=rigbench"
    o = inside(A, "bash", "-c", CNIADD, "-", conflist["name"], str(n), args, timeout=120).splitlines()
    t0, t1, a, d = o[:4]
    for l, what in ((a, "ADD"), (d, "DEL")):
        v = sorted(int(x) / 1000 for x in l.split())
        for x in v: add(f"cnitool {what}", "ms", x)
        add(f"cnitool {what} p95", "ms", v[len(v) * 95 // 100])
    add("cnitool ADD+DEL CPU", "ms", (secs(t1) - secs(t0)) * 1000 / n)

N = env("BENCH_REPLICAS", 60)
DEP = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "churn", "namespace": NS}, "spec": {"replicas": N, "selector": {"matchLabels": {"app": "churn"}},
       "template": {"metadata": {"labels": {"app": "churn"}}, "spec": {"terminationGracePeriodSeconds": 1, "automountServiceAccountToken": False, "enableServiceLinks": False,
       "containers": [{"name": "c", "image": "PAUSE", "imagePullPolicy": "IfNotPresent"}]}}}}
audits = []; IDLE = None
def churn(name):
    o0 = kubelet_ops(); ts = time.monotonic(); c0, g0, p0 = nodes_cpu(), agent_cpu(), audit_pos()
    t = time.monotonic(); k("apply", "-f", "-", inp=json.dumps(DEP)); k("-n", NS, "rollout", "status", "deploy/churn", "--timeout=150s", timeout=160)
    up = time.monotonic() - t; c1, g1 = nodes_cpu(), agent_cpu()
    t = time.monotonic(); k("-n", NS, "delete", "deploy", "churn", "--wait=false")
    k("-n", NS, "wait", "--for=delete", "pod", "-l", "app=churn", "--timeout=150s", timeout=160)
    down = time.monotonic() - t; time.sleep(1); c2, g2 = nodes_cpu(), agent_cpu(); ts = time.monotonic() - ts; o1 = kubelet_ops()
    add(f"{N} pods: apply to all Ready", "s", up); add(f"{N} pods: delete to all gone", "s", down)
    for op in ("run_podsandbox", "stop_podsandbox"):
        n = o1[op, "count"] - o0[op, "count"]
        if n: add(f"kubelet {op} mean", "ms", 1000 * (o1[op, "sum"] - o0[op, "sum"]) / n)
    add("nodes' CPU per pod, start", "ms", 1000 * (c1 - c0) / N); add("nodes' CPU per pod, end", "ms", 1000 * (c2 - c1) / N)
    if IDLE is not None: add("CNI agents' CPU per pod, over idle", "ms", 1000 * (g2 - g0 - IDLE * ts) / N)
    mine, ua = audit(p0)
    if mine is not None:
        add("CNI API writes per pod", "", mine["writes"] / N); add("CNI API reads per pod", "", mine["reads"] / N)
        audits.append({"cni": dict(mine), "all": ua})

def cleanup(wait):
    k("delete", "ns", NS, "--ignore-not-found", f"--wait={'true' if wait else 'false'}", timeout=120, check=False)

code = 1
try:
    cleanup(True)
    for n in (A, B):
        inside(n, "mkdir", "-p", "/run/rig-bench"); inside(n, "cp", "--remove-destination", os.environ["RR"], "/run/rig-bench/rr")
    pause = [i for i in inside(A, "ctr", "-n", "k8s.io", "images", "ls", "-q").split() if i.startswith("registry.k8s.io/pause:")][0]
    DEP["spec"]["template"]["spec"]["containers"][0]["image"] = pause
    k("apply", "-f", "-", inp=objs(NSOBJ))
    for _ in range(50):
        if k("-n", NS, "get", "sa", "default", check=False): break
        time.sleep(0.2)
    k("apply", "-f", "-", inp=objs(pod("cli", A, False), pod("cni", A, False), pod("loc", A, True), pod("srv", B, True), SVC))
    k("-n", NS, "wait", "--for=condition=Ready", "pod", "--all", "--timeout=90s", timeout=100)
    ips = {p: fam(k("-n", NS, "get", "pod", p, "-o", "jsonpath={.status.podIPs[*].ip}").split()) for p in ("srv", "loc")}
    svc = fam(k("-n", NS, "get", "svc", "srv", "-o", "jsonpath={.spec.clusterIPs[*]}").split())
    add("pod MTU", "bytes", client("cat", "/sys/class/net/eth0/mtu"))
    for _ in range(40):  # servers and Service programmed
        try:
            for ip in [*ips["srv"].values(), *svc.values()]: client("/bench/rr", "tcp", ip, "7000", "0.02")
            break
        except Exception: time.sleep(0.5)
    P = next(iter(ips["srv"]))
    if ONLY.search("tput"):
        say("throughput")
        tests = [(f"tcp xnode pod {f}", tput, ip) for f, ip in ips["srv"].items()] + [(f"tcp xnode ClusterIP {P}", tput, svc[P]),
                 (f"tcp same node pod {P}", tput, ips["loc"][P]), (f"tcp xnode pod {P}, NIC-like uplink", niclike, ips["srv"][P])]
        rounds(env("BENCH_TPUT_ROUNDS", 5), tests, 220)
    if ONLY.search("rr"):
        say("latency")
        tests = [(f"tcp rr xnode pod {f}", rr, "tcp", ip) for f, ip in ips["srv"].items()] + [(f"udp rr xnode pod {P}", rr, "udp", ips["srv"][P]),
                 (f"tcp rr xnode ClusterIP {P}", rr, "tcp", svc[P]), (f"tcp rr same node pod {P}", rr, "tcp", ips["loc"][P]),
                 (f"tcp crr xnode pod {P}", rr, "crr", ips["srv"][P]), (f"tcp crr xnode ClusterIP {P}", rr, "crr", svc[P])]
        rounds(env("BENCH_RR_ROUNDS", 9), tests, 170)
    if ONLY.search("cni") and conflist:
        say("CNI ADD and DEL"); attempt("cnitool", cniadd, env("BENCH_CNI_ADDS", 100))
    if ONLY.search("idle"):
        say("idle"); p0, g0, t = audit_pos(), agent_cpu(), time.monotonic(); time.sleep(15)
        if agents or PROCS: IDLE = (agent_cpu() - g0) / (time.monotonic() - t); add("CNI agents' CPU, idle", "ms/s", 1000 * IDLE)
        mine, _ = audit(p0)
        if mine is not None: add("CNI API requests, idle", "1/min", (mine["writes"] + mine["reads"]) * 60 / (time.monotonic() - t))
    if ONLY.search("churn"):
        say(f"{N} pods")
        n = env("BENCH_CHURN_ROUNDS", 3); last = 0
        for i in range(n):
            if i and left() < last + 5: warn(f"out of time after {i} of {n} churn rounds"); break
            t = time.monotonic(); churn("churn"); last = time.monotonic() - t; say(f"round {i + 1}: {last:.0f} s")
    if agents or PROCS: add("CNI agents' memory (anonymous)", "MiB", agent_rss())
    code = 0
except Exception as e:
    warn(f"stopped: {e}")
finally:
    if conflist: inside(A, "bash", "-c", "for i in 0 1 2 3 4; do ip netns del rb$i 2>/dev/null; done; true", check=False)
    cleanup(False)
for r in results.values():
    v = r["values"]; r.update(n=len(v), median=round(statistics.median(v), 4), min=min(v), max=max(v))
doc = {"label": label, "date": datetime.datetime.now().isoformat(timespec="seconds"), "seconds": round(time.monotonic() - T0), "settings": settings, "kernel": os.uname().release,
       "cpus": os.cpu_count(), "busy_before_pct": BUSY, "loadavg": os.getloadavg(), "conflist": conflist, "agents": [a[2] for a in agents], "warnings": warnings, "results": results, "audit": audits}
with open(out, "w") as f: json.dump(doc, f, indent=1)
compare([out]); print("written to " + out)
sys.exit(code)

"""Nodes and Locators without machines, heartbeats, churn and a rolling upgrade, against one real agent: see scale.sh."""

import argparse
import http.client
import json
import os
import re
import ssl
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

WORKERS = 8
IDLE_SECONDS = 40
CHANGES = 15
UPGRADES_A_SECOND = 200
HEARTBEAT_SECONDS, STATUS_SECONDS = 10, 300  # of kubelet: Lease, Node status without changes
LOCATORS = "/apis/headway.dev/v1alpha1/locators"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


class Api:
    """The API server, one connection a thread."""

    def __init__(self, host, pki):
        self.host, self.local = host, threading.local()
        self.context = ssl.create_default_context(cafile=f"{pki}/ca.crt")
        self.context.load_cert_chain(f"{pki}/admin.crt", f"{pki}/admin.key")

    def call(self, method, path, body=None, kind="application/json"):
        for attempt in range(3):
            try:
                if not hasattr(self.local, "connection"):
                    self.local.connection = http.client.HTTPSConnection(self.host, 6443, context=self.context, timeout=60)
                text = None if body is None else json.dumps(body)
                self.local.connection.request(method, path, text, {"Content-Type": kind})
                answer = self.local.connection.getresponse()
                content = answer.read()
            except (OSError, http.client.HTTPException):
                del self.local.connection
                if attempt == 2:
                    raise
                continue
            if answer.status == 429:
                time.sleep(1)
                continue
            if answer.status >= 300 and not (method == "DELETE" and answer.status == 404):
                raise RuntimeError(f"{method} {path}: {answer.status} {content[:300]!r}")
            return json.loads(content)
        raise RuntimeError(f"{method} {path}: the server asks for patience")

    def patch(self, path, body):
        return self.call("PATCH", path, body, "application/merge-patch+json")


def name(number):
    return f"node-{number:05}"


def pod_cidrs(number):
    index = number - 1
    return [f"10.{index >> 8}.{index & 255}.0/24", f"fd10:0:0:{index:x}::/64"]


def locator(number, uid):
    owner = {"apiVersion": "v1", "kind": "Node", "name": name(number), "uid": uid}
    return {
        "apiVersion": "headway.dev/v1alpha1",
        "kind": "Locator",
        "metadata": {"name": name(number), "ownerReferences": [owner]},
        "spec": {"nodeNumber": number, "locator": f"5f00:1:{number:x}::/48", "podCIDRs": pod_cidrs(number),
                 "underlayAddresses": [f"fd31::{number:x}"], "mtu": 1500, "capabilities": []},
    }


def now_text():
    return time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())


def create_node(api, number):
    """A Node as it looks with its kubelet running, and its Lease; gives the Node's UID."""
    addresses = [f"172.30.0.{10 + number}", f"fd30::{10 + number:x}"] if number == 1 else [f"fd31::{number:x}"]
    # 40 images are what a node in use reports: it makes the object as large as it is.
    images = [{"names": [f"registry.example/team/image-{i}@sha256:{i:064x}"], "sizeBytes": i << 20} for i in range(40)]
    status = {"addresses": [{"type": "InternalIP", "address": a} for a in addresses], "images": images}
    cidrs = pod_cidrs(number)
    node = api.call("POST", "/api/v1/nodes", {"metadata": {"name": name(number)}, "spec": {"podCIDR": cidrs[0], "podCIDRs": cidrs}})
    api.patch(f"/api/v1/nodes/{name(number)}/status", {"status": status})
    spec = {"holderIdentity": name(number), "leaseDurationSeconds": 40, "renewTime": now_text()}
    api.call("POST", LEASES, {"metadata": {"name": name(number)}, "spec": spec})
    return node["metadata"]["uid"]


class Heartbeats:
    """Renews Leases and Node statuses as that many kubelets do; counts what it got done."""

    def __init__(self, api, count):
        self.api, self.count, self.done, self.ended = api, count, 0, threading.Event()
        self.threads = [threading.Thread(target=self.beat, args=(i,), daemon=True) for i in range(WORKERS)]
        self.begun = time.monotonic()
        for thread in self.threads:
            thread.start()

    def beat(self, worker):
        mine = range(2 + worker, self.count + 2, WORKERS)
        rounds, due = 0, time.monotonic()
        while mine and not self.ended.is_set():
            for position, number in enumerate(mine):
                wait = due + HEARTBEAT_SECONDS * position / len(mine) - time.monotonic()
                if self.ended.wait(max(wait, 0)):
                    return
                self.api.patch(f"{LEASES}/{name(number)}", {"spec": {"renewTime": now_text()}})
                if (number + rounds) % (STATUS_SECONDS // HEARTBEAT_SECONDS) == 0:
                    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
                    self.api.patch(f"/api/v1/nodes/{name(number)}/status", {"status": {"conditions": [ready]}})
                self.done += 1
            rounds, due = rounds + 1, max(due + HEARTBEAT_SECONDS, time.monotonic())

    def rate(self):
        return self.done / (time.monotonic() - self.begun)

    def end(self):
        self.ended.set()
        for thread in self.threads:
            thread.join()


class Agent:
    """The agent, in the node's namespace, and what the kernel says of it."""

    def __init__(self, program, folder, namespace, kubeconfig):
        self.namespace = namespace
        config = f"{folder}/agent.yaml"
        with open(config, "w") as file:
            file.write(f"""
sidBlock: 5f00:1::/32
clusterCIDRs: [10.0.0.0/8, 'fd10::/48']
http: 127.0.0.1:9476
cni: {{confDir: {folder}/net.d}}
paths: {{socket: {folder}/agent.sock, state: {folder}/state, bpf: {folder}/bpf}}
""")
        command = ["ip", "netns", "exec", namespace, program, "run", "--config", config, "--node-name", name(1)]
        self.begun = time.monotonic()
        self.log = open(f"{folder}/agent.log", "w")
        self.process = subprocess.Popen(command, env={**os.environ, "KUBECONFIG": kubeconfig}, stdout=self.log, stderr=self.log)
        self.map = None

    def check(self):
        if self.process.poll() is not None:
            sys.exit(f"the agent has ended: {open(self.log.name).read()[-2000:]}")

    def cpu(self):
        """Seconds."""
        fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self, what):
        """MiB."""
        status = open(f"/proc/{self.process.pid}/status").read()
        return int(re.search(what + r":\s+(\d+)", status)[1]) / 1024

    def bytes(self):
        """Bytes from and to the API server, headers of TCP and IP among them."""
        text = self.run("nft", "list", "counters", "table", "inet", "count")
        return sum(int(number) for number in re.findall(r"bytes (\d+)", text))

    def run(self, *command):
        return subprocess.run(["ip", "netns", "exec", self.namespace, *command], check=True, capture_output=True, text=True).stdout

    def routes(self):
        return self.run("ip", "-6", "route", "show", "proto", "118").count(" via ")

    def nodes(self):
        """The id of the map of peers."""
        if self.map is None:
            folder = f"/proc/{self.process.pid}/fdinfo"
            for entry in os.listdir(folder):
                try:
                    found = re.search(r"map_id:\s+(\d+)", open(f"{folder}/{entry}").read())
                except FileNotFoundError:
                    continue  # closed meanwhile
                if found and " name NODES " in subprocess.run(["bpftool", "map", "show", "id", found[1]], capture_output=True, text=True).stdout:
                    self.map = found[1]
        return self.map

    def peer(self, number):
        """(MTU, can be reached) of a peer in the switch; None if it is not there."""
        key = [str(byte) for byte in number.to_bytes(4, "little")]
        command = ["bpftool", "-j", "map", "lookup", "id", self.nodes(), "key", *key]
        answer = json.loads(subprocess.run(command, capture_output=True, text=True).stdout or "null") or {}
        if "value" not in answer:
            return None
        value = bytes(int(byte, 16) for byte in answer["value"])
        word = lambda at: int.from_bytes(value[at:at + 4], "little")
        return word(8), word(12) > 0 and any(value[26:32])

    def end(self):
        self.process.terminate()
        self.process.wait()


def wait(agent, what, holds, seconds=300):
    """Seconds until it holds."""
    begun = time.monotonic()
    while not holds():
        agent.check()
        if time.monotonic() - begun > seconds:
            sys.exit(f"in vain for {seconds} s: {what}")
        time.sleep(0.005)
    return time.monotonic() - begun


def reachable(agent, number):
    peer = agent.peer(number)
    return peer is not None and peer[1]


def changes(api, agent, uids):
    """Milliseconds until a peer that joins can be reached, and until one that leaves is gone."""
    joined, left = [], []
    numbers = sorted(uids)
    for number in numbers[:: max(1, len(numbers) // CHANGES)][:CHANGES]:
        api.call("DELETE", f"{LOCATORS}/{name(number)}")
        left.append(1000 * wait(agent, f"{name(number)} goes", lambda: agent.peer(number) is None))
        api.call("POST", LOCATORS, locator(number, uids[number]))
        joined.append(1000 * wait(agent, f"{name(number)} comes", lambda: reachable(agent, number)))
    return sorted(joined), sorted(left)


def upgrade(api, agent, pool, uids):
    """Every Locator is rewritten: seconds that the writes took, and until the agent had the last."""
    begun = time.monotonic()

    def rewrite(item):
        position, number = item
        time.sleep(max(0, begun + position / UPGRADES_A_SECOND - time.monotonic()))
        api.patch(f"{LOCATORS}/{name(number)}", {"spec": {"mtu": 1400}})

    list(pool.map(rewrite, enumerate(sorted(uids))))
    written = time.monotonic() - begun
    last = sorted(uids)[-WORKERS:]
    lag = wait(agent, "the last Locators", lambda: all(agent.peer(n) == (1400 - 54, True) for n in last))
    return written, lag


def measure(options):
    api = Api(options.api, f"{options.folder}/pki")
    pool = ThreadPoolExecutor(WORKERS)
    try:
        api.call("POST", "/api/v1/namespaces", {"metadata": {"name": "kube-node-lease"}})
    except RuntimeError:
        pass  # the API server makes it as well
    create_node(api, 1)
    numbers = range(2, options.count + 2)
    uids = dict(zip(numbers, pool.map(lambda number: create_node(api, number), numbers)))
    list(pool.map(lambda number: api.call("POST", LOCATORS, locator(number, uids[number])), numbers))
    beats = Heartbeats(api, options.count)
    agent = Agent(options.agent, options.folder, options.namespace, f"{options.folder}/admin.conf")
    try:
        wait(agent, "all routes", lambda: agent.routes() >= options.count)
        wait(agent, "all peers in the switch", lambda: agent.nodes() and all(reachable(agent, n) for n in list(numbers)[-3:]))
        row = {"peers": options.count, "programmed s": time.monotonic() - agent.begun}
        row |= {"CPU s": agent.cpu(), "API kB": agent.bytes() / 1000}
        wait(agent, "rest", lambda: time.monotonic() - agent.begun > 15)

        cpu, bytes_before, begun, done = agent.cpu(), agent.bytes(), time.monotonic(), beats.done
        time.sleep(IDLE_SECONDS)
        elapsed = time.monotonic() - begun
        row |= {"heartbeats/s": (beats.done - done) / elapsed, "idle CPU %": 100 * (agent.cpu() - cpu) / elapsed,
                "idle API B/s": (agent.bytes() - bytes_before) / elapsed, "MiB": agent.memory("VmRSS")}

        joined, left = changes(api, agent, uids)
        row |= {"join ms": joined[len(joined) // 2], "join max": joined[-1], "leave ms": left[len(left) // 2], "leave max": left[-1]}

        cpu, bytes_before = agent.cpu(), agent.bytes()
        written, lag = upgrade(api, agent, pool, uids)
        row |= {"upgrade s": written, "lag s": lag, "upgrade CPU s": agent.cpu() - cpu,
                "upgrade API kB": (agent.bytes() - bytes_before) / 1000, "peak MiB": agent.memory("VmHWM")}
    finally:
        beats.end()
        agent.end()
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, required=True)
    for option in ["folder", "namespace", "agent", "api"]:
        parser.add_argument(f"--{option}", required=True)
    row = measure(parser.parse_args())
    print("| " + " | ".join(row) + " |")
    print("|" + " ---: |" * len(row))
    shown = [f"{value:.1f}" if isinstance(value, float) and value < 100 else f"{value:.0f}" for value in row.values()]
    print("| " + " | ".join(shown) + " |", flush=True)


main()

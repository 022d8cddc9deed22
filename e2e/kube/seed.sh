#!/bin/bash
# Imports ROOT/images/*.tar (docker-archive or OCI-layout tars) into ROOT/seed, the containerd root that nodes start from.
# Run it again after adding or changing a tar; running nodes keep what they have (see load.sh). usage: seed.sh
set -euo pipefail
RIG=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd); . "$RIG/lib.sh"
W=$RIG_ROOT/tmp/seed; rm -rf "$W" "$RIG_ROOT/seed.new"; mkdir -p "$W" "$RIG_ROOT/seed.new"
cat > "$W/c.toml" <<END
version = 3
root = "$RIG_ROOT/seed.new"
state = "$W/state"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.nri.v1.nri", "io.containerd.snapshotter.v1.erofs", "io.containerd.snapshotter.v1.blockfile"]
[grpc]
  address = "$W/s.sock"
END
unshare --mount --pid --fork --kill-child --mount-proc "$BIN/containerd" --config "$W/c.toml" > "$W/log" 2>&1 & c=$!
trap 'kill -KILL $c 2>/dev/null || true; wait $c 2>/dev/null || true' EXIT
ctr() { "$BIN/ctr" -a "$W/s.sock" -n k8s.io "$@"; }
for _ in $(seq 200); do ctr version > /dev/null 2>&1 && break; sleep 0.1; done
for t in "$RIG_ROOT"/images/*.tar; do
    ctr images import --digests=false --label io.cri-containerd.image=managed "$t" > /dev/null || { tail -n 5 "$W/log" >&2; die "import of $t"; }
done
ctr images ls -q
kill -KILL $c; wait $c 2>/dev/null || true
trap - EXIT
sync -f "$RIG_ROOT/seed.new"; rm -rf "$RIG_ROOT/seed"; mv "$RIG_ROOT/seed.new" "$RIG_ROOT/seed"; rm -rf "$W"

#!/bin/bash
# Imports image tars into every running node (as `kind load image-archive`). usage: load.sh TAR...
set -euo pipefail
RIG=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd); . "$RIG/lib.sh"
for n in $(members | grep node); do for t in "$@"; do
    inside "$n" "$BIN/ctr" -n k8s.io images import --digests=false "$(readlink -f "$t")" > /dev/null
done; done

#!/bin/bash
# Builds the image as an OCI archive, without Docker, for `ctr images import`, `podman load` or `skopeo copy oci-archive:...`.
#   scripts/build-image.sh [ARCHIVE [NAME:TAG]]
# Default: target/headway-image.tar, with the chart's image and appVersion. The same binaries give the same archive, byte for byte.
set -euo pipefail
cd "$(dirname "$0")/.."

value() { sed -n "s/^ *$1: *\([^ ]*\)$/\1/p" "$2" | head -1; }

target=${CARGO_TARGET_DIR:-$PWD/target}
archive=${1:-$target/headway-image.tar}
name=${2:-$(value repository charts/headway/values.yaml):$(value appVersion charts/headway/Chart.yaml)}
agent=${HEADWAY_AGENT:-$target/release/headway-agent}
plugin=${HEADWAY_PLUGIN:-$target/plugin/headway}
for binary in "$agent" "$plugin"; do
    [ -x "$binary" ] || { echo "build-image: no $binary: run 'make build'" >&2; exit 1; }
done
case $(uname -m) in
    x86_64) architecture=amd64 ;;
    aarch64) architecture=arm64 ;;
    *) echo "build-image: no image for $(uname -m)" >&2; exit 1 ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
blobs=$work/layout/blobs/sha256
mkdir -p "$blobs"

# Nothing of this machine or moment: names in order, no times, root's files.
pack() { tar --create --format=gnu --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --directory="$1" --file="$2" .; }

# blob FILE MEDIA_TYPE: moves it to its place, prints its descriptor
blob() {
    local digest size
    digest=$(sha256sum "$1" | cut -d' ' -f1)
    size=$(stat -c %s "$1")
    mv "$1" "$blobs/$digest"
    printf '{"mediaType":"application/vnd.oci.image.%s","digest":"sha256:%s","size":%s%s}' "$2" "$digest" "$size" "${3:-}"
}

scripts/image-root.sh "$work/root" "$agent" "$plugin"
chmod -R u+rwX,go+rX,go-w "$work/root"
pack "$work/root" "$work/layer.tar"
diff_id=$(sha256sum "$work/layer.tar" | cut -d' ' -f1)
gzip --no-name "$work/layer.tar"
layer=$(blob "$work/layer.tar.gz" layer.v1.tar+gzip)
printf '{"architecture":"%s","os":"linux","created":"1970-01-01T00:00:00Z","config":{"Entrypoint":["/usr/bin/headway-agent"],"Env":["PATH=/usr/sbin:/usr/bin"],"Labels":{"org.opencontainers.image.licenses":"Apache-2.0"}},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
    "$architecture" "$diff_id" > "$work/config"
config=$(blob "$work/config" config.v1+json)
printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":%s,"layers":[%s]}' \
    "$config" "$layer" > "$work/manifest"
# containerd takes the whole name from its own annotation, others the tag from the standard's.
manifest=$(blob "$work/manifest" manifest.v1+json \
    ",\"platform\":{\"architecture\":\"$architecture\",\"os\":\"linux\"},\"annotations\":{\"io.containerd.image.name\":\"$name\",\"org.opencontainers.image.ref.name\":\"${name##*:}\"}")
printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[%s]}' "$manifest" > "$work/layout/index.json"
printf '{"imageLayoutVersion":"1.0.0"}' > "$work/layout/oci-layout"
mkdir -p "$(dirname "$archive")"
pack "$work/layout" "$archive.tmp"
mv "$archive.tmp" "$archive"
echo "$archive: $name, $(du -sm --apparent-size "$work/root" | cut -f1) MB unpacked, $(stat -c %s "$archive" | numfmt --to=si)B packed"

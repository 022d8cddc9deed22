#!/bin/bash
# Puts together what is in the image: the agent, the CNI plugin, nft with its libraries, the licences of what is Debian's.
#   scripts/image-root.sh FOLDER AGENT PLUGIN
# deploy/Dockerfile and scripts/build-image.sh both use it, so that both images hold the same.
set -euo pipefail

[ $# = 3 ] || { echo "usage: $0 FOLDER AGENT PLUGIN" >&2; exit 2; }
root=$1 agent=$2 plugin=$3
[ ! -e "$root" ] || { echo "image-root: $root is there already" >&2; exit 1; }
nft=$(PATH="$PATH:/usr/sbin" command -v nft) || { echo "image-root: no nft: install nftables" >&2; exit 1; }

# put FILE PLACE: with the libraries that it is linked to, and the licences of the packages that they are from
put() {
    install -D -m 755 "$1" "$root$2"
    local library
    # "name => path (address)", "path (address)" for the loader; none for a static binary.
    for library in $(ldd "$1" 2> /dev/null | grep -o '/[^ ]*'); do
        [ -e "$root$library" ] || install -D -m 755 "$(realpath "$library")" "$root$library"
        licence "$(realpath "$library")"
    done
}

licence() {
    # Packages name files as before the merge of /lib into /usr/lib, or as after it.
    local package text
    package=$(dpkg -S "$1" 2> /dev/null || dpkg -S "${1#/usr}" 2> /dev/null) || return 0
    package=${package%%:*}
    text=/usr/share/doc/$package/copyright
    [ ! -r "$text" ] || install -D -m 644 "$text" "$root$text"
}

put "$agent" /usr/bin/headway-agent
put "$plugin" /usr/lib/headway/headway
put "$nft" /usr/sbin/nft
licence "$nft"
# Line tables are for developers; addresses in a report can be looked up in the build they are from.
strip --strip-debug "$root/usr/bin/headway-agent"
install -D -m 644 "$(dirname "$0")/../LICENSE" "$root/usr/share/doc/headway/copyright"
# Mount points: the image is read-only in the cluster.
mkdir -p "$root"/{etc/headway,etc/cni/net.d,opt/cni/bin,proc,sys,dev,run/headway,var/lib/headway,host/proc/sys/net}

#!/bin/bash
# Builds what the rig needs: Debian packages, binaries, images. Takes about 20 minutes on 2 cores once, seconds after.
#   setup.sh          all of it
#   setup.sh built    says by its exit status whether that was done
set -euo pipefail
RIG=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd); . "$RIG/lib.sh"
packages=(gcc libc6-dev libseccomp-dev pkg-config iptables nftables conntrack ipset socat busybox-static iperf iperf3 tcpdump curl
    ethtool iproute2 iputils-ping iputils-arping iputils-tracepath ebtables kmod util-linux xz-utils jq procps wget bind9-dnsutils
    netcat-openbsd nginx-light openssl python3)
case ${1:-} in
built) [ -x "$BIN/hyperkube" ] && [ -x "$BIN/e2e.test" ] && [ -d "$RIG_ROOT/seed" ]; exit;;
'') ;;
*) die "unknown argument $1";;
esac
missing=$(dpkg-query -W -f '${db:Status-Abbrev}|${Package}\n' "${packages[@]}" 2> /dev/null | sed -n 's/^ii *|//p' | sort | comm -13 - <(printf '%s\n' "${packages[@]}" | sort))
if [ -n "$missing" ]; then
    [ "$(id -u)" = 0 ] || die "run it as root, or install these yourself: $(paste -sd' ' <<< "$missing")"
    log "installing $(paste -sd' ' <<< "$missing")"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing > /dev/null
fi
"$RIG/build.sh" hyperkube containerd runc cni tools agnhost coredns e2e
[ -d "$RIG_ROOT/seed" ] && [ "$RIG_ROOT/images/rig.tar" -nt "$BIN/coredns" ] || "$RIG/images.sh"

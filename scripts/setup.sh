#!/bin/bash
# Installs what the build and the tests need and this machine lacks. Says nothing when nothing is missing.
#   scripts/setup.sh             Debian packages, Rust components, cnitool
#   scripts/setup.sh lint        also cargo-deny
#   scripts/setup.sh tools-path  prints where cargo tools are installed
set -euo pipefail
cd "$(dirname "$0")/.."

CARGO_DENY=0.20.2
CNITOOL=v1.3.0
GO_LEAST=1.24
cache=${XDG_CACHE_HOME:-$HOME/.cache}/headway
tools=${CARGO_TARGET_DIR:-$PWD/target}/tools
strict=${HEADWAY_CI:-${CI:-}}

# program (or file) -> Debian package. The last three build the eBPF programs with Debian's compilers alone.
needs=(
    gcc:gcc make:make xz:xz-utils setpriv:util-linux
    ip:iproute2 nft:nftables ethtool:ethtool ping:iputils-ping tshark:tshark bpftool:bpftool iptables:iptables
    /usr/lib/cni/portmap:containernetworking-plugins
    /usr/bin/rustc:rustc-web
    /usr/lib/rustlib/bpfel-unknown-none:libstd-rust-web-dev-bpf
    llc-22:llvm-22
)

die() { echo "setup: $*" >&2; exit 1; }

present() {
    case $1 in
        /*) [ -e "$1" ] ;;
        *) PATH="$PATH:/usr/sbin:/sbin" command -v "$1" > /dev/null ;;
    esac
}

debian_packages() {
    local need missing=()
    for need in "${needs[@]}"; do
        present "${need%:*}" || missing+=("${need#*:}")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    [ "$(id -u)" = 0 ] || die "run it as root, or install these yourself: ${missing[*]}"
    command -v apt-get > /dev/null || die "this is no Debian: install the equivalents of ${missing[*]}"
    echo "setup: installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "${missing[@]}" > /dev/null
}

rust() {
    local least have
    command -v cargo > /dev/null || die "no cargo: install rustup (https://rustup.rs), Debian's own Rust is too old"
    least=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    have=$(cargo --version | cut -d' ' -f2)
    at_least "$least" "$have" || die "Rust $have is too old: run 'rustup update stable' ($least or newer is needed)"
    local component
    for component in rustfmt clippy; do
        cargo "${component/rustfmt/fmt}" --version > /dev/null 2>&1 || rustup component add "$component"
    done
}

# at_least WANTED HAD
at_least() { [ "$(printf '%s\n' "$1" "$2" | sort -V | head -1)" = "$1" ]; }

# The reference runtime, for one test. It comes from its Go module.
cnitool() {
    [ ! -x "$tools/cnitool" ] || return 0
    local go have
    go=$(command -v go || echo /usr/local/go/bin/go)
    have=$("$go" env GOVERSION 2> /dev/null | sed 's/^go//') || have=
    if [ -z "$have" ] || ! at_least "$GO_LEAST" "$have"; then
        [ -z "$strict" ] || die "no Go of at least $GO_LEAST for cnitool, and this is CI"
        echo "setup: no Go of at least $GO_LEAST: the tests with cnitool will be skipped"
        return 0
    fi
    echo "setup: building cnitool $CNITOOL"
    mkdir -p "$tools"
    GOBIN=$tools GOFLAGS=-modcacherw "$go" install "github.com/containernetworking/cni/cnitool@$CNITOOL"
}

cargo_deny() {
    [ "$("$cache/bin/cargo-deny" --version 2> /dev/null)" != "cargo-deny $CARGO_DENY" ] || return 0
    echo "setup: building cargo-deny $CARGO_DENY (a few minutes, once)"
    CARGO_TARGET_DIR=$cache/build cargo install -q --locked --root "$cache" "cargo-deny@$CARGO_DENY"
    rm -rf "$cache/build"
}

case ${1:-} in
    tools-path) echo "$cache/bin" ;;
    lint) cargo_deny ;;
    '') debian_packages; rust; cnitool ;;
    *) die "unknown argument $1" ;;
esac

#!/bin/bash
# Installs what the build and the tests need and this machine lacks. Says nothing when nothing is missing.
#   scripts/setup.sh             Debian packages, Rust components, cnitool
#   scripts/setup.sh build       only what the build needs
#   scripts/setup.sh lint        cargo-deny
#   scripts/setup.sh chart       Helm and helm-unittest
#   scripts/setup.sh tools-path  prints where cargo tools are installed
set -euo pipefail
cd "$(dirname "$0")/.."

CARGO_DENY=0.20.2
CNITOOL=v1.3.0
HELM=v3.22.0
HELM_UNITTEST=v1.1.2
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

# go_tool NAME MODULE FOLDER VERSION WHY: programs for tests that come from their Go modules
go_tool() {
    # One of another version is replaced.
    local mark=$tools/.$1-$4 go have folder
    [ ! -x "$tools/$1" ] || [ ! -e "$mark" ] || return 0
    go=$(command -v go || echo /usr/local/go/bin/go)
    have=$("$go" env GOVERSION 2> /dev/null | sed 's/^go//') || have=
    if [ -z "$have" ] || ! at_least "$GO_LEAST" "$have"; then
        [ -z "$strict" ] || die "no Go of at least $GO_LEAST for $1, and this is CI"
        echo "setup: no Go of at least $GO_LEAST for $1: $5 will be skipped"
        return 0
    fi
    echo "setup: building $1 $4"
    mkdir -p "$tools"
    # In the module's own folder, because `go install` refuses modules that replace others.
    export GOFLAGS=-modcacherw
    folder=$(cd / && "$go" mod download -json "$2@$4" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
    "$go" build -C "$folder" -ldflags '-s -w' -o "$tools/$1" "./$3"
    touch "$mark"
}

# The reference runtime, for one test.
cnitool() { go_tool cnitool github.com/containernetworking/cni cnitool "$CNITOOL" "the tests with cnitool"; }

chart_tools() {
    go_tool helm helm.sh/helm/v3 cmd/helm "$HELM" "the tests of the chart"
    go_tool helm-unittest github.com/helm-unittest/helm-unittest cmd/helm-unittest "$HELM_UNITTEST" "the tests of the chart"
}

cargo_deny() {
    [ "$("$cache/bin/cargo-deny" --version 2> /dev/null)" != "cargo-deny $CARGO_DENY" ] || return 0
    echo "setup: building cargo-deny $CARGO_DENY (a few minutes, once)"
    CARGO_TARGET_DIR=$cache/build cargo install -q --locked --root "$cache" "cargo-deny@$CARGO_DENY"
    rm -rf "$cache/build"
}

case ${1:-} in
    tools-path) echo "$cache/bin" ;;
    build) debian_packages; rust ;;
    lint) cargo_deny ;;
    chart) chart_tools ;;
    '') debian_packages; rust; cnitool ;;
    *) die "unknown argument $1" ;;
esac

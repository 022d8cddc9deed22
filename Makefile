# Every verb works as root on a fresh Debian 12 with rustup; `make help` lists them.
# What CI runs is `make lint test`: nothing else.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c

TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
AGENT := $(TARGET)/release/headway-agent
PLUGIN := $(TARGET)/plugin/headway
# Tests need root; without it they are to fail here, not to be skipped.
TEST_ENV := HEADWAY_REQUIRE_ROOT=1 HEADWAY_AGENT=$(AGENT) HEADWAY_PLUGIN=$(PLUGIN)

# Advisories need a database from the network: check those by hand or on a schedule (cargo deny check advisories).
DENY = PATH="$$(scripts/setup.sh tools-path):$$PATH" cargo deny
DENY_WHAT := --hide-inclusion-graph bans licenses sources

.PHONY: help setup setup-lint build build-agent build-plugin build-releases image demo lab test chart-test lint bench full e2e-kube-setup \
    e2e-kube e2e-kube-full e2e-kube-scale clean

help: ## Show this
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

setup: ## Install what is missing (Debian packages, Rust components, cnitool)
	@scripts/setup.sh

setup-lint: setup
	@scripts/setup.sh lint

build: setup build-agent build-plugin ## Build the agent (with the eBPF switch in it) and the CNI plugin

build-agent:
	cargo build --release -p node-agent

# The plugin is copied onto foreign hosts, so it is linked statically. The flag goes to this one binary only:
# in .cargo/config.toml it would hit build scripts and procedural macros too.
build-plugin:
	cargo rustc --profile plugin -p cni-plugin --bin headway -- -C target-feature=+crt-static

# For the tests of up- and downgrades: agents that take themselves for the next minor and the next major release.
build-releases: setup
	mkdir -p $(TARGET)/releases
	for step in minor major; do \
	    HEADWAY_TEST_RELEASE=$$step cargo build -p node-agent; \
	    cp $(TARGET)/debug/headway-agent $(TARGET)/releases/headway-agent-$$step; \
	done

image: build ## Build the image as an OCI archive, without Docker
	scripts/build-image.sh

demo: build ## Two nodes, pods, the packet on the wire, throughput, headroom: about a minute
	$(TEST_ENV) cargo run -q -p e2e --bin demo

lab: build ## Two nodes with two pods each, to look around in until Enter is pressed
	$(TEST_ENV) cargo run -q -p e2e --bin lab

test: build build-releases chart-test ## Everything: units, integration, end to end
	HEADWAY_REQUIRE_ROOT=1 cargo test --workspace --exclude e2e
	$(TEST_ENV) cargo test -p e2e

chart-test: ## The Helm chart: lint, its suites, the manifest made from it
	@scripts/setup.sh chart
	scripts/chart-test.sh

lint: setup-lint ## Formatting, clippy, licences, dependencies
	cargo fmt --all -- --check
	cargo fmt --manifest-path bpf/programs/Cargo.toml -- --check
	cargo clippy --workspace --all-targets -- -D warnings
	$(DENY) --all-features check $(DENY_WHAT)
	$(DENY) --manifest-path bpf/programs/Cargo.toml --config deny.toml check $(DENY_WHAT)

bench: build ## Throughput and attach times, beside VXLAN and bridge + host-local
	$(TEST_ENV) cargo test -p e2e --test throughput --test speed -- --nocapture

full: build build-releases ## The long matrices and soaks; writes docs/measured.txt
	HEADWAY_REQUIRE_ROOT=1 cargo test --workspace --exclude e2e
	$(TEST_ENV) HEADWAY_FULL=1 cargo test -p e2e -- --nocapture 2>&1 | tee $(TARGET)/full.log
	{ echo "make full, Linux $$(uname -r | cut -d- -f1), $$(nproc) processors"; \
	    sed -n 's/^measured: //p' $(TARGET)/full.log; } > docs/measured.txt

e2e-kube-setup: setup ## Build the Kubernetes rig of e2e/kube (20 minutes, once)
	e2e/kube/setup.sh

e2e-kube: build ## headway on a real Kubernetes: on the rig, or with KUBECONFIG on a cluster that you have
	$(TEST_ENV) e2e/kube/test.sh

e2e-kube-full: build ## The same for every family and both modes of kube-proxy, and more of upstream's tests: hours
	for family in dual ipv4 ipv6; do for proxy in nftables iptables; do \
	    echo "== $$family, $$proxy"; \
	    $(TEST_ENV) HEADWAY_FULL=1 RIG_FAMILY=$$family RIG_PROXY=$$proxy e2e/kube/test.sh; \
	done; done

e2e-kube-scale: build ## One agent among 100, 1,000 and 5,000 nodes without machines, on a real API server
	$(TEST_ENV) e2e/kube/scale.sh

clean: ## Remove everything that was built
	cargo clean

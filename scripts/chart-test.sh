#!/bin/bash
# Tests of the chart, without a cluster: lint, the suites in charts/headway/tests, deploy/headway.yaml as the chart renders it.
#   scripts/chart-test.sh           tests
#   scripts/chart-test.sh manifest  prints what deploy/headway.yaml should be
set -euo pipefail
cd "$(dirname "$0")/.."

tools=${CARGO_TARGET_DIR:-$PWD/target}/tools
chart=charts/headway
# The oldest Kubernetes that the chart takes.
kubernetes=$(sed -n 's/^kubeVersion: ">=\([0-9.]*\)-0"/\1/p' $chart/Chart.yaml)

manifest() {
    cat << 'END'
# headway without Helm: what charts/headway renders (scripts/chart-test.sh manifest > deploy/headway.yaml).
# Before `kubectl apply -f`: set clusterCIDRs in the ConfigMap to the cluster's pod prefixes.
END
    "$tools/helm" template headway $chart --namespace kube-system --kube-version "$kubernetes" \
        --values $chart/tests/values/minimal.yaml | sed 's/: Helm$/: kubectl/; /helm.sh\/chart/d'
}

for tool in helm helm-unittest; do
    if [ ! -x "$tools/$tool" ]; then
        [ -z "${HEADWAY_CI:-${CI:-}}" ] || { echo "chart-test: no $tool, and this is CI" >&2; exit 1; }
        echo "chart-test: SKIPPED, no $tool: scripts/setup.sh chart"
        exit 0
    fi
done
if [ "${1:-}" = manifest ]; then
    manifest
    exit
fi
"$tools/helm" lint --strict --quiet --kube-version "$kubernetes" $chart --values $chart/tests/values/minimal.yaml
"$tools/helm-unittest" --strict $chart
if ! diff -u deploy/headway.yaml <(manifest); then
    echo "chart-test: deploy/headway.yaml is not what the chart renders: scripts/chart-test.sh manifest > deploy/headway.yaml" >&2
    exit 1
fi

#!/bin/bash
# Ends the cluster in $RIG_ROOT/run and removes all that is left of it: processes (each member's PID 1, by its recorded
# pid and start time, which takes the member's processes, namespaces, mounts and interfaces with it), cgroups, state.
# usage: down.sh [nodeK...]     with node names only those are stopped (their state goes, the rest stays up)
set -euo pipefail
RIG=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd); . "$RIG/lib.sh"
[ -d "$RUN" ] || exit 0
all=; [ $# -gt 0 ] || { all=1; set -- $(members | sort -r); }
for n in "$@"; do
    p=$(initpid "$n"); [ -z "$p" ] || kill -KILL "$p"
done
for n in "$@"; do
    d=$RUN/$n; [ -d "$d" ] || continue
    for _ in $(seq 100); do [ -z "$(initpid "$n")" ] && break; sleep 0.1; done
    [ -z "$(initpid "$n")" ] || die "$n: its init process does not end"
    if [ -e "$d/cgroups" ]; then
        while read -r g; do
            for _ in $(seq 50); do
                [ -d "$g" ] || break
                find "$g" -depth -type d -exec rmdir {} \; 2>/dev/null || true
                [ -d "$g" ] && sleep 0.1
            done
            [ ! -d "$g" ] || echo "warning: $g is still there" >&2
        done < "$d/cgroups"
    fi
    for _ in $(seq 50); do rm -rf --one-file-system "$d" 2>/dev/null && break; sleep 0.1; done
done
[ -n "$all" ] || exit 0
[ ! -e "$RUN/sysctl.saved" ] || sysctl -qw -p "$RUN/sysctl.saved" > /dev/null || true
rm -rf --one-file-system "$RUN"

#!/bin/bash
# down.sh [--state DIR]: stops what up.sh started for this state directory, and nothing else.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=deploy/lib.sh
source deploy/lib.sh

gone() {
    ! running "$1"
}

# stop NAME SECONDS: asks, waits, then insists.
stop() {
    if running "$1"; then
        kill -TERM "$PID" 2>/dev/null || true
        if ! within "$2" gone "$1"; then
            echo "down: pinfold-$1 did not stop within $2 s; killing it" >&2
            kill -KILL "$PID" 2>/dev/null || true
            within 5 gone "$1" || die "pinfold-$1 (process $PID) cannot be killed"
        fi
        echo "down: pinfold-$1 has stopped"
    fi
    rm -f -- "$STATE/run/$1.pid"
}

parse_options "$@"
if [[ ! -d $STATE/run ]]; then
    echo "down: nothing was started with $STATE"
    exit 0
fi
[[ $EUID -eq 0 ]] || die "only root can stop the runner"
exec 9>"$STATE/run/up.lock"
flock 9
# The server first: it lets its runs end, for which it needs the runner.
stop server 15
stop runner 15
rm -f -- "$STATE/url"

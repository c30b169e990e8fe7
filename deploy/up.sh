#!/bin/bash
# up.sh [--port N] [--state DIR]: starts runner and server in the background on 127.0.0.1, waits
# until they are ready, runs one job. Harmless when they run already.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=deploy/lib.sh
source deploy/lib.sh

USER_NAME=pinfold
READY_S=60
STARTED=()

make_user() {
    getent passwd "$USER_NAME" >/dev/null ||
        useradd --system --user-group --no-create-home --home-dir /nonexistent \
            --shell /usr/sbin/nologin "$USER_NAME"
}

# The runner takes ceilings only from files that nobody but root can have written.
install_policies() {
    local dir=$STATE/policies file
    install -d -o root -g root -m 0755 "$dir"
    for file in "$dir"/*.json; do
        [[ ! -e $file || -e policies/${file##*/} ]] || rm -f -- "$file"
    done
    install -o root -g root -m 0644 policies/*.json "$dir/"
}

# start NAME PROGRAM ARGUMENTS…: its log is STATE/log/NAME.log.
start() {
    local name=$1 log=$STATE/log/$1.log
    shift
    running "$name" && return
    STARTED+=("$name")
    if [[ -e $log && $(stat -c %s "$log") -gt 67108864 ]]; then
        mv -f -- "$log" "$log.1"
    fi
    # 9 is our lock, which must end with this script.
    setsid "$@" </dev/null >>"$log" 2>&1 9>&- &
    echo "$! $(start_time $! || echo 0)" >"$STATE/run/$name.pid"
}

# One request without a client program: is the answer 200?
answers() {
    local status
    (
        exec 3<>"/dev/tcp/127.0.0.1/$PORT"
        printf 'GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n' "$1" >&3
        read -r -t 5 status <&3
        [[ $status == "HTTP/1.1 200 "* ]]
    ) 2>/dev/null
}

# Both are alive, and it is ours that answers.
ready() {
    running runner && running server && answers /readyz
}

# Ready, or one of them has died and waiting is useless.
settled() {
    ! running runner || ! running server || answers /readyz
}

explain() {
    local name
    for name in runner server; do
        running "$name" || echo "up: pinfold-$name has stopped" >&2
        echo "--- $STATE/log/$name.log" >&2
        tail -n 15 "$STATE/log/$name.log" >&2 || true
    done
    # What runs only because of us goes again; what ran before stays.
    for name in "${STARTED[@]}"; do
        running "$name" && kill "$PID" || true
    done
    die "runner and server did not get ready; the reason is in the lines above"
}

parse_options "$@"
[[ $EUID -eq 0 ]] || die "only root can start the runner"
make_user
build/pinfold-server init --state "$STATE" --user "$USER_NAME"

# Two of us at once: one after the other.
exec 9>"$STATE/run/up.lock"
flock 9

url=http://127.0.0.1:$PORT
if running server && [[ -e $STATE/url && $(<"$STATE/url") != "$url" ]]; then
    die "this state directory's server already runs at $(<"$STATE/url"); make down first"
fi
running runner || install_policies
start runner build/pinfold-runner --state "$STATE" --policies "$STATE/policies" \
    --server-user "$USER_NAME"
start server build/pinfold-server serve --state "$STATE" --listen 127.0.0.1 --port "$PORT" \
    --user "$USER_NAME"

within "$READY_S" settled || explain
ready || explain
echo "$url" >"$STATE/url"
chmod 0644 "$STATE/url"

echo "up: $url is ready; running a job in a fresh jail:"
PINFOLD_URL=$url PINFOLD_TOKEN=$(<"$STATE/admin.token") \
    build/pinfold run -c 'echo "hello from a pinfold: user $(id -u) on $(uname -s) in $(pwd)"'
suffix=
[[ $STATE == /var/lib/pinfold ]] || suffix=" STATE=$STATE"
echo "up: a shell reaches it after:  eval \"\$(make -s env$suffix)\""

# Shared by the tests of the command line; loaded, not run.
# shellcheck shell=bash

ROOT=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
BUILD=${PINFOLD_BUILD:-$ROOT/build}

# program NAME: the sanitizer build where there is one.
program() {
    if [[ -x $BUILD/san/$1 ]]; then echo "$BUILD/san/$1"; else echo "$BUILD/$1"; fi
}

# The user that the server becomes.
server_user() {
    if getent passwd pinfold >/dev/null; then echo pinfold; else echo nobody; fi
}

# within SECONDS COMMAND…: tries the command until it succeeds or the time is over.
within() {
    local deadline=$((${EPOCHREALTIME/[.,]/} + $1 * 1000000))
    shift
    until "$@"; do
        [[ ${EPOCHREALTIME/[.,]/} -lt $deadline ]] || return 1
        sleep 0.02
    done
}

gone() { ! kill -0 "$1" 2>/dev/null; }

# stop PID…: ends processes that a test file started. The server lets its runs finish at the first
# signal and ends them at the second.
stop() {
    local pid
    for pid; do
        kill -TERM "$pid" 2>/dev/null || continue
        within 1 gone "$pid" || kill -TERM "$pid" 2>/dev/null || continue
        within 10 gone "$pid" || kill -KILL "$pid" 2>/dev/null || true
    done
}

# start_fake DIR: the scripted server; sets PINFOLD_URL and PINFOLD_TOKEN.
start_fake() {
    /usr/bin/python3 "$BATS_TEST_DIRNAME/fake_server.py" "$1" </dev/null >"$1/log" 2>&1 3>&- &
    echo $! >"$1/pid"
    within 10 test -s "$1/port" || return 1
    PINFOLD_URL=http://127.0.0.1:$(<"$1/port")
    PINFOLD_TOKEN=pf_test
    export PINFOLD_URL PINFOLD_TOKEN
}

free_port() {
    /usr/bin/python3 -c 'import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])'
}

ready() {
    local status
    (
        exec 4<>"/dev/tcp/127.0.0.1/$1" || exit 1
        printf 'GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n' >&4
        read -r -t 2 status <&4
        [[ $status == "HTTP/1.1 200 "* ]]
    ) 2>/dev/null
}

# start_runner DIR: also after one that was killed, whose leftovers it removes.
start_runner() {
    "$BUILD/pinfold-runner" --state "$1/state" --policies "$ROOT/policies" --shards 1 --slots 8 \
        --warm 2 --server-user "$(server_user)" </dev/null >>"$1/runner.log" 2>&1 3>&- &
    echo $! >"$1/runner.pid"
    disown
}

# start_pair DIR: runner and server on the state directory DIR/state; sets the environment.
start_pair() {
    local port user
    port=$(free_port)
    user=$(server_user)
    "$BUILD/pinfold-server" init --state "$1/state" --user "$user" >/dev/null || return 1
    start_runner "$1"
    "$BUILD/pinfold-server" serve --state "$1/state" --listen 127.0.0.1 --port "$port" \
        --user "$user" </dev/null >"$1/server.log" 2>&1 3>&- &
    echo $! >"$1/server.pid"
    disown
    if ! within 20 ready "$port"; then
        tail -n 20 "$1/runner.log" "$1/server.log" >&2
        return 1
    fi
    PINFOLD_URL=http://127.0.0.1:$port
    PINFOLD_TOKEN=$(<"$1/state/admin.token")
    export PINFOLD_URL PINFOLD_TOKEN
}

# restart_server SIGNAL DIR [stay_away]: ends the server of a pair, whose runner stays, and starts it
# again. SIGNAL "none": it is down already.
restart_server() {
    local port=${PINFOLD_URL##*:} pid user
    pid=$(<"$2/server.pid")
    user=$(server_user)
    if [[ $1 != none ]]; then
        kill "-$1" "$pid"
        within 20 gone "$pid" || return 1
    fi
    if [[ ${3-} == stay_away ]]; then return; fi
    "$BUILD/pinfold-server" serve --state "$2/state" --listen 127.0.0.1 --port "$port" \
        --user "$user" </dev/null >>"$2/server.log" 2>&1 3>&- &
    echo $! >"$2/server.pid"
    disown
    within 20 ready "$port"
}

stop_pair() {
    stop "$(<"$1/server.pid")" "$(<"$1/runner.pid")"
}

# The exit status and both streams of a command, apart: $status, $out, $err.
apart() {
    status=0
    "$@" >"$BATS_TEST_TMPDIR/out" 2>"$BATS_TEST_TMPDIR/err" || status=$?
    out=$(<"$BATS_TEST_TMPDIR/out")
    err=$(<"$BATS_TEST_TMPDIR/err")
}

# Shows what came when a comparison fails.
is() {
    [[ $1 == "$2" ]] && return
    printf 'expected: %q\ngot:      %q\nstderr:   %q\n' "$2" "$1" "${err-}" >&2
    return 1
}

has() {
    [[ $1 == *"$2"* ]] && return
    printf 'expected: …%q…\ngot:      %q\n' "$2" "$1" >&2
    return 1
}

# Shared by up.sh, down.sh and env.sh; sourced, not run.
# shellcheck shell=bash

die() {
    echo "${0##*/}: $*" >&2
    exit 1
}

# parse_options "$@": sets STATE and PORT.
parse_options() {
    STATE=/var/lib/pinfold
    PORT=7070
    while [[ $# -gt 0 ]]; do
        case $1 in
        --state) STATE=${2:?--state needs a directory} ;;
        --port) PORT=${2:?--port needs a number} ;;
        *) die "unknown option $1" ;;
        esac
        shift 2
    done
    [[ $PORT =~ ^[0-9]{1,5}$ && $PORT -ge 1 && $PORT -le 65535 ]] ||
        die "PORT must be a number from 1 to 65535"
    STATE=$(realpath -ms -- "$STATE")
    [[ $STATE != / ]] || die "STATE must not be /"
}

# start_time PID: when the process started, in ticks since boot; fails when there is none. A process
# id alone may belong to a stranger by now.
start_time() {
    local stat
    stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
    # The name may hold blanks and brackets; what follows the last ')' is field 3.
    stat=${stat##*) }
    # A zombie has ended, whoever has yet to collect it.
    [[ ${stat%% *} != Z ]] || return 1
    cut -d ' ' -f 20 <<<"$stat"
}

# running NAME: sets PID when the process that STATE/run/NAME.pid describes is alive.
running() {
    local started
    PID=
    read -r PID started 2>/dev/null <"$STATE/run/$1.pid" || return 1
    [[ $PID =~ ^[0-9]+$ && $(start_time "$PID") == "$started" ]]
}

# within SECONDS COMMAND…: tries the command every 50 ms until it succeeds or the time is over.
within() {
    local deadline=$((${EPOCHREALTIME/[.,]/} + $1 * 1000000))
    shift
    until "$@"; do
        [[ ${EPOCHREALTIME/[.,]/} -lt $deadline ]] || return 1
        sleep 0.05
    done
}

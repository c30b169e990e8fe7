#!/usr/bin/env bats
# pinfold trace and pinfold top, against a real server and runner; top in a real terminal, too.

load lib.bash
load terminal.bash

setup_file() {
    [[ $EUID -eq 0 ]] || skip "only root can start the runner"
    chmod 755 "$BATS_FILE_TMPDIR"
    start_pair "$BATS_FILE_TMPDIR"
}

teardown_file() {
    if [[ -e $BATS_FILE_TMPDIR/server.pid ]]; then
        stop_pair "$BATS_FILE_TMPDIR"
    fi
}

setup() {
    PINFOLD=$(program pinfold)
    cd "$BATS_TEST_TMPDIR" || return 1
    unset TRACEPARENT TRACESTATE
}

teardown() {
    if [[ -n ${TMUX_SOCKET:-} ]]; then
        terminal_stop
    fi
    if [[ -e runs ]]; then
        while read -r id; do
            "$PINFOLD" runs cancel "$id" || true
        done <runs
    fi
}

# sleeper WORD: a run that goes on; its id goes to the file `runs`.
sleeper() {
    "$PINFOLD" run -- sleep "30$1" &
    sleeper_pid=$!
    within 10 sleeper_there
}
sleeper_there() {
    "$PINFOLD" runs | awk '$2 == "running" {print $1}' >runs
    [[ -s runs ]]
}

@test "run and exec pass TRACEPARENT on, and trace shows the tree" {
    local parent=00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
    outer=$(TRACEPARENT=$parent TRACESTATE=a=1 "$PINFOLD" run -c 'echo $TRACEPARENT $TRACESTATE')
    [[ $outer =~ ^00-4bf92f3577b34da6a3ce929d0e0e4736-[0-9a-f]{16}-01\ a=1$ ]]
    inner=$(TRACEPARENT=${outer% *} "$PINFOLD" run -c 'echo $TRACEPARENT; exit 3') || [[ $? == 3 ]]
    box=$(TRACEPARENT=$inner "$PINFOLD" sandbox create)
    "$PINFOLD" exec --sandbox "$box" -- true
    run "$PINFOLD" trace 4bf92f3577b34da6a3ce929d0e0e4736
    echo "$output"
    [[ $status == 0 ]]
    [[ ${lines[0]} == "trace 4bf92f3577b34da6a3ce929d0e0e4736" ]]
    [[ ${lines[2]} =~ ^echo\ .*exit\ 0\ .*\ run_ ]]
    [[ ${lines[3]} =~ ^'`-- echo '.*exit\ 3\ .*\ run_ ]]
    [[ ${lines[4]} =~ ^'    `-- sandbox '.*ready\ .*$box$ ]]
    [[ ${lines[5]} =~ ^'        `-- true '.*exit\ 0\ .*\ ex_ ]]
    run_id=${lines[3]##* }
    run "$PINFOLD" trace "$run_id"
    [[ ${lines[0]} == "trace 4bf92f3577b34da6a3ce929d0e0e4736" ]]
    run "$PINFOLD" trace "$box"
    [[ ${lines[0]} == "trace 4bf92f3577b34da6a3ce929d0e0e4736" ]]
    "$PINFOLD" trace --json "$run_id" | python3 -c '
import json, sys
trace = json.load(sys.stdin)
assert len(trace["spans"]) == 4, trace
assert trace["spans"][1]["parent"] == trace["spans"][0]["span"], trace'
    "$PINFOLD" sandbox delete "$box"
}

@test "a TRACEPARENT that is none is not passed on" {
    run env TRACEPARENT=$'00-x\r\nX-Evil: 1' "$PINFOLD" run -c 'echo $TRACEPARENT'
    [[ $status == 0 ]]
    [[ $output =~ ^00-[0-9a-f]{32}-[0-9a-f]{16}-01$ ]]
}

@test "trace of what is not there, and of nonsense" {
    run "$PINFOLD" trace 00000000000000000000000000000001
    [[ $status == 125 && $output == *"There is no such trace."* ]]
    run "$PINFOLD" trace run_nosuch
    [[ $status == 125 && $output == *"no such run"* ]]
    run "$PINFOLD" trace 'x/../y'
    [[ $status == 125 && $output == *"neither a trace"* ]]
    run "$PINFOLD" trace
    [[ $status == 2 ]]
    run "$PINFOLD" trace --help
    [[ $status == 0 && $output == *TRACEPARENT* ]]
}

@test "output that cannot be written is no success" {
    for command in policies runs me "sandbox list" "token list"; do
        # shellcheck disable=SC2086
        status=0 && "$PINFOLD" $command >/dev/full 2>err || status=$?
        is "$command $status" "$command 125"
        has "$(<err)" "cannot write the output"
    done
    id=$("$PINFOLD" sandbox create)
    for command in version help "run --help" "me --json" "sandbox list --json" "sandbox get $id --json" "trace $id --json"; do
        # shellcheck disable=SC2086
        status=0 && "$PINFOLD" $command >/dev/full 2>err || status=$?
        is "$command $status" "$command 125"
        [[ -s err ]]
    done
    "$PINFOLD" sandbox delete "$id"
}

@test "top --once prints one look without escapes, and so does a pipe" {
    sleeper 1
    run "$PINFOLD" top --once
    echo "$output"
    [[ $status == 0 ]]
    [[ ${lines[0]} == *"all users  ready" ]]
    [[ ${lines[1]} == "runs 1 running, 0 waiting"* ]]
    [[ $output == *"$(cat runs)  admin "*" running "*"sleep 301"* ]]
    [[ $output != *$'\e'* ]]
    "$PINFOLD" top | grep -q "$(cat runs)"
    "$PINFOLD" top --json | python3 -c '
import json, sys
assert json.load(sys.stdin)["running"] == 1'
    kill "$sleeper_pid"
}

@test "top in a terminal: shows what comes and goes, follows the size, q leaves all as it was" {
    terminal_start "$BATS_TEST_TMPDIR"
    typed "cd '$BATS_TEST_TMPDIR'; stty -a > before; clear; echo here before"
    within 5 test -s before
    terminal_size 100 20
    typed "$PINFOLD top --every 200ms; echo \"code \$?\""
    sees 'runs 0 running'
    sleeper 2
    sees "^$(cat runs) .*sleep 302"
    terminal_size 40 20
    shorter() { ! screen | grep -q 'sleep 302'; }
    within 10 shorter
    sees "^$(cat runs)"
    terminal_size 120 6
    sees 'sleep 302|lines more'
    terminal_size 120 30
    sees 'sleep 302'
    "$PINFOLD" runs cancel "$(cat runs)"
    sees 'runs 0 running'
    keys q
    sees '^code 0$'
    sees '^here before$'
    terminal_size 80 24
    restored
}

@test "top: Ctrl-C and a signal leave the terminal as it was" {
    terminal_start "$BATS_TEST_TMPDIR"
    typed "cd '$BATS_TEST_TMPDIR'; stty -a > before; clear"
    within 5 test -s before
    typed "$PINFOLD top --every 200ms; echo \"code \$?\""
    sees 'runs 0 running'
    keys C-c
    sees '^code 0$'
    restored
    typed "clear; $PINFOLD top --every 200ms & echo \$! > pid; fg"
    sees 'runs 0 running'
    kill "$(cat pid)"
    ends_with 'outside\$$'
    restored
}

@test "top without a server says so; in a terminal it goes on" {
    run env PINFOLD_URL=http://127.0.0.1:9 "$PINFOLD" top --once
    [[ $status == 125 && $output == *"cannot be reached"* ]]
    terminal_start "$BATS_TEST_TMPDIR"
    typed "PINFOLD_URL=http://127.0.0.1:9 $PINFOLD top --every 200ms; echo \"code \$?\""
    sees '^pinfold: the server at http://127.0.0.1:9 cannot be reached'
    keys q
    sees '^code 0$'
}

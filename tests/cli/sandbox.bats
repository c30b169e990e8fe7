#!/usr/bin/env bats
# pinfold sandbox, exec and cp against a real server and runner.

load lib.bash

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
    mkdir "$BATS_TEST_TMPDIR/cwd"
    cd "$BATS_TEST_TMPDIR/cwd" || return 1
    umask 022
    box=$("$PINFOLD" sandbox create --ttl 10m)
    export PINFOLD_SANDBOX=$box
}

teardown() {
    "$PINFOLD" sandbox delete "$box" 2>/dev/null || true
}

field() { /usr/bin/python3 -c 'import json, sys; print(eval("json.load(sys.stdin)" + sys.argv[1]))' "$1"; }

@test "what one command leaves, the next one finds; each has its own end" {
    apart "$PINFOLD" exec -c 'echo out; echo err >&2; echo kept >note; exit 42'
    is "$status $out $err" "42 out err"
    is "$("$PINFOLD" exec -- cat note)" kept
    is "$("$PINFOLD" sandbox exec "$box" --cwd /tmp -e A='x y' -c 'pwd; echo "$A|${PINFOLD_TOKEN-unset}"')" \
        $'/tmp\nx y|unset'
    apart "$PINFOLD" exec --wall 300ms -- sleep 60
    is "$status" 124
    has "$err" "the wall-clock limit of 300 ms was reached"
    apart "$PINFOLD" exec -c 'kill -SEGV $$'
    is "$status" 139
    apart "$PINFOLD" exec -- /no/such/program
    is "$status" 125
    has "$err" "/no/such/program: No such file or directory"
    is "$("$PINFOLD" exec -- echo still)" still
}

@test "every byte of output and input arrives" {
    "$PINFOLD" exec -- python3 -c 'import sys
sys.stdout.buffer.write(bytes(range(256)) * 1000)' >out
    python3 -c 'import sys
sys.stdout.buffer.write(bytes(range(256)) * 1000)' | cmp - out
    head -c 20000000 /dev/urandom >big
    is "$("$PINFOLD" exec --wall 1m --stdin big -- sha256sum)" "$(sha256sum <big)"
    is "$(cat big | "$PINFOLD" exec --wall 1m --stdin - -- sha256sum)" "$(sha256sum <big)"
    is "$("$PINFOLD" exec -- wc -c)" 0
    # A reader that does not want all of it ends as it likes.
    is "$(cat big | "$PINFOLD" exec --stdin - -c 'head -c 4 >/dev/null; echo enough')" enough
}

@test "input is passed on as it comes, and so is output" {
    mkfifo in
    "$PINFOLD" exec --wall 1m --stdin - -c 'while read -r line; do echo "got $line"; done; echo end' \
        <in >out 2>err 3>&- &
    pid=$!
    exec 5>in
    for word in one two three; do
        echo "$word" >&5
        within 10 grep -q "got $word" out
    done
    exec 5>&-
    wait "$pid"
    is "$(tail -n 1 out)" end
}

@test "in the background: reachable, listed, followed, ended" {
    ex=$("$PINFOLD" exec -b --wall 1m -- python3 -m http.server 8000)
    "$PINFOLD" exec --wall 20s -- python3 -c 'import time, urllib.request
for i in range(200):
    try:
        print(urllib.request.urlopen("http://127.0.0.1:8000/").status)
        break
    except OSError:
        time.sleep(0.05)' >status
    is "$(<status)" 200
    apart "$PINFOLD" sandbox ps "$box"
    has "$out" "$ex  running"
    has "$("$PINFOLD" sandbox logs "$box" "$ex" 2>&1)" "GET / HTTP/1.1"
    "$PINFOLD" sandbox kill "$box" "$ex"
    apart "$PINFOLD" sandbox wait "$box" "$ex"
    is "$status" 125
    has "$err" cancelled
    ex=$("$PINFOLD" exec -b -c 'trap "echo caught; exit 7" TERM; echo up; while :; do sleep 0.1; done')
    up() { [[ $("$PINFOLD" sandbox logs "$box" "$ex") == up ]]; }
    within 10 up
    "$PINFOLD" sandbox kill "$box" "$ex" --signal TERM
    apart "$PINFOLD" sandbox wait "$box" "$ex"
    is "$status" 7
    is "$("$PINFOLD" sandbox logs "$box" "$ex")" $'up\ncaught'
}

@test "Ctrl-C ends the command on the server; a client that is killed does not" {
    env --default-signal=INT "$PINFOLD" exec --id ex_ctrlcctrlcctrlcctrlc1 --wall 1m -c 'echo here; sleep 60' >out 2>err 3>&- &
    pid=$!
    within 10 grep -q here out
    kill -INT "$pid"
    status=0
    wait "$pid" || status=$?
    is "$status" 130
    apart "$PINFOLD" sandbox wait "$box" ex_ctrlcctrlcctrlcctrlc1
    has "$err" cancelled
    "$PINFOLD" exec --id ex_killkillkillkillkill1 --wall 1m -c 'echo here; sleep 2; exit 6' >out2 2>err 3>&- &
    pid=$!
    within 10 grep -q here out2
    kill -KILL "$pid"
    wait "$pid" 2>/dev/null || true
    apart "$PINFOLD" sandbox wait "$box" ex_killkillkillkillkill1
    is "$status" 6
}

@test "the same id runs once" {
    for i in 1 2 3; do
        is "$("$PINFOLD" exec --id ex_samesamesamesamesame1 -c 'echo once >>count; echo done')" "done"
    done
    is "$("$PINFOLD" exec -- cat count)" once
}

@test "option --json is the answer, whole" {
    apart "$PINFOLD" exec --json -c 'echo hi; exit 5'
    is "$status" 5
    is "$(field '["stdout"]' <<<"$out")" hi
    is "$(field '["end"]["exit_code"]' <<<"$out")" 5
}

@test "an execution goes on over a restart of the server, and nothing is lost or doubled" {
    "$PINFOLD" exec --wall 1m -c 'for i in $(seq 1 400); do echo $i; sleep 0.01; done; exit 3' \
        >out 2>err 3>&- &
    pid=$!
    within 10 grep -q '^20$' out
    restart_server KILL "$BATS_FILE_TMPDIR"
    status=0
    wait "$pid" || status=$?
    is "$status" 3
    cmp out <(seq 1 400)
}

@test "input goes on over a restart of the server" {
    mkfifo in
    "$PINFOLD" exec --wall 1m --stdin - -- cat <in >out 2>err 3>&- &
    pid=$!
    exec 5>in
    seq 1 1000 >&5
    within 10 grep -q '^1000$' out
    restart_server KILL "$BATS_FILE_TMPDIR" 5>&- &
    other=$!
    seq 1001 20000 >&5
    wait "$other"
    within 20 grep -q '^20000$' out
    exec 5>&-
    wait "$pid"
    diff out <(seq 1 20000) | head -n 20
    cmp out <(seq 1 20000)
}

@test "several executions at once over several restarts: every byte, once, in order" {
    pids=()
    for i in 1 2 3; do
        "$PINFOLD" exec --wall 2m -c 'for i in $(seq 1 600); do echo $i; sleep 0.01; done' \
            >"out$i" 2>"err$i" 3>&- &
        pids+=($!)
        for k in $(seq 1 120); do
            echo "line $k of $i"
            sleep 0.05
        done | "$PINFOLD" exec --wall 2m --stdin - -- cat >"in$i" 2>"ierr$i" 3>&- &
        pids+=($!)
    done
    for i in 1 2 3; do
        within 10 test -s "in$i"
        within 10 test -s "out$i"
    done
    for i in 1 2 3; do
        restart_server KILL "$BATS_FILE_TMPDIR"
        before=$(stat -c %s in1)
        more() { [[ $(stat -c %s in1) -gt $before ]]; }
        within 10 more
    done
    for pid in "${pids[@]}"; do
        wait "$pid"
    done
    for i in 1 2 3; do
        cmp "out$i" <(seq 1 600)
        cmp "in$i" <(for k in $(seq 1 120); do echo "line $k of $i"; done)
    done
}

@test "files: up, down, with modes; trees; streams" {
    head -c 3000000 /dev/urandom >data
    printf '#!/bin/sh\necho "ran $1"\n' >tool
    chmod 755 tool
    "$PINFOLD" cp data "$box:in/deep/data"
    "$PINFOLD" cp tool "$box:"
    is "$("$PINFOLD" exec -c './tool x; sha256sum <in/deep/data')" "ran x"$'\n'"$(sha256sum <data)"
    "$PINFOLD" cp "$box:in/deep/data" back
    cmp data back
    "$PINFOLD" cp "$box:tool" back
    is "$(stat -c %a back)" 755
    seq 1 100000 | "$PINFOLD" cp - "$box:/tmp/seq"
    "$PINFOLD" cp "$box:/tmp/seq" - | cmp - <(seq 1 100000)
    mkdir -p tree/deep "tree/$(printf 'n%.0s' {1..200})"
    cp data tree/deep
    cp tool tree
    echo ü >"tree/ü b"
    ln -s deep/data tree/link
    "$PINFOLD" cp -r tree "$box:"
    is "$("$PINFOLD" exec -c 'readlink tree/link; sha256sum <tree/link; cat "tree/ü b"; tree/tool y')" \
        "deep/data"$'\n'"$(sha256sum <data)"$'\nü\nran y'
    "$PINFOLD" cp -r "$box:tree" again
    diff -r --no-dereference tree again
    "$PINFOLD" cp -r tree/. "$box:/workspace/other"
    is "$("$PINFOLD" exec -- ls other)" "$(ls tree)"
    apart "$PINFOLD" cp "$box:tree" here
    is "$status" 125
    apart "$PINFOLD" cp "$box:/no/such" here
    is "$status" 125
    apart "$PINFOLD" cp tool "$box:/usr/bin/tool"
    is "$status" 125
    is "$(wc -l <<<"$err")" 1
}

@test "a jail's tricks with files do not work here" {
    echo secret >outside
    "$PINFOLD" exec -c 'mkdir t; cd t; ln -s /etc/passwd abs; ln -s ../../.. up; mkfifo fifo
        mkdir -p .git/hooks; echo evil >.git/hooks/post-checkout; echo good >good
        echo suid >suid; chmod 4755 suid; ln -s good link'
    apart timeout 20 "$PINFOLD" cp -r "$box:t" .
    is "$(<t/good)" good
    is "$(readlink t/link)" good
    is "$(stat -c %a t/suid)" 755
    [[ ! -L t/abs && ! -L t/up && ! -e t/fifo && ! -e t/.git ]]
    apart timeout 20 "$PINFOLD" cp "$box:t/fifo" here
    is "$status" 125
    [[ ! -e here ]]
}

@test "life: list, get, ttl, pause, resume, delete" {
    has "$("$PINFOLD" sandbox list)" "$box"
    is "$("$PINFOLD" sandbox get "$box" --json | field '["state"]')" ready
    "$PINFOLD" sandbox ttl "$box" 1h
    ex=$("$PINFOLD" exec -b --wall 1m -c 'i=0; while :; do i=$((i + 1)); echo $i >count; sleep 0.01; done')
    counts() { "$PINFOLD" cp "$box:count" - >count 2>/dev/null && [[ -s count ]]; }
    within 10 counts
    "$PINFOLD" sandbox pause "$box"
    is "$("$PINFOLD" sandbox get "$box" --json | field '["state"]')" paused
    apart "$PINFOLD" exec -- true
    is "$status" 125
    has "$err" paused
    "$PINFOLD" cp "$box:count" one
    sleep 0.3
    "$PINFOLD" cp "$box:count" two
    cmp one two
    "$PINFOLD" sandbox resume "$box"
    goes_on() { "$PINFOLD" cp "$box:count" two && ! cmp -s one two; }
    within 10 goes_on
    "$PINFOLD" sandbox logs "$box" "$ex" --follow >/dev/null 2>err 3>&- &
    pid=$!
    "$PINFOLD" sandbox delete "$box"
    wait "$pid" || true
    apart "$PINFOLD" exec -- true
    is "$status" 125
    has "$err" gone
}

@test "snapshots, restore, a sandbox from one, forks" {
    "$PINFOLD" exec -c 'echo first >state; mkdir -p dir; seq 1 1000 >dir/seq'
    snap=$("$PINFOLD" sandbox snapshot "$box" --name before)
    has "$("$PINFOLD" sandbox snapshots)" before
    "$PINFOLD" exec -c 'echo second >state; rm -r dir'
    "$PINFOLD" sandbox restore "$box" "$snap"
    is "$("$PINFOLD" exec -c 'cat state; wc -l <dir/seq')" $'first\n1000'
    other=$("$PINFOLD" sandbox create --from "$snap")
    is "$("$PINFOLD" sandbox exec "$other" -- cat state)" first
    "$PINFOLD" sandbox exec "$other" -c 'echo third >state'
    "$PINFOLD" sandbox fork "$other" --count 2 >forks
    is "$(wc -l <forks)" 2
    while read -r fork; do
        is "$("$PINFOLD" sandbox exec "$fork" -- cat state)" third
    done <forks
    is "$("$PINFOLD" exec -- cat state)" first
    # shellcheck disable=SC2046
    "$PINFOLD" sandbox delete "$other" $(<forks)
    "$PINFOLD" sandbox delete-snapshot "$snap"
    apart "$PINFOLD" sandbox create --from "$snap"
    is "$status" 125
}

@test "a sandbox on disk takes more than memory holds" {
    big=$("$PINFOLD" sandbox create --disk file --mem 64M)
    apart "$PINFOLD" sandbox exec "$big" --wall 1m -c 'head -c 200000000 /dev/zero >big; wc -c <big'
    is "$status $out" "0 200000000"
    "$PINFOLD" sandbox delete "$big"
}

@test "the policy's ceilings hold" {
    apart "$PINFOLD" sandbox create --mem 999G
    is "$status" 125
    is "$out" ""
    has "$err" "/limits/mem_bytes"
    apart "$PINFOLD" sandbox create --policy no-such
    is "$status" 125
}

@test "when the runner dies, what ran ends at once, and the sandbox is gone" {
    "$PINFOLD" exec --wall 1m -c 'echo here; sleep 60' >out 2>err 3>&- &
    pid=$!
    within 10 grep -q here out
    kill -KILL "$(<"$BATS_FILE_TMPDIR/runner.pid")"
    status=0
    wait "$pid" || status=$?
    is "$status" 125
    is "$(wc -l <err)" 1
    apart "$PINFOLD" exec -- true
    is "$status" 125
    has "$err" "gone"
    start_runner "$BATS_FILE_TMPDIR"
    within 20 ready "${PINFOLD_URL##*:}"
    box=$("$PINFOLD" sandbox create)
    is "$("$PINFOLD" sandbox exec "$box" -- echo again)" again
}

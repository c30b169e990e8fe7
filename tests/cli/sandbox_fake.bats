#!/usr/bin/env bats
# pinfold sandbox, exec and cp against the scripted server: also what no sound server sends.

load lib.bash

setup_file() {
    mkdir -p "$BATS_FILE_TMPDIR/fake/files"
    start_fake "$BATS_FILE_TMPDIR/fake"
}

teardown_file() {
    stop "$(<"$BATS_FILE_TMPDIR/fake/pid")"
}

setup() {
    PINFOLD=$(program pinfold)
    FAKE=$BATS_FILE_TMPDIR/fake
    FILES=$FAKE/files
    rm -rf "${FILES:?}"/* "$FAKE/down"
    box=$("$PINFOLD" sandbox create)
    : >"$FAKE/requests"
    mkdir "$BATS_TEST_TMPDIR/cwd"
    cd "$BATS_TEST_TMPDIR/cwd" || return 1
    umask 022
}

# The field of the last POST's JSON body.
sent() {
    /usr/bin/python3 -c 'import json, sys
for line in open(sys.argv[1]):
    one = json.loads(line)
    if one["method"] == "POST" and isinstance(one["body"], dict):
        last = one["body"]
print(json.dumps(last.get(sys.argv[2])))' "$FAKE/requests" "$1"
}

requests() { /usr/bin/python3 -c 'import json, sys
for line in open(sys.argv[1]):
    one = json.loads(line)
    print(one["method"], one["path"])' "$FAKE/requests"; }

@test "create prints the id alone and sends what was asked for" {
    apart "$PINFOLD" sandbox create --policy ci --image host --env A=1 -e B=x=y --mem 64M --pids 5 \
        --backend native --wall 1m --disk 1G --storage file --ttl 2h --idle 90s --from snap_1 --meta task=42
    is "$status" 0
    [[ $out =~ ^sb_[0-9]+$ ]]
    is "$(sent policy) $(sent image) $(sent disk) $(sent from)" '"ci" "host" "file" "snap_1"'
    is "$(sent backend)" '"native"'
    is "$(sent env)" '{"A": "1", "B": "x=y"}'
    is "$(sent metadata)" '{"task": "42"}'
    is "$(sent ttl_ms) $(sent idle_ms)" "7200000 90000"
    is "$(sent limits)" '{"wall_ms": 60000, "mem_bytes": 67108864, "pids": 5, "disk_bytes": 1073741824}'
    apart "$PINFOLD" sandbox create --disk file --json
    is "$(sent disk)" '"file"'
    has "$out" '"state":"ready"'
}

@test "create: a refusal is a sentence and prints no id" {
    apart "$PINFOLD" sandbox create --policy none
    is "$status" 125
    is "$out" ""
    is "$err" "pinfold: There is no policy none. (field /policy)"
}

@test "list, get, ttl, pause, resume, delete" {
    apart "$PINFOLD" sandbox list
    has "$out" "$box"
    apart "$PINFOLD" sandbox list --json
    has "$out" '{"sandboxes":['
    apart "$PINFOLD" sandbox ttl "$box" 30m
    is "$status $out" "0 2023-11-14T22:43:20Z"
    "$PINFOLD" sandbox pause "$box"
    apart "$PINFOLD" sandbox get "$box"
    has "$out" paused
    has "$out" 2023-11-14T22:43:20Z
    "$PINFOLD" sandbox resume "$box"
    apart "$PINFOLD" sandbox get "$box" --json
    has "$out" '"state":"ready"'
    other=$("$PINFOLD" sandbox create)
    apart "$PINFOLD" sandbox delete "$other" sb_none "$box"
    is "$status" 125
    is "$err" "pinfold: sb_none: There is no such sandbox."
    apart "$PINFOLD" sandbox get "$box"
    is "$status $err" "125 pinfold: There is no such sandbox."
}

@test "snapshots, restore, fork" {
    apart "$PINFOLD" sandbox snapshot "$box" --name before
    is "$status $out" "0 snap_1"
    is "$(sent name)" '"before"'
    apart "$PINFOLD" sandbox snapshots
    has "$out" "a?b"
    has "$out" "2.0 KiB"
    "$PINFOLD" sandbox restore "$box" snap_1
    is "$(sent snapshot)" '"snap_1"'
    apart "$PINFOLD" sandbox restore "$box" snap_2
    is "$status" 125
    apart "$PINFOLD" sandbox fork "$box" --count 3
    is "$out" $'sb_fork0\nsb_fork1\nsb_fork2'
    "$PINFOLD" sandbox delete-snapshot snap_1
    apart "$PINFOLD" sandbox delete-snapshot snap_2
    is "$status" 125
}

@test "ids that are none are not sent" {
    for id in '' ../x a/b 'a b' $'a\nb' 'x?y'; do
        for args in "get" "delete" "pause" "snapshot" "fork" "ps"; do
            apart "$PINFOLD" sandbox "$args" "$id"
            is "$status" 125
        done
        apart "$PINFOLD" sandbox exec "$id" -- hello
        is "$status" 125
        apart "$PINFOLD" sandbox logs "$box" "$id"
        is "$status" 125
    done
    is "$(<"$FAKE/requests")" ""
}

@test "exec: output, exit codes and sentences as run has them" {
    apart "$PINFOLD" sandbox exec "$box" -- hello
    is "$status $out $err" "0 hié err"
    while IFS='|' read -r script code sentence; do
        apart "$PINFOLD" exec --sandbox "$box" -- "$script"
        is "$script $status" "$script $code"
        is "$script $err" "$script ${sentence:+pinfold: $sentence}"
    done <<'END'
exit7|7|
segv|139|the program was ended by signal 11 (SIGSEGV: Segmentation fault)
wall|124|the wall-clock limit of 2.0 s was reached after 2.0 s
memory|137|the program was killed because it and its files used all of its 64.0 MiB of memory after 5 ms
unfinished|125|the execution ended without a result
END
    "$PINFOLD" exec -s "$box" -- binary >out
    /usr/bin/python3 -c 'import sys
sys.stdout.buffer.write(bytes(range(256)) + b"a\0b")' | cmp - out
}

@test "exec: the sandbox comes from the option or the environment" {
    # Without one it is the workspace's, whose rules deny what none of them allows.
    mkdir "$BATS_TEST_TMPDIR/home"
    HOME=$BATS_TEST_TMPDIR/home apart env -u PINFOLD_SANDBOX -u XDG_STATE_HOME -u XDG_CONFIG_HOME "$PINFOLD" exec -- hello
    is "$status" 126
    has "$err" "no rule allows it"
    is "$(PINFOLD_SANDBOX=$box "$PINFOLD" exec -- hello 2>/dev/null)" "hié"
    # Options may stand on both sides of the id.
    is "$("$PINFOLD" sandbox exec --cwd /a "$box" -e X=1 -- hello a --b 2>/dev/null)" "hié"
    is "$(sent argv) $(sent cwd) $(sent env)" '["hello", "a", "--b"] "/a" {"X": "1"}'
    is "$(sent stdin_open) $(sent stdin)" "null null"
}

@test "exec: wrong usage is 125 with one sentence" {
    for args in '' '--' '-c x -- y' '--wall 0 true' '--nonsense true' '--env A true' '-t -b true' \
        '-t --json true' '--id a/b true' '--steps f'; do
        # shellcheck disable=SC2086
        apart "$PINFOLD" exec -s "$box" $args
        is "$args $status" "$args 125"
        is "$args $(wc -l <"$BATS_TEST_TMPDIR/err")" "$args 1"
    done
    is "$(requests)" ""
}

@test "exec: background, ps, logs, wait, kill" {
    apart "$PINFOLD" exec -s "$box" -b -- hang
    is "$status" 0
    ex=$out
    [[ $ex =~ ^ex_[a-z0-9]{24}$ ]]
    is "$(sent background) $(sent stream)" "true null"
    apart "$PINFOLD" sandbox ps "$box"
    has "$out" "$ex  running  -"
    apart "$PINFOLD" sandbox logs "$box" "$ex"
    is "$status $out" "0 waiting"
    "$PINFOLD" sandbox logs "$box" "$ex" -f >followed 2>err 3>&- &
    pid=$!
    within 10 grep -q waiting followed
    "$PINFOLD" sandbox kill "$box" "$ex" --signal term
    is "$(sent signal)" '"TERM"'
    wait "$pid"
    has "$(<err)" "ended by signal 15"
    apart "$PINFOLD" sandbox wait "$box" "$ex"
    is "$status $out" "143 "
    apart "$PINFOLD" sandbox kill "$box" "$ex"
    is "$status $err" "125 pinfold: $ex is over already"
    apart "$PINFOLD" sandbox ps "$box" --json
    has "$out" '"cause":"signal"'
    apart "$PINFOLD" sandbox logs "$box" ex_none
    is "$status $err" "125 pinfold: There is no such execution."
}

@test "exec: --id makes a repetition harmless" {
    apart "$PINFOLD" exec -s "$box" --id mine -b -- hello
    is "$out" mine
    apart "$PINFOLD" exec -s "$box" --id mine -- hello
    is "$out" "hié"
}

@test "exec: --json prints the object once it is over" {
    apart "$PINFOLD" exec -s "$box" --json -- wall
    is "$status" 124
    has "$out" '"cause":"wall_time"'
}

@test "exec: a lost connection is taken up again where it broke" {
    apart "$PINFOLD" exec -s "$box" -- drop
    is "$status $out $err" "0 hié err"
    has "$(requests)" "events?after=2&follow=true"
    "$PINFOLD" exec -s "$box" -- dropflood >out
    "$PINFOLD" exec -s "$box" -- flood | cmp - out
    is "$(stat -c %s out)" 20000000
}

@test "exec: a request whose answer is lost is repeated with the same id" {
    apart "$PINFOLD" exec -s "$box" -- lostpost
    is "$status $out" "0 hié"
    is "$(requests | grep -c "POST /v1/sandboxes/$box/exec\$")" 2
    is "$("$PINFOLD" sandbox ps "$box" | grep -c lostpost)" 1
}

@test "exec: a server that is away at first is told at once" {
    PINFOLD_URL=http://127.0.0.1:1 apart "$PINFOLD" exec -s "$box" -- hello
    is "$status" 125
    has "$err" "nothing was run"
}

@test "exec: a server that is away in between is told, and awaited" {
    "$PINFOLD" exec -s "$box" -- hang >out 2>err 3>&- &
    pid=$!
    within 10 grep -q waiting out
    touch "$FAKE/down"
    within 10 grep -q "trying again for up to 90 s" err
    rm "$FAKE/down"
    within 10 grep -q "the connection is back" err
    ex=$("$PINFOLD" sandbox ps "$box" | awk '/hang/ && /running/ {print $1}')
    "$PINFOLD" sandbox kill "$box" "$ex"
    status=0
    wait "$pid" || status=$?
    is "$status" 125
    has "$(tail -n 1 err)" "cancel"
}

@test "exec: input of any size arrives once, also when parts are lost" {
    seq 1 200000 >lines
    "$PINFOLD" exec -s "$box" --stdin - -- cat <lines | cmp - lines
    cat lines | "$PINFOLD" exec -s "$box" --stdin - -- cat | cmp - lines
    cat lines | "$PINFOLD" exec -s "$box" --stdin - -- slowcat | cmp - lines
    is "$(: | "$PINFOLD" exec -s "$box" --stdin - -- cat)" ""
    # What is short and known goes along.
    printf '\1\377' >raw
    "$PINFOLD" exec -s "$box" --stdin raw -- hello 2>/dev/null
    is "$(sent stdin) $(sent stdin_encoding) $(sent stdin_open)" '"Af8=" "base64" null'
}

@test "exec: input is passed on as it comes" {
    mkfifo in
    "$PINFOLD" exec -s "$box" --stdin - -- cat <in >out 3>&- &
    pid=$!
    exec 5>in
    echo one >&5
    within 10 grep -q one out
    echo two >&5
    within 10 grep -q two out
    exec 5>&-
    wait "$pid"
}

@test "exec: --tty without a terminal of ours meets the end of its input" {
    apart timeout 20 "$PINFOLD" exec -s "$box" -t -- cat </dev/null
    is "$status" 0
    has "$(sent pty)" '"rows": 24'
    echo 'exit 5' | "$PINFOLD" exec -s "$box" -t --stdin - -- bash >out || code=$?
    is "$code" 5
}

@test "exec: Ctrl-C cancels it and exits with 130; a reader that leaves likewise with 141" {
    env --default-signal=INT "$PINFOLD" exec -s "$box" -- hang >out 2>err 3>&- &
    pid=$!
    within 10 grep -q waiting out
    kill -INT "$pid"
    status=0
    wait "$pid" || status=$?
    is "$status $(<err)" "130 "
    has "$(requests | tail -n 1)" "DELETE /v1/sandboxes/$box/exec/ex_"
    code=0
    { "$PINFOLD" exec -s "$box" -- flood 2>err || echo $? >code; } | head -c 10 >/dev/null
    is "$(<code)" 141
    has "$(requests | tail -n 1)" DELETE
}

@test "cp: a file up and down, with its mode, whatever is in it" {
    head -c 300000 /dev/urandom >data
    printf '#!/bin/sh\n' >tool
    chmod 750 tool
    "$PINFOLD" cp data "$box:/workspace/in/data.bin"
    cmp data "$FILES/workspace/in/data.bin"
    "$PINFOLD" cp tool "$box:"
    is "$(stat -c %a "$FILES/workspace/tool")" 750
    # Into a directory that is there, or that the slash says is one.
    "$PINFOLD" cp data "$box:in"
    cmp data "$FILES/workspace/in/data"
    "$PINFOLD" cp data "$box:/new/place/"
    cmp data "$FILES/new/place/data"
    "$PINFOLD" cp "$box:in/data.bin" back
    cmp data back
    chmod 4755 "$FILES/workspace/tool"
    mkdir dir
    "$PINFOLD" cp "$box:tool" dir
    is "$(stat -c %a dir/tool)" 755
    "$PINFOLD" cp "$box:tool" dir/
    is "$(ls -A dir)" tool
}

@test "cp: standard input and output" {
    seq 1 100000 | "$PINFOLD" cp - "$box:a/seq"
    cmp "$FILES/workspace/a/seq" <(seq 1 100000)
    "$PINFOLD" cp "$box:a/seq" - | cmp - <(seq 1 100000)
    apart "$PINFOLD" cp - "$box:dir/" </dev/null
    is "$status" 125
}

@test "cp: names of every kind" {
    for name in 'a b' 'ü' '100%' 'q?x=1&y#z' "it's" $'tab\there' '+plus' '~'; do
        echo "$name" >"$name"
        "$PINFOLD" cp "./$name" "$box:/n/"
        is "$(<"$FILES/n/$name")" "$name"
        is "$("$PINFOLD" cp "$box:/n/$name" -)" "$name"
    done
}

@test "cp: a download that breaks leaves what was there" {
    echo new >"$FILES/cut-short"
    echo old >cut-short
    apart "$PINFOLD" cp "$box:/cut-short" .
    is "$status" 125
    has "$err" "was lost"
    is "$(<cut-short)" old
    is "$(ls -A)" cut-short
    apart "$PINFOLD" cp "$box:/missing" here
    is "$status $err" "125 pinfold: There is no such file."
    [[ ! -e here ]]
}

@test "cp: links and what is not a file are not sent" {
    ln -s /etc/hostname link
    mkfifo fifo
    mkdir dir
    for bad in link fifo dir missing; do
        apart timeout 10 "$PINFOLD" cp "$bad" "$box:x"
        is "$bad $status" "$bad 125"
    done
    [[ ! -e $FILES/workspace/x ]]
    ln -s /nowhere target
    echo x >"$FILES/y"
    apart "$PINFOLD" cp "$box:/y" target
    is "$status" 125
    [[ -L target ]]
}

# A tree with a bit of everything in it.
make_tree() {
    mkdir -p "$1/deep/er" "$1/empty" "$1/$(printf 'n%.0s' {1..200})"
    echo top >"$1/top"
    head -c 3000000 /dev/urandom >"$1/deep/er/data"
    echo ünï >"$1/deep/ü b"
    : >"$1/nothing"
    printf '#!/bin/sh\n' >"$1/tool"
    chmod 755 "$1/tool"
    chmod 444 "$1/nothing"
    ln -s deep/er "$1/link"
    ln -s ../top "$1/deep/up"
}

@test "cp -r: a tree up and down is the same tree" {
    make_tree tree
    "$PINFOLD" cp -r tree "$box:/workspace/tree"
    diff -r --no-dereference tree "$FILES/workspace/tree"
    "$PINFOLD" cp -r "$box:tree" back
    diff -r --no-dereference tree back
    is "$(stat -c %a back/tool back/nothing | tr '\n' ' ')" "755 444 "
    is "$(readlink back/link)" deep/er
    # Into what is there, and only the contents.
    "$PINFOLD" cp -r tree "$box:/workspace"
    "$PINFOLD" cp -r tree/. "$box:/workspace/tree/again"
    [[ -e $FILES/workspace/tree/again/top && ! -e $FILES/workspace/tree/again/tree ]]
    mkdir into
    "$PINFOLD" cp -r "$box:tree/deep/er" into
    [[ -e into/er/data ]]
    "$PINFOLD" cp -r "$box:tree/deep/er/." into
    [[ -e into/data ]]
    # A link may lead out of what is copied, though not out of what it was copied from.
    apart "$PINFOLD" cp -r "$box:tree/deep" into
    is "$status" 125
    has "$err" "not copied: up: it is a link that leads out of the directory"
    [[ -e into/deep/er/data && ! -L into/deep/up ]]
    # Over itself: files are replaced, nothing is left over.
    echo changed >back/top
    "$PINFOLD" cp -r "$box:tree/." back
    is "$(<back/top)" top
    is "$(find . -name '.pinfold-*')" ""
    apart "$PINFOLD" cp "$box:tree" here
    is "$status" 125
    has "$err" "use -r"
}

@test "cp -r: a hostile archive writes nothing outside and makes no dangerous link" {
    mkdir "$FILES/evil"
    /usr/bin/python3 - "$FILES/evil.tar" <<'END'
import io, sys, tarfile
tar = tarfile.open(sys.argv[1], "w")
def add(name, data=b"x", kind=tarfile.REGTYPE, link="", mode=0o644):
    one = tarfile.TarInfo(name)
    one.type, one.linkname, one.mode = kind, link, mode
    one.size = len(data) if kind == tarfile.REGTYPE else 0
    tar.addfile(one, io.BytesIO(data) if kind == tarfile.REGTYPE else None)
add("good", b"good")
add("../escaped")
add("/tmp/pinfold-escaped-cp")
add("a/../../escaped")
add("out", kind=tarfile.SYMTYPE, link="..")
add("out/escaped")
add("abs", kind=tarfile.SYMTYPE, link="/etc")
add("abs/escaped")
add("in", kind=tarfile.SYMTYPE, link="dir/sub")
add("dir/sub/up", kind=tarfile.SYMTYPE, link="../..")
add("sly", kind=tarfile.SYMTYPE, link="dir/sub/up/../..")
add("here/through", b"through")
add("planted/file")
add("hard", kind=tarfile.LNKTYPE, link="../outside")
add("hard2", kind=tarfile.LNKTYPE, link="good")
add("hard3", kind=tarfile.LNKTYPE, link="planted/file")
add("suid", mode=0o6755)
add("fifo", kind=tarfile.FIFOTYPE)
add("dev", kind=tarfile.CHRTYPE)
add(".git/hooks/post-checkout", mode=0o755)
add("sub/.GIT/config")
add("last", b"last")
tar.close()
END
    echo secret >outside
    mkdir -p target "$BATS_TEST_TMPDIR/elsewhere"
    ln -s "$BATS_TEST_TMPDIR/elsewhere" target/planted
    apart "$PINFOLD" cp -r "$box:/evil/." target
    is "$status" 125
    is "$(<target/good) $(<target/last) $(<target/hard2) $(<target/here/through)" "good last good through"
    is "$(stat -c %a target/suid)" 755
    [[ ! -e escaped && ! -e ../escaped && ! -e /tmp/pinfold-escaped-cp && ! -e /etc/escaped ]]
    [[ ! -L target/out && ! -L target/abs && ! -L target/sly && -L target/in ]]
    [[ ! -e target/.git && ! -e target/sub/.GIT && ! -e target/fifo && ! -e target/dev ]]
    [[ ! -e target/hard && ! -e target/hard3 ]]
    is "$(ls -A "$BATS_TEST_TMPDIR/elsewhere")" ""
    has "$err" "not copied: .git/hooks/post-checkout: nothing is written into a .git"
    has "$err" "entries could not be copied"
    "$PINFOLD" cp -r --git "$box:/evil/." target 2>/dev/null || true
    [[ -e target/.git/hooks/post-checkout ]]
}

@test "cp: wrong usage" {
    for args in 'a b' "$box:a $box:b" "$box:../x y" "x $box:a/../b" ': x' 'a' ' '; do
        # shellcheck disable=SC2086
        apart "$PINFOLD" cp $args
        is "$args $status" "$args 2"
    done
    is "$(requests)" ""
}

@test "every command about sandboxes has a help worth reading, and wrong ones are told" {
    for command in create list get delete ttl pause resume exec ps logs wait kill snapshot \
        snapshots restore fork delete-snapshot; do
        apart "$PINFOLD" sandbox "$command" --help
        is "$command $status $err" "$command 0 "
        has "$out" "pinfold sandbox $command"
    done
    for command in exec cp shell sandbox; do
        apart "$PINFOLD" "$command" --help
        is "$command $status $err" "$command 0 "
        has "$out" "pinfold $command"
    done
    apart "$PINFOLD" sandbox
    is "$status" 2
    apart "$PINFOLD" sandbox dance
    is "$status" 2
    apart "$PINFOLD" sandbox get
    is "$status" 2
    apart "$PINFOLD" sandbox get a b
    is "$status" 2
}

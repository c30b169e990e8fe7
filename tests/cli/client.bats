#!/usr/bin/env bats
# The client against a scripted server: streams of every kind, also those that no sound server sends.

load lib.bash

setup_file() {
    mkdir "$BATS_FILE_TMPDIR/fake"
    start_fake "$BATS_FILE_TMPDIR/fake"
}

teardown_file() {
    stop "$(<"$BATS_FILE_TMPDIR/fake/pid")"
}

setup() {
    PINFOLD=$(program pinfold)
    FAKE=$BATS_FILE_TMPDIR/fake
    : >"$FAKE/requests"
    rm -f "$FAKE/slow_delete"
    mkdir "$BATS_TEST_TMPDIR/cwd"
    cd "$BATS_TEST_TMPDIR/cwd" || return 1
}

# The field of the last request's body, as JSON.
sent() {
    /usr/bin/python3 -c 'import json, sys
for line in open(sys.argv[1]):
    one = json.loads(line)
    if one["method"] == "POST":
        last = one["body"]
print(json.dumps(last.get(sys.argv[2])))' "$FAKE/requests" "$1"
}

@test "output goes to stdout and stderr, and nothing else does" {
    apart "$PINFOLD" run -- hello
    is "$status" 0
    is "$out" "hié"
    is "$err" "err"
}

@test "every byte arrives, NUL and invalid UTF-8 included" {
    "$PINFOLD" run -- binary >out
    /usr/bin/python3 -c 'import sys
sys.stdout.buffer.write(bytes(range(256)) + b"a\0b")' | cmp - out
}

@test "exit codes and sentences follow the end" {
    while IFS='|' read -r script code sentence; do
        apart "$PINFOLD" run -- "$script"
        is "$script $status" "$script $code"
        is "$script $err" "$script ${sentence:+pinfold: $sentence}"
    done <<'END'
exit7|7|
segv|139|the program was ended by signal 11 (SIGSEGV: Segmentation fault)
wall|124|the wall-clock limit of 2.0 s was reached after 2.0 s
memory|137|the program was killed because it and its files used all of its 64.0 MiB of memory after 5 ms
start|125|the program could not be started: /no/such: No such file or directory
future|125|the service failed; it is not the program's fault
unfinished|125|the run ended without a result
escape|125|the program could not be started: \x1b[31mred: No such file or directory
END
}

@test "with several steps the sentence names the one that failed" {
    cat >steps.json <<'END'
[{"name": "build", "argv": ["make"]}, {"name": "test", "sh": "make test"}, {"argv": ["true"]}]
END
    apart "$PINFOLD" run --steps steps.json
    is "$status" 137
    is "$out" "one"
    has "$err" "two"
    has "$err" "pinfold: step 2 of 3 (test): the program was killed"
    has "$(sent steps)" '"sh": "make test"'
    echo '{"steps": [{"argv": ["true"]}]}' >steps.json
    apart "$PINFOLD" run --steps steps.json
    is "$(sent steps)" '[{"argv": ["true"]}]'
}

@test "a steps file that is wrong is refused before anything is sent" {
    for text in '' '[' '{}' '[]' '{"steps": []}' '{"steps": [], "x": 1}' '"x"' '[1' '{"a":1,"a":2}'; do
        printf '%s' "$text" >steps.json
        apart "$PINFOLD" run --steps steps.json
        is "$text $status" "$text 125"
        has "$err" steps.json
    done
    is "$(<"$FAKE/requests")" ""
}

@test "the request holds what was asked for and nothing of the environment" {
    export SECRET_OF_MINE=hush
    printf 'print(1)' >main.py
    printf '#!/bin/sh\n' >tool
    chmod 700 tool
    printf '\377' >raw
    apart "$PINFOLD" run --policy ci --image host --backend docker --wall 1500ms --cpu 2 --mem 64M --pids 5 \
        --disk 1M --output 1k --cpus 0.5 --env A=1 -e B=x=y --cwd /tmp --file main.py \
        -f tool:bin/t -f raw --collect 'out/**' --collect z -- hello a 'b c'
    is "$status" 0
    is "$(sent argv)" '["hello", "a", "b c"]'
    is "$(sent policy) $(sent backend)" '"ci" "docker"'
    is "$(sent env)" '{"A": "1", "B": "x=y"}'
    is "$(sent cwd)" '"/tmp"'
    is "$(sent collect)" '["out/**", "z"]'
    is "$(sent limits)" '{"wall_ms": 1500, "cpu_ms": 2000, "mem_bytes": 67108864, "pids": 5, "disk_bytes": 1048576, "output_bytes": 1024, "cpus_milli": 500}'
    is "$(sent files)" '[{"path": "main.py", "mode": "0644", "content": "print(1)", "encoding": "utf-8"}, {"path": "bin/t", "mode": "0755", "content": "#!/bin/sh\n", "encoding": "utf-8"}, {"path": "raw", "mode": "0644", "content": "/w==", "encoding": "base64"}]'
    is "$(sent stream) $(sent cancel_on_disconnect)" "true true"
    is "$(sent stdin)" null
    is "$(grep -c hush "$FAKE/requests" || true)" 0
}

@test "stdin comes from a file or from ours, as text or base64" {
    echo '3 4' | "$PINFOLD" run --stdin - -- hello
    is "$(sent stdin) $(sent stdin_encoding)" '"3 4\n" "utf-8"'
    printf '\1\2\377' >raw
    "$PINFOLD" run --stdin raw -c hello
    is "$(sent stdin) $(sent stdin_encoding)" '"AQL/" "base64"'
    is "$(sent sh)" '"hello"'
    : | "$PINFOLD" run --stdin - -- hello
    is "$(sent stdin) $(sent stdin_encoding)" '"" "utf-8"'
    # Without --stdin ours is not read.
    echo kept | { "$PINFOLD" run -- hello >/dev/null; cat; } >rest
    is "$(<rest)" kept
}

@test "stdin of 64 MiB goes through, one byte more is refused" {
    head -c 67108864 /dev/zero | "$PINFOLD" run --stdin - -- hello
    apart "$PINFOLD" run --stdin - -- hello < <(head -c 67108865 /dev/zero)
    is "$status" 125
    has "$err" "standard input is larger than 67108864 bytes"
}

@test "only regular files are sent, and no links" {
    mkdir dir
    mkfifo fifo
    ln -s /etc/hostname link
    for bad in dir fifo link missing /dev/zero ''; do
        apart timeout 10 "$PINFOLD" run --file "$bad" -- hello
        is "$bad $status" "$bad 125"
        apart timeout 10 "$PINFOLD" run --stdin "$bad" -- hello
        is "$bad $status" "$bad 125"
    done
    is "$(<"$FAKE/requests")" ""
}

@test "wrong usage is 125 with one sentence" {
    for args in '' '--' '-c x -- y' '--wall 0 true' '--nonsense true' '--mem 1 true' '--env A true'; do
        # shellcheck disable=SC2086
        apart "$PINFOLD" run $args
        is "$args $status" "$args 125"
        is "$args $(wc -l <"$BATS_TEST_TMPDIR/err")" "$args 1"
    done
    is "$(<"$FAKE/requests")" ""
}

@test "option --output bounds what is shown of a stream" {
    apart "$PINFOLD" run --output 20 -- lines
    is "$out" $'0123456789\n[180 bytes omitted]\nabcdefghij'
    apart "$PINFOLD" run --output 200 -- lines
    is "${#out}" 200
}

@test "option --json prints the answer and no output" {
    apart "$PINFOLD" run --json -- hello
    is "$status" 0
    is "$(/usr/bin/python3 -c 'import json; print(json.load(open("'"$BATS_TEST_TMPDIR/out"'"))["state"])')" done
    is "$err" ""
    apart "$PINFOLD" run --json -- wall
    is "$status" 124
    has "$err" "wall-clock limit"
}

@test "a refusal shows message and field" {
    apart "$PINFOLD" run -- refuse
    is "$status" 125
    is "$err" "pinfold: wall_ms is 9 but the ceiling is 8. (field /limits/wall_ms)"
}

@test "a wrong token, and a token that cannot be one" {
    PINFOLD_TOKEN=pf_secret apart "$PINFOLD" run -- hello
    is "$status" 125
    has "$err" "does not know the token in PINFOLD_TOKEN"
    PINFOLD_TOKEN='' apart "$PINFOLD" run -- hello
    is "$status" 125
    has "$err" "PINFOLD_TOKEN is not set"
    PINFOLD_TOKEN=$'pf_secret\r\nX: y' apart "$PINFOLD" run -- hello
    is "$status" 125
    [[ $err != *secret* ]]
}

@test "a server that is away: one sentence, and nothing runs here" {
    PINFOLD_URL=http://127.0.0.1:1 apart "$PINFOLD" run -- touch here
    is "$status" 125
    has "$err" "cannot be reached"
    has "$err" "PINFOLD_URL says where it is"
    has "$err" "nothing was run"
    is "$(wc -l <"$BATS_TEST_TMPDIR/err")" 1
    [[ ! -e here ]]
}

@test "what is not a Pinfold is told apart, and redirects are not followed" {
    apart "$PINFOLD" run -- html
    is "$status" 125
    has "$err" 502
    apart "$PINFOLD" run -- redirect
    is "$status" 125
    has "$err" 302
}

@test "no proxy between us and this machine" {
    http_proxy=http://127.0.0.1:1 HTTP_PROXY=http://127.0.0.1:1 all_proxy=http://127.0.0.1:1 \
        apart "$PINFOLD" run -- hello
    is "$status" 0
}

@test "streams that are broken end with 125 and one sentence" {
    for script in garbage array untyped longline badbase64; do
        apart timeout 20 "$PINFOLD" run -- "$script"
        is "$script $status" "$script 125"
        is "$script $(wc -l <"$BATS_TEST_TMPDIR/err")" "$script 1"
        has "$(tail -n 1 "$FAKE/requests")" DELETE
    done
}

@test "an event that comes twice is shown once" {
    apart "$PINFOLD" run -- repeat
    is "$out" x
}

@test "what the server left out is told" {
    apart "$PINFOLD" run -- omitted
    is "$out" az
    has "$err" "700 bytes of stdout"
}

@test "a connection that breaks in mid-stream is taken up again" {
    apart "$PINFOLD" run -- drop
    is "$status" 0
    is "$out" "hié"
    is "$err" "err"
    has "$(<"$FAKE/requests")" "events?after=2&follow=true"
}

@test "20 MB arrive whole through a connection that breaks every four" {
    "$PINFOLD" run -- dropflood >out
    "$PINFOLD" run -- flood | cmp - out
    is "$(stat -c %s out)" 20000000
}

@test "a connection that stays broken: 125 in the end" {
    apart timeout 60 "$PINFOLD" run -- dropforever
    is "$status" 125
    has "$err" "was lost"
}

@test "a reader that is slow loses nothing and holds up nobody" {
    "$PINFOLD" run -- flood | { sleep 1; sha256sum; } >slow
    "$PINFOLD" run -- flood | sha256sum | cmp - slow
}

@test "a reader that goes away cancels the run, quietly" {
    code=0
    { "$PINFOLD" run -- flood 2>err || echo $? >code; } | head -c 10 >/dev/null
    is "$(<code)" 141
    is "$(<err)" ""
    has "$(tail -n 1 "$FAKE/requests")" DELETE
}

@test "output that cannot be written: a sentence, and the run is cancelled" {
    status=0
    "$PINFOLD" run -- flood >/dev/full 2>err || status=$?
    is "$status" 125
    has "$(<err)" "No space left"
    has "$(tail -n 1 "$FAKE/requests")" DELETE
}

# hang SIGNAL: starts a run that lasts and sends the signal once it prints. Sets $status.
hang() {
    env --default-signal=INT,TERM,HUP "$PINFOLD" run -- hang >out 2>err 3>&- &
    pid=$!
    within 10 grep -q waiting out
    kill "-$1" "$pid"
}

@test "Ctrl-C cancels the run and exits with 130; TERM and HUP likewise" {
    for pair in INT:130 TERM:143 HUP:129; do
        hang "${pair%:*}"
        status=0
        wait "$pid" || status=$?
        is "$pair $status" "$pair ${pair#*:}"
        has "$(tail -n 1 "$FAKE/requests")" DELETE
        is "$(<err)" ""
    done
}

@test "a second Ctrl-C exits at once" {
    touch "$FAKE/slow_delete"
    hang INT
    within 10 grep -q DELETE "$FAKE/requests"
    kill -INT "$pid"
    within 3 gone "$pid"
    status=0
    wait "$pid" || status=$?
    is "$status" 130
}

@test "collected files stay below the directory and follow no link" {
    ln -s "$BATS_TEST_TMPDIR" link
    echo secret >"$BATS_TEST_TMPDIR/target"
    ln -s "$BATS_TEST_TMPDIR/target" target
    echo old >here.txt
    umask 022
    apart "$PINFOLD" run --collect '**' -- collect
    is "$status" 125
    is "$(<out/a.txt)" abc
    is "$(stat -c %a out/a.txt out/tool | tr '\n' ' ')" "644 755 "
    printf '\0\377' | cmp - out/tool
    is "$(<here.txt)" new
    is "$(<"$BATS_TEST_TMPDIR/target")" secret
    [[ -L target && -L link && ! -e .git && ! -e $BATS_TEST_TMPDIR/escaped && ! -e /tmp/pinfold-escaped ]]
    [[ ! -e ../escaped ]]
    has "$err" "collected out/a.txt (3 bytes)"
    has "$err" "collected here.txt (3 bytes, replaced)"
    has "$err" "not collected: missing.txt: nothing there"
    has "$err" "not collected: .git/hooks/post-checkout"
    is "$(find . -name '.pinfold-*')" ""
}

@test "option --out names the directory, which is made" {
    apart "$PINFOLD" run --collect '**' --out results -- collect
    is "$(<results/out/a.txt)" abc
    [[ ! -e out ]]
    # With --json the files are in the answer, and written only when --out says where.
    apart "$PINFOLD" run --json --collect '**' -- collect
    is "$status" 0
    [[ ! -e out ]]
}

@test "closed descriptors do not become the connection" {
    "$PINFOLD" run -- hello >&- 2>err
    "$PINFOLD" run -- hello >out 2>&-
    is "$(<out)" "hié"
    "$PINFOLD" run -- hello <&- >out
    is "$(<out)" "hié"
}

@test "doctor: what is missing decides" {
    cap='{"name": "seccomp", "status": "enforced", "required": true, "how": "filter", "proof": "bpf refused"}'
    none='{"name": "mem_bytes", "status": "unavailable", "required": true, "how": "", "proof": "no cgroup", "remedy": "mount the \u001b[31mmemory controller"}'
    some='{"name": "shine", "status": "unavailable", "required": false, "how": "", "proof": "", "remedy": "buy one"}'
    echo '{}' >"$FAKE/me.json"
    echo '{"status": "ready"}' >"$FAKE/readyz.json"
    echo '{"status": "ok"}' >"$FAKE/healthz.json"
    echo "{\"capabilities\": [$cap, $some]}" >"$FAKE/capabilities.json"
    apart "$PINFOLD" doctor
    is "$status" 0
    has "$out" "reachable"
    has "$out" "seccomp  enforced     filter  bpf refused"
    has "$out" "not available (optional): shine: buy one"
    echo "{\"capabilities\": [$cap, $none]}" >"$FAKE/capabilities.json"
    apart "$PINFOLD" doctor
    is "$status" 1
    has "$out" "missing: mem_bytes: mount the ?[31mmemory controller"
    PINFOLD_TOKEN=bad apart "$PINFOLD" doctor
    is "$status" 1
    has "$out" refused
    PINFOLD_URL=http://127.0.0.1:1 apart "$PINFOLD" doctor
    is "$status" 1
    has "$out" "not reachable"
}

@test "a wrong argument is told with what it was, and how it would be right" {
    while IFS='|' read -r words sentence; do
        # shellcheck disable=SC2086
        apart "$PINFOLD" $words
        has "$err" "$sentence"
    done <<'END'
run --pids x -- true|option --pids: "x" is not a whole number between 1 and 32768
run --pids 0 -- true|option --pids: "0" is not a whole number between 1 and 32768
run --wall 5x -- true|option --wall: "5x" is not a duration such as 1500ms, 30s, 5m or 2h
run --mem 1q -- true|option --mem: "1q" is not a number of bytes such as 65536, 64k, 256M or 1G
run --cpus 1.x -- true|option --cpus: "1.x" is not a number of processors such as 0.5 or 2
sandbox create --disk nope|option --disk, which also takes memory and file: "nope" is not
sandbox ttl sb_x nope|sandbox ttl: "nope" is not a duration
sandbox ttl sb_x|too few arguments; use it like this: pinfold sandbox ttl ID TIME
replay|too few arguments; use it like this: pinfold replay [--json] RUN
policies a b|unexpected argument b (see pinfold policies --help)
END
}

@test "every command has a help worth reading, and wrong ones are told" {
    for command in run runs policies doctor version help agent exec verify token undo log diff; do
        apart "$PINFOLD" "$command" --help
        is "$command $(awk 'length > 100' <<<"$out")" "$command "
        is "$command $status" "$command 0"
        has "$out" pinfold
        is "$err" ""
        apart "$PINFOLD" help "$command"
        is "$command $status" "$command 0"
    done
    apart "$PINFOLD" run --help
    has "$out" Examples
    apart "$PINFOLD" help sandbox create
    is "$status" 0
    has "$out" "pinfold sandbox create [options]"
    apart "$PINFOLD" dance
    is "$status" 2
    apart "$PINFOLD"
    is "$status" 2
    apart "$PINFOLD" --version
    has "$out" "pinfold "
}

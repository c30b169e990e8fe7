#!/usr/bin/env bats
# pinfold run, doctor, runs and policies against a real server and runner.

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
}

field() { /usr/bin/python3 -c 'import json, sys; print(eval("json.load(sys.stdin)" + sys.argv[1]))' "$1"; }

@test "a command's output and exit code are its own" {
    apart "$PINFOLD" run -- printf '%s|' a 'b c' ''
    is "$status $out" "0 a|b c||"
    apart "$PINFOLD" run -c 'echo out; echo err >&2; exit 42'
    is "$status" 42
    is "$out" out
    is "$err" err
    for code in 0 1 2 124 125 126 127 130 137 255; do
        apart "$PINFOLD" run -c "exit $code"
        is "$status $err" "$code "
    done
}

@test "every byte of the output arrives" {
    "$PINFOLD" run -- python3 -c 'import sys
sys.stdout.buffer.write(bytes(range(256)) * 1000)' >out
    python3 -c 'import sys
sys.stdout.buffer.write(bytes(range(256)) * 1000)' | cmp - out
    "$PINFOLD" run -c 'seq 1 2000000' | cmp - <(seq 1 2000000)
}

@test "a slow reader gets everything" {
    "$PINFOLD" run -c 'seq 1 2000000' | { sleep 1.5; cmp - <(seq 1 2000000); }
}

@test "output comes while the command runs" {
    mkfifo pipe
    "$PINFOLD" run --wall 20s -c 'echo first; sleep 60' >pipe 2>err 3>&- &
    exec 5<pipe
    read -r -t 10 line <&5
    is "$line" first
    kill -TERM $!
    wait $! || true
}

@test "limits end it with the right code and one sentence" {
    while IFS='|' read -r options script code part; do
        # shellcheck disable=SC2086
        apart "$PINFOLD" run $options -c "$script"
        is "$script $status" "$script $code"
        has "$err" "$part"
        is "$script $(wc -l <<<"$err")" "$script 1"
    done <<'END'
--wall 300ms|sleep 60|124|pinfold: the wall-clock limit of 300 ms was reached after
--cpu 200ms|while :; do :; done|124|pinfold: the CPU time limit of 200 ms was reached
--mem 32M|exec python3 -c "x=b'x'*(1<<30)"|137|pinfold: the program was killed because it and its files used all of its 32.0 MiB of memory
--wall 5s|kill -SEGV $$|139|pinfold: the program was ended by signal 11
--wall 5s|kill -KILL $$|137|pinfold: the program was ended by signal 9
END
    apart "$PINFOLD" run -- /no/such/program
    is "$status" 125
    has "$err" "/no/such/program: No such file or directory"
    # A code that only looks like a signal needs no sentence.
    apart "$PINFOLD" run -c 'exit 137'
    is "$status $err" "137 "
}

@test "the policy's ceilings hold" {
    apart "$PINFOLD" run --wall 24h -- true
    is "$status" 125
    has "$err" "/limits/wall_ms"
    apart "$PINFOLD" run --policy no-such -- true
    is "$status" 125
    apart "$PINFOLD" run --image no-such -- true
    is "$status" 125
}

@test "stdin, files, variables and the directory" {
    is "$(echo 3 4 | "$PINFOLD" run --stdin - -c 'read -r a b; echo $((a + b))')" 7
    is "$(echo lost | "$PINFOLD" run -c 'wc -c')" 0
    printf '#!/bin/sh\necho "ran $1"\n' >tool
    chmod 755 tool
    head -c 300000 /dev/urandom >data
    is "$("$PINFOLD" run -f tool -f data:in/data.bin -c './tool x; sha256sum <in/data.bin')" \
        "ran x"$'\n'"$(sha256sum <data)"
    SECRET=hush apart "$PINFOLD" run --env A=1 -e 'B=x y' --cwd /tmp -c 'pwd; echo "$A|$B|${SECRET-unset}"'
    is "$out" $'/tmp\n1|x y|unset'
    head -c 20000000 /dev/urandom >big
    is "$("$PINFOLD" run --stdin big --wall 60s --policy ci -- sha256sum)" "$(sha256sum <big)"
}

@test "files come back" {
    umask 022
    apart "$PINFOLD" run --collect 'out/**' --collect none --out back \
        -c 'mkdir -p out/deep; printf "\377\0" >out/deep/raw; echo hi >out/text; chmod 700 out/text
            ln -s /etc/passwd out/link'
    is "$status" 0
    is "$(<back/out/text)" hi
    is "$(stat -c %a back/out/text)" 755
    printf '\377\0' | cmp - back/out/deep/raw
    [[ ! -e back/out/link && ! -L back/out/link ]]
    has "$err" "collected out/text (3 bytes)"
    has "$err" "not collected: none: nothing there"
}

@test "steps run in order in one jail, and the one that fails is named" {
    cat >steps.json <<'END'
[{"name": "make", "sh": "echo 1 > a"}, {"name": "may fail", "sh": "exit 9", "continue_on_error": true},
 {"name": "check", "sh": "cat a; exit 3"}, {"name": "never", "sh": "echo never"}]
END
    apart "$PINFOLD" run --steps steps.json
    is "$status" 3
    is "$out" 1
    is "$err" "pinfold: step 3 of 4 (check): the program ended with exit code 3"
    apart "$PINFOLD" run --json --steps steps.json
    is "$(field '["failed_step"]' <<<"$out")" 2
    is "$(field '["steps"][3]["state"]' <<<"$out")" skipped
}

@test "with --keep-steps the step that failed can be entered as it was before it" {
    cat >steps.json <<'END'
[{"name": "make", "sh": "echo 1 > a"}, {"name": "check", "sh": "cat a; rm a; exit 3"}]
END
    apart "$PINFOLD" run --steps steps.json --keep-steps
    is "$status" 3
    has "$err" "pinfold: the files before it: pinfold sandbox create --from run_"
    from=$(grep -o 'run_[a-z0-9]*@1' <<<"$err")
    box=$("$PINFOLD" sandbox create --from "$from")
    is "$("$PINFOLD" sandbox exec "$box" -c 'cat a')" 1
    "$PINFOLD" sandbox delete "$box"
    apart "$PINFOLD" run --keep-steps true
    is "$status" 0
    is "$err" ""
}

@test "option --json is the answer, whole" {
    apart "$PINFOLD" run --json --collect x -c 'echo hi; echo there >x; exit 5'
    is "$status" 5
    is "$(field '["steps"][0]["stdout"]' <<<"$out")" hi
    is "$(field '["files"][0]["content"]' <<<"$out")" there
    is "$(field '["steps"][0]["end"]["cause"]' <<<"$out")" exit
    is "$(field '["ok"]' <<<"$out")" False
    [[ ! -e x ]]
}

@test "option --output bounds what is shown and kept" {
    apart "$PINFOLD" run --output 1k -c 'seq 1 100000'
    is "$status" 0
    has "$out" " bytes omitted]"
    is "$(tail -n 1 <<<"$out")" 100000
    [[ ${#out} -lt 1200 ]]
    apart "$PINFOLD" run --json --output 1k -c 'seq 1 100000'
    kept=$(field '["steps"][0]["stdout"]' <<<"$out")
    apart "$PINFOLD" run --output 1k -c 'seq 1 100000'
    is "$out" "$kept"
}

@test "Ctrl-C cancels the run on the server" {
    env --default-signal=INT "$PINFOLD" run --wall 60s -c 'echo here; sleep 60' >out 2>err 3>&- &
    pid=$!
    within 10 grep -q here out
    id=$("$PINFOLD" runs --limit 1 | awk 'NR == 2 {print $1}')
    kill -INT "$pid"
    status=0
    wait "$pid" || status=$?
    is "$status" 130
    is "$("$PINFOLD" runs show "$id" | field '["steps"][0]["end"]["cause"]')" cancelled
}

@test "a client that is killed takes its run with it" {
    "$PINFOLD" run --wall 60s -c 'echo here; sleep 60' >out 2>err 3>&- &
    pid=$!
    within 10 grep -q here out
    id=$("$PINFOLD" runs --limit 1 | awk 'NR == 2 {print $1}')
    kill -KILL "$pid"
    wait "$pid" 2>/dev/null || true
    ended() { [[ $("$PINFOLD" runs show "$id" | field '["steps"][0]["end"]["cause"]') == lost_client ]]; }
    within 5 ended
}

@test "a reader that leaves ends the run" {
    code=0
    { "$PINFOLD" run --wall 60s -c 'yes' 2>err || echo $? >code; } | head -n 1 >first
    is "$(<first)" y
    is "$(<code)" 141
    is "$(<err)" ""
    over() { [[ $("$PINFOLD" runs --limit 1 | awk 'NR == 2 {print $2}') == done ]]; }
    within 5 over
}

@test "runs: list, show, cancel" {
    "$PINFOLD" run -c 'exit 3' || true
    apart "$PINFOLD" runs list --limit 1
    is "$status" 2
    apart "$PINFOLD" runs --limit 1
    is "$status" 0
    has "$out" "failed at step 1"
    id=$(awk 'NR == 2 {print $1}' <<<"$out")
    is "$("$PINFOLD" runs show "$id" | field '["id"]')" "$id"
    apart "$PINFOLD" runs cancel "$id"
    is "$status" 0
    apart "$PINFOLD" runs show run_nothing
    is "$status" 125
    apart "$PINFOLD" runs show ../policies
    is "$status" 125
}

@test "doctor and policies" {
    apart "$PINFOLD" doctor
    is "$status" 0
    has "$out" seccomp
    has "$out" "Everything that is required is enforced."
    apart "$PINFOLD" policies
    has "$out" default
    apart "$PINFOLD" policies default
    has "$out" "What it can reach:"
    has "$out" wall_ms
    apart "$PINFOLD" policies nope
    is "$status" 125
}

@test "an imported image is a jail's root" {
    mkdir -p root/bin
    cat >hello.c <<'END'
#include <stdio.h>
#include <unistd.h>

int main(void) {
    char cwd[100];
    printf("uid %d in %s, bin writable: %d\n", (int)getuid(), getcwd(cwd, sizeof(cwd)),
           access("/bin", W_OK) == 0);
    return access("/etc/passwd", R_OK) != 0 || access("/usr/bin/env", F_OK) == 0;
}
END
    gcc -static -o root/bin/hello hello.c
    tar -C root -cf hello.tar .
    "$BUILD/pinfold-server" image import hello hello.tar --state "$BATS_FILE_TMPDIR/state"
    apart "$PINFOLD" run --image hello -- hello
    is "$status $out $err" "0 uid 1000 in /workspace, bin writable: 0 "
    "$BUILD/pinfold-server" image remove hello --state "$BATS_FILE_TMPDIR/state"
    apart "$PINFOLD" run --image hello -- hello
    is "$status" 125
}

@test "the token is in no argument and no log" {
    "$PINFOLD" run --wall 20s -c 'echo here; sleep 60' >out 3>&- &
    pid=$!
    within 10 grep -q here out
    is "$(tr '\0' '\n' <"/proc/$pid/cmdline" | grep -cF "$PINFOLD_TOKEN" || true)" 0
    kill -TERM "$pid"
    wait "$pid" || true
    is "$(cat "$BATS_FILE_TMPDIR"/*.log | grep -cF "$PINFOLD_TOKEN" || true)" 0
}

@test "me says who one is, and what is used" {
    apart "$PINFOLD" me
    is "$status $err" "0 "
    [[ $out == *"user      admin"* && $out == *"runs that wait or run"*"no limit"* ]]
    "$PINFOLD" me --json >me.json
    is "$(field "['queue']['weight']" <me.json)" 100
    is "$(field "['user']" <me.json)" admin
    PINFOLD_TOKEN=pf_wrong apart "$PINFOLD" me
    is "$status" 125
}

@test "a priority is one of three" {
    apart "$PINFOLD" run --priority low -- echo low
    is "$status $out" "0 low"
    apart "$PINFOLD" run --priority urgent -- echo low
    is "$status" 125
    [[ $err == *priority*low*normal*high* ]]
}

@test "when the server stops in mid-run, the client says so and ends" {
    "$PINFOLD" run --wall 60s -c 'echo here; sleep 60' >out 2>err 3>&- &
    pid=$!
    within 10 grep -q here out
    stop_pair "$BATS_FILE_TMPDIR"
    status=0
    wait "$pid" || status=$?
    is "$status" 125
    is "$(wc -l <err)" 1
}

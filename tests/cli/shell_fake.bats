#!/usr/bin/env bats
# pinfold shell and exec --tty in a real terminal, against the scripted server.

load lib.bash
load terminal.bash

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
    rm -f "$FAKE/down"
    : >"$FAKE/requests"
    box=$("$PINFOLD" sandbox create)
    terminal_start "$BATS_TEST_TMPDIR"
    typed "p=$PINFOLD; box=$box; clear"
    cd "$BATS_TEST_TMPDIR" || return 1
    typed "cd '$BATS_TEST_TMPDIR'; stty -a > before; clear"
    within 5 test -s before
}

teardown() {
    terminal_stop
}

execution() { "$PINFOLD" sandbox ps "$box" | awk 'NR > 1 {id = $1} END {print id}'; }

@test "a shell: keys, output, exit code, and the terminal as before" {
    typed '$p shell $box; echo "code $?"'
    ends_with 'inside\$$'
    typed 'echo $((6 * 7)); tty | cut -c 1-8'
    sees '^42$'
    sees '^/dev/pts'
    # A key that our own terminal would act upon goes through.
    typed 'clear; cat'
    reads_lines
    keys C-c
    ends_with 'inside\$$'
    typed 'exit 9'
    sees '^code 9$'
    restored
}

@test "every key arrives once and in order" {
    typed '$p shell $box'
    ends_with 'inside\$$'
    typed 'cat > typed'
    for i in {1..40}; do
        text "line $i of what was typed quickly"
        keys Enter
    done
    keys C-d
    typed 'sha256sum < typed | cut -c 1-16; rm typed'
    sees "^$(for i in {1..40}; do echo "line $i of what was typed quickly"; done | sha256sum | cut -c 1-16)\$"
}

@test "the size of the terminal follows" {
    typed '$p shell $box'
    ends_with 'inside\$$'
    typed 'stty size'
    sees '^24 80$'
    terminal_size 100 30
    within 10 grep -q '"cols": 100' "$FAKE/requests"
    typed 'stty size'
    sees '^30 100$'
}

@test "~. leaves it running, --attach comes back" {
    typed '$p shell $box; echo "code $?"'
    ends_with 'inside\$$'
    typed 'kept=yes; echo ~~ not at the start'
    sees '^/.* not at the start|^~~ not at the start'
    text '~.'
    sees 'left ex_[a-z0-9]+ running; pinfold shell'
    sees '^code 0$'
    restored
    typed "clear; \$p shell \$box --attach $(execution); echo \"code \$?\""
    ends_with 'inside\$$'
    typed 'echo it is $kept'
    sees '^it is yes$'
    typed 'exit 3'
    sees '^code 3$'
    restored
}

@test "a lost connection is taken up again, and what was typed meanwhile arrives" {
    typed '$p shell $box; echo "code $?"'
    ends_with 'inside\$$'
    touch "$FAKE/down"
    sees 'was lost: .*trying again for up to 90 s'
    text 'echo typed while it was away'
    keys Enter
    rm "$FAKE/down"
    sees 'the connection is back'
    sees '^typed while it was away$'
    typed 'exit'
    sees '^code 0$'
    restored
}

@test "~. works while the connection is lost" {
    typed '$p shell $box; echo "code $?"'
    ends_with 'inside\$$'
    touch "$FAKE/down"
    sees 'trying again'
    text '~.'
    sees '^code 0$'
    rm "$FAKE/down"
    restored
}

@test "the terminal is restored when the client is ended, also by force" {
    for pair in TERM:143 KILL:137; do
        typed 'clear; $p shell $box; echo "code $?"'
        ends_with 'inside\$$'
        pid=$(pgrep -o -f "^$PINFOLD shell $box\$")
        kill "-${pair%:*}" "$pid"
        sees "code ${pair#*:}\$"
        restored
    done
}

@test "exec --tty: a terminal for one command" {
    typed '$p exec -s $box -t -e TERM=vt100 -- bash; echo "code $?"'
    ends_with 'inside\$$'
    typed 'echo $TERM; exit 4'
    sees '^vt100$'
    sees '^code 4$'
    restored
}

@test "without a terminal there is no shell" {
    apart "$PINFOLD" shell "$box"
    is "$status" 125
    has "$err" "must be a terminal"
    apart env -u PINFOLD_SANDBOX "$PINFOLD" shell
    is "$status" 125
    has "$err" PINFOLD_SANDBOX
}

@test "a long copy shows how far it is, on a terminal only" {
    mkdir -p "$FAKE/files"
    head -c 4194304 /dev/zero >"$FAKE/files/slowly"
    typed '$p cp $box:/slowly here; echo "code $?"'
    sees '^[0-9.]+ [MK]iB of 4.0 MiB, [0-9.]+ [MK]iB/s$'
    sees '^code 0$'
    [[ $(screen) != *iB/s* ]]
    cmp here "$FAKE/files/slowly"
    apart "$PINFOLD" cp "$box:/slowly" there
    is "$status $out$err" "0 "
}

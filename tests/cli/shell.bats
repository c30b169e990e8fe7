#!/usr/bin/env bats
# pinfold shell and exec --tty in a real terminal, against a real server and runner.

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
    box=$("$PINFOLD" sandbox create --env 'PS1=inside$ ' --env PROMPT_COMMAND=)
    # The prompt that the shell's start-up files choose is replaced.
    echo "PS1='inside\$ '" | "$PINFOLD" cp - "$box:/home/user/.bash_profile"
    terminal_start "$BATS_TEST_TMPDIR"
    typed "cd '$BATS_TEST_TMPDIR'; p=$PINFOLD; box=$box; stty -a > before; clear"
    within 5 test -s "$BATS_TEST_TMPDIR/before"
    cd "$BATS_TEST_TMPDIR" || return 1
}

teardown() {
    terminal_stop
    "$PINFOLD" sandbox delete "$box" 2>/dev/null || true
}

execution() { "$PINFOLD" sandbox ps "$box" | awk '$2 == "running" {print $1; exit}'; }

@test "a shell: keys, output, job control, exit code, and the terminal as before" {
    typed '$p shell $box; echo "code $?"'
    ends_with 'inside\$$'
    typed 'echo $((6 * 7)); tty | cut -c 1-8; pwd; echo $TERM'
    sees '^42$'
    sees '^/dev/pts'
    sees '^/workspace$'
    sees '^screen|^tmux'
    typed 'clear; cat'
    reads_lines
    keys C-c
    ends_with 'inside\$$'
    typed 'clear; cat'
    reads_lines
    keys C-z
    sees 'Stopped +cat'
    typed fg
    keys C-c
    ends_with 'inside\$$'
    typed 'exit 9'
    sees '^code 9$'
    restored
}

@test "the size of the terminal follows, and the program is told" {
    typed '$p shell $box'
    ends_with 'inside\$$'
    typed 'stty size'
    sees '^24 80$'
    terminal_size 100 30
    sized() { "$PINFOLD" exec -s "$box" -c 'cat size' 2>/dev/null | grep -q '^30 100$'; }
    # In one process group with what it waits for, so that the signal reaches it.
    typed "bash -c 'trap \"stty size >size\" WINCH; stty size >size; while :; do sleep 0.05; done'"
    within 10 sized
    terminal_size 90 20
    sized() { "$PINFOLD" exec -s "$box" -c 'cat size' 2>/dev/null | grep -q '^20 90$'; }
    within 10 sized
    keys C-c
    ends_with 'inside\$$'
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

@test "~. leaves it running, --attach comes back" {
    typed '$p shell $box; echo "code $?"'
    ends_with 'inside\$$'
    typed 'kept=yes'
    ends_with 'inside\$$'
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

@test "leaving a program that has the whole screen gives our screen back, and coming back shows its own" {
    alternate() { [[ $(tmux -S "$TMUX_SOCKET" display-message -p '#{alternate_on}') == "$1" ]]; }
    "$PINFOLD" exec -s "$box" -c 'seq 1 1000 >numbers'
    typed '$p shell $box; echo "code $?"'
    ends_with 'inside\$$'
    typed 'less numbers'
    within 10 alternate 1
    sees '^numbers$'
    # Not at the start of a line for the terminal, but for the keys it is: Enter was the last.
    text '~.'
    sees '^code 0$'
    alternate 0
    restored
    typed "clear; \$p shell \$box --attach $(execution); echo \"code \$?\""
    within 10 alternate 1
    text G
    sees '^1000$'
    text q
    within 10 alternate 0
    ends_with 'inside\$$'
    typed 'exit 4'
    sees '^code 4$'
    restored
}

@test "a shell survives a restart of the server" {
    typed '$p shell $box; echo "code $?"'
    ends_with 'inside\$$'
    typed 'kept=yes'
    ends_with 'inside\$$'
    restart_server KILL "$BATS_FILE_TMPDIR" stay_away
    sees 'trying again for up to 90 s'
    text 'echo it is $kept'
    keys Enter
    restart_server none "$BATS_FILE_TMPDIR"
    sees 'the connection is back'
    sees '^it is yes$'
    typed 'exit 5'
    sees '^code 5$'
    restored
}

@test "deleting the sandbox ends the shell, with a sentence" {
    typed '$p shell $box; echo "code $?"'
    ends_with 'inside\$$'
    "$PINFOLD" sandbox delete "$box"
    sees 'pinfold: .*(cancel|gone)'
    sees '^code 125$'
    restored
}

@test "the terminal is restored when the client is ended, also by force, and the shell goes on" {
    for pair in TERM:143 KILL:137; do
        typed 'clear; $p shell $box; echo "code $?"'
        ends_with 'inside\$$'
        pid=$(pgrep -o -f "^$PINFOLD shell $box\$")
        kill "-${pair%:*}" "$pid"
        sees "code ${pair#*:}\$"
        restored
    done
    is "$("$PINFOLD" sandbox ps "$box" | grep -c running)" 2
}

@test "exec --tty: a terminal for one command" {
    typed "\$p exec -s \$box -t -c 'test -t 0 && test -t 1 && stty size; exit 4'; echo \"code \$?\""
    sees '^24 80$'
    sees '^code 4$'
    restored
}

@test "exec --tty without a terminal of ours meets the end of its input" {
    apart timeout 20 "$PINFOLD" exec -s "$box" -t --wall 15s -- cat </dev/null
    is "$status" 0
    apart timeout 20 "$PINFOLD" exec -s "$box" -t --stdin - -- sh < <(echo 'exit 5')
    is "$status" 5
    echo 'exit 6' >input
    apart timeout 20 "$PINFOLD" exec -s "$box" -t --stdin input -- sh
    is "$status" 6
}

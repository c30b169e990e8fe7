# A terminal multiplexer for tests of interactive commands; loaded, not run.
# shellcheck shell=bash

# terminal_start DIR [COLS ROWS]: a tmux server of its own, with one window that runs a plain sh.
terminal_start() {
    TMUX_SOCKET=$1/tmux.sock
    printf '#!/bin/sh\nPS1="outside\\$ "\nexport PS1\nexec sh -i\n' >"$1/outer"
    chmod 755 "$1/outer"
    env -u TMUX tmux -f /dev/null -S "$TMUX_SOCKET" new-session -d -x "${2:-80}" -y "${3:-24}" \
        "$1/outer" </dev/null >/dev/null 2>&1 3>&-
    sees 'outside\$$'
}

terminal_stop() {
    tmux -S "$TMUX_SOCKET" kill-server 2>/dev/null || true
}

# What is on it, without empty lines; wrapped lines are joined.
screen() { tmux -S "$TMUX_SOCKET" capture-pane -p -J | sed 's/ *$//; /^$/d'; }

# keys KEY…: as tmux names them ("Enter", "C-c"). text TEXT: as it is.
keys() { tmux -S "$TMUX_SOCKET" send-keys "$@"; }
text() { tmux -S "$TMUX_SOCKET" send-keys -l "$1"; }

# typed LINE: text and Enter.
typed() {
    text "$1"
    keys Enter
}

seen_now() { screen | grep -Eq -- "$1"; }

# sees REGEX: waits until a line of the screen matches.
sees() {
    within 15 seen_now "$1" && return
    echo "not on the screen: $1" >&2
    screen >&2
    return 1
}

# last_line: the last one with anything in it.
last_line() { screen | tail -n 1; }
ends_now() { last_line | grep -Eq -- "$1"; }
ends_with() {
    within 15 ends_now "$1" && return
    echo "the last line is not: $1" >&2
    screen >&2
    return 1
}

# terminal_size COLS ROWS
terminal_size() { tmux -S "$TMUX_SOCKET" resize-window -x "$1" -y "$2"; }

# restored: the settings of the terminal are again those in the file `before`. After a kill that is
# the work of another process, so it may take a moment.
same_settings() {
    stty -a -F "$(tmux -S "$TMUX_SOCKET" display-message -p '#{pane_tty}')" | cmp -s before -
}
restored() {
    within 10 same_settings && return
    stty -a -F "$(tmux -S "$TMUX_SOCKET" display-message -p '#{pane_tty}')" | diff before - >&2
    return 1
}

# reads_lines: the program in the foreground echoes what it reads, once more than the terminal. A
# line that is typed before it has begun may come only once, so there are several attempts.
shown_twice() { [[ $(screen | grep -c "^$1\$") == 2 ]]; }
one_line() {
    local word=word$RANDOM
    typed "$word"
    within 1 shown_twice "$word"
}
reads_lines() { within 15 one_line; }

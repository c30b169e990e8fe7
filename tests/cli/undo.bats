#!/usr/bin/env bats
# pinfold log, diff, undo, redo: the journal by its commands. No server is needed. What the journal
# does when a process is killed is in tests/unit/unit_apply_changeset.c.

load lib.bash

setup() {
    PINFOLD=$(program pinfold)
    export HOME=$BATS_TEST_TMPDIR/home XDG_CONFIG_HOME= XDG_STATE_HOME=
    mkdir -p "$HOME" "$BATS_TEST_TMPDIR/ws"
    cd "$BATS_TEST_TMPDIR/ws" || return 1
}

@test "an empty journal has nothing to show, to undo or to redo" {
    apart "$PINFOLD" log
    is "$status" 0
    is "$out" ""
    apart "$PINFOLD" undo
    is "$status" 2
    [[ $err == *"there is nothing to undo"* ]]
    apart "$PINFOLD" redo
    is "$status" 2
    [[ $err == *"there is nothing to redo"* ]]
    apart "$PINFOLD" diff
    is "$status" 2
    apart "$PINFOLD" undo verify
    is "$status" 0
    is "$out" "every entry can be taken back"
}

@test "the journal is outside of the workspace, for its owner only" {
    "$PINFOLD" log
    is "$(find . | wc -l)" 1
    is "$(stat -c %a "$HOME/.local/state/pinfold/undo")" 700
    XDG_STATE_HOME=$PWD/state apart "$PINFOLD" log
    is "$status" 2
    [[ $err == *"is inside the workspace"* ]]
}

@test "an entry that is not there, and too many of them, are errors" {
    apart "$PINFOLD" undo ch_0000000009
    is "$status" 2
    [[ $err == *"there is no entry ch_0000000009"* ]]
    apart "$PINFOLD" undo a b
    is "$status" 2
}

@test "help says what each does" {
    for command in undo redo log diff; do
        apart "$PINFOLD" "$command" --help
        is "$status" 0
        [[ $out == "pinfold $command"* && $out == *--workspace* ]]
    done
}

@test "where the file system shares blocks, what was there is kept as a clone, and all else holds, too" {
    grep -qw xfs /proc/filesystems || skip "this kernel has no XFS"
    truncate -s 600M "$BATS_TEST_TMPDIR/xfs"
    mkfs.xfs -q "$BATS_TEST_TMPDIR/xfs"
    # In a mount namespace of its own: tests beside this one look at the mounts of the host.
    run unshare --mount bash -ec '
        exec 3<"$2" # which may be below /tmp
        mount -o loop "$1" /tmp
        chmod 1777 /tmp
        /proc/self/fd/3' _ "$BATS_TEST_TMPDIR/xfs" "$BUILD/tests/unit-undo_pack"
    echo "$output"
    is "$status" 0
    [[ $output == *contents_above_a_block_are_shared* ]]
}

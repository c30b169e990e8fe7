#!/usr/bin/env bats
# pinfold-server user and token, with and without a server; pinfold token.

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
    SERVER=$(program pinfold-server)
    STATE=$BATS_FILE_TMPDIR/state
    export ASAN_OPTIONS=detect_leaks=0 # a process that is not dumpable cannot look for leaks
}

server() { "$SERVER" "$@" --state "$STATE"; }

# as TOKEN COMMAND…
as() { PINFOLD_TOKEN=$1 "${@:2}"; }

accepted() { as "$1" "$PINFOLD" runs >/dev/null 2>&1; }
refused() { ! accepted "$1"; }

@test "user add and token new: the token alone is the last line, and works at once" {
    apart server user add ann
    is "$status" 0
    apart server token new ann --label laptop
    is "$status" 0
    token=${out##*$'\n'}
    [[ $token =~ ^pf_[a-z2-7]{52}$ ]]
    [[ $err != *"$token"* ]]
    within 1 accepted "$token"
    is "$(as "$token" "$PINFOLD" run -c 'echo hi')" hi
    [[ $(server user list) == *ann* ]]
    list=$(server token list ann)
    [[ $list == *laptop* && $list != *pf_* ]]
    id=$(grep -o 'tok_[a-z0-9]*' <<<"$list")
    server token revoke "$id"
    within 1 refused "$token"
    [[ $(server token list ann) == *revoked* ]]
}

@test "user disable and enable" {
    server user add bob
    token=$(server token new bob 2>/dev/null)
    within 1 accepted "$token"
    server user disable bob
    within 1 refused "$token"
    [[ $(server user list | grep bob) == *disabled* ]]
    server user enable bob
    within 1 accepted "$token"
    server user delete bob
    within 1 refused "$token"
    [[ $(server user list) != *bob* ]]
    apart server user add bob
    is "$status" 1
    [[ $err == *"was deleted"* ]]
}

@test "quotas and weights" {
    server user add carl --quota runs=10 --quota mem_bytes=4G --weight 50
    [[ $(server user list | grep carl) == *50* ]]
    server user quota carl runs=none cpu_ms_per_day=2h
    out=$(server user quota carl)
    [[ $out == *"mem_bytes        4294967296"* && $out == *"cpu_ms_per_day   7200000"* ]]
    [[ $out == *"runs             none"* ]]
    server user weight carl 70
    [[ $(server user list | grep carl) == *70* ]]
    apart server user quota carl rums=3
    is "$status" 1
    [[ $err == *snapshot_bytes* ]]
}

@test "what is wrong is said in one line" {
    for words in "user add" "user add a b" "user frob x" "user" "token" "token new" "token revoke" \
        "user weight ann"; do
        # shellcheck disable=SC2086
        apart server $words
        is "$status" 2
        is "$(wc -l <"$BATS_TEST_TMPDIR/err")" 1
    done
    for words in "user add a/b" "user disable nobody" "token new nobody" "token revoke tok_x" \
        "token new ann --expires yesterday" "token new ann --scopes run,fly" \
        "token new ann --policies a,,b" "token new ann --quota runs"; do
        # shellcheck disable=SC2086
        apart server $words
        is "$status" 1
        is "$(wc -l <"$BATS_TEST_TMPDIR/err")" 1
    done
}

@test "without a server, on a fresh state directory; nothing belongs to root afterwards" {
    mkdir "$BATS_TEST_TMPDIR/own"
    chmod 755 "$BATS_TEST_TMPDIR" "$BATS_TEST_TMPDIR/own"
    state=$BATS_TEST_TMPDIR/own/state
    "$SERVER" init --state "$state" --user "$(server_user)" >/dev/null
    "$SERVER" user add dora --state "$state" >/dev/null
    token=$("$SERVER" token new dora --state "$state" 2>/dev/null)
    [[ $token =~ ^pf_ ]]
    # The list that init made is known, too.
    [[ $("$SERVER" user list --state "$state") == *admin* ]]
    is "$(find "$state/server" -mindepth 1 -user root ! -name tokens -printf '%f ')" ""
    is "$(grep -rlF "$token" "$state" || true)" ""
}

@test "a child token does less, and its budget ends" {
    server user add eve
    token=$(server token new eve 2>/dev/null)
    within 1 accepted "$token"
    apart as "$token" "$PINFOLD" token child --scopes run --cpu 60s --runs 1 --for 1h
    is "$status" 0
    child=${out##*$'\n'}
    [[ $child =~ ^pf_[a-z2-7]{52}$ ]]
    is "$(as "$child" "$PINFOLD" run -c 'echo hi')" hi
    apart as "$child" "$PINFOLD" run -c 'echo hi'
    is "$status" 125
    [[ $err == *"budget runs"* ]]
    apart as "$child" "$PINFOLD" token child --scopes run,files
    is "$status" 125
    [[ $err == *"the scope files"* ]]
    list=$(as "$token" "$PINFOLD" token list)
    [[ $list == *"1 of 1"* ]]
    as "$token" "$PINFOLD" token revoke "$(grep -o 'tok_[a-z0-9]*' <<<"$list")"
    refused "$child"
    apart as "$token" "$PINFOLD" token child --quota runs
    is "$status" 125
    apart as "$token" "$PINFOLD" token frob
    is "$status" 2
}

@test "a token that init replaces is refused" {
    old=$(<"$STATE/admin.token")
    rm "$STATE/admin.token"
    "$SERVER" init --state "$STATE" --user "$(server_user)" >/dev/null
    new=$(<"$STATE/admin.token")
    [[ $old != "$new" ]]
    within 1 accepted "$new"
    within 1 refused "$old"
}

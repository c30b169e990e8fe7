#!/usr/bin/env bats
# pinfold-server init: the state directory and the administrator's token.

load lib.bash

setup() {
    SERVER=$(program pinfold-server)
    USER_NAME=$(server_user)
    GROUP_NAME=$(id -gn "$USER_NAME")
    STATE=$BATS_TEST_TMPDIR/state
    [[ $EUID -eq 0 ]] || skip "only root can make a state directory for another user"
}

init() { "$SERVER" init --state "$STATE" --user "$USER_NAME"; }

layout() { (cd "$STATE" && find . -printf '%P %M %u:%g\n' | sort); }

expected() {
    cat <<END
 drwxr-xr-x root:root
admin.token -rw------- root:root
images drwxr-xr-x root:root
lock.runner -rw------- root:root
lock.server -rw------- $USER_NAME:root
log drwxr-x--- root:$GROUP_NAME
run drwxr-x--- root:$GROUP_NAME
server drwxr-x--- $USER_NAME:$GROUP_NAME
server/receipt.key -rw------- $USER_NAME:$GROUP_NAME
server/tokens -rw-r----- root:$GROUP_NAME
END
}

@test "the layout, its owners and modes, under every umask" {
    for mask in 022 077 000 0777; do
        rm -rf "$STATE"
        (umask "$mask" && SUDO_UID='' init)
        is "$mask $(layout)" "$mask $(expected)"
    done
}

@test "running it again changes nothing, and mends what is wrong" {
    init
    before=$(<"$STATE/admin.token")
    hash=$(<"$STATE/server/tokens")
    apart init
    is "$status" 0
    has "$out" ready
    is "$(<"$STATE/admin.token")" "$before"
    chmod 777 "$STATE/run"
    chown root:root "$STATE/server"
    rmdir "$STATE/log"
    init
    is "$(layout)" "$(expected)"
    is "$(<"$STATE/server/tokens")" "$hash"
}

@test "the server keeps only a hash of the token, and it is the right one" {
    init
    token=$(<"$STATE/admin.token")
    [[ $token =~ ^pf_[a-z2-7]{52}$ ]]
    is "$(<"$STATE/server/tokens")" "$(printf %s "$token" | sha256sum | cut -d ' ' -f 1) admin admin"
    is "$(grep -rlF "$token" "$STATE" || true)" "$STATE/admin.token"
}

@test "a lost token is replaced, a lost hash comes back, others' tokens stay" {
    init
    old=$(<"$STATE/admin.token")
    other="$(printf other | sha256sum | cut -d ' ' -f 1) ann user"
    echo "$other" >>"$STATE/server/tokens"
    rm "$STATE/admin.token"
    init
    new=$(<"$STATE/admin.token")
    [[ $new != "$old" ]]
    is "$(wc -l <"$STATE/server/tokens")" 2
    has "$(<"$STATE/server/tokens")" "$other"
    has "$(<"$STATE/server/tokens")" "$(printf %s "$new" | sha256sum | cut -d ' ' -f 1) admin admin"
    rm "$STATE/server/tokens"
    init
    has "$(<"$STATE/server/tokens")" "$(printf %s "$new" | sha256sum | cut -d ' ' -f 1) admin admin"
    is "$(<"$STATE/admin.token")" "$new"
}

@test "the token's file belongs to whoever used sudo" {
    SUDO_UID=12345 init
    is "$(stat -c '%u %a' "$STATE/admin.token")" "12345 600"
}

@test "links, strangers and directories of something else are refused" {
    init
    ln -s state "$BATS_TEST_TMPDIR/link"
    for path in link link/; do
        apart "$SERVER" init --state "$BATS_TEST_TMPDIR/$path" --user "$USER_NAME"
        is "$path $status" "$path 1"
        has "$err" "symbolic link"
    done
    mkdir -p "$BATS_TEST_TMPDIR/work/thesis"
    chmod 700 "$BATS_TEST_TMPDIR/work"
    apart "$SERVER" init --state "$BATS_TEST_TMPDIR/work" --user "$USER_NAME"
    is "$status" 1
    has "$err" "neither empty nor a state directory"
    is "$(stat -c %a "$BATS_TEST_TMPDIR/work")" 700
    chown 12345 "$STATE"
    apart init
    is "$status" 1
    has "$err" "belongs to user 12345"
}

@test "links inside are refused, and a server that was taken over gains nothing by them" {
    init
    rm "$STATE/server/tokens"
    echo "root:x" >"$BATS_TEST_TMPDIR/shadow"
    ln -s "$BATS_TEST_TMPDIR/shadow" "$STATE/server/tokens"
    apart init
    is "$status" 1
    is "$(<"$BATS_TEST_TMPDIR/shadow")" "root:x"
    rm "$STATE/server/tokens"
    mkfifo "$STATE/server/tokens"
    apart timeout 10 "$SERVER" init --state "$STATE" --user "$USER_NAME"
    is "$status" 1
    rm "$STATE/server/tokens"
    rmdir "$STATE/run"
    ln -s /tmp "$STATE/run"
    apart init
    is "$status" 1
    has "$err" "run is not a directory"
}

@test "several at once make one token" {
    for _ in 1 2 3 4 5 6; do
        init >/dev/null 3>&- &
    done
    wait
    is "$(wc -l <"$STATE/server/tokens")" 1
    is "$(cut -d ' ' -f 1 "$STATE/server/tokens")" \
        "$(tr -d '\n' <"$STATE/admin.token" | sha256sum | cut -d ' ' -f 1)"
    is "$(layout)" "$(expected)"
}

@test "an unknown user and wrong usage are told" {
    apart "$SERVER" init --state "$STATE" --user no-such-user
    is "$status" 1
    has "$err" useradd
    [[ ! -e $STATE ]]
    apart "$SERVER" init --state
    is "$status" 2
    apart "$SERVER" init extra
    is "$status" 2
    apart "$SERVER" init --help
    is "$status" 0
}

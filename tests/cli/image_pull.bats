#!/usr/bin/env bats
# pinfold-server image pull, from a registry on loopback that asks for tokens, breaks off, and lies.

load lib.bash

setup() {
    [[ $EUID -eq 0 ]] || skip "only root can change images"
    SERVER=$(program pinfold-server)
    STATE=$BATS_TEST_TMPDIR/state
    IMAGES=$STATE/images
    REPOS=$BATS_TEST_TMPDIR/repos
    mkdir -p "$REPOS"
    "$SERVER" init --state "$STATE" --user "$(server_user)" >/dev/null
}

teardown() {
    [[ -z ${registry:-} ]] || kill "$registry" 2>/dev/null || true
}

layouts() {
    rm -rf "${REPOS:?}/$2"
    mkdir -p "$(dirname "$REPOS/$2")"
    /usr/bin/python3 "$BATS_TEST_DIRNAME/layouts.py" "$1" "$REPOS/$2"
}

# serve FLAG…
serve() {
    [[ -z ${registry:-} ]] || kill "$registry"
    rm -f "$REPOS/port" "$REPOS/log"
    /usr/bin/python3 "$BATS_TEST_DIRNAME/registry.py" "$REPOS" "$@" >/dev/null 2>&1 3>&- &
    registry=$!
    within 10 test -s "$REPOS/port"
    HOST=127.0.0.1:$(<"$REPOS/port")
}

pull() { timeout 60 "$SERVER" image pull "$1" "$HOST/$2" --state "$STATE" "${@:3}"; }
tree() { /usr/bin/python3 "$BATS_TEST_DIRNAME/layouts.py" --tree "$IMAGES/$1/rootfs"; }
digest() {
    /usr/bin/python3 -c 'import json, sys
print(json.load(open(sys.argv[1]))["manifests"][0]["digest"])' "$REPOS/$1/index.json"
}
# No image, nothing in the making; what was fetched may be kept.
is_tidy() {
    is "$(find "$IMAGES" -mindepth 1 -maxdepth 1 ! -name .lock ! -name .pull | sort)" "$*"
}

@test "an image is pulled by tag and by digest, and is the one that an import makes" {
    layouts sound team/py
    serve
    "$SERVER" image import imported "$REPOS/team/py" --state "$STATE" >/dev/null
    apart pull py team/py:latest
    is "$status" 0
    want=$(digest team/py)
    has "$out" "sha256 ${want#sha256:}"
    has "$out" "layer 3 of 3"
    is "$(tree py)" "$(tree imported)"
    # Nothing of it is kept twice.
    is "$(find "$IMAGES/.pull/blobs" -type f)" ""
    pull pinned "team/py@$want" >/dev/null
    is "$(tree pinned)" "$(tree imported)"
    apart pull wrong "team/py@sha256:$(printf '0%.0s' {1..64})"
    is "$status" 1
    has "$err" "does not have it"
    apart pull py team/py:latest
    is "$status" 1
    has "$err" "remove it first"
    apart pull none team/py:other
    is "$status" 1
    has "$err" "the registry does not have it"
    is_tidy "$IMAGES/imported
$IMAGES/pinned
$IMAGES/py"
}

@test "of an index the image for this machine is pulled" {
    layouts sound one
    layouts mixed many
    serve
    pull one one >/dev/null
    pull many many:3.11 >/dev/null
    is "$(tree many)" "$(tree one)"
}

@test "tokens and passwords: they are asked for once they are needed, and told to nobody else" {
    layouts sound py
    echo alice:secret >"$BATS_TEST_TMPDIR/auth"
    echo alice:wrong >"$BATS_TEST_TMPDIR/wrong"
    serve token
    pull token py >/dev/null
    serve token redirect
    pull redirected py >/dev/null
    serve token password
    apart pull none py
    is "$status" 1
    has "$err" "no token was given for the registry (401)"
    apart pull none py --auth "$BATS_TEST_TMPDIR/wrong"
    is "$status" 1
    pull password py --auth "$BATS_TEST_TMPDIR/auth" >/dev/null
    serve basic
    apart pull none py
    is "$status" 1
    has "$err" "give them with --auth FILE"
    pull basic py --auth "$BATS_TEST_TMPDIR/auth" >/dev/null
    serve token far-token
    apart pull none py --auth "$BATS_TEST_TMPDIR/auth"
    is "$status" 1
    has "$err" "to a place that is not https"
    echo nothing >"$BATS_TEST_TMPDIR/auth"
    apart pull none py --auth "$BATS_TEST_TMPDIR/auth"
    is "$status" 1
    has "$err" "is not NAME:PASSWORD"
}

@test "who keeps the blobs for a registry cannot ask for its password" {
    layouts sound py
    echo alice:secret >"$BATS_TEST_TMPDIR/auth"
    serve basic stranger
    apart pull py py --auth "$BATS_TEST_TMPDIR/auth"
    is "$status" 1
    has "$err" "the registry refuses (401)"
    is "$(grep -c thief- "$REPOS/log")" 0
    serve stranger
    apart pull py py --auth "$BATS_TEST_TMPDIR/auth"
    is "$status" 1
    has "$err" "the registry refuses (401)"
    is "$(grep -c thief- "$REPOS/log")" 0
    is_tidy ""
}

@test "what breaks off is continued: at once, and by the next pull" {
    layouts large py
    serve cut
    pull cut py >/dev/null
    is "$(find "$IMAGES/cut/rootfs" -name 'big*' -size 1M | wc -l)" 4
    has "$(<"$REPOS/log")" "206 bytes="
    serve cut whole
    pull whole py >/dev/null
    is "$(tree whole)" "$(tree cut)"
    # Killed in the middle: what is there is not fetched again.
    serve
    pull first py >/dev/null 2>&1 3>&- &
    pid=$!
    within 30 grep -q 'blobs/' "$REPOS/log"
    kill -KILL "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
    within 30 pull second py >/dev/null
    is "$(tree second)" "$(tree cut)"
    serve errors
    pull errors py >/dev/null
}

@test "what is not what it should be is refused and thrown away" {
    layouts large py
    while IFS='|' read -r flag part; do
        serve "$flag"
        apart pull evil py
        is "$flag $status" "$flag 1"
        has "$err" "$part"
        is_tidy ""
    done <<'END'
lie|is refused: it has
longer|the registry sends more than it should
endless|the registry sends more than it should
away|cannot be reached, or broke off
END
    # After the lie the truth.
    serve
    pull good py >/dev/null
    is_tidy "$IMAGES/good"
    layouts large big
    apart pull big big --max-bytes 1M
    is "$status" 1
    has "$err" "larger than"
    kill "$registry"
    registry=
    apart pull gone py
    is "$status" 1
    has "$err" "cannot be reached"
}

@test "references say where an image is, or are refused" {
    HOST=127.0.0.1:1
    for ref in py 'py:3' 'team/py' '' 'http://x.example/py' 'x.example/PY' 'x.example/../py' \
        'x.example/py:' 'x.example/py@sha256:12' 'x.example/py:a b' 'u@x.example/py' '/py'; do
        apart "$SERVER" image pull x "$ref" --state "$STATE"
        is "$ref $status" "$ref 1"
        is "$ref $(wc -l <"$BATS_TEST_TMPDIR/err")" "$ref 1"
    done
}

#!/usr/bin/env bats
# `make install` and `make deb`: what is put where, with which modes, and that units and profile are
# valid. Nothing outside a temporary directory is touched.

setup_file() {
    ROOT=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
    BUILD=${PINFOLD_BUILD:-$ROOT/build}
    AT=$BATS_FILE_TMPDIR
    export ROOT BUILD AT
    DESTDIR=$AT/dest PREFIX=/usr "$ROOT/deploy/install.sh" "$BUILD"
    # Where units are looked at, what they start must exist: a prefix of its own instead of /usr.
    PREFIX=$AT/usr SYSCONFDIR=$AT/etc "$ROOT/deploy/install.sh" "$BUILD"
}

setup() {
    cd "$ROOT"
}

@test "install: every file is where it belongs, with owner and mode" {
    run bash -c "cd $AT/dest && find . -type f -printf '%M %u %P\n' | LC_ALL=C sort -k 3"
    [ "$status" -eq 0 ]
    diff - <(echo "$output") <<'END'
-rw-r--r-- root etc/default/pinfold-runner
-rw-r--r-- root etc/default/pinfold-runner-docker
-rw-r--r-- root etc/pinfold/policies/ci.json
-rw-r--r-- root etc/pinfold/policies/default.json
-rw-r--r-- root etc/pinfold/policies/judge.json
-rw-r--r-- root etc/pinfold/server.json
-rwxr-xr-x root usr/bin/pinfold
-rw-r--r-- root usr/lib/systemd/system/pinfold-runner-docker.service
-rw-r--r-- root usr/lib/systemd/system/pinfold-runner.service
-rw-r--r-- root usr/lib/systemd/system/pinfold-server.service
-rw-r--r-- root usr/lib/sysusers.d/pinfold.conf
-rw-r--r-- root usr/lib/tmpfiles.d/pinfold.conf
-rwxr-xr-x root usr/libexec/pinfold/pinfold-init
-rwxr-xr-x root usr/libexec/pinfold/pinfold-runner
-rwxr-xr-x root usr/libexec/pinfold/pinfold-runner-docker
-rwxr-xr-x root usr/sbin/pinfold-server
-rw-r--r-- root usr/share/bash-completion/completions/pinfold
-rw-r--r-- root usr/share/doc/pinfold/README.md
-rw-r--r-- root usr/share/doc/pinfold/SECURITY.md
-rw-r--r-- root usr/share/doc/pinfold/examples/policies/ci.json
-rw-r--r-- root usr/share/doc/pinfold/examples/policies/default.json
-rw-r--r-- root usr/share/doc/pinfold/examples/policies/judge.json
-rw-r--r-- root usr/share/doc/pinfold/examples/server.json
-rw-r--r-- root usr/share/man/man1/pinfold.1
-rw-r--r-- root usr/share/man/man8/pinfold-runner-docker.8
-rw-r--r-- root usr/share/man/man8/pinfold-runner.8
-rw-r--r-- root usr/share/man/man8/pinfold-server.8
-rw-r--r-- root usr/share/pinfold/apparmor/pinfold-runner
END
    # A policy that others could write would be refused by the runner.
    [ -z "$(find "$AT/dest" -perm /022 ! -type l)" ]
}

@test "install: the runner is found by its name and finds pinfold-init and the policies" {
    run "$AT/usr/sbin/pinfold-runner" --help
    [ "$status" -eq 0 ]
    "$BUILD/pinfold-server" init --state "$AT/state" --user "$(id -un)"
    run "$AT/usr/sbin/pinfold-runner" --state "$AT/state" --policies "$AT/etc/pinfold/policies" \
        --server-user root --check
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *enforced* ]]
}

@test "install: what an administrator changed is kept, what is unchanged is replaced" {
    mkdir -p "$AT/again/etc/pinfold/policies"
    echo '{"port": 80}' >"$AT/again/etc/pinfold/server.json"
    run env DESTDIR="$AT/again" PREFIX=/usr deploy/install.sh "$BUILD"
    [ "$status" -eq 0 ]
    [[ $output == *"kept your $AT/again/etc/pinfold/server.json"* ]]
    [ "$(cat "$AT/again/etc/pinfold/server.json")" = '{"port": 80}' ]
    cmp policies/default.json "$AT/again/etc/pinfold/policies/default.json"
}

@test "install: the configuration that comes along is valid" {
    cmp deploy/pinfold.json "$AT/dest/etc/pinfold/server.json"
    run "$BUILD/pinfold-server" config --config "$AT/dest/etc/pinfold/server.json"
    echo "$output"
    [ "$status" -eq 0 ]
}

@test "units: systemd-analyze verify finds nothing wrong" {
    run systemd-analyze verify --man=no "$AT"/usr/lib/systemd/system/pinfold-{runner,server}.service
    echo "$output"
    [ "$status" -eq 0 ]
    [ -z "$output" ]
}

# The score is of 10, smaller is better; one that grows means that a wall went missing.
exposure() {
    systemd-analyze security --offline=yes --no-pager "deploy/systemd/pinfold-$1.service" |
        sed -n 's/.*Overall exposure level.*: \([0-9.]*\) .*/\1/p'
}

@test "units: the server's exposure is at most 1.8, the runner's at most 5.7" {
    server=$(exposure server)
    runner=$(exposure runner)
    echo "server $server, runner $runner"
    awk -v s="$server" -v r="$runner" 'BEGIN { exit !(s > 0 && s <= 1.8 && r > 0 && r <= 5.7) }'
}

@test "container: the runner gets the capabilities of its unit, and the container has them to give" {
    unit=$(sed -n 's/^CapabilityBoundingSet=//p' deploy/systemd/pinfold-runner.service | tr ' ' '\n' | sort)
    start=$(sed -n 's/^KEEP=//p' deploy/container/start | tr ',' '\n' | sed 's/^+/CAP_/' | tr a-z A-Z | sort)
    [ -n "$unit" ]
    diff <(echo "$unit") <(echo "$start")
    for cap in $unit; do
        grep -q "cap_add:.*\b${cap#CAP_}\b" deploy/container/compose.yaml
        grep -q -e "--cap-add ${cap#CAP_} " deploy/container/README.md
    done
    bash -n deploy/container/start
}

@test "units: sysusers makes the server's user, tmpfiles the state directory" {
    mkdir -p "$AT/users/etc" "$AT/users/usr/lib/sysusers.d" "$AT/users/usr/lib/tmpfiles.d"
    cp deploy/systemd/pinfold.sysusers "$AT/users/usr/lib/sysusers.d/pinfold.conf"
    cp deploy/systemd/pinfold.tmpfiles "$AT/users/usr/lib/tmpfiles.d/pinfold.conf"
    systemd-sysusers --root="$AT/users" pinfold.conf
    grep -q '^pinfold:.*:/nonexistent:/usr/sbin/nologin$' "$AT/users/etc/passwd"
    printf 'root:x:0:0::/root:/bin/sh\n' >>"$AT/users/etc/passwd"
    printf 'root:x:0:\n' >>"$AT/users/etc/group"
    systemd-tmpfiles --root="$AT/users" --create pinfold.conf
    [ "$(stat -c '%A %U' "$AT/users/var/lib/pinfold")" = 'drwxr-xr-x root' ]
}

@test "manual pages: they format without a complaint and say what --help says" {
    for page in "$AT"/dest/usr/share/man/man?/*; do
        run bash -c "groff -k -man -Tutf8 -ww '$page' 2>&1 >/dev/null"
        echo "$page: $output"
        [ -z "$output" ]
    done
    groff -k -man -Tascii -P-cbou "$AT/dest/usr/share/man/man8/pinfold-runner.8" >"$AT/page"
    grep -qe '--no-favordynmods' "$AT/page"
    grep -q 'PINFOLD SANDBOX' "$AT/dest/usr/share/man/man1/pinfold.1"
}

@test "bash completion: commands, inner commands and options come from the programs" {
    complete_line() { # complete_line WORD…: the last one is being typed
        bash -c 'source deploy/completion.bash
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
            _pinfold
            printf "%s\n" "${COMPREPLY[@]}"' - "$BUILD/$1" "${@:2}"
    }
    [ "$(complete_line pinfold doc)" = doctor ]
    [ "$(complete_line pinfold sandbox snapsho | tr '\n' ' ')" = 'snapshot snapshots ' ]
    [ "$(complete_line pinfold run --col)" = --collect ]
    [ "$(complete_line pinfold-server serve --gra)" = --grace ]
    [ -z "$(complete_line pinfold run -- l)" ]
}

@test "apparmor: the profile is one that the parser of this host accepts" {
    profile=$AT/profile
    if [ -e /etc/apparmor.d/abi/4.0 ]; then
        cp deploy/apparmor/pinfold-runner "$profile"
    else
        # A parser from before user namespaces were mediated: all but the line that is about them.
        sed -e 's|abi/4.0|abi/3.0|' -e '/^  userns,$/d' deploy/apparmor/pinfold-runner >"$profile"
        [ "$(diff deploy/apparmor/pinfold-runner "$profile" | grep -c '^[<>]')" -eq 3 ]
    fi
    run apparmor_parser --skip-kernel-load --skip-cache "$profile"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output != *rror* ]]
}

@test "deb: a package with configuration files, scripts and everything that install puts" {
    run deploy/deb.sh "$BUILD" 0.0.1+test
    echo "$output"
    [ "$status" -eq 0 ]
    deb=$BUILD/deb/pinfold_0.0.1+test_$(dpkg --print-architecture).deb
    # Conffiles: an upgrade never overwrites what an administrator changed.
    diff <(dpkg-deb -I "$deb" conffiles) <(cd "$AT/dest" && find etc -type f | LC_ALL=C sort | sed 's|^|/|')
    dpkg-deb -f "$deb" Depends | grep -q 'libmicrohttpd12.*systemd-sysusers'
    dpkg-deb --fsys-tarfile "$deb" | tar -tv | awk '{ print $1, $2, $6 }' >"$AT/list"
    grep -qx -e '-rwxr-xr-x root/root ./usr/libexec/pinfold/pinfold-init' "$AT/list"
    grep -qx -e '-rw-r--r-- root/root ./etc/pinfold/policies/default.json' "$AT/list"
    [ -z "$(grep -v ' root/root ' "$AT/list")" ]
    for script in postinst prerm postrm; do
        dpkg-deb -I "$deb" "$script" | sh -n
    done
    rm -f "$deb"
}

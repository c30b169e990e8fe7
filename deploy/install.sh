#!/bin/bash
# install.sh BUILD: copies what was built there, and everything that comes with it, below
# DESTDIR/PREFIX. In the environment: DESTDIR (empty), PREFIX (/usr/local), SYSCONFDIR (/etc).
#
# Configuration belongs to the administrator: what is there already is kept.
set -euo pipefail
cd "$(dirname "$0")/.."

build=$1
dest=${DESTDIR:-}
prefix=${PREFIX:-/usr/local}
etc=$dest${SYSCONFDIR:-/etc}
root=$dest$prefix
[[ $prefix == /* ]] || { echo "install: PREFIX must be an absolute path, not '$prefix'" >&2; exit 1; }
umask 022

# Into a file system of ours, root owns everything; without root (a package that is staged), the
# caller does.
put() { # put MODE SOURCE… TARGET-DIRECTORY/ or put MODE SOURCE TARGET
    local mode=$1
    shift
    install -D -m "$mode" "$@"
}

put_config() { # put_config SOURCE TARGET
    if [[ -e $2 ]] && ! cmp -s "$1" "$2"; then
        echo "install: kept your $2"
    else
        put 0644 "$1" "$2"
    fi
}

# put_text SOURCE TARGET: with the paths of this installation.
put_text() {
    install -d "${2%/*}"
    sed "s#/usr/\(sbin\|libexec\|share\)/#$prefix/\1/#g" "$1" >"$2"
    chmod 0644 "$2"
}

# What is not for everybody is beside the runner, which looks for pinfold-init there.
put 0755 "$build/pinfold" "$root/bin/pinfold"
put 0755 "$build/pinfold-server" "$root/sbin/pinfold-server"
put 0755 "$build/pinfold-runner" "$root/libexec/pinfold/pinfold-runner"
put 0755 "$build/pinfold-runner-docker" "$root/libexec/pinfold/pinfold-runner-docker"
put 0755 "$build/pinfold-init" "$root/libexec/pinfold/pinfold-init"
ln -sfn ../libexec/pinfold/pinfold-runner "$root/sbin/pinfold-runner"
ln -sfn ../libexec/pinfold/pinfold-runner-docker "$root/sbin/pinfold-runner-docker"

install -d "$etc/pinfold/policies"
for policy in policies/*.json; do
    put_config "$policy" "$etc/pinfold/policies/${policy##*/}"
done
put_config deploy/pinfold.json "$etc/pinfold/server.json"
put_config deploy/systemd/pinfold-runner.default "$etc/default/pinfold-runner"
put_config deploy/systemd/pinfold-runner-docker.default "$etc/default/pinfold-runner-docker"

put_text deploy/systemd/pinfold-server.service "$root/lib/systemd/system/pinfold-server.service"
put_text deploy/systemd/pinfold-runner.service "$root/lib/systemd/system/pinfold-runner.service"
put_text deploy/systemd/pinfold-runner-docker.service \
    "$root/lib/systemd/system/pinfold-runner-docker.service"
put 0644 deploy/systemd/pinfold.sysusers "$root/lib/sysusers.d/pinfold.conf"
put 0644 deploy/systemd/pinfold.tmpfiles "$root/lib/tmpfiles.d/pinfold.conf"

put 0644 deploy/completion.bash "$root/share/bash-completion/completions/pinfold"
ln -sfn pinfold "$root/share/bash-completion/completions/pinfold-server"
put_text deploy/apparmor/pinfold-runner "$root/share/pinfold/apparmor/pinfold-runner"
put 0644 README.md "$root/share/doc/pinfold/README.md"
put 0644 deploy/SECURITY.md "$root/share/doc/pinfold/SECURITY.md"
put 0644 deploy/pinfold.json "$root/share/doc/pinfold/examples/server.json"
put 0644 policies/*.json -t "$root/share/doc/pinfold/examples/policies"

# Manual pages say what --help says, which is always true.
install -d "$root/share/man/man1" "$root/share/man/man8"
deploy/manpage.sh "$build/pinfold" 1 >"$root/share/man/man1/pinfold.1"
deploy/manpage.sh "$build/pinfold-server" 8 >"$root/share/man/man8/pinfold-server.8"
deploy/manpage.sh "$build/pinfold-runner" 8 >"$root/share/man/man8/pinfold-runner.8"
deploy/manpage.sh "$build/pinfold-runner-docker" 8 >"$root/share/man/man8/pinfold-runner-docker.8"
chmod 0644 "$root"/share/man/man[18]/pinfold*

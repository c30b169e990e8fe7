#!/usr/bin/env bats
# pinfold-server image: sound archives become images, hostile ones are refused and leave nothing.

load lib.bash

setup() {
    [[ $EUID -eq 0 ]] || skip "only root can change images"
    SERVER=$(program pinfold-server)
    STATE=$BATS_TEST_TMPDIR/state
    IMAGES=$STATE/images
    TAR=$BATS_TEST_TMPDIR/image.tar
    "$SERVER" init --state "$STATE" --user "$(server_user)" >/dev/null
}

tars() { /usr/bin/python3 "$BATS_TEST_DIRNAME/tars.py" "$1" "$TAR"; }

import() { "$SERVER" image import "$1" "$TAR" --state "$STATE" "${@:2}"; }

# Nothing but complete images.
is_tidy() { is "$(find "$IMAGES" -mindepth 1 -maxdepth 1 ! -name .lock | sort)" "$*"; }

@test "a root file system becomes an image" {
    tars sound
    umask 077
    apart import sound
    is "$status" 0
    has "$out" "sha256 $(sha256sum <"$TAR" | cut -d ' ' -f 1)"
    has "$out" "left out: 2"
    is_tidy "$IMAGES/sound"
    root=$IMAGES/sound/rootfs
    # Everything belongs to root, and no bit that gives rights is left.
    is "$(find "$root" ! -uid 0 -o ! -gid 0 -o -perm /6000 -o -type b -o -type c -o -type p)" ""
    is "$(stat -c %a "$IMAGES/sound" "$root" "$IMAGES/sound/manifest.json" | tr '\n' ' ')" \
        "755 755 644 "
    is "$(stat -c '%a %h' "$root/bin/tool")" "755 2"
    is "$(stat -c %Y "$root/bin/tool")" 1700000000
    is "$(readlink "$root/bin/link")" /bin/tool
    is "$(stat -c %s "$root/deep/er/file")" 100000
    is "$(<"$root/closed/in")" 1
    [[ -f "$root/name"$'\u00e9\n' ]]
    /usr/bin/python3 - "$IMAGES/sound/manifest.json" <<'END'
import json, sys, time
m = json.load(open(sys.argv[1]))
assert sorted(m) == ["bytes", "files", "imported_at", "name", "sha256"], m
assert m["name"] == "sound" and m["files"] == 14 and m["bytes"] == 100058, m
assert abs(m["imported_at"] / 1000 - time.time()) < 600, m
END
}

@test "an archive that is changed while it is read is what its digest says, or nothing" {
    SERVER=$SERVER STATE=$STATE TAR=$TAR timeout 60 /usr/bin/python3 - <<'END'
import glob, hashlib, io, json, os, signal, subprocess, tarfile, time
server, state, path = os.environ["SERVER"], os.environ["STATE"], os.environ["TAR"]
with tarfile.open(path, "w") as tar:
    for name, data in (("first", bytes(64 << 20)), ("last", b"as it was")):
        one = tarfile.TarInfo(name)
        one.size = len(data)
        tar.addfile(one, io.BytesIO(data))
with open(path, "rb") as file:
    data = file.read()
at = data.rindex(b"as it was")
run = subprocess.Popen([server, "image", "import", "one", path, "--state", state])
# The first file is being unpacked: what is read after it was hashed long ago.
while not glob.glob(state + "/images/.import-*/rootfs/first"):
    assert run.poll() is None, "it was not seen"
os.kill(run.pid, signal.SIGSTOP)
with open(path, "r+b") as file:
    file.seek(at)
    file.write(b"as it is.")
os.kill(run.pid, signal.SIGCONT)
assert run.wait(50) == 0
image = state + "/images/one"
assert json.load(open(image + "/manifest.json"))["sha256"] == hashlib.sha256(data).hexdigest()
seen = open(image + "/rootfs/last", "rb").read()
assert seen == b"as it was", seen
END
    is_tidy "$IMAGES/one"
}

@test "mount targets and the files of /etc are made, never through links" {
    tars sound
    shadow=$(sha256sum </etc/shadow)
    import sound
    root=$IMAGES/sound/rootfs
    for dir in proc dev tmp var/tmp workspace home/user usr etc; do
        [[ -d $root/$dir && ! -L $root/$dir ]]
    done
    is "$(stat -c %a "$root/tmp" "$root/var/tmp" "$root/proc" | tr '\n' ' ')" "1777 1777 555 "
    for file in passwd group hosts resolv.conf hostname nsswitch.conf; do
        [[ -f $root/etc/$file && ! -L $root/etc/$file ]]
        is "$(stat -c %a "$root/etc/$file")" 644
    done
    has "$(<"$root/etc/passwd")" "pinfold:x:1000:1000::/home/user:/bin/sh"
    has "$(<"$root/etc/passwd")" "root:x:0:0::/root:/bin/sh"
    has "$(<"$root/etc/hosts")" "::1 localhost"
    is "$(sha256sum </etc/shadow)" "$shadow"
}

@test "gzip, bzip2, xz and zstd give the same image" {
    for kind in sound gz bz2 xz; do
        tars "$kind"
        import "$kind" >/dev/null
        diff -r --no-dereference "$IMAGES/sound/rootfs" "$IMAGES/$kind/rootfs"
    done
    if command -v zstd >/dev/null; then
        tars sound
        zstd -q "$TAR" -o "$TAR.zst"
        "$SERVER" image import --state "$STATE" zst "$TAR.zst"
        diff -r --no-dereference "$IMAGES/sound/rootfs" "$IMAGES/zst/rootfs"
    fi
}

@test "hostile archives are refused with a sentence that names the entry" {
    while IFS='|' read -r kind part; do
        tars "$kind"
        apart import evil --max-bytes 30M --max-files 1500
        is "$kind $status" "$kind 1"
        has "$err" "$part"
        is "$kind $(wc -l <"$BATS_TEST_TMPDIR/err")" "$kind 1"
        is_tidy ""
    done <<'END'
absolute|the entry /etc/evil is refused: its path is absolute
dotdot|the entry a/../../evil is refused
dotdot-end|is refused: its path has a ".."
through-link|the entry out/pinfold-evil is refused: its path leads through a symbolic link
through-relative-link|the entry out/evil is refused
through-file|the entry f/below is refused: its path leads through a file
dir-over-link|another type has the same path
file-over-dir|another type has the same path
link-over-file|another type has the same path
file-over-link|another type has the same path
hardlink-outside|the entry shadow is refused: the target of the link
hardlink-dotdot|the entry shadow is refused: the target of the link
hardlink-through-link|the entry shadow is refused: the target of the link
hardlink-missing|the target of the link is not in the archive
hardlink-dir|the target of the link is not a file
device|the entry disk is refused: it is a device
char-device|the entry mem is refused: it is a device
fifo|the entry pipe is refused: it is a FIFO
root-is-file|the root must be a directory
long-name|more than 255 bytes
long-path|too long
deep|directories deep
empty|no files
proc-link|mount target proc is a symbolic link
tmp-file|mount target tmp is not a directory
home-link|mount target home is a symbolic link
home-user-link|mount target home/user is a symbolic link
var-tmp-link|mount target var/tmp is a symbolic link
etc-link|mount target etc is a symbolic link
workspace-file|mount target workspace is not a directory
etc-hosts-dir|etc/hosts is a directory
sparse-giant|the entry giant is refused
large|is refused: all files together
bomb|is refused: all files together
many|more entries than allowed
garbage|this is no tar
truncated|the archive is damaged
escape-name|the entry \x1b[31m/../x is refused
END
    [[ ! -e /tmp/pinfold-evil ]]
}

@test "a later file of the same name replaces the earlier one, not what is linked to it" {
    tars duplicate-file
    import twice
    is "$(<"$IMAGES/twice/rootfs/a")" second
    is "$(<"$IMAGES/twice/rootfs/b")" first
}

@test "file capabilities are dropped" {
    tars xattrs
    import caps
    /usr/bin/python3 -c 'import os, sys
assert os.listxattr(sys.argv[1]) == [], os.listxattr(sys.argv[1])' "$IMAGES/caps/rootfs/ping"
}

@test "names that cannot be, a name that is taken, files that are none" {
    tars sound
    for name in host ../x a/b .x '' "$(printf 'x%.0s' {1..64})" -x; do
        apart "$SERVER" image import --state "$STATE" -- "$name" "$TAR"
        [[ $status -ne 0 ]]
        is_tidy ""
    done
    import one
    apart import one
    is "$status" 1
    has "$err" "remove it first"
    is_tidy "$IMAGES/one"
    mkfifo "$BATS_TEST_TMPDIR/fifo"
    for file in "$BATS_TEST_TMPDIR/fifo" "$BATS_TEST_TMPDIR" /dev/zero "$BATS_TEST_TMPDIR/none"; do
        apart timeout 10 "$SERVER" image import two "$file" --state "$STATE"
        is "$file $status" "$file 1"
    done
}

@test "list and remove" {
    apart "$SERVER" image list --state "$STATE"
    is "$status $out" "0 "
    tars sound
    import b
    import a
    apart "$SERVER" image list --state "$STATE"
    is "$(cut -d ' ' -f 1 <<<"$out" | tr '\n' ' ')" "NAME a b "
    apart "$SERVER" image remove a --state "$STATE"
    is "$status" 0
    is_tidy "$IMAGES/b"
    apart "$SERVER" image remove a --state "$STATE"
    is "$status" 1
    has "$err" "no image a"
    apart "$SERVER" image remove ../server --state "$STATE"
    is "$status" 1
    [[ -d $STATE/server ]]
    for args in '' 'dance' 'import x' 'remove' 'list x' 'import a b c'; do
        # shellcheck disable=SC2086
        apart "$SERVER" image $args --state "$STATE"
        is "$args $status" "$args 2"
    done
}

@test "an import that is killed leaves no image, and the next one tidies up" {
    tars large
    for delay in 0.002 0.005 0.01 0.02 0.04; do
        import half >/dev/null 2>&1 3>&- &
        pid=$!
        sleep "$delay"
        kill -KILL "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
        # Complete or not there.
        if [[ -e $IMAGES/half ]]; then
            is "$(find "$IMAGES/half/rootfs" -name 'big*' -size 1M | wc -l)" 40
            "$SERVER" image remove half --state "$STATE"
        fi
    done
    tars sound
    # What was killed was the function's shell: the program itself may go on for a moment.
    within 10 import whole
    [[ ! -e $IMAGES/half ]] || "$SERVER" image remove half --state "$STATE"
    is_tidy "$IMAGES/whole"
}

@test "two imports at once: the second is told" {
    exec 5>"$IMAGES/.lock"
    flock 5
    tars sound
    apart import x
    is "$status" 1
    has "$err" "another pinfold-server image uses"
}

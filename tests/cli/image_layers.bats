#!/usr/bin/env bats
# pinfold-server image import of images that consist of layers: OCI layouts and docker save.

load lib.bash

setup() {
    [[ $EUID -eq 0 ]] || skip "only root can change images"
    SERVER=$(program pinfold-server)
    STATE=$BATS_TEST_TMPDIR/state
    IMAGES=$STATE/images
    LAYOUT=$BATS_TEST_TMPDIR/layout
    "$SERVER" init --state "$STATE" --user "$(server_user)" >/dev/null
}

layouts() {
    rm -rf "$LAYOUT" "$LAYOUT.blobs"
    /usr/bin/python3 "$BATS_TEST_DIRNAME/layouts.py" "$1" "$LAYOUT"
}

tree() { /usr/bin/python3 "$BATS_TEST_DIRNAME/layouts.py" --tree "$IMAGES/$1/rootfs"; }

import() { "$SERVER" image import "$1" "$LAYOUT${2:+:$2}" --state "$STATE" "${@:3}"; }

# Nothing but complete images.
is_tidy() { is "$(find "$IMAGES" -mindepth 1 -maxdepth 1 ! -name .lock | sort)" "$*"; }

@test "layers are put on top of one another: whiteouts, opaque directories, links, other types" {
    layouts sound
    apart import sound
    is "$status" 0
    digest=$(/usr/bin/python3 -c 'import json, sys
print(json.load(open(sys.argv[1]))["manifests"][0]["digest"])' "$LAYOUT/index.json")
    has "$out" "sha256 ${digest#sha256:}"
    has "$out" "left out: 1"
    has "$("$SERVER" image list --state "$STATE")" "$digest"
    is_tidy "$IMAGES/sound"
    root=$IMAGES/sound/rootfs
    is "$(find "$root" ! -uid 0 -o ! -gid 0 -o -perm /6000 -o -type b -o -type c -o -type p)" ""
    is "$(find "$root" -name '.wh*')" ""
    # Taken away: by name, with all below it, by an opaque directory, by a later layer.
    is "$(cd "$root" && ls -d etc/gone tree/a d/low d/sub/low d/high 2>/dev/null)" ""
    is "$(cd "$root" && cat etc/kept d/sub/high changes tree/back same/new)" "2highsecond!backnew"
    # What takes the place of something of another type.
    is "$(stat -c %F "$root"/was-{link,dir,file} | tr '\n' ' ')" "directory regular file directory "
    is "$(cat "$root/was-link/in" "$root/was-dir" "$root/was-file/in")" "ina file nowin"
    [[ ! -e $root/etc/in ]]
    # A link to a file of a layer below; what replaces one of two links leaves the other alone.
    is "$(stat -c '%a %h' "$root/bin/tool" "$root/h" "$root/linked-below" "$root/h2" | tr '\n' ' ')" \
        "755 2 644 2 644 2 644 1 "
    is "$(cat "$root/h" "$root/h2")" "linkedalone"
    is "$(stat -c %a "$root/etc/kept")" 600
}

@test "what a layer puts below a link of the layers below goes where that leads, inside the image" {
    layouts merged
    apart import merged
    is "$status" 0
    root=$IMAGES/merged/rootfs
    is "$(cd "$root" && cat usr/bin/{new,old} usr/sbin/tool opt/lib/deep/so opt/conf/conf)" "newnewertoolsoconf"
    is "$(readlink "$root/bin") $(readlink "$root/sbin") $(readlink "$root/usr/bin/link")" "usr/bin /usr/sbin old"
    is "$(stat -c '%h' "$root/again")" 2
    # Not the host's, and a directory takes the place of a link as any other entry does.
    is "$(cat "$root/tmp/pinfold-evil" "$root/gone/own"; ls "$root/gone")" "insideownown"
    [[ ! -e /tmp/pinfold-evil ]]
}

@test "a directory, a tar, plain, gzip, zstd, docker save, stdin: the same files" {
    layouts sound
    import sound >/dev/null
    for kind in plain tar-sound tar-plain saved zstd; do
        [[ $kind != zstd ]] || command -v zstd >/dev/null || continue
        layouts "$kind"
        import "$kind" >/dev/null
        is "$(tree "$kind")" "$(tree sound)"
    done
    layouts saved
    "$SERVER" image import piped - --state "$STATE" <"$LAYOUT" >/dev/null
    is "$(tree piped)" "$(tree sound)"
    layouts saved-links
    import links >/dev/null
    is "$(tree links)" "$(tree sound)"
    is "$(jq_sha links)" "$(tar -tf "$LAYOUT" | sed -n 's/\.json$//p' | grep -v manifest)"
}

jq_sha() {
    /usr/bin/python3 -c 'import json, sys
print(json.load(open(sys.argv[1]))["sha256"])' "$IMAGES/$1/manifest.json"
}

@test "of several images the tag says which, and it is the one for this machine" {
    layouts sound
    import sound >/dev/null
    layouts mixed
    apart import any
    is "$status" 1
    has "$err" "more than one image; say which with :TAG, one of: registry.test/team/py:3.11, second"
    import py 3.11 >/dev/null
    is "$(tree py)" "$(tree sound)"
    import second second >/dev/null
    [[ -f $IMAGES/second/rootfs/second ]]
    apart import none 4
    is "$status" 1
    has "$err" "there is no image tagged 4"
    layouts saved
    apart import other 4
    is "$status" 1
    has "$err" "no image of that tag"
    import latest latest >/dev/null
    is_tidy "$IMAGES/latest
$IMAGES/py
$IMAGES/second
$IMAGES/sound"
}

@test "documents and blobs that are not what they should be are refused" {
    while IFS='|' read -r kind part; do
        layouts "$kind"
        apart timeout 30 "$SERVER" image import evil "$LAYOUT" --state "$STATE" \
            --max-bytes 30M --max-files 1500
        is "$kind $status" "$kind 1"
        has "$err" "$part"
        is "$kind $(wc -l <"$BATS_TEST_TMPDIR/err")" "$kind 1"
        is_tidy ""
    done <<'END'
digest|is refused: its digest is sha256:
short|bytes, not the
blobs-link|symbolic links
no-index|neither an OCI layout nor
blob-missing|is missing
saved-wrong|layer.tar is refused: its digest
index-not-json|index of the image is not JSON
index-list|schema version 2
index-empty|there is no image for linux/
index-twice|not JSON
index-deep|not JSON
index-many|more than 256 manifests
sha512|not sha256 with 64 hex digits
digest-path|not sha256 with 64 hex digits
size-negative|names no size
size-wrong|more than the 7 bytes
size-huge|has more than 4194304 bytes
nested|nested too deep
machine|and this machine is linux/
windows|the image is for windows/
layer-kind|not supported
layer-encrypted|not supported
layer-count|names 1 layers, its manifest 2
layer-none|1 to 256 layers
layer-many|1 to 256 layers
artifact|its configuration is of another kind
config-empty|1 to 256 layers
layer-no-tar|layer 1: this is no tar
layer-cut|layer 1: the archive is damaged
many|layer 2: more entries than allowed
bomb|larger than allowed
END
}

@test "hostile layers are refused with a sentence that names the entry" {
    echo kept >/tmp/pinfold-kept
    while IFS='|' read -r kind part; do
        layouts "layer-$kind"
        apart timeout 30 "$SERVER" image import evil "$LAYOUT" --state "$STATE"
        is "$kind $status" "$kind 1"
        has "$err" "$part"
        is_tidy ""
    done <<'END'
absolute|layer 2: the entry /etc/evil is refused: its path is absolute
dotdot|its path has a ".."
through-link-up|its path leads out of the image by a symbolic link
through-link-far|its path leads out of the image by a symbolic link
through-loop|its path leads through too many symbolic links
through-both|via/pinfold-evil is refused: its path leads through a symbolic link of the layer
through-link-to-file|its path leads through a file
twice-by-link|the entry merged/a is refused: the layer has this path twice
dotdot-behind-link|its path has a ".."
through-own-link|leads through a file of the layer
through-file|leads through a file
through-own-file|leads through a file of the layer
twice|the entry a is refused: the layer has this path twice
twice-link|this path twice
twice-dir-file|this path twice
twice-above|this path twice
twice-spelled|the entry ./a is refused: the layer has this path twice
hardlink-outside|the target of the link: its path is absolute
hardlink-up|the target of the link: its path has a ".."
hardlink-through-link|the target of the link: cannot open the directory tmp
hardlink-whiteouted|the target of the link is not in the archive
hardlink-whiteouted-later|the target of the link is not in the archive
hardlink-opaque|the target of the link is not in the archive
hardlink-displaced|the entry etc is refused: the target of the link
hardlink-self|it is a link to itself
hardlink-dir|the target of the link is not a file
hardlink-to-whiteout|the target of the link is not in the archive
device|the entry etc/sda is refused: it is a device
overlay-whiteout|the entry f is refused: it is a device
fifo|it is a FIFO
whiteout-dotdot|a whiteout of nothing, or of what is above it
whiteout-dot|a whiteout of nothing, or of what is above it
whiteout-nothing|a whiteout of nothing, or of what is above it
whiteout-climbs|its path has a ".."
whiteout-absolute|its path is absolute
whiteout-in-whiteout|a whiteout in a whiteout
whiteout-of-whiteout|a name that begins with .wh.
below-whiteout|a name that begins with .wh.
root-is-file|the root must be a directory
proc-link|mount target proc is a symbolic link
etc-replaced|mount target etc is a symbolic link
deep|directories deep
long-name|more than 255 bytes
END
    [[ ! -e /tmp/pinfold-evil ]]
    # Whiteouts below links that lead out take nothing away there.
    for kind in through-link through-up; do
        layouts "layer-whiteout-$kind"
        import "$kind" >/dev/null
    done
    is "$(</tmp/pinfold-kept)" kept
    rm /tmp/pinfold-kept
}

@test "what a layer may unpack to is bounded by its size" {
    layouts bomb
    apart import bomb '' --max-bytes 1G --max-ratio 50
    is "$status" 1
    has "$err" "the layer unpacks to more than a layer of its size may have"
    is_tidy ""
    import bomb '' --max-bytes 1G --max-ratio 2000 >/dev/null
    is "$(du -s --apparent-size -B 1M "$IMAGES/bomb/rootfs" | cut -f 1)" 97
}

@test "what can be changed meanwhile is copied before it is looked at" {
    layouts large
    blobs=$LAYOUT/blobs/sha256
    # Somebody swaps the bytes of each layer all the time: either a digest is wrong, or all is well.
    (while :; do for f in "$blobs"/*; do printf X | dd of="$f" bs=1 seek=900 conv=notrunc status=none
        done; done) 3>&- &
    pid=$!
    apart import swapped
    kill "$pid"
    wait "$pid" 2>/dev/null || true
    if [[ $status -eq 0 ]]; then
        is "$(find "$IMAGES/swapped/rootfs" -name 'big*' -size 1M | wc -l)" 4
    else
        has "$err" "is refused: its digest is"
        is_tidy ""
    fi
}

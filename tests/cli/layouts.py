#!/usr/bin/python3
"""Makes images of layers, sound and hostile: OCI layouts (directories, tars) and docker save's.

Usage: layouts.py KIND PATH        PATH becomes a directory, or a tar where KIND begins with "tar-"
                                   or "saved"
       layouts.py --tree DIR       prints what is in a directory, for comparison
"""

import copy
import gzip
import hashlib
import io
import json
import os
import platform
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile

MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
OCI = "application/vnd.oci.image."


def member(name, kind=tarfile.REGTYPE, data=b"", link="", mode=0o644, **more):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode, info.size = kind, link, mode, len(data)
    info.mtime = 1700000000
    for key, value in more.items():
        setattr(info, key, value)
    return info, data


def directory(name, mode=0o755):
    return member(name, tarfile.DIRTYPE, mode=mode)


def symlink(name, target):
    return member(name, tarfile.SYMTYPE, link=target)


def hardlink(name, target):
    return member(name, tarfile.LNKTYPE, link=target)


def gone(name):
    head, tail = os.path.split(name)
    return member(os.path.join(head, ".wh." + tail))


def opaque(name):
    return member(name + "/.wh..wh..opq")


def tar(members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def digest(data):
    return hashlib.sha256(data).hexdigest()


def pack(data, how):
    if how == "zstd":
        return subprocess.run(["zstd", "-q", "-c"], input=data, stdout=subprocess.PIPE,
                              check=True).stdout
    return gzip.compress(data, mtime=0) if how == "gzip" else data


class Image:
    """One image: what its documents say can be bent by `bend`."""

    def __init__(self, layers, how="gzip", machine=MACHINE, system="linux", bend=None):
        self.blobs = {}
        plain = [tar(one) if isinstance(one, list) else one for one in layers]
        packed = [pack(one, how) for one in plain]
        config = {"os": system, "architecture": machine, "config": {"Env": ["A=b"]},
                  "rootfs": {"type": "layers", "diff_ids": ["sha256:" + digest(p) for p in plain]}}
        suffix = {"gzip": "+gzip", "zstd": "+zstd", None: ""}[how]
        manifest = {"schemaVersion": 2, "mediaType": OCI + "manifest.v1+json",
                    "layers": [self.blob(p, OCI + "layer.v1.tar" + suffix) for p in packed]}
        if bend:
            bend(self, manifest, config)
        self.config = json.dumps(config).encode()
        manifest.setdefault("config", self.blob(self.config, OCI + "config.v1+json"))
        self.machine, self.system, self.plain = machine, system, plain
        self.manifest = self.blob(json.dumps(manifest).encode(), OCI + "manifest.v1+json")

    def blob(self, data, kind):
        self.blobs[digest(data)] = data
        return {"mediaType": kind, "digest": "sha256:" + digest(data), "size": len(data)}

    def entry(self, tag=None, named=False):
        one = copy.deepcopy(self.manifest)
        if named:
            one["platform"] = {"os": self.system, "architecture": self.machine}
        if tag:
            one["annotations"] = {"org.opencontainers.image.ref.name": tag}
        return one


def layout(path, blobs, entries, bend=None):
    os.makedirs(os.path.join(path, "blobs", "sha256"))
    index = {"schemaVersion": 2, "mediaType": OCI + "index.v1+json", "manifests": entries}
    for name, data in blobs.items():
        with open(os.path.join(path, "blobs", "sha256", name), "wb") as out:
            out.write(data)
    text = json.dumps(index).encode() if not isinstance(entries, bytes) else entries
    for name, data in (("index.json", text), ("oci-layout", b'{"imageLayoutVersion":"1.0.0"}')):
        with open(os.path.join(path, name), "wb") as out:
            out.write(data)
    if bend:
        bend(path)


def simple(path, layers, **more):
    image = Image(layers, **more)
    layout(path, image.blobs, [image.entry()])


BASE = [directory("bin"), member("bin/tool", data=b"#!/bin/sh\n", mode=0o4755, uid=7, gid=8),
        hardlink("bin/again", "bin/tool"), symlink("bin/link", "tool"),
        directory("etc"), member("etc/gone", data=b"1"), member("etc/kept", data=b"2", mode=0o600),
        directory("d"), member("d/low", data=b"low"), directory("d/sub"),
        member("d/sub/low", data=b"low"), member("changes", data=b"first"),
        symlink("was-link", "etc"), directory("was-dir"), member("was-dir/x", data=b"x"),
        member("was-file", data=b"x"), directory("tree"), directory("tree/a"),
        member("tree/a/b", data=b"x"), member("h", data=b"linked"), hardlink("h2", "h"),
        directory("dev"), member("dev/null", tarfile.CHRTYPE, devmajor=1, devminor=3)]
NEXT = [gone("etc/gone"), gone("tree"), gone("never-there"), gone("nowhere/never"),
        directory("d"), member("d/high", data=b"high"), opaque("d"),
        directory("d/sub"), member("d/sub/high", data=b"high"),
        member("changes", data=b"second!"), directory("was-link"),
        member("was-link/in", data=b"in"), member("was-dir", data=b"a file now"),
        directory("was-file"), member("was-file/in", data=b"in"), opaque("was-file"),
        hardlink("linked-below", "h"), member("h2", data=b"alone"),
        member(".wh..wh.plnk"), directory("same"), member("same/new", data=b"new"),
        gone("same/old"), directory("./usr/"), directory("usr")]
LAST = [gone("d/high"), directory("tree"), member("tree/back", data=b"back")]


def mixed(path):
    """Several machines, several tags, an index in the index, an attestation."""
    ours = Image([BASE, NEXT, LAST])
    other = Image([[member("other", data=b"x")]], machine="s390x" if MACHINE != "s390x" else "arm64")
    second = Image([[member("second", data=b"x")]])
    blobs = {**ours.blobs, **other.blobs, **second.blobs}
    inner = json.dumps({"schemaVersion": 2, "manifests": [
        other.entry(named=True), ours.entry(named=True),
        {"mediaType": OCI + "manifest.v1+json", "digest": "sha256:" + "0" * 64, "size": 1,
         "platform": {"os": "unknown", "architecture": "unknown"}}]}).encode()
    blobs[digest(inner)] = inner
    entry = {"mediaType": OCI + "index.v1+json", "digest": "sha256:" + digest(inner),
             "size": len(inner),
             "annotations": {"org.opencontainers.image.ref.name": "registry.test/team/py:3.11"}}
    layout(path, blobs, [entry, second.entry(tag="second", named=True)])


def saved(path, image, tags, links=False):
    """As docker save writes it (before version 25)."""
    with tarfile.open(path, "w") as out:
        names, first = [], {}
        for data in image.plain:
            name = digest(data + b"%d" % len(names))
            names.append(name + "/layer.tar")
            out.addfile(*[(i, io.BytesIO(d)) for i, d in [directory(name)]][0])
            if links and data in first:
                info = symlink(names[-1], "../" + first[data])[0]
                out.addfile(info)
            else:
                info, _ = member(names[-1], data=data)
                out.addfile(info, io.BytesIO(data))
            first.setdefault(data, names[-1])
        config = digest(image.config) + ".json"
        info, _ = member(config, data=image.config)
        out.addfile(info, io.BytesIO(image.config))
        text = json.dumps([{"Config": config, "RepoTags": tags, "Layers": names}]).encode()
        info, _ = member("manifest.json", data=text)
        out.addfile(info, io.BytesIO(text))


def bend_manifest(key, value):
    def bend(_image, manifest, _config):
        manifest[key] = value(manifest[key]) if callable(value) else value
    return bend


def bend_layer(key, value):
    def bend(_image, manifest, _config):
        manifest["layers"][0][key] = value
    return bend


def bend_config(key, value):
    def bend(_image, _manifest, config):
        config[key] = value
    return bend


def spoil(path):
    """Changes one byte of the layer; its length stays."""
    blobs = os.path.join(path, "blobs", "sha256")
    name = max(os.listdir(blobs), key=lambda n: os.path.getsize(os.path.join(blobs, n)))
    with open(os.path.join(blobs, name), "r+b") as out:
        out.seek(-9, os.SEEK_END)
        byte = out.read(1)
        out.seek(-9, os.SEEK_END)
        out.write(bytes([byte[0] ^ 1]))


def cut(path):
    blobs = os.path.join(path, "blobs", "sha256")
    name = max(os.listdir(blobs), key=lambda n: os.path.getsize(os.path.join(blobs, n)))
    os.truncate(os.path.join(blobs, name), os.path.getsize(os.path.join(blobs, name)) - 1)


def through_link(path):
    """The blobs are a link to what lies outside."""
    os.rename(os.path.join(path, "blobs"), path + ".blobs")
    os.symlink(path + ".blobs", os.path.join(path, "blobs"))


LOW = [directory("etc"), member("etc/low", data=b"low"), symlink("out", "/tmp"),
       symlink("up", ".."), member("f", data=b"f"), symlink("far", "etc/../../../tmp"),
       symlink("loop", "pool"), symlink("pool", "loop"), symlink("via", "hop/in"),
       symlink("merged", "etc"), symlink("to-file", "f")]

# Hostile layers on top of LOW.
LAYERS = {
    "absolute": [member("/etc/evil", data=b"x")],
    "dotdot": [member("a/../../evil", data=b"x")],
    "through-link-up": [member("up/pinfold-evil", data=b"x")],
    "through-link-far": [member("far/pinfold-evil", data=b"x")],
    "through-loop": [member("loop/pinfold-evil", data=b"x")],
    "through-both": [symlink("hop", "/tmp"), member("via/pinfold-evil", data=b"x")],
    "through-link-to-file": [member("to-file/pinfold-evil", data=b"x")],
    "twice-by-link": [member("etc/a", data=b"1"), member("merged/a", data=b"2")],
    "dotdot-behind-link": [member("merged/../evil", data=b"x")],
    "through-own-link": [symlink("l", "/tmp"), member("l/pinfold-evil", data=b"x")],
    "through-file": [member("f/x", data=b"x")],
    "through-own-file": [member("g", data=b"x"), member("g/x", data=b"x")],
    "twice": [member("a", data=b"1"), member("a", data=b"2")],
    "twice-link": [symlink("a", "/etc"), directory("a")],
    "twice-dir-file": [directory("a"), member("a", data=b"2")],
    "twice-above": [member("a/b", data=b"1"), symlink("a", "/tmp")],
    "twice-spelled": [member("a", data=b"1"), member("./a", data=b"2")],
    "hardlink-outside": [hardlink("s", "/etc/shadow")],
    "hardlink-up": [hardlink("s", "../../../../etc/shadow")],
    "hardlink-through-link": [hardlink("s", "out/shadow")],
    "hardlink-whiteouted": [gone("f"), hardlink("again", "f")],
    "hardlink-whiteouted-later": [hardlink("again", "f"), gone("f")],
    "hardlink-opaque": [hardlink("again", "etc/low"), opaque("etc")],
    "hardlink-displaced": [hardlink("etc", "etc/low")],
    "hardlink-self": [hardlink("f", "f")],
    "hardlink-dir": [hardlink("again", "etc")],
    "hardlink-to-whiteout": [gone("f"), hardlink("again", ".wh.f")],
    "device": [member("etc/sda", tarfile.BLKTYPE, devmajor=8, devminor=0)],
    "overlay-whiteout": [member("f", tarfile.CHRTYPE, devmajor=0, devminor=0)],
    "fifo": [member("etc/p", tarfile.FIFOTYPE)],
    "whiteout-dotdot": [member("etc/.wh...")],
    "whiteout-dot": [member("etc/.wh..")],
    "whiteout-nothing": [member("etc/.wh.")],
    "whiteout-climbs": [member("etc/../../.wh.x")],
    "whiteout-absolute": [member("/etc/.wh.passwd")],
    "whiteout-in-whiteout": [member(".wh.etc/.wh.low")],
    "whiteout-of-whiteout": [member("etc/.wh..wh.x/y", data=b"x")],
    "below-whiteout": [member(".wh.etc/evil", data=b"x")],
    "root-is-file": [member(".", data=b"x")],
    "proc-link": [symlink("proc", "/")],
    "etc-replaced": [symlink("etc", "/tmp")],
    "deep": [member("/".join(["d"] * 200), data=b"x")],
    "long-name": [member("b" * 256, data=b"x")],
}

# What is put below links of the layer below: as it is in images whose /bin leads to /usr/bin.
MERGED = [
    [directory("usr/bin"), member("usr/bin/old", data=b"old"), symlink("bin", "usr/bin"),
     symlink("sbin", "/usr/sbin"), symlink("lib", "usr/lib"), symlink("usr/lib", "../opt/lib"),
     symlink("out", "/tmp"), symlink("conf.d", "usr/../opt/./conf"), symlink("gone", "bin")],
    [member("bin/new", data=b"new"), member("sbin/tool", data=b"tool"), directory("lib/deep"),
     member("lib/deep/so", data=b"so"), member("bin/old", data=b"newer"), hardlink("again", "bin/new"),
     symlink("bin/link", "old"), member("out/pinfold-evil", data=b"inside"),
     member("conf.d/conf", data=b"conf"), directory("gone"), member("gone/own", data=b"own")],
]

# Whiteouts that must not reach out of the tree, and must not be refused either.
HARMLESS = {
    "whiteout-through-link": [member("out/.wh.pinfold-kept"), opaque("out"), member("x", data=b"x")],
    "whiteout-through-up": [member("up/.wh.pinfold-kept"), opaque("up"), member("x", data=b"x")],
}


def sound(how="gzip"):
    return lambda path: simple(path, [BASE, NEXT, LAST], how=how)


def one(**more):
    return lambda path: simple(path, [[member("a", data=b"x" * 5000)]], **more)


def bent(bend):
    def make(path):
        image = Image([[member("a", data=os.urandom(5000))]])
        layout(path, image.blobs, [image.entry()], bend)
    return make


def entries(change):
    def make(path):
        image = Image([[member("a", data=b"x")]])
        layout(path, image.blobs, change(image))
    return make


def nested(path):
    image = Image([[member("a", data=b"x")]])
    here = image.entry()
    for _ in range(6):
        text = json.dumps({"schemaVersion": 2, "manifests": [here]}).encode()
        image.blobs[digest(text)] = text
        here = {"mediaType": OCI + "index.v1+json", "digest": "sha256:" + digest(text),
                "size": len(text)}
    layout(path, image.blobs, [here])


def many(path):
    simple(path, [[member("f%d" % i) for i in range(900)], [member("g%d" % i) for i in range(900)]])


def large(path):
    simple(path, [[member("big%d" % i, data=os.urandom(1 << 20))] for i in range(4)])


def bomb(path):
    simple(path, [[member("zero%d" % i, data=b"\0" * (8 << 20)) for i in range(12)]])


KINDS = {
    "merged": lambda p: simple(p, MERGED),
    "sound": sound(), "plain": sound(None), "zstd": sound("zstd"), "mixed": mixed,
    "saved": lambda p: saved(p, Image([BASE, NEXT, LAST], how=None), ["team/py:3", "py:latest"]),
    "saved-links": lambda p: saved(p, Image([BASE, NEXT, LAST, LAST], how=None), ["x:1"], True),
    "saved-wrong": lambda p: saved(p, Image([BASE], how=None, bend=bend_config(
        "rootfs", {"type": "layers", "diff_ids": ["sha256:" + "1" * 64]})), ["x:1"]),
    "digest": bent(spoil), "short": bent(cut), "blobs-link": bent(through_link),
    "no-index": bent(lambda p: os.unlink(os.path.join(p, "index.json"))),
    "blob-missing": bent(lambda p: [os.unlink(os.path.join(p, "blobs", "sha256", n))
                                    for n in os.listdir(os.path.join(p, "blobs", "sha256"))]),
    "index-not-json": entries(lambda _: b"{"),
    "index-list": entries(lambda _: b"[]"),
    "index-empty": entries(lambda _: []),
    "index-twice": entries(lambda _: b'{"schemaVersion":2,"manifests":[],"manifests":[]}'),
    "index-deep": entries(lambda _: b'{"schemaVersion":2,"manifests":' + b"[" * 100000),
    "index-many": entries(lambda i: [i.entry()] * 300),
    "sha512": entries(lambda i: [dict(i.entry(), digest="sha512:" + "0" * 128)]),
    "digest-path": entries(lambda i: [dict(i.entry(), digest="sha256:../../../../etc/shadow")]),
    "size-negative": entries(lambda i: [dict(i.entry(), size=-1)]),
    "size-wrong": entries(lambda i: [dict(i.entry(), size=7)]),
    "size-huge": entries(lambda i: [dict(i.entry(), size=1 << 60)]),
    "nested": nested,
    "machine": one(machine="s390x" if MACHINE != "s390x" else "arm64"),
    "windows": one(system="windows"),
    "layer-kind": one(bend=bend_layer("mediaType", "application/vnd.oci.image.layer."
                                                   "nondistributable.v1.tar+gzip")),
    "layer-encrypted": one(bend=bend_layer("mediaType", OCI + "layer.v1.tar+gzip+encrypted")),
    "layer-count": one(bend=bend_manifest("layers", lambda l: l + l)),
    "layer-none": one(bend=bend_manifest("layers", [])),
    "layer-many": one(bend=bend_manifest("layers", lambda l: l * 300)),
    "artifact": one(bend=lambda image, manifest, _: manifest.update(
        config=image.blob(b"{}", "application/vnd.oci.empty.v1+json"))),
    "config-empty": one(bend=bend_config("rootfs", {})),
    "layer-no-tar": lambda p: simple(p, [b"this is no tar" * 1000]),
    "layer-cut": lambda p: simple(p, [tar([member("a", data=os.urandom(50000))])[:30000]]),
    "many": many, "large": large, "bomb": bomb,
}
for _name, _layer in {**LAYERS, **HARMLESS}.items():
    KINDS["layer-" + _name] = (lambda layer: lambda p: simple(p, [LOW, layer]))(_layer)


def tree(path):
    for at, dirs, files in sorted(os.walk(path)):
        for name in sorted(dirs + files):
            full = os.path.join(at, name)
            seen = os.lstat(full)
            more = ""
            if stat.S_ISLNK(seen.st_mode):
                more = os.readlink(full)
            elif stat.S_ISREG(seen.st_mode):
                with open(full, "rb") as file:
                    more = "%d %r" % (seen.st_nlink, file.read(40))
            print(os.path.relpath(full, path), "%o" % seen.st_mode, seen.st_uid, more)


def main():
    kind, path = sys.argv[1:]
    if kind == "--tree":
        tree(path)
    elif kind == "--kinds":
        print("\n".join(path + name for name in {**LAYERS}))
    elif kind.startswith("tar-"):
        work = tempfile.mkdtemp()
        KINDS[kind[4:]](os.path.join(work, "layout"))
        with tarfile.open(path, "w") as out:
            for name in sorted(os.listdir(os.path.join(work, "layout"))):
                out.add(os.path.join(work, "layout", name), name)
        shutil.rmtree(work)
    else:
        KINDS[kind](path)


if __name__ == "__main__":
    main()

#!/usr/bin/python3
"""Makes archives of root file systems, sound and hostile.

Usage: tars.py KIND FILE
"""

import io
import os
import struct
import sys
import tarfile


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


SOUND = [
    directory("./"), directory("./bin/"), member("./bin/tool", data=b"#!/bin/sh\n", mode=0o4755,
                                                 uid=1234, gid=5678),
    hardlink("./bin/again", "./bin/tool"), symlink("bin/link", "/bin/tool"),
    directory("etc"), member("etc/passwd", data=b"root:x:0:0::/root:/bin/sh\nuser:x:7:7::/:/x"),
    symlink("etc/resolv.conf", "../run/resolv.conf"), symlink("etc/hostname", "/etc/shadow"),
    directory("dev"), member("dev/null", tarfile.CHRTYPE, devmajor=1, devminor=3),
    member("dev/initctl", tarfile.FIFOTYPE), member("deep/er/file", data=b"x" * 100000),
    directory("closed", 0o000), member("closed/in", data=b"1", mode=0o000),
    member("name\u00e9\n", data=b"u"), member("a" * 255, data=b"long"),
]

KINDS = {
    "sound": SOUND,
    "absolute": [member("/etc/evil", data=b"x")],
    "dotdot": [directory("a"), member("a/../../evil", data=b"x")],
    "dotdot-end": [directory("a/..")],
    "through-link": [symlink("out", "/tmp"), member("out/pinfold-evil", data=b"x")],
    "through-relative-link": [directory("d"), symlink("out", "d"), member("out/evil", data=b"x")],
    "through-file": [member("f", data=b"x"), member("f/below", data=b"x")],
    "dir-over-link": [symlink("out", "/tmp"), directory("out"), member("out/evil", data=b"x")],
    "file-over-dir": [directory("a"), member("a", data=b"x")],
    "link-over-file": [member("a", data=b"x"), symlink("a", "/etc/passwd")],
    "file-over-link": [symlink("a", "/etc/passwd"), member("a", data=b"x")],
    "hardlink-outside": [hardlink("shadow", "/etc/shadow")],
    "hardlink-dotdot": [hardlink("shadow", "../../../../etc/shadow")],
    "hardlink-through-link": [symlink("e", "/etc"), hardlink("shadow", "e/shadow")],
    "hardlink-missing": [hardlink("a", "b")],
    "hardlink-dir": [directory("d"), hardlink("a", "d")],
    "device": [member("disk", tarfile.BLKTYPE, devmajor=8, devminor=0)],
    "char-device": [member("mem", tarfile.CHRTYPE, devmajor=1, devminor=1)],
    "fifo": [member("pipe", tarfile.FIFOTYPE)],
    "root-is-file": [member(".", data=b"x")],
    "long-name": [member("b" * 256, data=b"x")],
    "long-path": [member("/".join(["c" * 200] * 21), data=b"x")],
    "deep": [member("/".join(["d"] * 200), data=b"x")],
    "empty": [],
    "proc-link": [symlink("proc", "/"), member("x", data=b"x")],
    "tmp-file": [member("tmp", data=b"x")],
    "home-link": [symlink("home", "/root"), member("x", data=b"x")],
    "home-user-link": [directory("home"), symlink("home/user", "/root")],
    "var-tmp-link": [directory("var"), symlink("var/tmp", "../tmp")],
    "etc-link": [symlink("etc", "/etc"), member("x", data=b"x")],
    "etc-hosts-dir": [directory("etc"), directory("etc/hosts")],
    "workspace-file": [member("workspace", data=b"x")],
    "many": [member("f%d" % i) for i in range(2000)],
    "large": [member("big%d" % i, data=b"\0" * (1 << 20)) for i in range(40)],
    "duplicate-file": [member("a", data=b"first"), hardlink("b", "a"), member("a", data=b"second")],
    "escape-name": [member("\x1b[31m/../x", data=b"x")],
}


def sparse_giant(path):
    """A GNU sparse file: 100 TB of holes in a few hundred bytes."""
    info, _ = member("giant")
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[156:157] = b"S"
    size = 100 << 40

    def number(value):
        return b"\x80" + value.to_bytes(11, "big")

    header[386:398], header[398:410] = number(size - 1), number(1)
    header[124:136] = b"%011o\0" % 1
    header[483:495] = number(size)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    with open(path, "wb") as out:
        out.write(bytes(header) + b"x" + b"\0" * 511 + b"\0" * 1024)


def xattrs(path):
    """Capabilities on a file, as pax records."""
    caps = struct.pack("<5I", 0x02000001, 0xffffffff, 0, 0, 0)
    info, data = member("ping", data=b"x", mode=0o755)
    info.pax_headers = {"SCHILY.xattr.security.capability": caps.decode("latin-1")}
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(info, io.BytesIO(data))


def write(members, path, mode="w"):
    with tarfile.open(path, mode, format=tarfile.GNU_FORMAT) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))


def main():
    kind, path = sys.argv[1:]
    if kind == "sparse-giant":
        sparse_giant(path)
    elif kind == "xattrs":
        xattrs(path)
    elif kind == "garbage":
        with open(path, "wb") as out:
            out.write(bytes((i * 7919 >> 3) & 255 for i in range(10000)))
    elif kind == "truncated":
        write(KINDS["large"], path)
        os.truncate(path, 3000000)
    elif kind == "bomb":
        write(KINDS["large"], path, "w:gz")
    elif kind in ("gz", "xz", "bz2"):
        write(SOUND, path, "w:" + kind)
    else:
        write(KINDS[kind], path)


main()

"""Archives of a sandbox up and down: what they hold, and what a hostile one may not do."""

import io
import os
import tarfile
import tempfile

import canary
import check
from box import MIB, Box, make_tar, member, status
from canary import Canaries
from check import Stopwatch
from suite import table, test


@test("an archive holds types, modes, links, times and contents, and goes back the same")
def _(pair):
    with Box.make(pair.client) as box, Box.make(pair.client) as other:
        check.ok(box.sh("mkdir -p t/d; echo one > t/f; chmod 750 t/f; ln t/f t/d/hard; ln -s ../f "
                        "t/d/l; mkdir -m 700 t/closed; mkfifo t/p; touch -d @1000000000 t/d/old; "
                        "printf x > \"t/$(printf 'n\\nl')\"; head -c 3000000 /dev/urandom > t/big; "
                        "truncate -s 50M t/sparse; mkdir t/%s" % ("n" * 200)))
        answer = status(box.download("/workspace/t"), 200)
        check.holds(answer.headers["content-type"], "tar", "Content-Type")
        with tarfile.open(fileobj=io.BytesIO(answer.body)) as tar:
            seen = {os.path.normpath(m.name): m for m in tar.getmembers()}
            check.equal(seen["f"].mode & 0o7777, 0o750, "mode of f")
            check.true(seen["d/l"].issym() and seen["d/l"].linkname == "../f", "d/l")
            check.true(seen["d/hard"].islnk() or seen["f"].islnk() or seen["d/hard"].isreg(),
                       "d/hard: %r", seen["d/hard"])
            check.equal(seen["d/old"].mtime, 1000000000, "mtime of d/old")
            check.equal(tar.extractfile(seen["f"]).read(), b"one\n", "f")
            check.true("n\nl" in seen and "n" * 200 in seen, "names: %s", list(seen)[:20])
        wanted = box.text("cd t; find . -mindepth 1 ! -name p -printf '%p %y %m %l\\n' | sort; "
                          "find . -type f -print0 | sort -z | xargs -0 cat | sha256sum")
        status(other.upload("/workspace/t", answer.body), 200, 201, 204)
        seen = other.text("cd t; find . -mindepth 1 ! -name p -printf '%p %y %m %l\\n' | sort; "
                          "find . -type f -print0 | sort -z | xargs -0 cat | sha256sum")
        check.equal(seen, wanted, "the tree after up and down")


@test("an archive of one file, of an empty directory, of nothing")
def _(pair):
    with Box.make(pair.client) as box:
        box.put("/workspace/f", b"one")
        with box.tar("/workspace/f") as tar:
            files = [m for m in tar.getmembers() if m.isfile()]
            check.equal([tar.extractfile(m).read() for m in files], [b"one"], "contents")
        check.ok(box.sh("mkdir e"))
        with box.tar("/workspace/e") as tar:
            check.true(all(m.isdir() for m in tar.getmembers()), "members: %s", tar.getnames())
        check.error(box.download("/workspace/nosuch"), 404)
        check.error(pair.client.get(box.archive("/workspace") + "?format=rar"), 400)


ESCAPES = [
    ("a name with ..", lambda d: make_tar(("../../up", b"evil"), ("ok", b"x"))),
    ("an absolute name", lambda d: make_tar((d + "/abs", b"evil"), ("ok", b"x"))),
    ("a link out and a file behind it",
     lambda d: make_tar((member("l", tarfile.SYMTYPE, linkname=d), None), ("l/through", b"evil"),
                        ("ok", b"x"))),
    ("a link up and a file behind it",
     lambda d: make_tar((member("l", tarfile.SYMTYPE, linkname="../../../.."), None),
                        ("l" + d + "/through", b"evil"), ("ok", b"x"))),
    ("a hard link to a host file",
     lambda d: make_tar((member("h", tarfile.LNKTYPE, linkname=d + "/f"), None), ("ok", b"x"))),
    ("a hard link up", lambda d: make_tar((member("h", tarfile.LNKTYPE,
                                                  linkname="../../../.." + d + "/f"), None),
                                          ("ok", b"x"))),
    ("a link that a later file replaces",
     lambda d: make_tar((member("x", tarfile.SYMTYPE, linkname=d + "/f"), None), ("x", b"evil"))),
    ("a directory that a link replaces",
     lambda d: make_tar((member("q", tarfile.DIRTYPE, mode=0o755), None),
                        (member("q", tarfile.SYMTYPE, linkname=d), None), ("q/through", b"evil"))),
    ("a device", lambda d: make_tar((member("dev", tarfile.BLKTYPE, devmajor=8, devminor=0), None),
                                    ("ok", b"x"))),
    ("a character device", lambda d: make_tar((member("mem", tarfile.CHRTYPE, devmajor=1,
                                                      devminor=1), None), ("ok", b"x"))),
    ("a set-uid file of root", lambda d: make_tar((member("s", mode=0o6755, uid=0, gid=0), b"x"))),
    ("an overlay whiteout", lambda d: make_tar((member(".wh.f", mode=0o644), b""), ("ok", b"x"))),
    ("extended attributes", lambda d: make_tar(
        (member("a", pax_headers={"SCHILY.xattr.trusted.overlay.opaque": "y",
                                  "SCHILY.xattr.security.capability": "x"}), b"x"))),
]


def escape(pair, build):
    """It is refused, or lands inside; nothing outside changes."""
    with tempfile.TemporaryDirectory(prefix="pinfold-precious-") as precious:
        os.chmod(precious, 0o777)
        with open(os.path.join(precious, "f"), "w") as out:
            out.write("precious")
        os.chmod(os.path.join(precious, "f"), 0o666)
        with Box.make(pair.client) as box:
            answer = box.upload("/workspace/in", build(precious))
            check.member(answer.status, (200, 201, 204, 400, 403, 409, 422), "status")
            seen = box.text("find /workspace -printf '%p %y %M %u\\n' | sort")
            for line in seen.splitlines():
                if len(line.split()) == 4:
                    _, kind, mode, owner = line.split()
                    check.equal(owner, "user", "owner of %s" % line)
                    check.true(kind not in "bc" and "s" not in mode.lower(), "line: %s", line)
            check.equal(box.text("ls -A / | tr '\\n' ' '; test -e %s && echo there || echo no"
                                 % precious).split()[-1], "no", "the host's directory inside")
            check.equal(box.names("/workspace"), ["in"] if "in" in seen else [], "files above")
            check.equal(box.text("echo on"), "on\n", "afterwards")
        check.equal(os.listdir(precious), ["f"], "files")
        with open(os.path.join(precious, "f")) as file:
            check.equal(file.read(), "precious", "the host's file")


table([("a tar with %s stays inside" % row[0], "94, 103, 105, 110") + row[1:] for row in ESCAPES],
      escape)


def cut_tar():
    return make_tar(("a", b"x" * 100000), ("b", b"y" * 100000))[:120000]


BROKEN = [("garbage", os.urandom(20000)), ("one cut in a file", cut_tar()),
          ("a wrong checksum", bytes([7]) + make_tar(("a", b"x"))[1:]),
          ("a size of 8 EiB", make_tar(("a", b"x")).replace(b"00000000001\0", b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", 1)),
          ("an endless name", make_tar((member("L", b"L"), b"n" * (3 * MIB))))]


def broken(pair, data):
    with Box.make(pair.client) as box:
        watch = Stopwatch()
        check.error(box.upload("/workspace/in", data), (400, 413, 422))
        watch.below(3, "the answer")
        check.equal(box.text("echo on"), "on\n", "afterwards")
        status(box.upload("/workspace/in", make_tar(("good", b"x"))), 200, 201, 204)
        check.equal(box.content("/workspace/in/good"), b"x", "a good one")


table([("a tar that is %s is refused" % row[0], 114) + row[1:] for row in BROKEN], broken)


@test("planted links do not catch what an archive unpacks", case="105, 109")
def _(pair):
    with Box.make(pair.client) as box:
        check.ok(box.sh("mkdir in; ln -s %s in/dir; ln -s %s in/file; ln -s /workspace/other in/own;"
                        " mkdir other" % (Canaries.directory, Canaries.open_file)))
        answer = box.upload("/workspace/in", make_tar(("dir/new", b"evil"), ("file", b"evil"),
                                                      ("own/new", b"x")))
        check.member(answer.status, (200, 201, 204, 400, 403, 409), "status")
        check.equal(canary.problems(), [], "canaries")


@test("an archive that does not fit is 507 and the sandbox goes on", case="20, 22")
def _(pair):
    with Box.make(pair.client, limits={"disk_bytes": 8 * MIB, "inodes": 500}) as box:
        check.error(box.upload("/workspace/in", make_tar(("a", b"x" * (12 * MIB)))), (413, 507))
        many = make_tar(*[("f%d" % i, b"") for i in range(800)])
        check.error(box.upload("/workspace/many", many), (413, 507))
        box.remove("/workspace/in", recursive=True)
        box.remove("/workspace/many", recursive=True)
        box.put("/workspace/f", b"x")


@test("ten thousand files go up and down", case=120, deadline=40)
def _(pair):
    data = make_tar(*[("d%d/f%d" % (i % 100, i), b"%d" % i) for i in range(10000)])
    with Box.make(pair.client) as box:
        before = pair.memory()
        watch = Stopwatch()
        status(box.upload("/workspace/in", data), 200, 201, 204)
        check.equal(box.text("find in -type f | wc -l; cat in/d99/f9999"), "10000\n9999", "files")
        with box.tar("/workspace/in") as tar:
            check.equal(len([m for m in tar if m.isfile()]), 10000, "files in the archive")
        watch.below(15, "up and down")
        check.true(pair.memory() - before < 32 << 20, "the server grew by %d",
                   pair.memory() - before)


@test("an archive of a sparse giant is refused or sparse, never an endless stream", case=112,
      deadline=30)
def _(pair):
    with Box.make(pair.client) as box:
        check.ok(box.sh("truncate -s 300G s 2>/dev/null || truncate -s 400M s; echo x > f"))
        one = pair.client.connection(5)
        one.request("GET", box.archive("/workspace") + "?format=tar", headers=pair.client.headers())
        answer = one.getresponse()
        check.member(answer.status, (200, 413), "status")
        count, watch = 0, Stopwatch()
        try:
            while count < 600 * MIB and watch.seconds() < 8:
                part = answer.read(MIB)
                if not part:
                    break
                count += len(part)
        except Exception:
            pass  # cut: an error in the middle
        one.close()
        check.true(count <= 512 * MIB, "%d bytes and no end", count)
        check.equal(box.text("echo on"), "on\n", "afterwards")


@test("a file that changes, shrinks or vanishes spoils no archive", case=113, deadline=30)
def _(pair):
    with Box.make(pair.client) as box:
        ex = box.start(sh="mkdir t; cd t; while :; do head -c 300000 /dev/zero > a; : > a; rm -f b; "
                          "echo x > b; mkdir -p c/d; rm -r c; done",
                       limits={"wall_ms": 25000, "cpu_ms": 25000})
        check.eventually(lambda: box.listing("/workspace/t").status == 200, 3, "t")
        whole = 0
        for _ in range(10):
            one = pair.client.connection(5)
            try:
                one.request("GET", box.archive("/workspace/t") + "?format=tar",
                            headers=pair.client.headers())
                data = one.getresponse().read()
                with tarfile.open(fileobj=io.BytesIO(data)) as tar:
                    tar.getmembers()
                whole += 1
            except Exception:
                pass  # a cut connection says that it is not whole
            finally:
                one.close()
        check.equal(box.get()["state"], "ready", "state")
        box.cancel(ex)

"""Workspace transfer: manifests, blobs, all or nothing, and what has changed since."""

import base64
import os
import time

import canary
import check
from box import MIB, Box, blob, create, file_entry, forget, rows, sha256, status
from canary import Canaries
from check import Stopwatch
from client import nonce, parallel
from suite import table, test


def missing(answer):
    return status(answer, 200).json()["missing"]


def transfer(box, files, others=(), delete=False, root="/workspace"):
    """Sends a whole workspace: {path: bytes} and further entries -> the last answer."""
    entries = [file_entry(path, data) for path, data in files.items()] + list(others)
    wanted = missing(box.sync(entries, root=root, delete=delete))
    contents = {sha256(data): data for data in files.values()}
    for name in wanted:
        status(blob(box.client, contents[name]), 200, 201, 204)
    answer = box.sync(entries, root=root, delete=delete)
    check.equal(missing(answer), [], "missing after the blobs")
    return answer.json()


def directory(path, mode="0755"):
    return {"path": path, "type": "directory", "mode": mode}


def symlink(path, target):
    return {"path": path, "type": "symlink", "target": target}


LOOK = ("find . -mindepth 1 -printf '%p %y %m %l\\n' | sort; find . -type f | sort | "
        "xargs -d '\\n' -r cat")


@test("only what is missing is asked for, and nothing is changed until all is there")
def _(pair):
    word = nonce().encode()
    files = {"a": word + b"a", "d/b": word + b"b", "d/again": word + b"b"}
    with Box.make(pair.client) as box:
        entries = [file_entry(p, d) for p, d in files.items()] + [directory("e", "0700"),
                                                                  symlink("l", "d/b")]
        first = missing(box.sync(entries))
        check.equal(sorted(first), sorted({sha256(d) for d in files.values()}), "missing")
        check.equal(box.names("/workspace"), [], "files before the blobs are there")
        status(blob(pair.client, files["a"]), 200, 201, 204)
        check.equal(missing(box.sync(entries)), [sha256(files["d/b"])], "missing")
        check.equal(box.names("/workspace"), [], "files when one is there")
        status(blob(pair.client, files["d/b"]), 200, 201, 204)
        check.equal(missing(box.sync(entries)), [], "missing at last")
        check.equal(box.text(LOOK), "./a f 644 \n./d d 755 \n./d/again f 644 \n./d/b f 644 \n"
                    "./e d 700 \n./l l 777 d/b\n" + (files["a"] + files["d/b"] * 2).decode(),
                    "the workspace")
        check.equal(box.text("stat -c %U a d/b d e | sort -u"), "user\n", "owners")
        check.equal(missing(box.sync(entries)), [], "the same again")
        check.equal(box.changes(), {}, "changes after a sync")


@test("contents that another sandbox of mine got are not asked for again, another user's are",
      case=135)
def _(pair):
    data = nonce().encode() * 100
    other = pair.user_client("mallory")
    with Box.make(pair.client) as box, Box.make(pair.client) as second, Box.make(other) as theirs:
        transfer(box, {"f": data})
        check.equal(missing(second.sync([file_entry("g", data)])), [], "missing in mine")
        check.equal(second.content("/workspace/g"), data, "the file")
        check.equal(missing(theirs.sync([file_entry("h", data)])), [sha256(data)],
                    "missing for the other user")
        check.error(other.get("/v1/blobs/" + sha256(data)), 404)
        check.equal(theirs.names("/workspace"), [], "the other's files")
    other.close()


@test("with delete what is not in the manifest goes, without it stays")
def _(pair):
    with Box.make(pair.client) as box:
        transfer(box, {"a": b"a", "d/b": b"b", "d/c": b"c", "k": b"k"})
        check.ok(box.sh("echo x > extra; mkdir -p more/deep; echo y > more/deep/f; chmod 0 more/deep"))
        transfer(box, {"a": b"a2", "k": b"k"}, delete=False)
        check.equal(box.content("/workspace/a"), b"a2", "a")
        check.equal(sorted(box.names("/workspace")), ["a", "d", "extra", "k", "more"], "kept")
        transfer(box, {"a": b"a3", "d/c": b"c"}, delete=True)
        check.equal(box.names("/workspace", depth=9), ["a", "d", "d/c"], "with delete")
        check.equal(box.content("/workspace/a"), b"a3", "a")


@test("a path that changes its kind is replaced: file, directory, link")
def _(pair):
    with Box.make(pair.client) as box:
        transfer(box, {"x": b"file", "y/in": b"dir"}, [symlink("z", "x")])
        transfer(box, {"x/in": b"dir", "z": b"file"}, [symlink("y", "z")], delete=True)
        check.equal(box.text(LOOK), "./x d 755 \n./x/in f 644 \n./y l 777 z\n./z f 644 \ndirfile",
                    "the workspace")


@test("modes are set, also of files that are there")
def _(pair):
    with Box.make(pair.client) as box:
        transfer(box, {"f": b"#!/bin/sh\necho ran\n"})
        entry = file_entry("f", b"#!/bin/sh\necho ran\n", "0755")
        check.equal(missing(box.sync([entry])), [], "missing")
        check.equal(box.text("./f; stat -c %a f"), "ran\n755\n", "use")
        entry["mode"] = "4755"
        answer = box.sync([entry])
        if answer.status == 200:
            check.equal(box.text("stat -c %a f"), "755\n", "set-uid is dropped")
        else:
            check.error(answer, 400)


# All or nothing


def nothing(pair, entries, code, also=None):
    """A sync that fails leaves what was, byte for byte."""
    with Box.make(pair.client, limits={"disk_bytes": 16 * MIB, "inodes": 400}) as box:
        transfer(box, {"a": b"one", "d/b": b"two"}, [symlink("l", "a")])
        if also:
            check.ok(box.sh(also))
        wanted = box.text(LOOK)
        for data in (b"one2", b"x" * (20 * MIB), b"tiny"):
            status(blob(pair.client, data), 200, 201, 204)
        answer = box.sync([file_entry("a", b"one2")] + entries, delete=True)
        check.error(answer, code)
        check.equal(box.text(LOOK), wanted, "the workspace")
        check.equal(box.text("ls -A"), "a\nd\nl\n" if not also else box.text("ls -A"), "leftovers")
        box.put("/workspace/more", b"x")


FAILING = [
    ("a file that does not fit", [file_entry("big", b"x" * (20 * MIB))], (413, 507)),
    ("more files than inodes", [file_entry("m/f%d" % i, b"tiny") for i in range(600)], (413, 507)),
    ("a path that goes up", [file_entry("../up", b"tiny")], 400),
    ("an absolute path", [file_entry("/etc/x", b"tiny")], 400),
    ("a path that goes up inside", [file_entry("d/../../x", b"tiny")], 400),
    ("a name of 256 bytes", [file_entry("n" * 256, b"tiny")], 400),
    ("a NUL in a path", [file_entry("a\0b", b"tiny")], 400),
    ("an empty path", [file_entry("", b"tiny")], 400),
    ("one path twice", [file_entry("t", b"tiny"), file_entry("t", b"one2")], 400),
    ("a file below a file", [file_entry("t", b"tiny"), file_entry("t/u", b"one2")], 400),
    ("a file below a link", [symlink("s", "d"), file_entry("s/u", b"tiny")], 400),
    ("a hash that is none", [dict(file_entry("t", b"tiny"), sha256="xyz")], 400),
    ("a hash in capitals", [dict(file_entry("t", b"tiny"), sha256=sha256(b"tiny").upper())], 400),
    ("no hash", [{"path": "t", "type": "file", "size": 1, "mode": "0644"}], 400),
    ("a size that is wrong", [dict(file_entry("t", b"tiny"), size=5)], (400, 409)),
    ("a negative size", [dict(file_entry("t", b"tiny"), size=-1)], 400),
    ("an unknown type", [{"path": "t", "type": "device"}], 400),
    ("a link without a target", [{"path": "t", "type": "symlink"}], 400),
    ("an unknown field", [dict(file_entry("t", b"tiny"), owner=0)], 400),
    ("a mode that is none", [dict(file_entry("t", b"tiny"), mode="0999")], 400),
]

table([("%s: all or nothing" % row[0], "103, 114") + row[1:] for row in FAILING], nothing,
      deadline=20)


@test("a sync goes round what programs planted meanwhile", case="105, 109", deadline=20)
def _(pair):
    """A directory of the manifest has become a link out: it is replaced or refused, never
    followed."""
    with Box.make(pair.client) as box:
        transfer(box, {"d/f": b"one", "g": b"two"})
        check.ok(box.sh("rm -r d g; ln -s %s d; ln -s %s g" % (Canaries.directory,
                                                              Canaries.open_file)))
        transfer(box, {"d/f": b"one", "g": b"two"})
        check.equal(box.text("cat d/f g; readlink d g | wc -l"), "onetwo0\n", "the workspace")
        check.equal(canary.problems(), [], "canaries")
        ex = box.start(sh="while :; do rm -rf d; ln -s /tmp d; rm -f d; mkdir -p d; done",
                       limits={"wall_ms": 10000, "cpu_ms": 10000})
        for i in range(10):
            data = b"v%d" % i
            status(blob(pair.client, data), 200, 201, 204)
            check.member(box.sync([file_entry("d/f", data), file_entry("h", data)]).status,
                         (200, 409, 500), "status")
        box.cancel(ex)
        check.equal(box.text("ls -A /tmp"), "", "files behind the link")


@test("a root that is not there is made, one outside is refused")
def _(pair):
    with Box.make(pair.client) as box:
        transfer(box, {"f": b"x"}, root="/workspace/sub/dir")
        check.equal(box.content("/workspace/sub/dir/f"), b"x", "the file")
        transfer(box, {"f": b"home"}, root="/home/user/p")
        check.equal(box.text("cat ~/p/f"), "home", "in the home directory")
        for root in ("/etc", "/usr/lib", "relative", "/workspace/../etc", "", "/"):
            check.error(box.sync([file_entry("f", b"x")], root=root), (400, 403, 404, 409))


BAD_SYNC = [("entries as an object", {"entries": {}}, "/entries"),
            ("no entries", {"root": "/workspace"}, "/entries"),
            ("delete as text", {"entries": [], "delete": "yes"}, "/delete"),
            ("an unknown field", {"entries": [], "x": 1}, "/x"),
            ("an entry that is text", {"entries": ["a"]}, "/entries/0")]


def bad_sync(pair, body, field):
    with Box.make(pair.client) as box:
        check.error(pair.client.post(box.path + "/sync", body), 400, field=field)


table([("a sync with %s is refused" % row[0], "127, 128") + row[1:] for row in BAD_SYNC], bad_sync)


# Blobs


@test("a blob is what its name says or nothing")
def _(pair):
    data = nonce().encode() * 1000
    check.error(blob(pair.client, data + b"x", sha256(data)), (400, 409, 422))
    check.error(pair.client.get("/v1/blobs/" + sha256(data)), 404)
    for name in ("x", "a" * 63, "A" * 64, "g" * 64, "a" * 65, "..%2f" + "a" * 60):
        check.error(blob(pair.client, data, name), (400, 404))
    status(blob(pair.client, data), 200, 201, 204)
    got = status(pair.client.get("/v1/blobs/" + sha256(data)), 200)
    check.true(got.body == data, "the bytes differ")
    status(blob(pair.client, data), 200, 201, 204)
    status(blob(pair.client, b""), 200, 201, 204)


@test("a cut blob upload leaves nothing", case=114)
def _(pair):
    data = nonce().encode() * 10000
    one = pair.client.connection(5)
    one.putrequest("PUT", "/v1/blobs/" + sha256(data))
    for key, value in pair.client.headers({"Content-Type": "application/octet-stream"}).items():
        one.putheader(key, value)
    one.putheader("Content-Length", str(len(data)))
    one.endheaders(data[:1000])
    time.sleep(0.1)
    one.close()
    check.error(pair.client.get("/v1/blobs/" + sha256(data)), 404)
    status(blob(pair.client, data), 200, 201, 204)


@test("ten uploads of one blob at once are one", case=124)
def _(pair):
    data = os.urandom(500000)
    parallel(10, lambda _: status(blob(pair.client, data), 200, 201, 204))
    check.true(pair.client.get("/v1/blobs/" + sha256(data)).body == data, "the bytes differ")


# Changes


def changed(box, script, before=None):
    transfer(box, before or {"a": b"a", "d/b": b"b", "d/c": b"c", "x": b"#!/bin/sh\n"},
             [symlink("l", "a")])
    check.ok(box.sh(script))
    return box.changes()


CHANGES = [
    ("nothing", "cat a >/dev/null; touch a", {}),
    ("a new file", "echo new > n", {"n": ("created", "file")}),
    ("new content", "echo more >> a", {"a": ("modified", "file")}),
    ("content of the same size", "printf z > a", {"a": ("modified", "file")}),
    ("the same content written anew", "printf a > t; mv t a", {}),
    ("a deletion", "rm a", {"a": ("deleted", None)}),
    ("a directory deleted", "rm -r d", {"d": ("deleted", None), "d/b": ("deleted", None),
                                       "d/c": ("deleted", None)}),
    ("a mode", "chmod 755 x", {"x": ("modified", "file")}),
    ("a mode of a directory", "chmod 700 d", {"d": ("modified", "directory")}),
    ("a rename", "mv a z", {"a": ("deleted", None), "z": ("created", "file")}),
    ("a directory renamed", "mv d e", {"d": ("deleted", None), "d/b": ("deleted", None),
                                      "d/c": ("deleted", None), "e": ("created", "directory"),
                                      "e/b": ("created", "file"), "e/c": ("created", "file")}),
    ("a link to elsewhere", "ln -sfn x l", {"l": ("modified", "symlink")}),
    ("a new link", "ln -s a m", {"m": ("created", "symlink")}),
    ("a hard link", "ln a h", {"h": ("created", "file")}),
    ("a file that became a directory", "rm a; mkdir a; echo x > a/in",
     {"a": ("modified", "directory"), "a/in": ("created", "file")}),
    ("a directory that became a link", "rm -r d; ln -s /etc d",
     {"d": ("modified", "symlink"), "d/b": ("deleted", None), "d/c": ("deleted", None)}),
    ("made and removed again", "echo x > t; rm t", {}),
    ("removed and made again as it was", "rm a; printf a > a", {}),
    ("an empty directory", "mkdir v", {"v": ("created", "directory")}),
]


def changes(pair, script, wanted):
    with Box.make(pair.client) as box:
        seen = changed(box, script)
        got = {path: (e["change"] if "change" in e else e.get("status"),
                      e.get("type") if (e.get("change") or e.get("status")) != "deleted" else None)
               for path, e in seen.items()}
        if got != wanted:
            # What lies below a directory that is gone may be told by the directory alone.
            short = {p: v for p, v in wanted.items() if not (
                v[0] == "deleted" and os.path.dirname(p) in wanted
                and wanted[os.path.dirname(p)][0] == "deleted")}
            check.equal(got, short, "changes")


table([("changes tell %s" % row[0], None) + row[1:] for row in CHANGES], changes)


@test("a changed file is told by size, mode and hash, and its content can be fetched")
def _(pair):
    with Box.make(pair.client) as box:
        data = nonce().encode() * 2000
        transfer(box, {"f": b"old"})
        box.put("/workspace/f", data, "0750")
        one = box.changes()["f"]
        check.equal((one["size"], one["mode"], one["sha256"]), (len(data), "0750", sha256(data)), "f")
        got = status(pair.client.get("/v1/blobs/" + sha256(data)), 200)
        check.true(got.body == data, "the content")


@test("names that are not UTF-8 and FIFOs are among the changes, and stop nothing", case="111, 118")
def _(pair):
    with Box.make(pair.client) as box:
        transfer(box, {"f": b"x"})
        check.ok(box.python("import os\nopen(b'd\\xff', 'w').write('x'); os.mkfifo('p'); "
                            "os.mkdir('z'); open('z/f','w').close(); os.chmod('z', 0); "
                            "open('n\\n', 'w').close()"))
        answer = status(box.client.get(box.path + "/changes?root=/workspace"), 200)
        entries = rows(answer.json())
        names = {e.get("path") or base64.b64decode(e["path_base64"]) for e in entries}
        check.true("n\n" in names and b"d\xff" in names, "names: %r", names)


@test("a file that changes while changes are told is never told with another's hash", case=113,
      deadline=20)
def _(pair):
    with Box.make(pair.client) as box:
        transfer(box, {"f": b"x"})
        ex = box.start(sh="while :; do head -c 100000 /dev/urandom > f; done",
                       limits={"wall_ms": 15000, "cpu_ms": 15000})
        for _ in range(6):
            one = box.changes().get("f")
            if one and one.get("sha256"):
                got = pair.client.get("/v1/blobs/" + one["sha256"])
                if got.status == 200:
                    check.equal((sha256(got.body), len(got.body)), (one["sha256"], one["size"]), "f")
        box.cancel(ex)


@test("changes go on from the last sync, also through snapshot, restore and fork", deadline=30)
def _(pair):
    with Box.make(pair.client) as box:
        transfer(box, {"a": b"a", "b": b"b"})
        check.ok(box.sh("echo 1 >> a"))
        made = box.snapshot()
        check.ok(box.sh("rm b; echo n > n"))
        check.equal(sorted(box.changes()), ["a", "b", "n"], "after a snapshot")
        fork, = box.fork(1)
        status(box.restore(made["id"]), 200, 204)
        check.equal(sorted(box.changes()), ["a"], "after the restore")
        check.equal(fork.text("ls"), "a\nn\n", "the fork")
        answer = fork.client.get(fork.path + "/changes?root=/workspace")
        check.member(answer.status, (200, 409), "changes of a fork")
        if answer.status == 200:
            check.true({"b", "n"} <= set(fork.changes()), "changes of the fork: %s",
                       sorted(fork.changes()))
        fork.delete()
        transfer(box, {"a": b"a"}, delete=True)
        check.equal(box.changes(), {}, "after a sync")
        forget(pair.client, made)


@test("changes before any sync are told or refused in one sentence")
def _(pair):
    with Box.make(pair.client) as box:
        check.ok(box.sh("echo x > f"))
        answer = box.client.get(box.path + "/changes?root=/workspace")
        if answer.status == 200:
            check.equal(sorted(e["path"] for e in rows(answer.json())), ["f"], "changes")
        else:
            check.error(answer, (404, 409))
        check.error(box.client.get(box.path + "/changes?root=/nosuch"), (400, 404, 409))


@test("ten thousand files go up in one sync; unchanged they cost little", case=120, deadline=60)
def _(pair):
    word = nonce()
    files = {"d%d/f%d" % (i % 100, i): b"%s%d" % (word.encode(), i % 500) for i in range(10000)}
    with Box.make(pair.client) as box:
        entries = [file_entry(p, d) for p, d in files.items()]
        wanted = missing(box.sync(entries))
        check.equal(len(wanted), 500, "different contents")
        contents = {sha256(d): d for d in files.values()}

        def one(index):
            for name in wanted[index::8]:
                status(blob(pair.client, contents[name]), 200, 201, 204)

        parallel(8, one, 30)
        check.equal(missing(box.sync(entries)), [], "missing")
        check.equal(box.text("find . -type f | wc -l"), "10000\n", "files")
        times = []
        for _ in range(5):
            watch = Stopwatch()
            check.equal(missing(box.sync(entries)), [], "missing")
            times.append(watch.seconds())
        check.within(0, min(times), 1.0, "seconds of an unchanged sync (with making the request)")
        check.equal(box.changes(), {}, "changes")
        check.ok(box.sh("echo x > d7/f7; rm d8/f8"))
        check.equal(sorted(box.changes()), ["d7/f7", "d8/f8"], "changes")


@test("space of blobs is counted for their user")
def _(pair):
    me = status(pair.client.get("/v1/me"), 200).json()
    data = os.urandom(3 * MIB)
    status(blob(pair.client, data), 200, 201, 204)
    after = status(pair.client.get("/v1/me"), 200).json()
    used = used_bytes(after) - used_bytes(me)
    check.true(used >= 3 * MIB, "a blob of 3 MiB is counted as %d bytes: %s", used, after)


def used_bytes(me):
    """The number of bytes that /v1/me counts as used by contents."""
    def numbers(value, name=""):
        if isinstance(value, dict):
            for key, one in value.items():
                yield from numbers(one, name + "/" + key)
        elif isinstance(value, int) and not isinstance(value, bool):
            yield name, value

    found = [v for name, v in numbers(me) if "used" in name and "blob" in name and "bytes" in name]
    if not found:
        check.fail("nothing of /v1/me counts blobs: %s", check.brief(me))
    return found[0]


@test("a sandbox from a snapshot knows nothing of the other's sync but has its files")
def _(pair):
    with Box.make(pair.client) as box:
        transfer(box, {"a": b"a"})
        made = box.snapshot()
        answer = create(pair.client, **{"from": made["id"]})
        with Box(pair.client, status(answer, 201).json()) as copy:
            check.equal(missing(copy.sync([file_entry("a", b"a")])), [], "missing")
            check.equal(copy.changes(), {}, "changes")
        forget(pair.client, made)


@test("a large sync is over when changes can be told from what is written after it")
def _(pair):
    with Box.make(pair.client) as box:
        data = nonce().encode()
        transfer(box, {"d%d/f%d" % (i % 10, i): data for i in range(1200)})
        # At once: for a command that begins before the new layer is there, everything would have to
        # be looked at, then and ever after.
        mounts = box.text("grep ' /workspace ' /proc/self/mountinfo; echo new > d0/new")
        check.holds(mounts, " - overlay ", "the mounts when the first command runs")
        check.equal(sorted(box.changes()), ["d0/new"], "changes")

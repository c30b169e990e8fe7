"""Files of a sandbox over HTTP: names, links, odd types, big and hostile ones, archives."""

import base64
import http.client
import os
import tempfile
import time

import canary
import check
from box import MIB, Box, rows, status, vanish
from canary import Canaries
from check import Stopwatch
from client import parallel
from suite import table, test

OCTETS = {"Content-Type": "application/octet-stream"}


@test("a file goes in and comes out, with its mode, size and type", case="115, 117")
def _(pair):
    data = bytes(range(256)) * 500
    with Box.make(pair.client) as box:
        status(box.write("/workspace/a/b/c", data), 201)
        answer = status(box.read("/workspace/a/b/c"), 200)
        check.true(answer.body == data, "the bytes differ")
        check.holds(answer.headers["content-type"], "application/octet-stream", "Content-Type")
        head = status(box.head("/workspace/a/b/c"), 200)
        check.equal((head.headers["content-length"], head.body), (str(len(data)), b""), "HEAD")
        status(box.write("/workspace/a/b/c", b"bbb"), 200)
        check.equal(box.content("/workspace/a/b/c"), b"bbb", "shorter over longer")
        check.equal(box.text("stat -c '%a %U %s' a/b/c a/b"), "644 user 3\n755 user %s\n"
                    % box.text("stat -c %s a/b").strip(), "mode, owner, size inside")
        box.put("/workspace/run", b"#!/bin/sh\necho ran\n", "0755")
        check.equal(box.text("./run; echo x >> a/b/c; cat a/b/c; rm run"), "ran\nbbbx\n", "use")
        box.put("/workspace/a/b/c", b"", None)
        check.equal(box.content("/workspace/a/b/c"), b"", "an empty file")
        status(box.remove("/workspace/a/b/c"), 204)
        check.error(box.read("/workspace/a/b/c"), 404)
        check.error(box.remove("/workspace/a/b/c"), 404)


MODES = [(None, "644"), ("0755", "755"), ("0600", "600"), ("0000", "0"), ("4755", "755"),
         ("0777", "777")]


def mode(pair, wish, wanted):
    with Box.make(pair.client) as box:
        box.put("/workspace/f", b"x", wish)
        check.equal(box.text("stat -c %a f"), wanted + "\n", "mode")


table([("a file put with mode %s has %s" % row, 117) + row for row in MODES], mode)


@test("a file that is overwritten keeps its mode when none is named", case=117)
def _(pair):
    with Box.make(pair.client) as box:
        check.ok(box.sh("echo '#!/bin/sh' > f; chmod 750 f"))
        box.put("/workspace/f", b"#!/bin/sh\necho new\n")
        check.equal(box.text("stat -c %a f; ./f"), "750\nnew\n", "mode and use")


BAD_QUERIES = ["mode=0888", "mode=-1", "mode=", "mode=10000000", "mode=rwx"]


def bad_query(pair, query):
    with Box.make(pair.client) as box:
        answer = pair.client.request("PUT", box.file("/workspace/f") + "?" + query, b"x",
                                     headers=OCTETS)
        check.error(answer, 400)
        check.error(box.read("/workspace/f"), 404)


table([("PUT refuses %s" % q, 127, q) for q in BAD_QUERIES], bad_query)


RANGES = [("bytes=0-9", 206, slice(0, 10)), ("bytes=990-", 206, slice(990, None)),
          ("bytes=-5", 206, slice(-5, None)), ("bytes=500-99999", 206, slice(500, None)),
          ("bytes=1000-", 416, None), ("lines=1-2", 200, slice(None))]


def ranges(pair, wish, wanted, part):
    data = os.urandom(1000)
    with Box.make(pair.client) as box:
        box.put("/workspace/f", data)
        got = box.read("/workspace/f", {"Range": wish})
        check.equal(got.status, wanted, "status")
        if part is not None:
            check.true(got.body == data[part], "body")


table([("a file honours %s" % row[0], None) + row for row in RANGES], ranges)


# Where paths lead


NOWHERE = ["/nosuch", "/workspace/no/such", "/workspace/../nosuch", "/proc/99999/x"]


def nowhere(pair, path):
    with Box.make(pair.client) as box:
        check.error(box.read(path), 404)
        check.equal(box.head(path).status, 404, "HEAD")
        check.error(box.listing(path), 404)
        check.error(box.download(path), 404)
        check.error(box.remove(path), 404)


table([("nothing is at %s" % path, 103, path) for path in NOWHERE], nowhere)


TRAVERSALS = ["/workspace/../../../etc/shadow", "/workspace/%2e%2e/%2e%2e/etc/shadow",
              "/..%2f..%2fetc/shadow", "/workspace/a/../../../../root/.bashrc"]


def traversal(pair, path):
    """Paths are the sandbox's own: what is above its root is its root."""
    with Box.make(pair.client) as box:
        for method in ("GET", "PUT", "DELETE"):
            answer = pair.client.request(method, box.path + "/files" + path,
                                         b"evil" if method == "PUT" else None,
                                         headers=OCTETS if method == "PUT" else None)
            check.member(answer.status, (400, 403, 404, 409), "%s %s" % (method, path))
            check.lacks(answer.body.decode("utf-8", "replace"), "root:", "the answer")
        check.equal(box.names("/workspace"), [], "files")


table([("no way up: %s" % path, 103, path) for path in TRAVERSALS], traversal)


BAD_PATHS = [("a NUL", "workspace/a%00b"), ("a name of 256 bytes", "workspace/" + "a" * 256),
             ("a path of 5,000 bytes", "workspace/" + "/".join(["d" * 99] * 50)),
             ("half an escape", "workspace/a%2")]


def bad_path(pair, path):
    with Box.make(pair.client) as box:
        for method in ("GET", "PUT"):
            answer = pair.client.request(method, box.path + "/files/" + path,
                                         b"x" if method == "PUT" else None,
                                         headers=OCTETS if method == "PUT" else None)
            check.error(answer, (400, 404, 414) if method == "GET" else (400, 414))


table([("no file with %s" % name, "103, 118", path) for name, path in BAD_PATHS], bad_path)


@test("what may not be written is refused, the image stays", case="100, 126")
def _(pair):
    before = os.stat("/usr/bin/env")
    with Box.make(pair.client) as box:
        for path in ("/usr/bin/env", "/usr/bin/new", "/etc/passwd", "/proc/sys/kernel/hostname",
                     "/new", "/dev/null", "/proc/1/environ"):
            answer = box.write(path, b"evil")
            check.error(answer, (400, 403, 404, 409))
            check.error(box.remove(path), (400, 403, 404, 409))
        check.equal(box.read("/usr/bin/env").status, 200, "reading what may be read")
        check.holds(box.content("/etc/passwd").decode(), "user", "the sandbox's own passwd")
        check.equal(box.text("env | grep -c ^HOME"), "1\n", "env works")
    now = os.stat("/usr/bin/env")
    check.equal((now.st_mtime, now.st_size), (before.st_mtime, before.st_size), "the host's file")


@test("reading through planted links gives what the program itself would see", case="104, 107, 110")
def _(pair):
    with Box.make(pair.client) as box:
        check.ok(box.sh("ln -s /etc/shadow out; ln -s %s canary; ln -s %s dir; ln -s / root; "
                        "ln -s /proc/self/root/etc/hostname host; ln -s ../../../../../etc/passwd up;"
                        " ln -s /proc/1/environ env; echo legal > f; ln -s f l; mkdir d; "
                        "echo deep > d/g; ln -s d dl; ln -s l2 l1; ln -s l1 l2"
                        % (Canaries.root_only, Canaries.directory)))
        for name in ("out", "canary", "dir/root", "root" + Canaries.root_only, "env"):
            answer = box.read("/workspace/" + name)
            check.error(answer, (400, 403, 404, 409))
            check.lacks(answer.body.decode("utf-8", "replace"), canary.SECRET, name)
        check.equal(box.content("/workspace/up"), box.text("cat /etc/passwd").encode(), "up")
        host = box.read("/workspace/host")
        if host.status != 409:  # a link of /proc is not followed
            check.equal(status(host, 200).body, box.text("cat /etc/hostname").encode(), "host")
        for name, wanted in (("l", b"legal\n"), ("dl/g", b"deep\n"), ("d/./g", b"deep\n"),
                             ("root/workspace/d/../f", b"legal\n")):
            check.equal(box.content("/workspace/" + name), wanted, name)
        check.error(box.read("/workspace/l1"), (400, 404, 409))


@test("writing and removing through planted links touches nothing outside", case="105, 109")
def _(pair):
    with tempfile.TemporaryDirectory(prefix="pinfold-precious-") as precious:
        os.chmod(precious, 0o777)
        path = os.path.join(precious, "f")
        with open(path, "w") as out:
            out.write("precious")
        os.chmod(path, 0o666)
        before = (os.stat(precious), os.stat(path))
        with Box.make(pair.client) as box:
            check.ok(box.sh("ln -s %s x; ln -s %s d; ln -s / r; ln -s real ok; mkdir deep; "
                            "ln -s ../deep deep/self" % (path, precious)))
            for name in ("x", "d/f", "d/new", "r" + path, "r" + precious + "/new"):
                check.member(box.write("/workspace/" + name, b"evil").status,
                             (200, 201, 204, 400, 403, 404, 409), "PUT " + name)
            box.put("/workspace/ok", b"through")
            check.equal(box.text("cat real 2>/dev/null || cat ok"), "through", "a legal link")
            status(box.remove("/workspace/d"), 204)
            box.remove("/workspace/x")
            check.member(box.remove("/workspace/r", recursive=True).status, (204, 400), "DELETE r")
            status(box.remove("/workspace/deep", recursive=True), 204)
        for seen, name in zip(before, (precious, path)):
            now = os.stat(name)
            check.equal((now.st_mode, now.st_uid, now.st_size, now.st_mtime),
                        (seen.st_mode, seen.st_uid, seen.st_size, seen.st_mtime), name)
        check.equal(os.listdir(precious), ["f"], "files")


ODD = [("a FIFO", "mkfifo p"),
       ("a socket", "python3 -c 'import socket; socket.socket(1).bind(\"p\")'"),
       ("a link to a FIFO", "mkfifo q; ln -s q p"),
       ("a link to /dev/tty", "ln -s /dev/tty p"),
       ("a file of /proc without an end", "ln -s /proc/kmsg p")]


def odd(pair, script):
    with Box.make(pair.client) as box:
        check.ok(box.sh(script))
        watch = Stopwatch()
        check.error(box.read("/workspace/p"), (400, 403, 404, 409))
        watch.below(0.5, "GET")
        watch = Stopwatch()
        box.write("/workspace/p", b"x")
        watch.below(0.5, "PUT")
        watch = Stopwatch()
        check.true("p" in box.names("/workspace"), "not listed")
        with box.tar("/workspace") as tar:
            check.true(tar.getnames() is not None, "no archive")
        watch.below(1, "list and archive")
        status(box.remove("/workspace/p"), 204)
        check.true("p" not in box.names("/workspace"), "still listed")


table([("%s is neither read nor waited for" % row[0], 111) + row[1:] for row in ODD], odd)


@test("a file that turns into a FIFO and back while it is read blocks nobody", case=111,
      deadline=25)
def _(pair):
    with Box.make(pair.client) as box:
        ex = box.start(sh="while :; do rm -f p; mkfifo p; rm -f p; echo x > p; done",
                       limits={"wall_ms": 20000, "cpu_ms": 20000})
        watch = Stopwatch()
        for _ in range(40):
            check.member(box.read("/workspace/p").status, (200, 400, 404, 409), "GET")
            check.member(box.write("/workspace/p", b"y").status, (200, 201, 204, 400, 404, 409),
                         "PUT")
        watch.below(10, "80 requests")
        box.cancel(ex)


# Size


@test("a sparse giant is refused by its size, and listed at once", case=112)
def _(pair):
    with Box.make(pair.client) as box:
        check.ok(box.sh("truncate -s 400G s 2>/dev/null || truncate -s 400M s; echo x > f"))
        watch = Stopwatch()
        listed = {e["path"]: e for e in rows(box.listing("/workspace").json())}
        watch.below(0.3, "the list")
        check.true(listed["s"]["size"] >= 400 * MIB, "size: %r", listed["s"])
        watch = Stopwatch()
        part = box.read("/workspace/s", {"Range": "bytes=0-99"})
        check.true(part.status == 413 or part.body == bytes(100), "a part: %d", part.status)
        watch.below(0.5, "a part")
        check.equal(box.content("/workspace/f"), b"x\n", "the other")


@test("a file that does not fit is 507 and leaves what was", case="20, 114")
def _(pair):
    with Box.make(pair.client, limits={"disk_bytes": 8 * MIB}) as box:
        box.put("/workspace/f", b"old")
        check.error(box.write("/workspace/f", b"x" * (20 * MIB)), (413, 507))
        check.equal(box.content("/workspace/f"), b"old", "the file")
        check.equal(box.text("ls -A"), "f\n", "files")
        check.ok(box.sh("head -c 5000000 /dev/zero > g"))


@test("no more files than the inodes allow is 507", case=22)
def _(pair):
    with Box.make(pair.client, limits={"inodes": 200}) as box:
        box.sh("for i in {1..400}; do : > f$i; done 2>/dev/null")
        check.error(box.write("/workspace/more", b"x"), (413, 507))
        check.ok(box.sh("rm f*"))
        box.put("/workspace/more", b"x")


# What is cut short


def aborted(pair, send):
    with Box.make(pair.client) as box:
        box.put("/workspace/f", b"old")
        one = pair.client.connection(5)
        send(one, box.file("/workspace/f"), pair.client.headers())
        time.sleep(0.1)
        vanish(one)
        check.eventually(lambda: box.text("ls -A; cat f") == "f\nold", 2,
                         lambda: "only the old file: %s" % box.text("ls -A; cat f"), 0.1)


def with_length(one, path, headers):
    one.putrequest("PUT", path)
    for key, value in dict(headers, **OCTETS).items():
        one.putheader(key, value)
    one.putheader("Content-Length", "1000000")
    one.endheaders(b"x" * 10)


def chunked(one, path, headers):
    one.putrequest("PUT", path)
    for key, value in dict(headers, **OCTETS).items():
        one.putheader(key, value)
    one.putheader("Transfer-Encoding", "chunked")
    one.endheaders()
    one.send(b"400\r\n" + b"x" * 1024 + b"\r\n400\r\nhalf")


table([("an upload that is cut (%s) changes nothing" % name, 114, send)
       for name, send in (("Content-Length", with_length), ("chunked", chunked))], aborted)


@test("a whole chunked upload is taken")
def _(pair):
    with Box.make(pair.client) as box:
        one = pair.client.connection(5)
        one.putrequest("PUT", box.file("/workspace/f"))
        for key, value in dict(pair.client.headers(), **OCTETS).items():
            one.putheader(key, value)
        one.putheader("Transfer-Encoding", "chunked")
        one.endheaders()
        one.send(b"3\r\nabc\r\n5\r\ndefgh\r\n0\r\n\r\n")
        check.member(one.getresponse().status, (200, 201, 204), "status")
        one.close()
        check.equal(box.content("/workspace/f"), b"abcdefgh", "the file")


@test("a half upload is never seen, not even while it lasts", case=114)
def _(pair):
    with Box.make(pair.client) as box:
        box.put("/workspace/f", b"old")
        one = pair.client.connection(5)
        with_length(one, box.file("/workspace/f"), pair.client.headers())
        time.sleep(0.1)
        check.equal(box.content("/workspace/f"), b"old", "while it lasts")
        check.equal(box.text("cat f"), "old", "inside")
        one.send(b"y" * 999990)
        check.member(one.getresponse().status, (200, 201, 204), "status")
        one.close()
        check.equal(box.content("/workspace/f"), b"x" * 10 + b"y" * 999990, "at the end")


@test("two writers of one name: each reader sees one of them, whole", case=124, deadline=40)
def _(pair):
    size = 3 * MIB
    with Box.make(pair.client) as box:
        box.put("/workspace/f", b"A" * size)

        def one(index):
            if index < 2:
                for _ in range(12):
                    box.put("/workspace/f", (b"A", b"B")[index] * size)
                return
            for _ in range(12):
                data = box.content("/workspace/f")
                check.true(data in (b"A" * size, b"B" * size), "mixed or cut: %d bytes, %s",
                           len(data), sorted(set(data)))

        parallel(4, one, 35)
        check.equal(box.text("ls -A"), "f\n", "files")


@test("a file that changes while it is sent is whole or an error, never a hang", case=113,
      deadline=30)
def _(pair):
    with Box.make(pair.client) as box:
        ex = box.start(sh="while :; do head -c 3000000 /dev/zero > t; : > t; done & "
                          "while :; do echo xxxxxxxx >> g; done",
                       limits={"wall_ms": 25000, "cpu_ms": 25000})
        check.eventually(lambda: box.read("/workspace/g").status == 200, 3, "g", 0.05)
        for name in ("t", "g") * 10:
            one = pair.client.connection(5)
            try:
                one.request("GET", box.file("/workspace/" + name), headers=pair.client.headers())
                answer = one.getresponse()
                length = answer.getheader("Content-Length")
                data = answer.read()
                if answer.status == 200 and length is not None:
                    check.equal(len(data), int(length), "bytes announced and sent")
            except (http.client.IncompleteRead, ConnectionError, http.client.HTTPException):
                pass  # a closed connection says that it was cut
            finally:
                one.close()
        box.cancel(ex)


# Names


NAMES = ["new\nline", "tab\tx", "-rf", "quo'te\"s", "a" * 255, "emoji😀", "e\u0301", "\u00e9",
         "sp ace ", "*", "a?b", "\x1b[31m", "{a,b}", "#", "~", "%41", "a+b", "a&b=c", ";", "\\"]


def odd_name(pair, name):
    with Box.make(pair.client) as box:
        box.put("/workspace/d/" + name, name.encode())
        check.ok(box.run(argv=["python3", "-c", "import os, sys\n"
                               "assert os.listdir('d') == [sys.argv[1]], os.listdir('d')", name]))
        check.equal(box.names("/workspace/d"), [name], "the list")
        answer = status(box.read("/workspace/d/" + name), 200)
        check.equal(answer.body, name.encode(), "content")
        with box.tar("/workspace/d") as tar:
            names = [os.path.basename(n) for n in tar.getnames() if os.path.basename(n) not in ("", ".", "d")]
            check.equal(names, [name], "the archive")
        status(box.remove("/workspace/d/" + name), 204)


table([("the name %r goes in and comes out" % name[:20], 118, name) for name in NAMES], odd_name)


@test("a name that is not UTF-8 is listed in a form that addresses it", case=118)
def _(pair):
    with Box.make(pair.client) as box:
        check.ok(box.python("open(b'd\\xff', 'w').write('x'); open('e', 'w').write('y')"))
        listed = rows(status(box.listing("/workspace"), 200).json())
        odd = [e for e in listed if e.get("path") != "e"]
        check.equal(len(odd), 1, "entries: %r" % listed)
        check.equal(base64.b64decode(odd[0]["path_base64"]), b"d\xff", "path_base64")
        check.equal(box.content(b"/workspace/d\xff"), b"x", "content")
        status(box.remove(b"/workspace/d\xff"), 204)
        check.equal(box.names("/workspace"), ["e"], "afterwards")


# Lists


@test("a list tells type, size, mode and target, sorted, to the depth asked for")
def _(pair):
    with Box.make(pair.client) as box:
        check.ok(box.sh("mkdir -p d/e/f; echo 123 > d/a; chmod 750 d/a; ln -s a d/l; mkfifo d/p; "
                        "echo x > d/e/f/deep; echo y > z"))
        one = {e["path"]: e for e in rows(status(box.listing("/workspace/d"), 200).json())}
        check.equal(sorted(one), ["a", "e", "l", "p"], "names at depth 1")
        check.equal((one["a"]["type"], one["a"]["size"], one["a"]["mode"]), ("file", 4, "0750"), "a")
        check.equal((one["l"]["type"], one["l"]["target"]), ("symlink", "a"), "l")
        check.equal((one["e"]["type"], one["p"]["type"]), ("directory", "fifo"), "e and p")
        check.within(time.time() * 1000 - 60000, mtime(one["a"]), time.time() * 1000 + 60000, "mtime")
        deep = box.names("/workspace", depth=10)
        check.equal(deep, ["d", "d/a", "d/e", "d/e/f", "d/e/f/deep", "d/l", "d/p", "z"], "all")
        check.equal(box.names("/workspace", depth=2), ["d", "d/a", "d/e", "d/l", "d/p", "z"], "two")
        for wrong in ({"depth": 0}, {"depth": -1}, {"depth": "x"}, {"limit": 0}, {"limit": -1}):
            check.error(box.listing("/workspace", **wrong), 400)
        check.error(box.listing("/workspace/z"), (400, 409))


def mtime(entry):
    for key in ("mtime", "mtime_ms", "modified_at"):
        if key in entry:
            return entry[key]
    check.fail("no mtime: %r", entry)


@test("100,000 entries are listed in pages without gap or repetition", case=120, deadline=60)
def _(pair):
    with Box.make(pair.client, limits={"inodes": 150000, "mem_bytes": 1 << 30,
                                       "disk_bytes": 1 << 29}) as box:
        check.ok(box.python("for i in range(100000): open('f%06d' % i, 'w').close()",
                            limits={"wall_ms": 40000, "cpu_ms": 40000}))
        watch = Stopwatch()
        first = box.names("/workspace", limit=1000)
        watch.below(2, "the first page")
        check.equal(len(first), 1000, "entries")
        before = pair.memory()
        watch = Stopwatch()
        whole = status(box.listing("/workspace"), 200)
        watch.below(3, "the default page")
        check.true(len(whole.body) < 32 * MIB, "an answer of %d bytes", len(whole.body))
        check.true(pair.memory() - before < 48 << 20, "the server grew by %d",
                   pair.memory() - before)
        body = whole.json()
        check.true(body.get("more") is True or body.get("truncated") is True,
                   "nothing says that there is more: %s", [k for k in body])
        seen, after = [], None
        while len(seen) < 100000:
            page = box.names("/workspace", limit=10000, after=after)
            if not page:
                break
            seen += page
            after = page[-1]
        check.equal(seen, ["f%06d" % i for i in range(100000)], "all pages")


@test("deep trees and closed directories can be listed, fetched and removed", case=119,
      deadline=40)
def _(pair):
    script = ("import os\nfor i in range(3000):\n os.mkdir('d' * 200); os.chdir('d' * 200)\n"
              "os.chdir('/workspace'); os.mkdir('z'); open('z/f', 'w').close(); os.chmod('z', 0)\n"
              "os.mkdir('r'); open('r/f', 'w').close(); os.chmod('r', 0o555)")
    with Box.make(pair.client) as box:
        check.ok(box.python(script, limits={"wall_ms": 20000}))
        watch = Stopwatch()
        check.equal(box.names("/workspace"), ["d" * 200, "r", "z"], "names")
        watch.below(1, "the list")
        answer = box.listing("/workspace", depth=4000, limit=5000)
        check.member(answer.status, (200, 400, 409), "a deep list")
        box.download("/workspace")
        for name in ("z", "r", "d" * 200):
            status(box.remove("/workspace/" + name, recursive=True), 204)
        check.equal(box.names("/workspace"), [], "afterwards")
    pair.check_clean(5)


@test("a directory that is not empty is removed only when it is asked for")
def _(pair):
    with Box.make(pair.client) as box:
        box.put("/workspace/d/f", b"x")
        check.error(box.remove("/workspace/d"), 409)
        check.error(box.read("/workspace/d"), 409, "is_directory")
        check.error(box.write("/workspace/d", b"x"), 409, "is_directory")
        check.error(box.write("/workspace/d/f/g", b"x"), 409)
        status(box.remove("/workspace/d", recursive=True), 204)
        check.error(box.remove("/workspace", recursive=True), (400, 403, 409))


# Without the sandbox's help


@test("files are served while every process is stopped, paused or spinning", deadline=20)
def _(pair):
    with Box.make(pair.client, limits={"pids": 40}) as box:
        box.start(sh="while :; do :; done & while :; do :; done", limits={"wall_ms": 15000,
                                                                         "cpu_ms": 15000})
        box.start(sh="f(){ f|f& };f; sleep 10", limits={"wall_ms": 6000, "pids": 20})
        for _ in range(5):
            watch = Stopwatch()
            box.put("/workspace/f", b"x")
            check.equal(box.content("/workspace/f"), b"x", "content")
            watch.below(1.5, "a PUT and a GET")
        box.pause()
        box.put("/workspace/g", b"paused")
        check.equal(box.content("/workspace/g"), b"paused", "content")
        box.resume()
        check.equal(box.text("cat g"), "paused", "inside")


@test("programs cannot see, signal or slow down what serves files", case="89, 95")
def _(pair):
    with Box.make(pair.client) as box:
        ex = box.start(sh="while :; do kill -9 -1; kill -STOP -1; done 2>/dev/null",
                       limits={"wall_ms": 8000, "cpu_ms": 8000})
        for i in range(20):
            box.put("/workspace/f", b"%d" % i)
            check.equal(box.content("/workspace/f"), b"%d" % i, "content")
        box.cancel(ex)

"""The life of a sandbox: made, listed, paused, extended, ended by whom and when, and whose it is."""

import http.client
import re
import time

import check
import clean
from box import MIB, SANDBOXES, Box, create, joined, make_tar, rows, status, vanish
from check import Stopwatch
from client import nonce, parallel
from suite import table, test

# What is wrong, the body, the status, the field that the error names (None: any or none).
BAD = [
    ("an unknown field", {"ttl": 1000}, 400, "/ttl"),
    ("a field of a run", {"argv": ["true"]}, 400, "/argv"),
    ("a ttl of 0", {"ttl_ms": 0}, 400, "/ttl_ms"),
    ("a negative ttl", {"ttl_ms": -1}, 400, "/ttl_ms"),
    ("a ttl as text", {"ttl_ms": "1000"}, 400, "/ttl_ms"),
    ("a ttl of null", {"ttl_ms": None}, 400, "/ttl_ms"),
    ("a fraction as ttl", {"ttl_ms": 1.5}, 400, "/ttl_ms"),
    ("a ttl over a year", {"ttl_ms": 366 * 86400000}, (400, 403), "/ttl_ms"),
    ("an idle time of 0", {"idle_ms": 0}, 400, "/idle_ms"),
    ("a negative idle time", {"idle_ms": -5}, 400, "/idle_ms"),
    ("metadata as a list", {"metadata": []}, 400, "/metadata"),
    ("env as a list", {"env": ["A=1"]}, 400, "/env"),
    ("a NUL in env", {"env": {"A": "\0"}}, 400, "/env/A"),
    ("an unknown disk", {"disk": "tape"}, 400, "/disk"),
    ("a disk as a number", {"disk": 1}, 400, "/disk"),
    ("an unknown policy", {"policy": "nosuch"}, 400, "/policy"),
    ("an unknown image", {"image": "nosuch"}, 400, "/image"),
    ("an unknown network", {"network": "host"}, (400, 403), "/network"),
    ("a limit that does not exist", {"limits": {"wal_ms": 1}}, 400, "/limits/wal_ms"),
    ("a limit of 0", {"limits": {"pids": 0}}, 400, "/limits/pids"),
    ("more memory than the policy has", {"limits": {"mem_bytes": 1 << 40}}, 403,
     "/limits/mem_bytes"),
    ("from as a number", {"from": 1}, 400, "/from"),
    ("from nothing", {"from": ""}, (400, 404), "/from"),
    ("from a path", {"from": "../../etc"}, (400, 404), "/from"),
    ("from a snapshot that is not there", {"from": "snap_" + "a" * 24}, 404, "/from"),
    ("from a run that is not there", {"from": "run_" + "a" * 24 + "@0"}, 404, "/from"),
    ("from a step that is no number", {"from": "run_" + "a" * 24 + "@x"}, (400, 404), "/from"),
]


def bad(pair, body, wanted, field):
    answer = create(pair.client, **body)
    error = check.error(answer, wanted)
    if field is not None:
        check.equal(error.get("field"), field, "error.field")


table([("no sandbox with %s" % row[0], "127, 128") + row[1:] for row in BAD], bad)


def bad_body(pair, body):
    check.error(pair.client.post(SANDBOXES, body), (400, 413))


table(
    [
        ("no sandbox from %s" % name, 130, body)
        for name, body in (
            ("null", b"null"),
            ("a list", b"[]"),
            ("a duplicate key", b'{"ttl_ms":1000,"ttl_ms":60000}'),
            ("trailing garbage", b"{} x"),
            ("100,000 brackets", b"[" * 100000),
        )
    ],
    bad_body,
)


@test("what is not asked for is safe, and everything is echoed", case=129)
def _(pair):
    before = time.time()
    with Box.make(pair.client) as box:
        seen = box.get()
        for key in ("id", "state", "created_at", "expires_at", "limits", "policy", "image",
                    "metadata", "usage"):
            check.true(key in seen, "the object lacks %s: %s", key, check.brief(seen))
            check.true(key in box.body, "the answer to POST lacks %s", key)
        check.equal(seen["policy"]["name"], "default", "policy")
        check.matches(seen["policy"]["sha256"], "^[0-9a-f]{64}$", "policy.sha256")
        check.equal((seen["image"], seen["metadata"]), ("host", {}), "image and metadata")
        check.true(len(seen["limits"]) == 11, "not all limits: %s", list(seen["limits"]))
        for name, one in seen["limits"].items():
            check.equal(one["from"], "default", "limits.%s.from" % name)
        check.within(before * 1000 - 2000, seen["created_at"], time.time() * 1000 + 2000,
                     "created_at")
        check.equal(seen["expires_at"] - seen["created_at"], 3600000, "the default ttl")
        check.equal(box.text("id -u; ls -A /workspace | wc -l; ls /sys/class/net 2>/dev/null; true"),
                    "1000\n0\n", "uid, files, devices")


@test("limits, environment and metadata of a sandbox hold for what happens in it")
def _(pair):
    words = {"purpose": "a test", "é": "漢字"}
    with Box.make(
        pair.client,
        limits={"pids": 20, "disk_bytes": 8 * MIB, "open_files": 300},
        env={"BOX": "one", "BOTH": "box"},
        metadata=words,
        ttl_ms=90000,
    ) as box:
        seen = box.get()
        check.equal(seen["metadata"], words, "metadata")
        check.equal(seen["limits"]["pids"], {"value": 20, "from": "request"}, "limits.pids")
        check.equal(seen["expires_at"] - seen["created_at"], 90000, "ttl")
        answer = check.ok(box.sh("echo $BOX $BOTH $MORE; ulimit -n; head -c 20000000 /dev/zero > "
                                 "f 2>/dev/null || echo full", env={"BOTH": "exec", "MORE": "x"}))
        check.equal(check.lines(answer), ["one exec x", "300", "full"], "stdout")
        answer = box.send(argv=["true"], limits={"pids": 21})
        check.error(answer, (400, 403), field="/limits/pids")


@test("files stay from one execution to the next, the shell's state does not", case=144)
def _(pair):
    with Box.make(pair.client) as box:
        answer = box.sh("cd /tmp; export A=1; echo kept > /workspace/f; set -e; false")
        check.ended(answer, "exit", exit_code=1)
        check.equal(box.text("pwd; echo a=$A; cat f"), "/workspace\na=\nkept\n", "the next one")
        check.ended(box.sh("kill -9 $PPID; exit 4"), "exit", exit_code=4)
        check.equal(box.text("cat <<EOF\nhere\nEOF"), "here\n", "a here document")


# The list


@test("the list is mine, newest first, in pages without gap or repetition", case=137)
def _(pair):
    made = [Box.make(pair.client, metadata={"n": str(i)}) for i in range(5)]
    try:
        listed = rows(status(pair.client.get(SANDBOXES + "?limit=5"), 200).json())
        check.equal([one["id"] for one in listed], [b.id for b in made[::-1]], "the newest five")
        check.equal(listed[0]["metadata"], {"n": "4"}, "metadata in the list")
        check.equal(listed[0]["state"], "ready", "state in the list")
        paged, after = [], ""
        for _ in range(3):
            page = rows(status(pair.client.get(SANDBOXES + "?limit=2" + after), 200).json())
            paged += [one["id"] for one in page]
            after = "&after=" + page[-1]["id"]
        check.equal(paged[:5], [b.id for b in made[::-1]], "pages of two")
    finally:
        for box in made:
            box.delete()
    listed = rows(pair.client.get(SANDBOXES).json())
    check.true(
        not {b.id for b in made} & {o["id"] for o in listed if o["state"] != "gone"},
        "a deleted one is listed as living",
    )


def bad_list(pair, query):
    check.error(pair.client.get(SANDBOXES + "?" + query), (400, 404) if "after" in query else 400)


table(
    [("the list of sandboxes refuses %s" % q, None, q)
     for q in ("limit=0", "limit=-1", "limit=x", "limit=100001", "after=../x")],
    bad_list,
)


# Whose it is


def routes(box, ex):
    """Everything that can be asked of a sandbox."""
    tar = make_tar(("stolen", b"x"))
    manifest = {"root": "/workspace", "entries": [], "delete": True}
    return [
        ("GET", "", None), ("POST", "/ttl", {"ttl_ms": 1000}), ("POST", "/pause", {}),
        ("POST", "/resume", {}), ("POST", "/exec", {"argv": ["true"]}), ("GET", "/exec", None),
        ("GET", "/exec/" + ex, None), ("GET", "/exec/%s/events?follow=true" % ex, None),
        ("POST", "/exec/%s/stdin" % ex, b"x"), ("POST", "/exec/%s/signal" % ex, {"signal": "KILL"}),
        ("POST", "/exec/%s/resize" % ex, {"rows": 2, "cols": 2}), ("DELETE", "/exec/" + ex, None),
        ("GET", "/files/workspace/f", None), ("HEAD", "/files/workspace/f", None),
        ("PUT", "/files/workspace/f", b"stolen"), ("DELETE", "/files/workspace/f", None),
        ("GET", "/stat/workspace/f", None), ("POST", "/mkdir/workspace/d", {}),
        ("POST", "/move", {"from": "/workspace/f", "to": "/workspace/g"}),
        ("GET", "/watch/workspace", None), ("GET", "/exec/%s/stdout" % ex, None),
        ("GET", "/exec/%s/stderr" % ex, None), ("GET", "/exec/%s/receipt" % ex, None),
        ("GET", "/list/workspace", None), ("GET", "/archive/workspace?format=tar", None),
        ("PUT", "/archive/workspace", tar), ("POST", "/snapshots", {"name": "x"}),
        ("POST", "/restore", {"snapshot": "snap_" + "a" * 24}), ("POST", "/fork", {"count": 1}),
        ("POST", "/sync", manifest), ("GET", "/changes?root=/workspace", None),
        ("DELETE", "", None),
    ]


def described(pair):
    """The same as the description has it: {(method, shape of the path)}."""
    paths = pair.client.get("/openapi.json").json()["paths"]
    return {(method.upper(), re.sub(r"\{\w+\}", "{}", path[len(SANDBOXES) + len("/{id}"):]))
            for path, methods in paths.items() if path.startswith(SANDBOXES + "/{id}")
            for method in methods if method != "parameters"}


def shape(ex, tail):
    tail = tail.partition("?")[0].replace(ex, "{}")
    return re.sub(r"/workspace(/\w+)?$", "/{}", tail)


def same_404(pair, client, path, method, tail, body):
    kind = {"Content-Type": "application/octet-stream"} if isinstance(body, bytes) else None
    answer = client.request(method, path + tail, body, headers=kind)
    if method == "HEAD":
        check.equal(answer.status, 404, "HEAD %s" % tail)
        return None
    seen = check.error(answer, 404)
    return seen["code"], seen["message"]


@test("another user gets 404 on every route, as for what is not there", case=135, deadline=30)
def _(pair):
    other = pair.user_client("mallory")
    with Box.make(pair.client, metadata={"secret": nonce()}) as box:
        box.put("/workspace/f", b"mine")
        ex = box.start(sh="sleep 30")
        unknown = SANDBOXES + "/sb_" + "a" * 24
        tried = {(method, shape(ex, tail)) for method, tail, _ in routes(box, ex)}
        check.equal(sorted(described(pair) - tried), [], "routes that are not tried")
        for method, tail, body in routes(box, ex):
            got = same_404(pair, other, box.path, method, tail, body)
            wanted = same_404(pair, other, unknown, method, tail, body)
            check.equal(got and got[0], wanted and wanted[0], "error of %s %s" % (method, tail))
            if got and "a" * 24 not in tail:
                check.equal(got[1].replace(box.id, "ID"), wanted[1].replace("sb_" + "a" * 24, "ID"),
                            "sentence of %s %s" % (method, tail))
        check.lacks(status(other.get(SANDBOXES), 200).body.decode(), box.id, "the other's list")
        check.equal(box.content("/workspace/f"), b"mine", "the file")
        check.equal(box.fetch(ex)["state"], "running", "the execution")
        check.equal(box.get()["state"], "ready", "the sandbox")
        box.cancel(ex)
    other.close()


@test("another user's snapshot cannot be started from, restored or deleted", case=135)
def _(pair):
    other = pair.user_client("mallory")
    with Box.make(pair.client) as box, Box.make(other) as theirs:
        made = box.snapshot("mine")
        check.error(create(other, **{"from": made["id"]}), 404)
        check.error(theirs.restore(made["id"]), 404)
        check.error(other.delete("/v1/snapshots/" + made["id"]), 404)
        check.lacks(status(other.get("/v1/snapshots"), 200).body.decode(), made["id"], "the list")
        check.holds(pair.client.get("/v1/snapshots").body.decode(), made["id"], "my list")
        status(pair.client.delete("/v1/snapshots/" + made["id"]), 204)
    other.close()


BAD_IDS = ["..", "%2e%2e", "sb_", "SB_" + "A" * 24, "sb_" + "a" * 300, "x%00y", "sb_" + "a" * 23 + "!",
           "%2e%2e%2fsandboxes", "run_" + "a" * 24]


def bad_id(pair, name):
    for tail in ("", "/exec", "/files/workspace/f", "/list/workspace"):
        check.error(pair.client.get("%s/%s%s" % (SANDBOXES, name, tail)), (400, 404))


table([("no sandbox is called %s" % name[:24], 123, name) for name in BAD_IDS], bad_id)


# Pause


def cpu_of(pids):
    """CPU ticks of processes."""
    total = 0
    for pid in pids:
        fields = clean.read("/proc/%d/stat" % pid).rpartition(b")")[2].split()
        if len(fields) > 13:
            total += int(fields[11]) + int(fields[12])
    return total


@test("paused it uses no CPU, resumed it goes on where it was", deadline=20)
def _(pair):
    with Box.make(pair.client) as box:
        ex = box.start(sh="i=0; while :; do i=$((i+1)); echo $i > n; done", limits={"wall_ms": 60000})
        check.eventually(lambda: rewritten(box, "/workspace/n"), 3, "it runs")
        pids = clean.marked(pair.client.mark)
        check.true(pids, "no process with the mark")
        box.pause()
        check.equal(box.get()["state"], "paused", "state")
        check.eventually(lambda: still(pids), 2, "no CPU is used")
        before = cpu_of(pids)
        time.sleep(0.6)
        check.equal(cpu_of(pids), before, "CPU ticks over 0.6 s of pause")
        number = box.content("/workspace/n")
        check.error(box.send(argv=["true"]), 409)
        check.equal(box.content("/workspace/n"), number, "files can be read meanwhile")
        status(box.client.post(box.path + "/pause", {}), 200, 204)
        box.resume()
        check.equal(box.get()["state"], "ready", "state")
        check.eventually(lambda: rewritten(box, "/workspace/n") not in (number, b"", None), 2,
                         "it goes on")
        check.equal(box.text("echo on"), "on\n", "a command after the pause")
        box.cancel(ex)


def rewritten(box, path):
    """Its contents; None when it was written to while it was read, which cuts that answer short, or
    is not there yet."""
    try:
        answer = box.read(path)
        return answer.body if answer.status == 200 else None
    except http.client.IncompleteRead:
        box.client.close()
        return None


def still(pids):
    before = cpu_of(pids)
    time.sleep(0.15)
    return cpu_of(pids) == before


@test("a pause is not charged to the wall time of what it stops", deadline=20)
def _(pair):
    with Box.make(pair.client) as box:
        ex = box.start(sh="sleep 0.2; echo woke; sleep 0.2", limits={"wall_ms": 1500})
        box.pause()
        time.sleep(2)
        box.resume()
        answer = check.ok(box.wait_done(ex, 3))
        check.equal(check.text(answer), "woke\n", "stdout")
        check.within(0, answer["steps"][0]["usage"]["wall_ms"], 1500, "wall_ms")


@test("a paused sandbox can be deleted, and its streams end")
def _(pair):
    box = Box.make(pair.client)
    with box.stream(sh="echo up; sleep 60") as stream:
        stream.next("stdout")
        box.pause()
        watch = Stopwatch()
        box.delete()
        events = [event for _, event in stream]
        watch.below(1, "the end of the stream")
    ends = [e["end"]["cause"] for e in events if e["type"] == "end"]
    check.equal(ends, ["cancelled"], "causes")


# The end


@test("delete while busy ends every stream with cancelled within a second", case=141, deadline=20)
def _(pair):
    box = Box.make(pair.client)
    streams = [box.stream(sh="echo up; sleep 60 & sleep 60") for _ in range(4)]
    for stream in streams:
        stream.next("stdout")
    waiting = box.start(sh="sleep 60")
    follower = box.events(waiting, follow=True)
    behind = box.background(sh="sleep 60")
    watch = Stopwatch()
    box.delete()
    for stream in streams + [follower]:
        events = [event for _, event in stream]
        ends = [e["end"] for e in events if e["type"] == "end"]
        check.equal([e["cause"] for e in ends], ["cancelled"], "causes")
        check.equal(ends[0]["exit_code"], None, "exit_code")
        check.equal(events[-1]["type"], "done", "last event")
        stream.close()
    watch.below(1, "the end of the streams")
    for tail in ("", "/exec", "/exec/" + waiting, "/exec/" + behind, "/files/workspace/f"):
        answer = pair.client.get(box.path + tail)
        if tail == "" and answer.status == 200:
            check.equal(answer.json()["state"], "gone", "state")
            continue
        check.error(answer, (404, 410))
    pair.check_clean(1)


@test("delete ends the caller who waits with cancelled, not with nothing", case=141)
def _(pair):
    box = Box.make(pair.client)

    def one(index):
        if index == 0:
            return box.send(sh="echo early; touch printed; sleep 60")
        check.eventually(lambda: box.read("/workspace/printed").status == 200, 5, "it has printed")
        return box.delete()

    answer = parallel(2, one, 10)[0]
    step = status(answer, 200).json()
    check.equal(step["end"]["cause"], "cancelled", "cause")
    check.equal(step["stdout"], "early\n", "stdout before the end")


@test("twenty deletes at once, a delete again, and every use afterwards", case=141)
def _(pair):
    box = Box.make(pair.client)
    box.start(sh="sleep 60")
    codes = parallel(20, lambda _: pair.client.delete(box.path).status)
    check.true(set(codes) <= {204, 404, 410} and 204 in codes, "answers: %s", sorted(set(codes)))
    check.member(pair.client.delete(box.path).status, (204, 404, 410), "another delete")
    for method, tail, body in routes(box, "ex_" + "a" * 24):
        if method == "HEAD" or (method, tail) in (("GET", ""), ("DELETE", "")):
            continue
        kind = {"Content-Type": "application/octet-stream"} if isinstance(body, bytes) else None
        answer = pair.client.request(method, box.path + tail, body, headers=kind)
        check.error(answer, 410, "gone")


@test("a client that goes away leaves its sandbox, which ends when idle", case=194, deadline=20)
def _(pair):
    answer = create(pair.client, idle_ms=1500)
    box = Box(pair.client, status(answer, 201).json())
    one = pair.client.connection()
    one.request("GET", box.path, headers=pair.client.headers())
    one.getresponse().read()
    vanish(one)
    pair.client.close()
    start = time.monotonic()
    # The list is no use of a sandbox.
    check.eventually(
        lambda: all(o["state"] == "gone" for o in rows(pair.client.get(SANDBOXES).json())
                    if o["id"] == box.id),
        6, "it is gone", 0.05)
    check.within(1.2, time.monotonic() - start, 4, "seconds until it was gone")
    check.error(pair.client.get(box.path + "/exec"), 410, "gone")


# The clocks


@test("ttl ends it at the promised moment, busy or not", case=145, deadline=20)
def _(pair):
    box = Box.make(pair.client, ttl_ms=1500)
    start = time.monotonic()
    with box.stream(sh="echo up; sleep 60") as stream:
        stream.next("stdout")
        events = [event for _, event in stream]
        check.within(1.2, time.monotonic() - start, 2.5, "seconds until the end")
    check.equal([e["end"]["cause"] for e in events if e["type"] == "end"], ["cancelled"], "causes")
    check.error(pair.client.get(box.path + "/exec"), 410, "gone")


@test("ttl can be moved on, and a move that was answered holds", case=145, deadline=20)
def _(pair):
    with Box.make(pair.client, ttl_ms=1000) as box:
        first = box.get()["expires_at"]
        for _ in range(4):
            time.sleep(0.5)
            box.ttl(1000)
        later = box.get()["expires_at"]
        check.within(1500, later - first, 3500, "ms that expires_at has moved")
        check.equal(box.text("echo here"), "here\n", "after 2 s with a ttl of 1 s")
        box.ttl(60000)
        check.within(58000, box.get()["expires_at"] - time.time() * 1000, 62000, "ms left")
        for wrong in (0, -1, "1", None, 366 * 86400000):
            check.error(pair.client.post(box.path + "/ttl", {"ttl_ms": wrong}), (400, 403),
                        field="/ttl_ms")
        check.error(pair.client.post(box.path + "/ttl", {}), 400)


@test("busy is not idle: work in the background keeps it, its end starts the clock", case=145,
      deadline=20)
def _(pair):
    box = Box.make(pair.client, idle_ms=1000)
    start = time.monotonic()
    box.background(sh="sleep 2.5")
    # Looking at the list is no use, so nothing but the execution keeps it.
    def gone():
        return all(o["state"] == "gone" for o in rows(pair.client.get(SANDBOXES).json())
                   if o["id"] == box.id)

    check.eventually(gone, 8, "it is gone", 0.05)
    check.within(3.2, time.monotonic() - start, 5, "seconds: 2.5 of work and 1 of idleness")
    check.error(pair.client.get(box.path + "/exec"), 410, "gone")


@test("every use starts the idle clock anew", case=145, deadline=20)
def _(pair):
    with Box.make(pair.client, idle_ms=1200) as box:
        for use in (lambda: box.text("true"), lambda: box.put("/workspace/f", b"x"),
                    lambda: box.content("/workspace/f"), lambda: box.names("/workspace")):
            time.sleep(0.8)
            use()
        seconds = 0.0
        start = time.monotonic()
        check.eventually(lambda: all(o["state"] == "gone"
                                     for o in rows(pair.client.get(SANDBOXES).json())
                                     if o["id"] == box.id), 6, "it is gone", 0.05)
        seconds = time.monotonic() - start
        check.within(0.9, seconds, 3, "seconds after the last use")


# Many


@test("twelve sandboxes at once have nothing in common", deadline=30)
def _(pair):
    mark = nonce()
    made = parallel(12, lambda i: Box.make(pair.client, env={"N": "%s-%d" % (mark, i)}))
    try:
        seen = parallel(12, lambda i: made[i].text("echo $N > f; sleep 0.1; cat f; ls | wc -l; "
                                                   "ls /proc | grep -c '^[0-9]'"))
        for i, text in enumerate(seen):
            name, files, processes = text.split()
            check.equal(name, "%s-%d" % (mark, i), "the file of its own")
            check.equal(files, "1", "files")
            check.within(1, int(processes), 6, "processes that are seen")
    finally:
        parallel(12, lambda i: made[i].delete())
    pair.check_clean(2)


@test("sixty sandboxes come and go and leave nothing", case=152, deadline=60)
def _(pair):
    before = pair.memory("runner")

    def one(index):
        for turn in range(10):
            box = Box.make(pair.client)
            kind = (index + turn) % 5
            if kind == 0:
                check.ok(box.run(argv=["true"]))
            elif kind == 1:
                box.background(sh="sleep 60 & sleep 60")
            elif kind == 2:
                box.put("/workspace/f", b"x" * 100000)
            elif kind == 3:
                check.ended(box.sh("sleep 9", limits={"wall_ms": 50}), "wall_time")
            box.delete()

    parallel(6, one, 50)
    pair.check_clean(2)
    grown = pair.memory("runner") - before
    check.true(grown < 6 << 20, "the runner grew by %d bytes", grown)


@test("usage of a sandbox counts its disk and what ran in it")
def _(pair):
    with Box.make(pair.client) as box:
        check.ok(box.sh("head -c 3000000 /dev/zero > f; i=0; while [ $i -lt 40000 ]; do "
                        "i=$((i+1)); done"))
        usage = box.get()["usage"]
        check.true(isinstance(usage, dict), "usage is %r", usage)
        if "disk_bytes" in usage:
            check.within(3000000, usage["disk_bytes"], 3500000, "usage.disk_bytes")


@test("streams of executions of two sandboxes do not mix", case=137)
def _(pair):
    one, two = nonce(), nonce()
    with Box.make(pair.client) as a, Box.make(pair.client) as b:
        sa, sb = a.stream(sh="for i in {1..50}; do echo %s; done" % one), b.stream(
            sh="for i in {1..50}; do echo %s; done" % two)
        check.equal(joined(sa.all()), (one + "\n").encode() * 50, "the first")
        check.equal(joined(sb.all()), (two + "\n").encode() * 50, "the second")

"""Sandboxes and servers that are killed, stopped and started again; each test brings its own
pair."""

import json
import os
import signal
import sqlite3
import threading
import time

import check
import clean
import harness
from box import MIB, SANDBOXES, Box, blob, create, dense, file_entry, forget, joined, rows, status
from check import Stopwatch
from client import nonce, parallel
from suite import table, test

COUNT = "i=0; while [ $i -lt %d ]; do i=$((i+1)); echo line$i; sleep %s; done; echo end"


def numbers(count):
    return "".join("line%d\n" % i for i in range(1, count + 1)).encode() + b"end\n"


# Of a server that was started again. Of a runner that was, only what belongs to runs can be compared.
NEW_SERVER = ("threads of the server", "descriptors of the server")
NEW_RUNNER = NEW_SERVER + ("processes", "network", "descriptors", "threads", "cgroup")


def kill_and_restart(pair, between=None):
    pair.client.close()
    pair.kill9_server()
    if between:
        between()
    pair.start_server()
    pair.wait_ready()


def fresh(**more):
    return harness.Pair(slots=8, warm=2, **more)


@test("kill -9 of the server: sandboxes, files, executions and output are there again", case="154, D1",
      own=True, deadline=40)
def _(_):
    with fresh() as pair:
        pair.rest()
        box = Box.make(pair.client, metadata={"a": "b"}, env={"E": "v"}, ttl_ms=600000)
        before = box.get()
        box.put("/workspace/f", b"kept")
        done = check.ok(box.sh("echo over; exit 0"))["id"]
        running = box.start(sh=COUNT % (60, "0.05"))
        behind = box.background(argv=["python3", "-m", "http.server", "8000", "--bind", "127.0.0.1"])
        box.wait_output(running, b"line3\n")
        jailed = clean.identity(clean.marked(pair.client.mark))
        kill_and_restart(pair, lambda: time.sleep(1))
        check.true(clean.alive(jailed), "nothing of the sandbox lives")
        after = box.get()
        for key in ("id", "state", "created_at", "expires_at", "limits", "policy", "image",
                    "metadata"):
            check.equal(after[key], before[key], key)
        check.equal(box.content("/workspace/f"), b"kept", "the file")
        check.equal(check.text(box.fetch(done)), "over\n", "what was over")
        answer = check.ok(box.wait_done(running, 10))
        check.equal(check.output(answer), numbers(60), "the output, nothing lost or doubled")
        events = box.events(running).all()
        dense(events)
        check.equal(joined(events), numbers(60), "the events")
        check.equal(box.fetch(behind)["state"], "running", "the background server")
        check.equal(box.text("echo $E; python3 -c \"import urllib.request as u; "
                             "print(u.urlopen('http://127.0.0.1:8000/f').read().decode())\""),
                    "v\nkept\n", "environment and loopback")
        box.delete()
        pair.check_clean(2, NEW_SERVER)


@test("events are resumed over a kill -9 without a line lost or doubled", case="D1", own=True,
      deadline=40)
def _(_):
    with fresh() as pair:
        box = Box.make(pair.client)
        first = []
        with box.stream(sh=COUNT % (80, "0.03")) as stream:
            for _, event in stream:
                first.append(event)
                if len(first) >= 20:
                    break
            pair.kill9_server()
            for _ in range(1000):
                try:
                    line = stream.response.readline()
                except OSError:
                    break
                if not line or not line.endswith(b"\n"):
                    break
                first.append(json.loads(line))
        check.true(first[-1]["type"] not in ("end", "done"), "a made-up end: %r", first[-1])
        pair.client.close()
        pair.start_server()
        pair.wait_ready()
        rest = box.events(first[0]["id"], after=first[-1]["seq"], follow=True).all()
        dense(first + rest, 0)
        check.equal(joined(first + rest), numbers(80), "stdout")
        check.equal(rest[-1]["type"], "done", "last event")


@test("five kills in a row lose nothing", case="D1", own=True, deadline=60)
def _(_):
    with fresh() as pair:
        box = Box.make(pair.client)
        ex = box.start(sh=COUNT % (150, "0.03"), stdin_open=True)
        for turn in range(5):
            check.eventually(lambda: box.seen(ex).count(b"\n") >= 8 * (turn + 1), 5, "lines")
            kill_and_restart(pair)
        answer = check.ok(box.wait_done(ex, 15))
        check.equal(check.output(answer), numbers(150), "stdout")
        dense(box.events(ex).all())
        box.delete()
        check.error(pair.client.get(box.path + "/exec"), 410, "gone")


@test("what ends while there is no server is told with its true end", case="D1, 154", own=True,
      deadline=40)
def _(_):
    with fresh() as pair:
        box = Box.make(pair.client)
        runs = {
            "exit": box.start(sh="sleep 0.4; echo out; echo err >&2; exit 3"),
            "wall_time": box.start(sh="echo out; sleep 60", limits={"wall_ms": 700}),
            "memory": box.start(argv=["python3", "-c", "import time; time.sleep(0.4)\nx = []\n"
                                      "while True: x.append(bytearray(1 << 20))"],
                                limits={"mem_bytes": 64 * MIB}),
            "signal": box.start(sh="sleep 0.4; kill -11 $$"),
        }
        check.eventually(lambda: len(clean.marked(pair.client.mark)) >= 4, 3, "they run")
        kill_and_restart(pair, lambda: time.sleep(1.5))
        for cause, ex in runs.items():
            answer = box.wait_done(ex, 3)
            check.ended(answer, cause)
        check.equal(check.text(box.fetch(runs["exit"])), "out\n", "stdout")
        check.equal(check.text(box.fetch(runs["exit"]), stream="stderr"), "err\n", "stderr")
        check.equal(box.text("echo on"), "on\n", "afterwards")


@test("stdin, signals, terminals and cancels reach what was started before the kill", own=True,
      deadline=40)
def _(_):
    with fresh() as pair:
        box = Box.make(pair.client)
        cat = box.start(argv=["cat"], stdin_open=True)
        status(box.stdin(cat, b"before\n"), 200, 204)
        box.wait_output(cat, b"before")
        trap = box.start(sh="trap 'echo caught; exit 4' USR1; echo up; while :; do sleep 0.05; done")
        box.wait_output(trap, b"up")
        shell = box.start(sh="echo up; read -r x; echo \"<$x>\"; stty size",
                          pty={"rows": 24, "cols": 80})
        box.wait_output(shell, b"up")
        sleeper = box.start(argv=["sleep", "60"])
        kill_and_restart(pair)
        status(box.stdin(cat, b"after\n", close=True), 200, 204)
        check.equal(check.text(check.ok(box.wait_done(cat, 3))), "before\nafter\n", "cat")
        status(box.signal(trap, "USR1"), 200, 204)
        check.ended(box.wait_done(trap, 3), "exit", exit_code=4)
        status(box.resize(shell, 30, 90), 200, 204)
        status(box.stdin(shell, b"typed\r"), 200, 204)
        text = check.text(check.ok(box.wait_done(shell, 3)))
        check.true("<typed>" in text and "30 90" in text, "terminal: %r", text)
        box.cancel(sleeper)
        check.ended(box.wait_done(sleeper, 2), "cancelled")


@test("a retry after the kill is still the same execution", case=146, own=True, deadline=40)
def _(_):
    with fresh() as pair:
        box = Box.make(pair.client)
        done = dict(sh="echo x >> done; echo one", id="ex_" + nonce())
        slow = dict(sh="echo x >> slow; sleep 1.5; echo two", id="ex_" + nonce())
        check.ok(box.run(**done))
        box.start(**slow)
        kill_and_restart(pair)
        check.equal(status(box.send(**done), 200).json()["stdout"], "one\n", "what was over")
        check.equal(status(box.send(**slow), 200).json()["stdout"], "two\n", "what ran")
        check.equal(box.content("/workspace/done"), b"x\n", "done")
        check.equal(box.content("/workspace/slow"), b"x\n", "slow")


@test("pause, ttl and metadata survive, and the clocks go on", case=145, own=True, deadline=40)
def _(_):
    with fresh() as pair:
        paused = Box.make(pair.client)
        paused.start(sh="while :; do :; done", limits={"wall_ms": 60000, "cpu_ms": 60000})
        paused.pause()
        short = Box.make(pair.client, ttl_ms=60000)
        short.ttl(2500)
        start = time.monotonic()
        during = Box.make(pair.client, ttl_ms=800)
        kill_and_restart(pair, lambda: time.sleep(1))
        check.equal(paused.get()["state"], "paused", "state")
        check.error(pair.client.get(during.path + "/exec"), 410, "gone")
        short.wait_gone(4)
        check.within(2.2, time.monotonic() - start, 4.5, "seconds until its end")
        paused.resume()
        check.equal(paused.text("echo on"), "on\n", "resumed")


@test("snapshots and their sandboxes survive a kill", own=True, deadline=40)
def _(_):
    with fresh() as pair:
        box = Box.make(pair.client)
        check.ok(box.sh("echo one > f"))
        made = box.snapshot("kept")
        check.ok(box.sh("echo two > f"))
        fork, = box.fork(1)
        kill_and_restart(pair)
        listed = rows(status(pair.client.get("/v1/snapshots"), 200).json())
        check.equal([(s["id"], s.get("name")) for s in listed], [(made["id"], "kept")], "the list")
        with Box.make(pair.client, **{"from": made["id"]}) as copy:
            check.equal(copy.content("/workspace/f"), b"one\n", "a new one")
        check.equal(fork.content("/workspace/f"), b"two\n", "the fork")
        status(box.restore(made["id"]), 200, 204)
        check.equal(box.content("/workspace/f"), b"one\n", "restored")
        forget(pair.client, made)


# At every stage


def creating(pair, box):
    parallel(6, lambda _: attempt(lambda: create(pair.client)))


def attempt(call):
    """What a client does whose server dies: nothing."""
    try:
        call()
    except Exception:
        pass


def executing(pair, box):
    parallel(6, lambda i: attempt(lambda: box.sh("echo %d; sleep 0.05" % i)))


def snapshotting(pair, box):
    for _ in range(20):
        attempt(lambda: pair.client.post(box.path + "/snapshots", {}))


def forking(pair, box):
    for _ in range(10):
        attempt(lambda: pair.client.post(box.path + "/fork", {"count": 2}))


def uploading(pair, box):
    for i in range(20):
        attempt(lambda: box.write("/workspace/f", (b"A", b"B")[i % 2] * (4 * MIB)))


def syncing(pair, box):
    for i in range(20):
        data = b"%d" % (i % 2) * MIB
        attempt(lambda: blob(pair.client, data))
        attempt(lambda: box.sync([file_entry("f", data), file_entry("g", data)]))


def pausing(pair, box):
    for i in range(40):
        attempt(lambda: pair.client.post(box.path + ("/pause", "/resume")[i % 2], {}))


def deleting(pair, box):
    for _ in range(10):
        attempt(lambda: pair.client.delete(SANDBOXES + "/" + create(pair.client).json()["id"]))


STAGES = [("it is made", creating), ("commands run", executing), ("snapshots are taken", snapshotting),
          ("it is forked", forking), ("files go up", uploading), ("a workspace is synced", syncing),
          ("it is paused and resumed", pausing), ("others are deleted", deleting)]


def stage(_, work):
    """Kills the server at several moments of it; afterwards everything known is whole, the rest is
    gone, and when all is deleted nothing is left."""
    with fresh() as pair:
        pair.warm_up()
        box = Box.make(pair.client)
        box.put("/workspace/f", b"A" * (4 * MIB))
        check.ok(box.sh("echo steady > s"))
        for turn in range(4):
            busy = threading.Thread(target=attempt, args=(lambda: work(pair, box),), daemon=True)
            busy.start()
            time.sleep(0.02 + 0.05 * turn)
            pair.kill9_server()
            busy.join(20)
            check.true(not busy.is_alive(), "a client still waits")
            pair.client.close()
            watch = Stopwatch()
            pair.start_server()
            pair.wait_ready()
            watch.below(5, "the start")
            if box.get()["state"] == "paused":
                box.resume()
            check.equal(box.text("cat s; echo $((6*7))"), "steady\n42\n", "the sandbox")
            data = box.content("/workspace/f")
            check.true(len(set(data)) == 1 and len(data) in (4 * MIB, MIB), "f: %d bytes, %s",
                       len(data), sorted(set(data))[:5])
            names = set(box.names("/workspace"))
            check.equal(sorted(names - {"f", "s", "g"}), [], "other files")
            if "g" in names:
                check.true(box.content("/workspace/g") == data, "a sync was done by half")
        for one in rows(pair.client.get(SANDBOXES + "?limit=100").json()):
            if one["state"] != "gone":
                other = Box(pair.client, one)
                if one["state"] == "paused":
                    other.resume()
                check.equal(other.text("echo ok"), "ok\n", "a sandbox that is listed")
                other.delete()
        while True:
            left = rows(pair.client.get("/v1/snapshots").json())
            if not left:
                break
            forget(pair.client, *left)
        pair.check_clean(4, NEW_SERVER)


table([("the server is killed while %s" % name, "D1, 154", work) for name, work in STAGES], stage,
      own=True, deadline=60)


# The runner, and the grace


@test("kill -9 of the runner: sandboxes are gone, and say so", case="154, 140", own=True, deadline=40)
def _(_):
    with fresh() as pair:
        box = Box.make(pair.client)
        ex = box.start(sh="echo up; sleep 60")
        box.wait_output(ex, b"up")
        made = box.snapshot()
        follower = box.events(ex, follow=True)
        jailed = clean.identity(clean.marked(pair.client.mark))
        pair.kill9_runner()
        check.eventually(lambda: not clean.alive(jailed), 1, "every process is dead")
        events = follower.all()
        ends = [e["end"]["cause"] for e in events if e["type"] == "end"]
        check.equal(ends, ["interrupted"], "causes")
        check.eventually(lambda: pair.client.get(box.path + "/exec").status == 410, 2, "410")
        for path in (box.path + "/exec", box.at(ex), box.file("/workspace/f"),
                     box.path + "/list/workspace"):
            check.error(pair.client.get(path), 410, "gone")
        for one in rows(pair.client.get(SANDBOXES).json()):
            check.equal(one["state"], "gone", "state in the list")
        pair.start_runner()
        pair.wait_ready(10)
        check.error(pair.client.get(box.path + "/exec"), 410, "gone")
        for answer in (create(pair.client, **{"from": made["id"]}),
                       pair.client.delete("/v1/snapshots/" + made["id"])):
            check.error(answer, 410, "gone")
        with Box.make(pair.client) as new:
            check.equal(new.text("echo on"), "on\n", "a new one")


@test("both killed: the next pair knows the sandbox as gone, never as running", case="D1, 154",
      own=True, deadline=40)
def _(_):
    with fresh() as pair:
        pair.warm_up()
        box = Box.make(pair.client)
        ex = box.start(sh="sleep 60")
        box.put("/workspace/f", b"x")
        pair.client.close()
        pair.kill9_runner()
        pair.kill9_server()
        pair.start_runner()
        pair.start_server()
        pair.wait_ready()
        check.eventually(lambda: pair.client.get(box.path + "/exec").status == 410, 3, "410")
        check.error(pair.client.get(box.at(ex)), 410, "gone")
        for one in rows(pair.client.get(SANDBOXES).json()):
            check.equal(one["state"], "gone", "state in the list")
        check.ok(pair.client.run(argv=["true"]))
        pair.check_clean(4, NEW_RUNNER)


@test("without a server the runner ends its sandboxes when the grace is over", case="154, D1",
      own=True, deadline=40)
def _(_):
    with fresh(runner_args=["--keep", "2s"]) as pair:
        pair.warm_up()
        box = Box.make(pair.client)
        box.start(sh="while :; do :; done", limits={"wall_ms": 100000, "cpu_ms": 100000})
        check.eventually(lambda: clean.marked(pair.client.mark), 3, "it runs")
        jailed = clean.identity(clean.marked(pair.client.mark))
        pair.client.close()
        pair.kill9_server()
        time.sleep(1)
        check.true(clean.alive(jailed), "dead within the grace")
        check.eventually(lambda: not clean.alive(jailed), 3, "dead after the grace")
        pair.start_server()
        pair.wait_ready()
        check.eventually(lambda: pair.client.get(box.path + "/exec").status == 410, 3, "410")
        pair.check_clean(4, NEW_SERVER)


@test("one-shot runs still end with their server, sandboxes beside them do not", case=154, own=True,
      deadline=40)
def _(_):
    with fresh() as pair:
        box = Box.make(pair.client)
        ex = box.start(sh="sleep 3; echo lived")
        check.eventually(lambda: len(clean.marked(pair.client.mark)) == 2, 3, "shell and sleep")
        mine = clean.identity(clean.marked(pair.client.mark))
        pair.client.submit(sh="sleep 1000")
        check.eventually(lambda: len(clean.marked(pair.client.mark)) > len(mine), 3, "the run")
        one_shot = clean.identity(clean.marked(pair.client.mark)) - mine
        pair.client.close()
        pair.kill9_server()
        check.eventually(lambda: not clean.alive(one_shot), 1, "the run is dead")
        check.true(clean.alive(mine), "the sandbox is dead too")
        pair.start_server()
        pair.wait_ready()
        check.equal(check.text(check.ok(box.wait_done(ex, 5))), "lived\n", "stdout")


@test("SIGTERM: the server ends with 0, its sandboxes are found again", case="147, D6", own=True,
      deadline=40)
def _(_):
    with fresh() as pair:
        box = Box.make(pair.client)
        box.put("/workspace/f", b"kept")
        ex = box.start(sh=COUNT % (60, "0.05"))
        box.wait_output(ex, b"line2\n")
        follower = box.events(ex, follow=True)
        pair.client.close()
        check.equal(pair.end(pair.server, signal.SIGTERM, 20), 0, "exit code")
        seen = []
        for event in follower_events(follower):
            seen.append(event)
        check.true(not [e for e in seen if e["type"] == "end"], "a made-up end: %r", seen[-2:])
        pair.start_server()
        pair.wait_ready()
        check.equal(box.content("/workspace/f"), b"kept", "the file")
        answer = check.ok(box.wait_done(ex, 10))
        check.equal(check.output(answer), numbers(60), "stdout")
        rest = box.events(ex, after=seen[-1]["seq"] if seen else 0, follow=True).all()
        dense(seen + rest)


def follower_events(stream):
    """The events until the connection ends, whole or cut."""
    while True:
        try:
            line = stream.response.readline()
        except Exception:
            return
        if not line.endswith(b"\n"):
            return
        yield json.loads(line)


@test("a row or a file that is damaged costs its sandbox, not the server", case="D1, 154", own=True,
      deadline=40)
def _(_):
    with fresh() as pair:
        good, bad = Box.make(pair.client), Box.make(pair.client)
        good.put("/workspace/f", b"kept")
        pair.client.close()
        pair.kill9_server()
        place = os.path.join(pair.state, "server", "sandboxes", bad.id)
        for name in os.listdir(place):
            path = os.path.join(place, name)
            if os.path.isfile(path):
                with open(path, "r+b") as file:
                    file.write(b"\xff{[\0")
                    file.truncate(5)
        with sqlite3.connect(os.path.join(pair.state, "server", "pinfold.db")) as db:
            db.execute("UPDATE sandboxes SET record = x'ff7b5b00' WHERE id = ?", (bad.id,))
        db.close()
        os.mkdir(os.path.join(pair.state, "server", "sandboxes", "not-an-id"))
        pair.start_server()
        pair.wait_ready()
        check.equal(good.content("/workspace/f"), b"kept", "the good one")
        check.member(pair.client.get(bad.path + "/exec").status, (404, 410), "the damaged one")
        check.eventually(lambda: len(rows(pair.client.get(SANDBOXES).json())) <= 2, 1, "the list")
        check.equal(good.text("echo on"), "on\n", "afterwards")


@test("a runner that stops ends its sandboxes and leaves nothing", case="152, 147", own=True,
      deadline=40)
def _(_):
    mounts = clean.mount_points()
    pair = fresh().start()
    try:
        pair.rest()
        box = Box.make(pair.client)
        box.start(sh="sleep 100 & sleep 100")
        box.snapshot()
        file_box = Box.make(pair.client, disk="file", limits={"disk_bytes": 64 * MIB})
        file_box.put("/workspace/f", b"x")
        everything = pair.jailed() | clean.identity(clean.family(pair.runner_pid)[0])
        bases = dict(pair.bases)
        pair.stop()
        check.equal(clean.alive(everything), set(), "processes")
        for key, base in bases.items():
            left = clean.tree(base) if os.path.isdir(base) else []
            check.equal(left, [], "cgroup directories of %s" % (key or "v2"))
        check.equal(clean.mount_points(), mounts, "mounts")
        # The kernel lets go of one in the background, when its last mount is gone.
        check.eventually(lambda: not clean.loops(pair.state), 3, "no loop device is left")
        pair.start()
        check.eventually(lambda: pair.client.get(box.path + "/exec").status == 410, 3, "410")
    finally:
        pair.discard()

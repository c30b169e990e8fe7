"""Whole days of sandboxes, shortened to less than a minute each: D1, D2, D6, D7."""

import json
import os
import shutil
import signal
import sqlite3
import threading
import time

import check
import clean
import harness
from box import MIB, SANDBOXES, Box, blob, create, delete_all, file_entry, forget, joined, rows, status
from check import Stopwatch
from client import nonce, parallel
from small_disk import Image
from suite import Skip, test


NEW_SERVER = ("threads of the server", "descriptors of the server")


# D1: the server is killed in the middle of the morning


@test("20 sandboxes at work, kill -9, seconds later a start: nothing is made up and nothing is lost",
      case="D1", own=True, deadline=90)
def _(_):
    with harness.Pair(slots=32, warm=2) as pair:
        pair.warm_up()
        made = parallel(20, lambda i: Box.make(pair.client, metadata={"n": str(i)}))
        sleepers = [box.start(sh="sleep 1000", limits={"wall_ms": 200000}) for box in made[:8]]
        loops = [box.start(sh="while :; do :; done", limits={"wall_ms": 200000, "cpu_ms": 200000,
                                                            "cpus_milli": 50})
                 for box in made[8:12]]
        counters = [box.start(sh="i=0; while [ $i -lt 70 ]; do i=$((i+1)); echo $i; sleep 0.1; done")
                    for box in made[12:18]]
        web = made[18].background(argv=["python3", "-m", "http.server", "8000", "--bind",
                                        "127.0.0.1"])
        for i, box in enumerate(made):
            box.put("/workspace/f", b"file %d" % i)
        stream = made[12].events(counters[0], follow=True)
        upload = pair.client.connection(20)
        upload.putrequest("PUT", made[19].file("/workspace/big"))
        for key, value in pair.client.headers({"Content-Type": "application/octet-stream"}).items():
            upload.putheader(key, value)
        upload.putheader("Content-Length", str(200 * MIB))
        upload.endheaders()
        for _ in range(100):
            upload.send(bytes(MIB))
        seen = [stream.next()[1] for _ in range(12)]

        pair.client.close()
        pair.kill9_server()
        try:
            upload.send(bytes(MIB))
            upload.sock.settimeout(2)
            check.equal(upload.sock.recv(100), b"", "an answer to the upload")
        except OSError:
            pass
        upload.close()
        while True:
            try:
                line = stream.response.readline()
            except Exception:
                break
            if not line.endswith(b"\n"):
                break
            seen.append(json.loads(line))
        check.true(not [e for e in seen if e["type"] in ("end", "done")], "a made-up end")
        time.sleep(2)
        watch = Stopwatch()
        pair.start_server()
        pair.kill9_server()
        pair.start_server()
        pair.wait_ready()
        watch.below(5, "two starts")

        for i, box in enumerate(made):
            check.equal(box.content("/workspace/f"), b"file %d" % i, "file of sandbox %d" % i)
        check.equal(made[19].names("/workspace"), ["f"], "the half upload")
        for box, ex in list(zip(made[:8], sleepers)) + list(zip(made[8:12], loops)):
            check.equal(box.fetch(ex)["state"], "running", "state")
        wanted = "".join("%d\n" % n for n in range(1, 71)).encode()
        for box, ex in zip(made[12:18], counters):
            answer = check.ok(box.wait_done(ex, 20))
            check.true(check.output(answer) == wanted, "output: %s", check.step(answer))
        rest = made[12].events(counters[0], after=seen[-1]["seq"]).all()
        check.true(joined(seen + rest) == wanted, "the resumed stream")
        check.equal([e["seq"] for e in seen + rest], list(range(1, len(seen + rest) + 1)), "seq")
        check.equal(made[18].fetch(web)["state"], "running", "the web server")
        check.holds(made[18].text("python3 -c \"import urllib.request as u; "
                                  "print(u.urlopen('http://127.0.0.1:8000/f').read())\""),
                    "file 18", "the page")
        parallel(20, lambda i: made[i].delete())
        pair.check_clean(3, NEW_SERVER)


# D2: the disk fills up


def true_end(step):
    """A full disk of the host is not the program's affair: what of its output cannot be kept is
    counted."""
    end = step["end"]
    check.equal((end["cause"], end["exit_code"]), ("exit", 0), "end")
    if step["stdout_omitted"] == 0:
        check.equal(len(step["stdout"]), step["stdout_bytes"], "bytes that were kept")


def full(image, fill):
    """One filling of the disk: what goes on, what is refused, what comes back."""
    with harness.Pair(slots=8, warm=2, state=os.path.join(image.place, "state")) as pair:
        pair.client.run(argv=["true"])
        box = Box.make(pair.client)
        box.put("/workspace/f", b"kept")
        running = box.start(sh="sleep 2; head -c 200000 /dev/zero | tr '\\0' x; echo end")
        spare = Box.make(pair.client)
        fill()
        try:
            # What needs no room of the host works or is refused in one sentence; nothing hangs, dies
            # or is half done.
            for _ in range(5):
                answer = create(pair.client)
                if answer.status == 201:
                    Box(pair.client, answer.json()).delete()
                else:
                    check.error(answer, (503, 507))
                answer = box.send(sh="echo here")
                if answer.status == 200:
                    true_end(answer.json())
                else:
                    check.error(answer, (503, 507))
                # Deleting gives inodes back, so a small file may fit.
                answer = blob(pair.client, os.urandom(100000))
                if answer.status != 201:
                    check.error(answer, (503, 507))
                answer = create(pair.client, disk="file")
                if answer.status == 201:
                    Box(pair.client, answer.json()).delete()
                else:
                    check.error(answer, (503, 507))
            check.equal(box.content("/workspace/f"), b"kept", "a file")
            # No work starts that the audit log cannot know of.
            answer = box.write("/workspace/g", b"memory has room")
            check.member(answer.status, (201, 204, 503, 507), "a file is put")
            put = answer.status < 300
            answer = box.wait_done(running, 8)
            true_end(answer["steps"][0] if "steps" in answer else answer)
            spare.delete()
            check.error(pair.client.get(spare.path + "/exec"), 410, "gone")
            check.equal(pair.probe("/healthz"), 200, "/healthz")
        finally:
            image.free()
        check.eventually(lambda: create_and_delete(pair), 5, "new sandboxes again", 0.2)
        check.equal(box.text("cat f; echo on"), "kepton\n", "afterwards")
        check.eventually(lambda: blob(pair.client, os.urandom(100000)).status in (200, 201, 204),
                         5, "a blob again", 0.2)
        pair.client.close()
        pair.kill9_server()
        pair.start_server()
        pair.wait_ready()
        check.equal(box.text("cat f g 2>/dev/null; true"), "kept" + put * "memory has room",
                    "after a restart")
        check.error(pair.client.get(spare.path + "/exec"), (404, 410))
        box.delete()


def create_and_delete(pair):
    answer = create(pair.client)
    if answer.status != 201:
        return False
    Box(pair.client, answer.json()).delete()
    return True


@test("the host's disk is full to the last byte, then free again", case="D2", own=True, deadline=60)
def _(_):
    image = Image(64)
    try:
        full(image, image.fill)
    finally:
        image.close()


@test("the host's disk has no inode left, then some again", case="D2", own=True, deadline=60)
def _(_):
    image = Image(64)
    try:
        full(image, image.fill_inodes)
    finally:
        image.close()


AFTER_FULL = "sleep 2; head -c 200000 /dev/zero | tr '\\0' x; echo end"
LONG_OUTPUT = {"output_bytes": MIB}


@test("what ends while the disk is full has its end also after a kill -9 before there is room",
      case="D2", own=True, deadline=60)
def _(_):
    image = Image(64)
    pair = None
    try:
        with harness.Pair(slots=8, warm=2, state=os.path.join(image.place, "state")) as pair:
            pair.warm_up()
            box = Box.make(pair.client)
            short = box.start(sh="sleep 2; echo end; exit 3")
            long = box.start(sh=AFTER_FULL, limits=LONG_OUTPUT)
            told = status(pair.client.post("/v1/runs", pair.client.marked(
                {"sh": "sleep 2; echo end; exit 4", "wait": False})), 202).json()["id"]
            waits = [pair.client.marked({"sh": text, "limits": LONG_OUTPUT})
                     for text in ("sleep 2; echo end; exit 5", AFTER_FULL + "; exit 6",
                                  "sleep 2; head -c 900000 /dev/zero | base64; exit 7")]
            answers = []
            asking = [threading.Thread(target=lambda body=body: answers.append(
                pair.client.post("/v1/runs", body))) for body in waits]
            for one in asking:
                one.start()
            check.eventually(lambda: len(pair.client.get("/v1/runs?limit=50").json()["runs"]) >= 4,
                             2, "all of them run", 0.05)
            image.fill()
            for one in asking:
                one.join(15)
            check.equal(len(answers), 3, "answers")
            ends = {}
            for answer in answers:
                body = status(answer, 200).json()
                ends[body["id"]] = body["steps"][0]["end"]["exit_code"]
            check.equal(sorted(ends.values()), [5, 6, 7], "their ends")
            for ex in (short, long):
                box.wait_done(ex, 10)
            check.eventually(lambda: pair.client.get("/v1/runs/" + told).json()["state"] == "done",
                             10, "the run that was not waited for", 0.1)
            ends[told] = 4
            pair.client.close()
            pair.kill9_server()
            pair.start_server()
            check.equal(pair.server.wait(10), 1, "a start on a full disk")
            check.holds(pair.logs(), "No space left on device", "what it says")
            image.free()
            for _ in range(2):
                pair.start_server()
                pair.wait_ready()
                for name, code in ends.items():
                    found = status(pair.client.get("/v1/runs/" + name), 200).json()
                    end = found["steps"][0]["end"]
                    check.equal((found["state"], end["cause"], end["exit_code"]),
                                ("done", "exit", code), "the run that ended with %s" % code)
                for ex, code in ((short, 3), (long, 0)):
                    end = box.fetch(ex)["steps"][0]["end"]
                    check.equal((end["cause"], end["exit_code"]), ("exit", code), "an execution")
                pair.client.close()
                pair.kill9_server()
            pair.start_server()
            pair.wait_ready()
            box.delete()
    finally:
        image.close()


# D6: a new version is rolled out at noon


@test("a rolling restart under load: new work is refused, sandboxes are found again, twice",
      case="D6, 147", own=True, deadline=80)
def _(_):
    with harness.Pair(slots=16, warm=2) as pair:
        pair.warm_up()
        made = [Box.make(pair.client, metadata={"n": str(i)}) for i in range(6)]
        names = set(made[0].body)
        for i, box in enumerate(made):
            box.put("/workspace/f", b"%d" % i)
        ticking = [box.start(sh="i=0; while [ $i -lt 120 ]; do i=$((i+1)); echo $i; sleep 0.05; done")
                   for box in made]
        for turn in range(2):
            runs = [pair.client.submit(sh="sleep 0.5") for _ in range(4)]
            followers = [box.events(ex, follow=True) for box, ex in zip(made, ticking)]
            kept = pair.client.connection()
            kept.request("GET", SANDBOXES, headers=pair.client.headers())
            kept.getresponse().read()
            os.kill(pair.server_pid, signal.SIGTERM)

            def refuses():
                try:
                    kept.request("POST", SANDBOXES, b"{}", pair.client.headers(None, b"x"))
                    answer = kept.getresponse()
                    answer.read()
                    return answer.status == 503 and answer.getheader("Retry-After")
                except Exception:
                    return True

            check.eventually(refuses, 2, "new work is refused")
            watch = Stopwatch()
            check.equal(pair.server.wait(20), 0, "exit code of the server")
            watch.below(15, "the stop")
            for one in followers:
                one.close()
            kept.close()
            pair.client.close()
            pair.start_server()
            pair.wait_ready()
            for i, box in enumerate(made):
                seen = box.get()
                check.true(names <= set(seen), "fields are missing: %s", names - set(seen))
                check.equal((seen["state"], seen["metadata"]), ("ready", {"n": str(i)}), "sandbox")
                check.equal(box.content("/workspace/f"), b"%d" % i, "file")
            for run in runs:
                answer = pair.client.get("/v1/runs/" + run)
                if answer.status == 200:
                    check.equal(answer.json()["state"], "done", "state of an old run")
                else:
                    check.error(answer, 404)
        wanted = "".join("%d\n" % n for n in range(1, 121))
        for box, ex in zip(made, ticking):
            check.equal(check.text(check.ok(box.wait_done(ex, 10))), wanted, "output")
        delete_all(pair.client)  # also what was made a moment before the end
        pair.check_clean(3, NEW_SERVER)


def as_files(state):
    """Puts sandboxes and snapshots where an older version had them: in files."""
    server = os.path.join(state, "server")
    with sqlite3.connect(os.path.join(server, "pinfold.db")) as db:
        for box, record in db.execute("SELECT id, record FROM sandboxes"):
            with open(os.path.join(server, "sandboxes", box, "sandbox.json"), "wb") as file:
                file.write(record)
        os.makedirs(os.path.join(server, "snapshots"), exist_ok=True)
        snapshots = db.execute("SELECT * FROM snapshots")
        keys = [("owner" if one[0] == "user" else "created_at" if one[0] == "created_ms"
                 else one[0]) for one in snapshots.description]
        for row in snapshots:
            body = dict(zip(keys, row), version=1)
            name = os.path.join(server, "snapshots", body.pop("id") + ".json")
            with open(name, "w") as file:
                json.dump(body, file)
        db.execute("DELETE FROM sandboxes")
        db.execute("DELETE FROM snapshots")
    db.close()
    for at, dirs, plain in os.walk(server):
        for one in dirs + plain:
            shutil.chown(os.path.join(at, one), *owner_of(server))


def owner_of(path):
    status = os.stat(path)
    return status.st_uid, status.st_gid


@test("an upgrade takes over sandboxes and snapshots that an older version had in files", case="D6",
      own=True, deadline=60)
def _(_):
    with harness.Pair(slots=2, warm=1) as pair:
        box = Box.make(pair.client, env={"WORD": "kept"}, metadata={"for": "the upgrade"})
        check.ok(box.sh("echo before > note"))
        snapshot = status(pair.client.post(box.path + "/snapshots", {"name": "old"}), 201).json()
        ex = box.start(sh="for i in $(seq 40); do echo $i; sleep 0.1; done")
        pair.client.close()
        pair.kill9_server()
        as_files(pair.state)
        pair.start_server()
        pair.wait_ready()
        check.equal(check.text(check.ok(box.wait_done(ex, 20))).split()[-1], "40", "output")
        check.equal(box.text("cat note; echo $WORD"), "before\nkept\n", "files")
        check.equal(status(pair.client.get(box.path), 200).json()["metadata"], {"for": "the upgrade"}, "metadata")
        listed = status(pair.client.get("/v1/snapshots"), 200).json()["snapshots"]
        check.equal([(one["id"], one["name"]) for one in listed], [(snapshot["id"], "old")], "snapshots")
        other = Box.make(pair.client, **{"from": snapshot["id"]})
        check.equal(other.text("cat note"), "before\n", "files of the snapshot")
        # For good: neither a file nor a table is looked for twice.
        check.equal(os.path.exists(os.path.join(pair.state, "server", "snapshots")), False, "snapshots/")
        check.equal(names_of(pair.state, "sandbox.json"), [], "sandbox.json")
        pair.client.close()
        pair.kill9_server()
        pair.start_server()
        pair.wait_ready()
        check.equal(box.text("cat note"), "before\n", "files")
        delete_all(pair.client)
        pair.check_clean(3, NEW_SERVER)


def names_of(place, name):
    return [at for at, _, plain in os.walk(place) if name in plain]


# D7: an agent works in one sandbox all day


def as_quick(old, new):
    """A hundred executions in each, in turn, so that whatever else the machine does meets both. The
    best of three rounds."""
    ratios = []
    for _ in range(3):
        times = {old: [], new: []}
        for _ in range(100):
            for box in (old, new):
                watch = Stopwatch()
                check.ok(box.run(argv=["/bin/true"]))
                times[box].append(watch.seconds())
        was, now = sorted(times[new])[50], sorted(times[old])[50]
        if now < 1.2 * was + 0.0002:
            return
        ratios.append("%.5f s, in a new one %.5f s" % (now, was))
    check.fail("median of executions: %s", "; ".join(ratios))


def turn(box, index, word):
    """One of the things that an agent does."""
    kind = index % 20
    if kind == 0:
        answer = box.sh("echo early; sleep 9", limits={"wall_ms": 120})
        check.ended(answer, "wall_time")
        # On a busy machine the shell may not have got that far.
        check.member(check.text(answer), ("early\n", ""), "output before the limit")
    elif kind == 1:
        answer = box.sh("echo head; head -c 300000 /dev/zero | tr '\\0' x; echo; echo tail",
                        limits={"output_bytes": 8192})
        check.true(check.output(answer).startswith(b"head\n"), "head")
        check.true(check.output(answer).endswith(b"tail\n"), "tail")
        check.within(8192, len(check.output(answer)), 8400, "bytes of the answer")
    elif kind == 2:
        box.put("/workspace/src/f%d.py" % (index % 50), b"print('%s')\n" % word)
    elif kind == 3:
        box.content("/workspace/src/f%d.py" % ((index - 1) % 50))
    elif kind == 4:
        check.ended(box.sh("grep nothing src/*; exit 3"), "exit", exit_code=3)
    elif kind == 5 and index % 100 == 5:
        ex = box.background(argv=["python3", "-S", "-c", "import time; time.sleep(60)"])
        box.cancel(ex)
    elif kind == 6:
        check.equal(box.text("echo $((%d+1))" % index), "%d\n" % (index + 1), "sum")
    elif kind == 7:
        box.names("/workspace/src")
    else:
        check.ok(box.run(argv=["/bin/true"]))


@test("10,000 turns of an agent in one sandbox: it stays as fast as a new one, nothing piles up",
      case="D7, 157, 158", own=True, deadline=170, slow=True)
def _(_):
    with harness.Pair(slots=8, warm=2) as pair:
        pair.warm_up()
        box = Box.make(pair.client)
        check.ok(box.sh("mkdir src; git init -q . 2>/dev/null; echo x > src/f0.py"))
        box.put("/workspace/src/f0.py", b"x")
        for i in range(50):
            box.put("/workspace/src/f%d.py" % i, b"x")
        word = nonce().encode()

        for i in range(200):
            turn(box, i, word)
        early = clean.settle(pair.snapshot)
        memory, runner = pair.memory(), pair.memory("runner")

        for part in range(10):
            # The agent's client starts anew.
            pair.client.close()
            parallel(4, lambda w: [turn(box, i, word) for i in range(part * 920 + w,
                                                                    (part + 1) * 920, 4)], 60)
        pair.client.close()
        with Box.make(pair.client) as fresh:
            as_quick(box, fresh)
        pair.client.close()

        def more():
            now = pair.snapshot()
            return [
                "%s: %s, early %s" % (k, now[k], v)
                for k, v in early.items()
                if isinstance(v, int) and now[k] > v
            ]

        check.eventually(lambda: not more(), 2, lambda: "nothing piles up: %s" % more(), 0.1)
        spool = [f for f in clean.files(pair.state) if box.id in f]
        check.true(len(spool) < 4500, "%d files of one sandbox in the state directory", len(spool))
        size = sum(os.path.getsize(f) for f in spool if os.path.isfile(f))
        check.true(size < 300 * MIB, "%d bytes of spool", size)
        check.true(pair.memory() - memory < 64 << 20, "the server grew by %d",
                   pair.memory() - memory)
        check.true(pair.memory("runner") - runner < 5 << 20, "the runner grew by %d",
                   pair.memory("runner") - runner)
        zombies = box.text("for p in /proc/[0-9]*/stat; do read -r x < $p && [[ $x == *') Z '* ]] "
                           "&& echo zombie; done 2>/dev/null; echo end")
        check.equal(zombies, "end\n", "zombies inside")
        used = int(box.text("du -sB1 /workspace /home/user /var/tmp /tmp /dev/shm 2>/dev/null | "
                            "awk '{s+=$1} END {print s}'"))
        told = check.ok(box.run(argv=["true"]))["steps"][0]["usage"]["disk_bytes"]
        check.within(used * 0.8 - 200000, told, used * 1.2 + 200000, "disk: quota against du")
        box.delete()
        pair.check_clean(3)


@test("10,000 executions in one sandbox, by eight at once: it stays as fast as a new one",
      case="D7", own=True, deadline=120, slow=True)
def _(_):
    with harness.Pair(slots=8, warm=2) as pair:
        pair.warm_up()
        box = Box.make(pair.client)

        def many(_):
            for _ in range(1250):
                check.ok(box.run(argv=["/bin/true"]))

        parallel(8, many, 100)
        with Box.make(pair.client) as fresh:
            as_quick(box, fresh)
        seen = len(box.executions())
        check.true(seen <= 100, "%d executions in one page", seen)
        box.delete()
        pair.check_clean(2)


@test("use extends the idle time, and the end comes at the promised time after the last use",
      case="D7, 145", own=True, deadline=40)
def _(_):
    with harness.Pair(slots=4, warm=1) as pair:
        pair.warm_up()
        box = Box.make(pair.client, idle_ms=2000)
        for _ in range(8):
            box.text("echo x > f")
            time.sleep(0.6)
        box.text("true")
        start = time.monotonic()
        check.eventually(lambda: all(o["state"] == "gone"
                                     for o in rows(pair.client.get(SANDBOXES).json())), 8, "gone",
                         0.05)
        check.within(1.8, time.monotonic() - start, 4, "seconds after the last use")
        pair.check_clean(2)


@test("snapshots, syncs and edits all day: one sandbox, many forks", case="D7", own=True,
      deadline=60)
def _(_):
    with harness.Pair(slots=16, warm=2) as pair:
        pair.warm_up()
        box = Box.make(pair.client)
        kept = []
        files = {"f%d" % i: b"%d" % i for i in range(40)}
        for data in files.values():
            status(blob(pair.client, data), 200, 201, 204)
        for round_ in range(25):
            entries = [file_entry(p, d) for p, d in files.items()]
            check.equal(status(box.sync(entries, delete=True), 200).json()["missing"], [], "missing")
            check.ok(box.sh("echo %d > f%d; rm f%d; mkdir -p d%d" % (round_, round_ % 40,
                                                                    (round_ + 7) % 40, round_)))
            seen = sorted(box.changes())
            check.equal(seen, sorted(["f%d" % (round_ % 40), "f%d" % ((round_ + 7) % 40),
                                      "d%d" % round_]), "changes in round %d" % round_)
            kept.append(box.snapshot())
            if len(kept) > 5:
                forget(pair.client, kept.pop(0))
            if round_ % 5 == 0:
                one, two = box.fork(2)
                check.equal(one.text("cat f%d" % (round_ % 40)), "%d\n" % round_, "a fork")
                one.delete()
                two.delete()
            if round_ % 7 == 3:
                status(box.restore(kept[0]["id"]), 200, 204)
        forget(pair.client, *kept)
        box.delete()
        pair.check_clean(3)

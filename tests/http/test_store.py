"""What is kept of runs: over a kill -9, a restart, a full disk, a newer or older database; and the
answers to requests that are sent again."""

import glob
import json
import os
import signal
import sqlite3
import subprocess
import threading
import time

import check
import clean
import harness
from check import Stopwatch
from client import nonce, parallel
from suite import test

NEW_SERVER = ("threads of the server", "descriptors of the server")


def equal(seen, wanted, what="it"):
    check.equal(seen, wanted, what)


def fresh(**more):
    return harness.Pair(slots=8, warm=2, **more)


def restart(pair, number=signal.SIGKILL):
    pair.client.close()
    if number == signal.SIGKILL:
        pair.kill9_server()
    else:
        pair.end(pair.server, number, pid=pair.server_pid)
    pair.start_server()
    pair.wait_ready()


def database(pair):
    return os.path.join(pair.state, "server", "pinfold.db")


def lines(pair, path="/v1/runs?limit=1000"):
    return pair.client.get(path).json()


@test("a finished run is the same after a kill -9: answer, events, raw output, files, list", own=True)
def _(_):
    with fresh() as pair:
        client = pair.client
        run = client.run(
            steps=[{"name": "one", "sh": "echo out; echo err >&2; printf '\\377\\000x'"},
                   {"name": "two", "sh": "head -c 300 /dev/zero | tr '\\0' 'y'; exit 3",
                    "limits": {"output_bytes": 100}, "continue_on_error": True},
                   {"name": "three", "sh": "echo made > f; kill -9 $$"},
                   {"name": "four", "argv": ["true"]}],
            collect=["f", "missing"])
        large = client.run(sh="head -c 900000 /dev/urandom | base64 -w0; echo; sleep 0.01")
        equal(large["ok"], True)
        events = client.events(run["id"]).all()
        many = client.events(large["id"]).all()
        before = [one["id"] for one in lines(pair)["runs"]]
        equal(before, [large["id"], run["id"]], "the list, newest first")
        restart(pair)
        equal(client.fetch(run["id"]), run, "the answer")
        equal(client.events(run["id"]).all(), events, "the events")
        equal(client.fetch(large["id"]), large, "a large answer")
        equal(client.events(large["id"]).all(), many, "its events")
        raw = client.get("/v1/runs/%s/steps/1/stdout" % run["id"])
        equal(raw.body, b"y" * 100, "raw output")
        equal(raw.headers.get("x-pinfold-omitted"), "200")
        part = client.get("/v1/runs/%s/steps/0/stdout" % large["id"],
                          headers={"Range": "bytes=1000-1999"})
        equal((part.status, part.body.decode()),
                    (206, large["steps"][0]["stdout"][1000:2000]), "a part of a large output")
        equal([one["id"] for one in lines(pair)["runs"]], before, "the list")
        equal(client.delete("/v1/runs/" + run["id"]).json(), run, "deleting shows it")
        other = pair.user_client("other")
        for path in ("", "/events", "/steps/0/stdout", "/steps/0/stderr"):
            equal(other.get("/v1/runs/" + run["id"] + path).status, 404, path)
        equal(lines(pair, "/v1/runs?limit=1")["next"], before[0])
        equal(lines(pair, "/v1/runs?limit=1&after=" + before[0])["runs"][0]["id"], before[1])


@test("results that are not in memory any more are read again", own=True)
def _(_):
    with fresh(server_args=["--results", "3"]) as pair:
        runs = [check.ok(pair.client.run(sh="echo %d" % i)) for i in range(12)]
        for run in runs + runs[::-1]:
            equal(pair.client.fetch(run["id"]), run)
        equal([one["id"] for one in lines(pair)["runs"]], [one["id"] for one in runs[::-1]])


@test("kill -9: what ran is interrupted with what it had done, what waited runs after the restart",
      own=True)
def _(_):
    with harness.Pair(slots=1, warm=1) as pair:
        client = pair.client
        running = client.submit(steps=[{"name": "a", "sh": "echo first"},
                                       {"name": "b", "argv": ["sleep", "60"]},
                                       {"name": "c", "argv": ["true"]}])
        stream = client.events(running, follow=True)
        while stream.next("started")[1]["step"] != 1:
            pass
        big = "x" * 300000
        waiting = [client.submit(sh="echo waited %d; cat" % i, stdin=text)
                   for i, text in enumerate(["short", big])]
        equal(client.fetch(waiting[0])["state"], "queued")
        stream.close()
        restart(pair)
        run = client.fetch(running)
        equal((run["state"], run["ok"]), ("done", False))
        equal([step["state"] for step in run["steps"]], ["done", "done", "skipped"])
        equal(run["steps"][0]["stdout"], "first\n", "what it had done before")
        equal(run["steps"][1]["end"]["cause"], "interrupted")
        last = client.events(running).all()[-1]
        equal(last["type"], "done")
        for i, text in enumerate(["short", big]):
            answer = check.ok(client.wait_done(waiting[i], 10))
            equal(answer["steps"][0]["stdout"], "waited %d\n%s" % (i, text))
        equal(len(lines(pair)["runs"]), 3)


@test("when nothing is asked for, results leave memory, and are read again", own=True)
def _(_):
    command = "head -c 1000000 /dev/zero | tr '\\0' "
    letters = "abcdefghijkl"
    with fresh() as pair:
        client = pair.client
        client.run(sh=command + "z", limits={"output_bytes": 1 << 21})
        check.eventually(lambda: pair.memory() < 60 << 20, 3, "the server is small")
        before = pair.memory()
        ids = [client.run(sh=command + one, limits={"output_bytes": 1 << 21})["id"]
               for one in letters]
        held = pair.memory() - before
        check.eventually(lambda: pair.memory() - before < 6 << 20, 5,
                         "the server is small again, which had grown by %d bytes" % held)
        for one, letter in zip(ids, letters):
            answer = client.get("/v1/runs/%s" % one).json()
            check.equal(check.text(answer), letter * 1000000, "output of %s" % one)


@test("a run does not start before the database says that it does", own=True)
def _(_):
    with harness.Pair(slots=1, warm=1) as pair:
        client = pair.client
        first = client.submit(argv=["sleep", "20"])
        client.wait_state(first, ("running",))
        second = client.submit(sh="echo second")
        db = sqlite3.connect(database(pair), isolation_level=None)
        try:
            db.execute("BEGIN IMMEDIATE")
            client.delete("/v1/runs/" + first)
            tried = ("event=run_trouble run=\"%s\"" % second).encode()
            check.eventually(lambda: tried in pair.log_bytes(), 5, "it is tried")
            equal(client.fetch(second)["state"], "queued", "state while nothing can be written")
            db.execute("ROLLBACK")
        finally:
            db.close()
        equal(check.text(check.ok(client.wait_done(second, 5))), "second\n", "stdout")


@test("queued-on-stop=cancel: what waited is interrupted", own=True)
def _(_):
    with harness.Pair(slots=1, warm=1, server_args=["--queued-on-stop", "cancel"]) as pair:
        pair.client.submit(argv=["sleep", "60"])
        waiting = pair.client.submit(argv=["true"])
        restart(pair)
        run = pair.client.fetch(waiting)
        equal((run["state"], run["steps"][0]["end"]["cause"]), ("done", "interrupted"))


def send(pair, body, headers=None, path="/v1/runs"):
    """With a connection of its own: (status, answer), or None when it broke."""
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", pair.port, timeout=20)
    try:
        text = body if isinstance(body, (bytes, str)) else json.dumps(body)
        connection.request("POST", path, text, dict(
            {"Authorization": "Bearer " + pair.token, "Content-Type": "application/json"},
            **(headers or {})))
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


# The same request again


@test("Idempotency-Key: the first answer again, at once, meanwhile and after a restart", own=True)
def _(_):
    with fresh() as pair:
        for key, body in (("wait", {"sh": "sleep 0.4; date +%N"}),
                          ("later", {"sh": "sleep 0.4; date +%N", "wait": False}),
                          ("big", {"sh": "cat | wc -c", "stdin": "x" * 200000})):
            headers = {"Idempotency-Key": key}
            first = parallel(3, lambda _i: send(pair, body, headers))
            equal(first[0], first[1], key)
            equal(first[0], first[2], key)
            equal(first[0][0], 202 if key == "later" else 200)
            equal(send(pair, body, headers), first[0], key)
            pair.client.wait_done(first[0][1]["id"])
            restart(pair)
            equal(send(pair, body, headers), first[0], key + " after a restart")
            conflict = send(pair, {"argv": ["true"]}, headers)
            equal((conflict[0], conflict[1]["error"]["code"]), (409, "idempotency_conflict"))
        equal(len(lines(pair)["runs"]), 3, "runs")
        other = pair.user_client("other")
        equal(other.post("/v1/runs", {"argv": ["true"]},
                               headers={"Idempotency-Key": "wait"}).status, 200, "another user's key")
        # An error is not kept.
        headers = {"Idempotency-Key": "wrong"}
        equal(send(pair, {"argv": []}, headers)[0], 400)
        equal(send(pair, {"argv": ["true"]}, headers)[0], 200)


@test("Idempotency-Key: a stream is followed again from its beginning", own=True)
def _(_):
    with fresh() as pair:
        headers = {"Idempotency-Key": "a stream"}
        body = {"sh": "echo a; sleep 0.2; echo b", "stream": True}

        def follow():
            text = pair.client.post("/v1/runs", body, headers=headers).body.decode()
            return [json.loads(line) for line in text.splitlines()]

        first = follow()
        equal((first[0]["type"], first[-1]["type"]), ("accepted", "done"))
        equal(follow()[0]["id"], first[0]["id"])
        restart(pair)
        equal(follow(), first, "after a restart")


@test("Idempotency-Key: 1 to 255 printable characters")
def _(pair):
    for key, status in (("a", 200), ("a b~", 200), ("k" * 255, 200), ("k" * 256, 400),
                        ("\x7f", 400), ("\xe4", 400)):
        body = {"argv": ["true"]}
        headers = {"Idempotency-Key": key if status != 200 else nonce() + key[len(nonce()):] if
                   len(key) > 200 else key + nonce()}
        equal(send(pair, body, headers)[0], status, repr(key[:4]))


@test("Idempotency-Key: a sandbox, a snapshot, forks and an execution are made once", own=True)
def _(_):
    with fresh() as pair:
        def again(path, body, key):
            headers = {"Idempotency-Key": key}
            first = send(pair, body, headers, path)
            check.true(first is not None and first[0] in (200, 201, 202), repr(first))
            equal(send(pair, body, headers, path), first, path)
            conflict = send(pair, dict(body, **{"name" if "snap" in path else "metadata" if
                                                path.endswith("boxes") else "count" if
                                                "fork" in path else "cwd":
                                                "x" if "snap" in path else {"a": "b"} if
                                                path.endswith("boxes") else 3 if "fork" in path
                                                else "/tmp"}), headers, path)
            equal((conflict[0], conflict[1]["error"]["code"]), (409, "idempotency_conflict"),
                        path)
            return first[1]

        box = again("/v1/sandboxes", {"ttl_ms": 60000}, "box")["id"]
        again("/v1/sandboxes/%s/exec" % box, {"sh": "echo x >> /workspace/f"}, "exec")
        again("/v1/sandboxes/%s/snapshots" % box, {"name": "s"}, "snap")
        again("/v1/sandboxes/%s/fork" % box, {"count": 2}, "fork")
        equal(len(pair.client.get("/v1/snapshots").json()["snapshots"]), 1)
        equal(len(pair.client.get("/v1/sandboxes").json()["sandboxes"]), 3)
        equal(pair.client.get("/v1/sandboxes/%s/files/workspace/f" % box).body, b"x\n")


# Retention and the database


@test("retention by count: the oldest results go, with their files", own=True)
def _(_):
    with fresh(server_args=["--keep-runs", "20"]) as pair:
        first = pair.client.run(sh="head -c 400000 /dev/urandom | base64 -w0")
        results = os.path.join(pair.state, "server", "results")
        equal(len(os.listdir(results)), 1, "files of large results")
        last = [check.ok(pair.client.run(sh="echo %d" % i))["id"] for i in range(40)]
        due = time.monotonic() + 5
        while len(lines(pair)["runs"]) > 20 and time.monotonic() < due:
            time.sleep(0.05)
        equal([one["id"] for one in lines(pair)["runs"]], last[:19:-1])
        equal(pair.client.get("/v1/runs/" + first["id"]).status, 404)
        while os.listdir(results) and time.monotonic() < due:
            time.sleep(0.05)
        equal(os.listdir(results), [], "files of large results")


@test("a database of a newer version is refused in one sentence and left alone", own=True)
def _(_):
    with fresh() as pair:
        run = check.ok(pair.client.run(argv=["true"]))
        pair.end(pair.server, signal.SIGTERM, pid=pair.server_pid)
        with sqlite3.connect(database(pair)) as db:
            version = db.execute("PRAGMA user_version").fetchone()[0]
            db.execute("PRAGMA user_version=%d" % (version + 1000))
        db.close()
        before = (os.stat(database(pair)).st_mtime_ns, open(database(pair), "rb").read())
        done = subprocess.run(
            [harness.program("pinfold-server"), "serve", "--state", pair.state, "--user", pair.user,
             "--port", str(pair.port)], capture_output=True, text=True, timeout=10)
        equal(done.returncode, 1)
        check.true("newer" in done.stderr and str(version + 1000) in done.stderr, done.stderr)
        equal((os.stat(database(pair)).st_mtime_ns, open(database(pair), "rb").read()), before)
        with sqlite3.connect(database(pair)) as db:
            db.execute("PRAGMA user_version=%d" % version)
        db.close()
        pair.start_server()
        pair.wait_ready()
        equal(pair.client.fetch(run["id"]), run)


@test("a database without the last tables gets them, and nothing else changes", own=True)
def _(_):
    with fresh() as pair:
        pair.end(pair.server, signal.SIGTERM, pid=pair.server_pid)
        for name in glob.glob(database(pair) + "*"):
            os.unlink(name)
        with sqlite3.connect(database(pair)) as db:  # as the first version was
            db.execute("CREATE TABLE probe (id INTEGER PRIMARY KEY, filler BLOB, count INTEGER NOT "
                       "NULL DEFAULT 0)")
            db.execute("INSERT INTO probe VALUES (7, x'00', 5)")
            db.execute("PRAGMA user_version=1")
        db.close()
        owner = os.stat(os.path.join(pair.state, "server"))
        os.chown(database(pair), owner.st_uid, owner.st_gid)
        pair.start_server()
        pair.wait_ready()
        check.ok(pair.client.run(argv=["true"]))
        with sqlite3.connect(database(pair)) as db:
            equal(db.execute("SELECT count FROM probe WHERE id = 7").fetchone()[0], 5)
            check.true(db.execute("PRAGMA user_version").fetchone()[0] > 1, "the version")
        db.close()


@test("100,000 stored runs: a list within 100 ms, ready within a second", own=True, deadline=60)
def _(_):
    with fresh(server_args=["--keep-runs", "200000"]) as pair:
        model = check.ok(pair.client.run(argv=["true"]))["id"]
        pair.end(pair.server, signal.SIGTERM, pid=pair.server_pid)
        with sqlite3.connect(database(pair)) as db:
            user, bytes_ = db.execute("SELECT user, bytes FROM runs").fetchone()
            summary, record = db.execute("SELECT summary, record FROM records").fetchone()
            ids = ["run_%024d" % i for i in range(100000)]
            db.executemany("INSERT INTO runs VALUES (?, ?, 2, ?, ?, ?)",
                           ((user, ids[i], 1000 + i, bytes_, os.urandom(16))
                            for i in range(100000)))
            db.executemany("INSERT INTO records (seq, user, id, at_ms, summary, record) "
                           "VALUES (?, ?, ?, ?, ?, ?)",
                           ((1000 + i, user, ids[i], int(time.time() * 1000),
                             summary.replace(model, ids[i]), record) for i in range(100000)))
        db.close()
        watch = Stopwatch()
        pair.start_server()
        due = time.monotonic() + 10
        while time.monotonic() < due:
            try:
                if pair.client.get("/healthz").status == 200:
                    break
            except OSError:
                time.sleep(0.01)
        watch.below(1, "start-up with 100,000 runs")
        pair.wait_ready()
        after, took = "", []
        for _ in range(5):
            watch = Stopwatch()
            page = lines(pair, "/v1/runs?limit=100&after=" + after)
            took.append(watch.seconds())
            equal(len(page["runs"]), 100)
            after = page["next"]
        # All pages cost the same; what else the machine does costs some of them more.
        check.within(0, min(took), 0.1, "a list of 100 of 100,000 runs")
        watch = Stopwatch()
        equal(pair.client.get("/v1/runs/" + ids[5]).status, 200)
        watch.below(0.1, "one of 100,000 runs")
        equal(lines(pair, "/v1/runs?limit=2&after=" + ids[1])["runs"][0]["id"], ids[0])


@test("large bodies of requests count, and go with the last run that used them", own=True, deadline=90)
def _(_):
    with fresh(server_args=["--keep-run-bytes", "20M"]) as pair:
        results = os.path.join(pair.state, "server", "results")

        def upload(i):
            return pair.client.run(argv=["true"], files=[{"path": "f", "content": "%d" % i + "x" * (4 << 20)}])

        def held():
            return sum(os.path.getsize(os.path.join(results, one)) for one in os.listdir(results))

        for i in range(8):
            check.ok(upload(i))
        # What was used a moment ago is left alone until it was not for a while.
        check.eventually(lambda: held() <= 20 << 20, 30, lambda: "bytes of bodies: %d" % held(), 0.1)
        check.ok(pair.client.post("/v1/runs/%s/replay" % upload(8)["id"], {}).json())


@test("requests that are not to be kept are not, large ones neither", own=True, deadline=40)
def _(_):
    with fresh(server_args=["--keep-requests", "no"]) as pair:
        check.ok(pair.client.run(argv=["true"], files=[{"path": "f", "content": "x" * (4 << 20)}]))
        results = os.path.join(pair.state, "server", "results")
        check.eventually(lambda: os.listdir(results) == [], 5, "no body is kept")

"""SIGTERM: new work is refused, what runs may end, what waits waits for the next server or is
cancelled, and everybody is told. Day D6."""

import os
import shutil
import signal
import sqlite3
import subprocess
import threading
import time

import check
import clean
import harness
from box import SANDBOXES, Box
from check import Stopwatch
from suite import test


def fresh(*arguments, **more):
    return harness.Pair(warm=1, server_args=list(arguments), **more)


def in_thread(function, *arguments):
    """Runs it beside -> a function that waits for its value, and raises what it raised."""
    got = []

    def work():
        try:
            got.append((function(*arguments), None))
        except BaseException as problem:
            got.append((None, problem))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()

    def value(seconds=15):
        thread.join(seconds)
        check.true(got, "no answer within %s s", seconds)
        if got[0][1] is not None:
            raise got[0][1]
        return got[0][0]

    return value


def ended(pair, code=0, seconds=15):
    check.equal(pair.server.wait(seconds), code, "exit code of the server")
    pair.server = None


def again(pair):
    pair.client.close()
    pair.start_server()
    pair.wait_ready()


@test("while it drains: new work 503 with Retry-After, readyz red, healthz green, results there",
      own=True, case=147)
def _(_):
    with fresh("--grace", "8s", slots=4) as pair:
        client = pair.client
        done = client.run(argv=["echo", "before"])["id"]
        box = Box.make(client)
        waits = in_thread(lambda: client.run(sh="sleep 60", limits={"wall_ms": 2000}))
        check.eventually(lambda: running(client) == 1, 5, "it runs")
        stream = client.stream(sh="echo a; sleep 1; echo b")
        stream.next("stdout")
        os.kill(pair.server_pid, signal.SIGTERM)
        check.eventually(lambda: pair.probe("/readyz") == 503, 3, "/readyz is red")
        check.holds(client.get("/readyz").json()["error"]["message"], "about to stop", "its reason")
        check.equal(pair.probe("/healthz"), 200, "/healthz")
        for path, body in (("/v1/runs", {"argv": ["true"]}), (SANDBOXES, {}),
                           ("%s/%s/exec" % (SANDBOXES, box.id), {"argv": ["true"]})):
            answer = client.post(path, body)
            check.error(answer, 503, "draining")
            check.true(int(answer.headers["retry-after"]) >= 1, "Retry-After of " + path)
            check.equal(answer.headers.get("connection"), "close", "Connection of " + path)
        check.equal(client.fetch(done)["state"], "done", "an earlier result")
        events = stream.all()
        check.equal([e["type"] for e in events], ["stdout", "end", "done"], "the stream")
        check.equal(waits()["steps"][0]["end"]["cause"], "wall_time", "the one that is waited for")
        watch = Stopwatch()
        ended(pair)
        watch.below(3, "the end after the last answer")


def running(client):
    return sum(r["state"] == "running" for r in client.get("/v1/runs?limit=100").json()["runs"])


@test("after the grace time what runs is interrupted, and whoever waits gets an answer", own=True,
      case=147)
def _(_):
    with fresh("--grace", "300ms", slots=4) as pair:
        client = pair.client
        box = Box.make(client)
        run = in_thread(lambda: client.run(sh="echo out; sleep 60"))
        inside = in_thread(lambda: client.post("%s/%s/exec" % (SANDBOXES, box.id), {"sh": "sleep 60"}))
        check.eventually(lambda: running(client) == 1, 5, "it runs")
        check.eventually(lambda: client.get("%s/%s/exec" % (SANDBOXES, box.id)).json()["execs"], 5,
                         "the execution runs")
        watch = Stopwatch()
        os.kill(pair.server_pid, signal.SIGTERM)
        step = run()["steps"][0]
        check.equal((step["end"]["cause"], step["stdout"]), ("interrupted", "out\n"), "the run")
        answer = inside()
        check.error(answer, 503, "draining")
        ended(pair)
        watch.below(4, "the end")
        check.holds(pair.log_bytes().decode(), "event=grace_is_over", "log")


@test("a second SIGTERM ends at once, what runs is interrupted", own=True)
def _(_):
    with fresh("--grace", "1m", slots=4) as pair:
        run = in_thread(lambda: pair.client.run(sh="sleep 60"))
        check.eventually(lambda: running(pair.client) == 1, 5, "it runs")
        os.kill(pair.server_pid, signal.SIGTERM)
        check.eventually(lambda: pair.probe("/readyz") == 503, 3, "it drains")
        watch = Stopwatch()
        os.kill(pair.server_pid, signal.SIGTERM)
        check.equal(run()["steps"][0]["end"]["cause"], "interrupted", "cause")
        ended(pair)
        watch.below(2, "the end")
        check.eventually(lambda: not clean.marked(pair.client.mark), 2, "no program is left")


@test("an upload that is going on is finished; sandboxes that wait for a slot are refused", own=True)
def _(_):
    with fresh("--grace", "8s", runner_args=["--sandboxes", "1"], slots=1) as pair:
        client = pair.client
        box = Box.make(client)
        waits = in_thread(lambda: client.post(SANDBOXES, {}))
        sock = client.socket(10)
        data = b"x" * 200000
        sock.sendall(b"PUT %s/%s/files/workspace/f HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"
                     b"Content-Length: %d\r\n\r\n" % (SANDBOXES.encode(), box.id.encode(),
                                                      client.token.encode(), len(data)) + data[:1000])
        check.eventually(lambda: b"\npinfold_sandboxes_waiting 1\n" in client.get("/metrics").body, 5,
                         "the second sandbox waits")
        check.eventually(lambda: b"\npinfold_http_requests_in_flight 3\n" in client.get("/metrics").body, 5,
                         "the upload has begun")
        os.kill(pair.server_pid, signal.SIGTERM)
        check.eventually(lambda: pair.probe("/readyz") == 503, 3, "it drains")
        answer = waits()
        check.error(answer, 503, "draining")
        sock.sendall(data[1000:])
        sock.settimeout(5)
        check.matches(sock.recv(100).decode(), r"HTTP/1.1 20[014] ", "the answer to the upload")
        sock.close()
        ended(pair)
        again(pair)
        answer = client.get("%s/%s/files/workspace/f" % (SANDBOXES, box.id))
        check.equal(answer.body, data, "the file, at the next server")


def one_slot(*arguments, **more):
    return harness.Pair(warm=1, slots=1, server_args=list(arguments), **more)


def keyed(client, key, **request):
    return client.post("/v1/runs", request, headers={"Idempotency-Key": key})


@test("what waits is kept for the next start: it runs there, and whoever waits is told so", own=True,
      case="147, D6", deadline=30)
def _(_):
    with one_slot() as pair:
        client = pair.client
        first = client.submit(sh="sleep 1; echo first")
        client.wait_state(first, ("running",))
        # One after the other: the order is looked at.
        later = [client.submit(sh="echo %d >&2; echo out%d" % (i, i)) for i in range(3)]
        stream = client.events(later[0], follow=True)
        bound = client.stream(sh="echo bound", cancel_on_disconnect=True)
        tied = bound.next("accepted")[1]["id"]
        named = in_thread(lambda: keyed(client, "k1", sh="echo named"))
        nameless = in_thread(lambda: client.run(sh="echo nameless"))
        check.eventually(lambda: queued(client) == 6, 5, "six wait")
        os.kill(pair.server_pid, signal.SIGTERM)
        answer = named()
        check.error(answer, 503, "draining")
        check.matches(answer.json()["error"]["message"], r"the run run_\w+ waits for its next start", "it")
        check.equal(nameless()["steps"][0]["end"]["cause"], "cancelled", "the one without a name")
        check.true("done" not in [e["type"] for e in stream.all()], "the stream is over, the run is not")
        check.equal(client.fetch(later[0])["state"], "queued", "state while it drains")
        ended(pair)
        again(pair)
        check.equal(check.text(client.fetch(first)), "first\n", "what ran when it stopped")
        for i, run in enumerate(later):
            check.equal(check.text(client.wait_done(run)), "out%d\n" % i, "what waited")
        check.equal(client.wait_done(tied)["steps"][0]["end"]["cause"], "cancelled", "a tied one")
        retry = keyed(client, "k1", sh="echo named")
        check.equal(retry.status, 200, "the retry")
        run = client.wait_done(retry.json()["id"])
        check.equal(check.text(run), "named\n", "what the key stands for")
        events = client.events(later[0], follow=True).all()
        check.equal(events[-1]["type"], "done", "the stream at the next server")
        # 1 that ran, 3 that waited, a tied one, a named one, a nameless one: none twice, none more.
        runs = client.get("/v1/runs?limit=100").json()["runs"]
        check.equal(len(runs), 7, "runs")
        check.true(all(one["state"] == "done" for one in runs), "a run is not over: %s", runs)


def queued(client):
    return sum(r["state"] == "queued" for r in client.get("/v1/runs?limit=100").json()["runs"])


@test("queued-on-stop=cancel: what waits ends as cancelled, and its streams with done", own=True,
      case=147)
def _(_):
    with one_slot("--queued-on-stop", "cancel") as pair:
        client = pair.client
        first = client.submit(sh="sleep 0.5; echo first")
        client.wait_state(first, ("running",))
        later = client.submit(sh="echo later")
        stream = client.events(later, follow=True)
        os.kill(pair.server_pid, signal.SIGTERM)
        check.equal(stream.all()[-1]["type"], "done", "last event")
        ended(pair)
        again(pair)
        check.equal(check.text(client.fetch(first)), "first\n", "what ran")
        check.equal(client.fetch(later)["steps"][0]["end"]["cause"], "cancelled", "what waited")


class Version:
    """A server program at a path of its own."""

    def __init__(self, pair, name):
        self.path = os.path.join(pair.work, name)
        shutil.copy(harness.program("pinfold-server"), self.path)
        os.chmod(self.path, 0o755)


def start_version(pair, version):
    pair.client.close()
    pair.server = pair.spawn(
        [version.path, "serve", "--state", pair.state, "--port", str(pair.port), "--user", pair.user],
        "server.log",
    )
    pair.wait_ready()


@test("a new version at noon, and back: running, waiting, streams and sandboxes survive", own=True,
      case="D6", deadline=40)
def _(_):
    with harness.Pair(warm=1, slots=4) as pair:
        client = pair.client
        box = Box.make(client)
        box.put("/workspace/f", b"kept")
        inside = box.start(sh="for i in 1 2 3 4 5 6; do echo line$i; sleep 0.5; done")
        lasting = [client.submit(sh="sleep 0.5; echo run%d" % i) for i in range(11)]
        check.eventually(lambda: running(client) == 4 or running(client) == 3, 5, "some run")
        for version in (Version(pair, "new"), Version(pair, "old")):
            os.kill(pair.server_pid, signal.SIGTERM)
            ended(pair)
            start_version(pair, version)
            check.equal(box.get()["state"], "ready", "the sandbox")
        for i, run in enumerate(lasting):
            check.equal(check.text(client.wait_done(run)), "run%d\n" % i, "a run")
        check.equal(box.content("/workspace/f"), b"kept", "its file")
        box.wait_done(inside)
        check.equal(box.seen(inside), "".join("line%d\n" % i for i in range(1, 7)).encode(),
                    "the output of the execution that went on")


@test("a state of a newer version is refused with one sentence and not touched", own=True, case="D6")
def _(_):
    pair = harness.Pair()
    try:
        pair.init()
        inner = os.path.join(pair.state, "server")
        path = os.path.join(inner, "pinfold.db")
        with sqlite3.connect(path) as db:
            db.execute("PRAGMA user_version=9999")
        owner = os.stat(inner)
        os.chown(path, owner.st_uid, owner.st_gid)
        before = open(path, "rb").read(), sorted(os.listdir(inner))
        done = subprocess.run(
            [harness.program("pinfold-server"), "serve", "--state", pair.state, "--user", pair.user,
             "--port", "0"], stdin=subprocess.DEVNULL, capture_output=True, timeout=10,
        )  # fmt: skip
        check.equal(done.returncode, 1, "exit code")
        lines = [line for line in done.stderr.decode().splitlines() if not line.startswith("ts=")]
        check.equal(len(lines), 1, "sentences")
        check.holds(lines[0], "a newer Pinfold wrote it", "the sentence")
        check.equal((open(path, "rb").read(), sorted(os.listdir(inner))), before, "what is there")
    finally:
        pair.discard()

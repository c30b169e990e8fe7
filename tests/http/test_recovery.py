"""Servers and runners that are stopped, killed and started again; each test brings its own pair."""

import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import time

import check
import clean
import harness
from check import Stopwatch
from client import free_port, parallel
from suite import test

MARKER_DIR = "pinfold-test-foreign"
# A server that was started again has made other threads so far.
NEW_SERVER = ("threads of the server", "descriptors of the server")


def busy(pair, count=6):
    """Starts sleepers and busy loops -> (ids, {(pid, start)} of everything in jails)."""
    runs = [
        pair.client.submit(
            sh="sleep 1000" if i % 2 else "while :; do :; done",
            limits={"wall_ms": 60000, "cpu_ms": 60000},
        )
        for i in range(count)
    ]
    for run in runs:
        pair.client.wait_state(run, ("running",))
    check.eventually(lambda: len(clean.marked(pair.client.mark)) >= count, 3, "the programs run")
    return runs, pair.jailed()


def dead(identities, seconds=1.0):
    check.eventually(
        lambda: not clean.alive(identities),
        seconds,
        lambda: "every process of a jail is dead; %d are alive" % len(clean.alive(identities)),
    )


@test(
    "kill -9 of the server: every used jail is dead within a second, and the next start is clean",
    case=154,
    own=True,
    deadline=40,
)
def _(_):
    with harness.Pair(slots=8, warm=2) as pair:
        pair.rest()
        runs, jailed = busy(pair)
        marked = clean.identity(clean.marked(pair.client.mark))
        pair.kill9_server()
        dead(marked)
        check.equal(pair.runner.poll(), None, "the runner goes on")
        pair.start_server()
        pair.wait_ready()
        pair.check_clean(2, NEW_SERVER)
        check.ok(pair.client.run(argv=["true"]))
        for run in runs:
            answer = pair.client.get("/v1/runs/" + run)
            if answer.status == 200:
                check.ended(answer.json(), "interrupted")
            else:
                check.error(answer, 404)


@test(
    "kill -9 of the runner: runs end as interrupted, readyz turns red and back",
    case="154, 140",
    own=True,
    deadline=40,
)
def _(_):
    with harness.Pair(slots=8, warm=2) as pair:
        pair.rest()
        runs, jailed = busy(pair)
        host, _ = clean.family(pair.runner_pid)
        everything = jailed | clean.identity(host)
        pair.kill9_runner()
        dead(everything)
        pair.wait_ready(2, wanted=503)
        for run in runs:
            answer = pair.client.wait_done(run, 2)
            check.ended(answer, "interrupted", exit_code=None)
            check.equal(answer["ok"], False, "ok")
        check.equal(pair.probe("/healthz"), 200, "/healthz")
        pair.start_runner()
        pair.wait_ready(10)
        check.ok(pair.client.run(argv=["true"]))
        pair.check_clean(2)


@test("the next start removes exactly its own leftovers", case="154, D1", own=True, deadline=40)
def _(_):
    with harness.Pair(slots=8, warm=2) as pair:
        pair.rest()
        busy(pair)
        foreign = []
        for base in set(pair.bases.values()):
            for name in (MARKER_DIR, "pinfold-00000000", "pinfold-00000000/0"):
                foreign.append(os.path.join(base, name))
                os.mkdir(foreign[-1])
        try:
            pair.kill9_runner()
            pair.kill9_server()
            watch = Stopwatch()
            pair.start_runner()
            pair.start_server()
            pair.wait_ready(10)
            watch.below(5, "the start")
            check.equal(
                [p for p in foreign if not os.path.isdir(p)], [], "foreign directories removed"
            )
        finally:
            for path in reversed(foreign):
                if os.path.isdir(path):
                    os.rmdir(path)
        check.ok(pair.client.run(argv=["true"]))
        pair.check_clean(3, NEW_SERVER)


@test(
    "a second kill in the middle of the start is repaired by the third",
    case="D1",
    own=True,
    deadline=40,
)
def _(_):
    with harness.Pair(slots=8, warm=2) as pair:
        pair.rest()
        busy(pair)
        pair.kill9_runner()
        pair.start_runner()
        pair.kill9_runner()
        pair.start_runner()
        pair.wait_ready(10)
        check.ok(pair.client.run(argv=["true"]))
        pair.check_clean(3, NEW_SERVER)


@test("a start waits for the shards of a killed runner to be dead", own=True, deadline=40)
def _(_):
    with harness.Pair(slots=2, warm=1) as pair:
        pair.rest()
        pair.kill9_runner()
        # Who inherited the lock holds it as one of its shards does that the kernel has not ended.
        with open(os.path.join(pair.state, "lock.runner"), "r+") as lock:
            end = time.monotonic() + 10
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    check.true(time.monotonic() < end, "a killed runner's lock")
                    time.sleep(0.01)
            pair.start_runner()
            check.true(pair.probe("/readyz") != 200, "ready without a runner")
            try:
                check.fail("the runner ended with %s", pair.runner.wait(0.5))
            except subprocess.TimeoutExpired:
                pass
        pair.wait_ready(10)
        check.ok(pair.client.run(argv=["true"]))
        pair.check_clean(2)


@test(
    "a killed shard interrupts its own runs, and the runner makes a new one",
    case=140,
    own=True,
    deadline=40,
)
def _(_):
    with harness.Pair(slots=8, warm=2, shards=2) as pair:
        pair.rest()
        runs, _ = busy(pair, 8)
        shards = [pid for pid in pair.shard_pids() if clean.family(pid)[1]]
        check.equal(len(shards), 2, "shards with jails")
        victims = clean.identity(clean.family(shards[0])[1])
        others = clean.identity(
            set(clean.marked(pair.client.mark)) & set(clean.family(shards[1])[1])
        )
        check.true(others, "nothing runs on the second shard")
        os.kill(shards[0], signal.SIGKILL)
        dead(victims)
        check.equal(clean.alive(others), others, "programs of the other shard")

        def settled():
            states = [pair.client.fetch(run) for run in runs]
            return [s for s in states if s["state"] == "done"] and states

        states = check.eventually(settled, 2, "a run has ended")
        ended = [s for s in states if s["state"] == "done"]
        for one in ended:
            check.ended(one, "interrupted")
        check.true(len(ended) < 8, "all runs have ended")
        for _ in range(10):
            check.ok(pair.client.run(argv=["true"]))
        check.eventually(
            lambda: len([p for p in pair.shard_pids() if clean.family(p)[1]]) == 2,
            5,
            "two shards with jails again",
        )
        for run in runs:
            pair.client.delete("/v1/runs/" + run)
        check.eventually(lambda: pair.probe("/readyz") == 200, 5, "ready")


@test("two shards share the work", own=True, deadline=30)
def _(_):
    with harness.Pair(slots=8, warm=2, shards=2) as pair:
        pair.rest()
        seen = parallel(8, lambda _: check.ok(pair.client.run(argv=["sleep", "0.3"])))
        check.equal(len(seen), 8, "runs")
        runs, _ = busy(pair, 8)
        used = [
            len(set(clean.marked(pair.client.mark)) & set(clean.family(pid)[1]))
            for pid in pair.shard_pids()
        ]
        used = [n for n in used if n]
        check.true(len(used) == 2 and min(used) >= 3, "programs per shard: %s", used)
        for run in runs:
            pair.client.delete("/v1/runs/" + run)
        for run in runs:
            pair.client.wait_done(run, 3)
        pair.check_clean(2)


def refused(arguments, words, seconds=5):
    """A program that must not start: it ends soon, with an exit code and one sentence."""
    watch = Stopwatch()
    done = subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds)
    check.true(
        done.returncode not in (0, None) and done.returncode > 0, "exit code %s", done.returncode
    )
    text = (done.stderr + done.stdout).decode()
    lines = [line for line in text.splitlines() if line.strip()]
    check.equal(len(lines), 1, "lines of the message %r" % text)
    for word in words:
        check.holds(text.lower(), word, "message")
    return watch


def another_server(pair, state, port):
    """The command that would start one beside that of the pair."""
    return [harness.program("pinfold-server"), "serve", "--state", state, "--user", pair.user,
            "--listen", "127.0.0.1", "--port", str(port)]


@test(
    "a second server or runner on the same state directory says so and ends",
    case=156,
    own=True,
    deadline=30,
)
def _(_):
    with harness.Pair(slots=2, warm=1) as pair:
        pair.rest()
        server = another_server(pair, pair.state, free_port())
        refused(server, [pair.state.lower()]).below(1.5, "the second server")
        runner = [
            harness.program("pinfold-runner"),
            "--state",
            pair.state,
            "--policies",
            pair.policies,
            "--server-user",
            pair.user,
        ]
        refused(runner, [pair.state.lower()]).below(1.5, "the second runner")
        check.ok(pair.client.run(argv=["true"]))
        pair.check_clean(2)


@test(
    "another state directory on the same port is refused with one sentence",
    case=156,
    own=True,
    deadline=30,
)
def _(_):
    with harness.Pair(slots=2, warm=1) as pair:
        other = harness.Pair()
        try:
            other.init()
            refused(another_server(pair, other.state, pair.port), [str(pair.port), "--port"])
        finally:
            other.discard()
        check.ok(pair.client.run(argv=["true"]))


@test(
    "SIGTERM: new work is refused, what is queued is cancelled, what runs ends, exit 0",
    case=147,
    own=True,
    deadline=40,
)
def _(_):
    with harness.Pair(slots=4, warm=2, server_args=["--queued-on-stop", "cancel"]) as pair:
        pair.rest()
        runs = [pair.client.submit(sh="sleep 1; echo end") for _ in range(14)]
        for run in runs[:4]:
            pair.client.wait_state(run, ("running",))
        streams = [pair.client.events(run, follow=True) for run in runs]
        kept = pair.client.connection()
        kept.request("GET", "/v1/runs?limit=1", headers=pair.client.headers())
        kept.getresponse().read()
        os.kill(pair.server_pid, signal.SIGTERM)

        def refuses():
            try:
                kept.request(
                    "POST", "/v1/runs", b'{"argv":["true"]}', pair.client.headers(None, b"x")
                )
                answer = kept.getresponse()
                answer.read()
                return answer.status == 503 and answer.getheader("Retry-After")
            except OSError:
                return True

        check.eventually(refuses, 1, "new work is refused")
        causes = []
        for stream in streams:
            events = stream.all()
            check.equal(events[-1]["type"], "done", "last event")
            causes += [e["end"]["cause"] for e in events if e["type"] == "end"]
        check.true(set(causes) <= {"exit", "cancelled", "interrupted"}, "causes: %s", causes)
        check.equal(pair.server.wait(15), 0, "exit code of the server")
        pair.server = None
        check.eventually(lambda: not clean.marked(pair.client.mark), 2, "no program is left")
        check.equal(pair.end(pair.runner, signal.SIGTERM), 0, "exit code of the runner")
        pair.runner = None


@test("a stopped pair leaves no process, cgroup, socket or mount", case=152, own=True, deadline=30)
def _(_):
    mounts = clean.mount_points()
    pair = harness.Pair(slots=8, warm=4, shards=2).start()
    try:
        pair.rest()
        check.ok(pair.client.run(argv=["true"]))
        everything = pair.jailed() | clean.identity(clean.family(pair.runner_pid)[0])
        bases = dict(pair.bases)
        pair.stop()
        check.equal(clean.alive(everything), set(), "processes")
        for key, base in bases.items():
            left = clean.tree(base) if os.path.isdir(base) else []
            check.equal(left, [], "cgroup directories of %s" % (key or "v2"))
        check.equal(clean.mount_points(), mounts, "mounts")
        left = [f for f in clean.files(pair.state) if "/run/" in f]
        check.equal([f for f in left if f.endswith(".sock")], [], "sockets")
        pair.start()
        check.ok(pair.client.run(argv=["true"]))
    finally:
        pair.discard()


@test(
    "restart keeps the token, and old runs are told as interrupted or unknown",
    own=True,
    deadline=30,
)
def _(_):
    with harness.Pair(slots=2, warm=1) as pair:
        old, token = check.ok(pair.client.run(argv=["true"]))["id"], pair.token
        pair.stop()
        pair.start()
        check.equal(pair.token, token, "token")
        check.member(pair.client.get("/v1/runs/" + old).status, (200, 404), "status of an old run")


@test("cold jails do the same as warm ones", own=True, deadline=30)
def _(_):
    with harness.Pair(slots=4, warm=0) as pair:
        pair.warm_up()
        for _ in range(20):
            answer = check.ok(
                pair.client.sh("echo cold; cat f", files=[{"path": "f", "content": "file"}])
            )
            check.equal(check.text(answer), "cold\nfile", "stdout")
        check.ended(pair.client.run(argv=["/no/such"]), "start")
        parallel(8, lambda _: check.ok(pair.client.run(argv=["sleep", "0.05"])))
        pair.check_clean(1)


@test(
    "a server with all slots taken queues, and freed slots are used at once",
    case="134, 139",
    own=True,
    deadline=40,
)
def _(_):
    with harness.Pair(slots=4, warm=2) as pair:
        pair.rest()
        runs = [pair.client.submit(argv=["sleep", "60"]) for _ in range(4)]
        for run in runs:
            pair.client.wait_state(run, ("running",))
        queued = pair.client.submit(argv=["echo", "queued"])
        check.equal(pair.client.fetch(queued)["state"], "queued", "state of the fifth")
        waiting = pair.client.submit(argv=["true"])
        pair.client.delete("/v1/runs/" + waiting)
        check.ended(pair.client.wait_done(waiting, 1), "cancelled")
        pair.client.delete("/v1/runs/" + runs[0])
        answer = check.ok(pair.client.wait_done(queued, 2))
        check.true(answer["timing"]["queue_ms"] >= 0, "queue_ms")
        for run in runs[1:]:
            pair.client.delete("/v1/runs/" + run)
        for run in runs:
            pair.client.wait_done(run, 2)
        pair.check_clean(2)


@test("20 clients hang up at once: no slot stays taken", case=134, own=True, deadline=40)
def _(_):
    with harness.Pair(slots=4, warm=2) as pair:
        pair.rest()
        connections = []
        for _ in range(20):
            one = pair.client.connection()
            body = json.dumps(pair.client.marked({"sh": "sleep 60", "cancel_on_disconnect": True}))
            one.request("POST", "/v1/runs", body, pair.client.headers(None, b"x"))
            connections.append(one)
        check.eventually(
            lambda: len(pair.client.get("/v1/runs?limit=50").json()["runs"]) == 20, 5, "20 runs"
        )
        for index, one in enumerate(connections):
            if index % 2:
                one.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            one.close()
        watch = Stopwatch()
        following = check.ok(pair.client.run(argv=["true"]))["id"]
        watch.below(1, "the next run")
        gone = [run["id"] for run in pair.client.get("/v1/runs?limit=50").json()["runs"]]
        gone.remove(following)
        check.equal(len(gone), 20, "runs of those who are gone")
        for run in gone:
            check.equal(pair.client.wait_done(run, 1)["steps"][0]["end"]["cause"], "lost_client", "cause")
        pair.check_clean(2)


@test(
    "a full queue is 429 with Retry-After, and takes work again later",
    case=139,
    own=True,
    deadline=30,
)
def _(_):
    with harness.Pair(slots=2, warm=1, server_args=["--queue", "5"]) as pair:
        runs = [pair.client.submit(argv=["sleep", "30"]) for _ in range(2)]
        for run in runs:
            pair.client.wait_state(run, ("running",))
        runs += [pair.client.submit(argv=["sleep", "30"]) for _ in range(5)]
        for _ in range(3):
            answer = pair.client.send(argv=["true"])
            check.error(answer, 429)
            check.matches(answer.headers.get("retry-after", ""), r"^\d+$", "Retry-After")
        for run in runs:
            pair.client.delete("/v1/runs/" + run)
        check.ok(pair.client.run(argv=["true"]))
        for run in runs:
            check.ended(pair.client.wait_done(run, 3), "cancelled")


@test("results are kept up to a bound, the oldest go first", own=True, deadline=30)
def _(_):
    with harness.Pair(slots=2, warm=1, server_args=["--keep-runs", "5"]) as pair:
        made = [check.ok(pair.client.run(argv=["true"]))["id"] for _ in range(12)]

        def seen():
            return [pair.client.get("/v1/runs/" + run).status for run in made]

        check.eventually(lambda: seen() == [404] * 7 + [200] * 5, 3,
                         lambda: "status of the runs, oldest first: %r" % seen())
        check.equal(
            [r["id"] for r in pair.client.get("/v1/runs").json()["runs"]], made[:6:-1], "the list"
        )


@test("large results do not grow the server without end", own=True, deadline=60)
def _(_):
    with harness.Pair(slots=4, warm=2, server_args=["--result-bytes", "16M"]) as pair:

        def one(_):
            for _ in range(15):
                check.ok(
                    pair.client.sh(
                        "head -c 4000000 /dev/zero | tr '\\0' x",
                        policy="ci",
                        limits={"output_bytes": 4000000},
                    )
                )

        parallel(4, one)
        check.true(pair.memory() < 150 << 20, "the server holds %d bytes", pair.memory())


@test(
    "a run that comes while there is no runner waits for it or is refused, and is never lost",
    case=140,
    own=True,
    deadline=40,
)
def _(_):
    with harness.Pair(slots=2, warm=1) as pair:
        pair.kill9_runner()
        pair.wait_ready(3, wanted=503)

        def one(index):
            if index == 0:
                return pair.client.send(argv=["echo", "late"])
            pair.start_runner()
            return None

        answer = parallel(2, one, 20)[0]
        if answer.status == 200:
            check.equal(check.text(check.ok(answer.json())), "late\n", "stdout")
        else:
            check.error(answer, 503)
            check.true(answer.headers.get("retry-after"), "no Retry-After")
        pair.wait_ready(10)
        check.ok(pair.client.run(argv=["true"]))


def made(pair):
    lines = pair.client.get("/metrics").body.decode().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("pinfold_jails_made_total "))


@test(
    "warm jails that die as soon as they are made are replaced after pauses, and readyz says why",
    case=154,
    own=True,
    deadline=40,
)
def _(_):
    with harness.Pair(slots=2, warm=1) as pair:
        check.eventually(lambda: pair.jailed(), 5, "a warm jail")
        before, killed, why = made(pair), 0, None
        watch = Stopwatch()
        while watch.seconds() < 1.5 or not why:
            check.true(watch.seconds() < 10, "readyz says nothing after %d kills", killed)
            for pid, _ in pair.jailed():
                try:
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
                except ProcessLookupError:
                    pass
            answer = pair.client.get("/readyz")
            if answer.status == 503:
                why = answer.body.decode()
        check.holds(why, "in a row", "readyz")
        check.true(killed >= 4, "%d kills only", killed)
        # The pauses double from 0.1 s on: at once, 0.1, 0.3, 0.7, 1.5, 3.1 …
        check.true(made(pair) - before <= 5 + 2 * watch.seconds(), "%d jails were made in %.1f s",
                   made(pair) - before, watch.seconds())
        watch = Stopwatch()
        check.ok(pair.client.run(argv=["true"]))
        watch.below(1, "a run, which waits for no pause")
        check.eventually(lambda: pair.probe("/readyz") == 200, 15, "ready again")
        check.ok(pair.client.run(argv=["true"]))
        pair.check_clean(3, NEW_SERVER)

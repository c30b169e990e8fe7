"""Who waits, how long, and behind whom: turns between users, lanes within one, bounds, positions."""

import json
import os
import threading
import time

import check
import harness
from client import Stream, nonce, parallel
from probe import Probe
from suite import Skip, test

# PINFOLD_TEST_DAYS=minutes makes the shortened days as long as that.
MIB = 1 << 20
MINUTES = float(os.environ.get("PINFOLD_TEST_DAYS", "0"))


def block(client, slots, seconds):
    """Fills all slots, so that what comes next waits."""
    runs = [client.submit(argv=["sleep", str(seconds)]) for _ in range(slots)]
    for run in runs:
        client.wait_state(run, ("running", "done"))
    return runs


def started(run):
    """When it left the queue, in milliseconds since the epoch."""
    return run["created_at"] + run["timing"]["queue_ms"]


def cancel(client, runs):
    for run in runs:
        client.delete("/v1/runs/" + run)


@test("300 waiting runs of one user delay another's single run by one slot time", own=True)
def _(_):
    with harness.Pair(slots=2, warm=2) as pair:
        one = pair.user_client("one")
        hog = [pair.client.submit(argv=["sleep", "0.2"], priority="high") for _ in range(300)]
        check.true(
            pair.client.fetch(hog[-1])["state"] == "queued", "the queue is not as long as it must be"
        )
        for _ in range(5):
            begin = time.monotonic()
            run = check.ok(one.run(argv=["true"], priority="low"))
            took = time.monotonic() - begin
            check.true(
                run["timing"]["queue_ms"] <= 350 and took < 0.6,
                "waited %d ms behind slots of 200 ms" % run["timing"]["queue_ms"],
            )
        cancel(pair.client, hog[::-1])


def even(pair, users, each, slots, command):
    """All users' runs wait at the same moment; -> all run objects of each."""
    clients = [pair.user_client("u%d" % i) for i in range(users)]
    blockers = block(pair.client, slots, 30)
    runs = [[client.submit(argv=command) for _ in range(each)] for client in clients]
    probe = Probe(pair.user_client("probe"), pair.server_pid)
    cancel(pair.client, blockers)
    answers = [[c.wait_done(r, 60) for r in own] for c, own in zip(clients, runs)]
    return answers, probe.end()


@test("20 users with 10 waiting runs each are served evenly, and healthz answers",
      own=True, alone=True, deadline=30)
def _(_):
    with harness.Pair(slots=4, warm=4) as pair:
        answers, probe = even(pair, 20, 10, 4, ["sleep", "0.03"])
        order = sorted((started(run), user) for user, own in enumerate(answers) for run in own)
        counts = [0] * 20
        worst = 0
        for index, (_, user) in enumerate(order):
            counts[user] += 1
            # What is known of a start is two times, each cut to milliseconds.
            if index + 1 < len(order) and order[index + 1][0] > order[index][0] + 2:
                worst = max(worst, max(counts) - min(counts))
        check.true(worst <= 1, "some user was %d runs ahead of another" % worst)
        probe.below(0.99, 0.02, 50)


@test("a user's high runs go first and take nobody else's turn; his low ones are not starved", own=True)
def _(_):
    with harness.Pair(slots=1, warm=1) as pair:
        a, b = pair.user_client("a"), pair.user_client("b")
        blocker = block(pair.client, 1, 30)
        low = a.submit(argv=["true"], priority="low")
        normal = a.submit(argv=["true"])
        high = [a.submit(argv=["true"], priority="high") for _ in range(20)]
        other = [b.submit(argv=["true"], priority="low") for _ in range(3)]
        cancel(pair.client, blocker)
        order = sorted(
            [(started(a.wait_done(r, 10)), i, "high") for i, r in enumerate(high)]
            + [(started(b.wait_done(r, 10)), i, "other") for i, r in enumerate(other)]
            + [(started(a.wait_done(low, 10)), 0, "low"), (started(a.wait_done(normal, 10)), 0, "normal")]
        )
        names = [name for _, _, name in order]
        check.true(
            [i for i, n in enumerate(names) if n == "other"][2] <= 7,
            "the other user's three runs did not have their turns: %s" % names,
        )
        check.true(names.index("high") <= 1, "the first of a's is not a high one: %s" % names)
        for name in ("normal", "low"):
            check.true(
                8 <= names.index(name) <= 20, "the %s run came at place %d" % (name, names.index(name))
            )


@test("a queued run shows its position: in the 202, in GET and in its stream", own=True)
def _(_):
    with harness.Pair(slots=1, warm=1) as pair:
        blocker = block(pair.client, 1, 30)
        seen, runs = [], []
        for _ in range(4):
            answer = pair.client.send(wait=False, argv=["true"]).json()
            check.equal(answer["state"], "queued", "state")
            seen.append(answer["position"])
            runs.append(answer["id"])
        check.equal(seen, [0, 1, 2, 3], "positions in the 202")
        check.equal(
            [pair.client.fetch(run)["position"] for run in runs], [0, 1, 2, 3], "positions in GET"
        )
        body = json.dumps({"argv": ["true"], "stream": True}).encode()
        with Stream(pair.client, "POST", "/v1/runs", body) as stream:
            stream.next("accepted")
            check.equal(stream.next()[1], {"seq": 0, "type": "queued", "position": 4}, "the event")
            cancel(pair.client, runs[2:])
            begin = time.monotonic()
            check.equal(stream.next("queued")[1]["position"], 2, "the position after cancelling two")
            check.true(time.monotonic() - begin < 2, "it was told late")
            cancel(pair.client, blocker)
            rest = [event for _, event in stream]
        kept = [event["seq"] for event in rest if event["seq"] > 0]
        check.equal(kept, list(range(1, len(kept) + 1)), "numbers of the events that are kept")
        check.equal(rest[-1]["type"], "done", "the last event")
        check.true("position" not in pair.client.fetch(runs[0]), "a run that is over has a position")


@test("one user cannot fill the queue for others", own=True)
def _(_):
    with harness.Pair(slots=1, warm=1, server_args=["--queue", "45"]) as pair:
        other = pair.user_client("other")
        runs = block(pair.client, 1, 30)
        while True:
            answer = pair.client.send(wait=False, argv=["true"])
            if answer.status != 202:
                break
            runs.append(answer.json()["id"])
        check.error(answer, 429, "queue_full")
        check.matches(answer.headers.get("retry-after", ""), r"^[1-5]$", "Retry-After")
        check.equal(len(runs), 1 + 40, "runs of one user that wait, of 45 places")
        mine = other.submit(argv=["true"])
        check.equal(other.fetch(mine)["position"], 1, "the position of the other's run")
        cancel(pair.client, runs)
        check.ok(other.wait_done(mine, 5))


@test("what waits can be cancelled, and its wall time has not begun", own=True)
def _(_):
    with harness.Pair(slots=1, warm=1) as pair:
        blocker = block(pair.client, 1, 1)
        gone = pair.client.submit(argv=["true"])
        late = pair.client.submit(argv=["true"], limits={"wall_ms": 300})
        check.ended(pair.client.delete("/v1/runs/" + gone).json(), "cancelled")
        run = check.ok(pair.client.wait_done(late, 5))
        check.true(run["timing"]["queue_ms"] >= 400, "it did not wait")
        check.true(run["steps"][0]["usage"]["wall_ms"] < 300, "waiting was charged")
        pair.client.wait_done(blocker[0], 5)


@test("an unknown priority is refused")
def _(pair):
    check.error(pair.client.send(argv=["true"], priority="urgent"), 400, field="/priority")
    check.error(pair.client.send(argv=["true"], priority=1), 400, field="/priority")
    check.ok(pair.client.run(argv=["true"], priority="low"))


def waiting(pair):
    """How many sandboxes wait for a place."""
    for line in pair.client.get("/metrics").body.decode().splitlines():
        if line.startswith("pinfold_sandboxes_waiting"):
            return int(line.split()[-1])
    return 0


@test("waiting sandboxes of one user do not keep another's from its turn", own=True, deadline=20)
def _(_):
    with harness.Pair(slots=1, warm=1, runner_args=["--sandboxes", "1"]) as pair:
        one = pair.user_client("one")
        first = pair.client.post("/v1/sandboxes", {}).json()["id"]
        results = {}

        def make(name, client):
            answer = client.post("/v1/sandboxes", {})
            results.setdefault(name, []).append(time.monotonic())
            if answer.status == 201:
                client.delete("/v1/sandboxes/" + answer.json()["id"])

        threads = [threading.Thread(target=make, args=("hog", pair.client)) for _ in range(6)]
        for thread in threads:
            thread.start()
        check.eventually(lambda: waiting(pair) == 6, 5, "six that wait")
        threads.append(threading.Thread(target=make, args=("one", one)))
        threads[-1].start()
        check.eventually(lambda: waiting(pair) == 7, 5, "a seventh")
        pair.client.delete("/v1/sandboxes/" + first)
        for thread in threads:
            thread.join(10)
        earlier = [at for at in results["hog"] if at < results["one"][0]]
        check.true(len(earlier) <= 2, "%d of the hog's came first" % len(earlier))


@test("D5: limits within the memory budget start, others wait, more than all of it is 422", own=True, deadline=40)
def _(_):
    with harness.Pair(slots=8, warm=2, server_args=["--memory-budget", "512M"]) as pair:
        big = {"mem_bytes": 200 * MIB}
        error = check.error(
            pair.client.send(argv=["true"], limits={"mem_bytes": 513 * MIB}), 422, "limit_unavailable"
        )
        check.holds(error["message"], "536870912", "the message")
        check.error(
            pair.client.post("/v1/sandboxes", {"limits": {"mem_bytes": 513 * MIB}}),
            422,
            "limit_unavailable",
        )
        box = pair.client.post("/v1/sandboxes", {"limits": big}).json()["id"]
        runs = [pair.client.submit(argv=["sleep", "30"], limits=big) for _ in range(3)]
        pair.client.wait_state(runs[0], ("running",))
        small = pair.client.submit(argv=["sleep", "30"], limits={"mem_bytes": 64 * MIB})
        check.equal({pair.client.fetch(r)["state"] for r in runs[1:]}, {"queued"}, "the others")
        # Another user's run that fits passes at first.
        one = pair.user_client("one")
        check.ok(one.run(argv=["true"], limits={"mem_bytes": 64 * MIB}))
        check.equal(pair.client.fetch(small)["state"], "queued", "who waits behind his own")
        pair.client.delete("/v1/runs/" + runs[0])
        pair.client.wait_state(runs[1], ("running",))
        check.equal(pair.client.fetch(runs[2])["state"], "queued", "the third")
        check.equal(pair.client.delete("/v1/sandboxes/" + box).status, 204, "deleting")
        pair.client.wait_state(runs[2], ("running",))
        pair.client.wait_state(small, ("running",))
        cancel(pair.client, runs + [small])


@test("D5: all touch what they may: the kernel ends jailed programs and never the server", own=True, deadline=40)
def _(_):
    touch = (
        "import time\nx=bytearray()\n"
        "for _ in range(%d): x.extend(b'x' * (1 << 20))\n"
        "time.sleep(%s)\nprint(len(x) >> 20)"
    )
    guard = harness.Guard(mem_bytes=640 * MIB)
    if not any("memory" in key.split(",") for key in guard.dirs):
        guard.close()
        raise Skip("no memory controller under which a group of processes can be put")
    with harness.Pair(slots=6, warm=2, guard=guard) as pair:

        def one(index):
            client = pair.user_client("u%d" % index)
            return client.python(touch % (180, 1.5), limits={"mem_bytes": 256 * MIB})

        answers = parallel(6, one, 30)
        causes = [answer["steps"][0]["end"]["cause"] for answer in answers]
        # None came near its own cap.
        check.true(set(causes) <= {"exit", "memory_host"}, causes)
        for answer in answers:
            if answer["ok"]:
                check.equal(answer["steps"][0]["stdout"].strip(), "180", "what it held")
        check.true(any(answer["ok"] for answer in answers), "nobody came through: %s" % causes)
        check.equal(pair.probe("/healthz"), 200, "healthz afterwards")
        check.true(pair.server.poll() is None and pair.runner.poll() is None, "a program ended")
        check.ok(pair.client.run(argv=["true"]))


@test("many clients at once with 256 descriptors: every job has its own result", case="D3", own=True, deadline=40)
def _(_):
    seconds = max(5.0, 60 * MINUTES)
    with harness.Pair(slots=4, warm=4, nofile=256) as pair:
        clients = [pair.user_client("c%d" % i) for i in range(8)]
        probe = Probe(pair.user_client("probe"), pair.server_pid)
        end = time.monotonic() + seconds
        done = [0] * len(clients)

        def work(index):
            client, n = clients[index % len(clients)], 0
            while time.monotonic() < end:
                kind, word, n = (index + n) % 10, nonce(), n + 1
                if kind == 9:
                    body = {"sh": "echo %s; sleep 0.05; echo %s" % (word, word), "stream": True}
                    try:
                        stream = Stream(client, "POST", "/v1/runs", json.dumps(body).encode())
                        text = "".join(e.get("data", "") for e in stream.all())
                    except OSError:
                        continue  # no descriptor for one more connection: it waits in the backlog
                    check.equal(text.split(), [word, word], "the stream's output")
                    done[index % len(clients)] += 1
                    continue
                request = {"sh": "echo " + word}
                if kind == 8:
                    request = {"sh": "cat | wc -c; echo " + word, "stdin": "x" * 500000}
                elif kind == 7:
                    request = {"sh": "sleep 0.2; echo " + word}
                answer = client.post("/v1/runs", request)
                if answer.status in (429, 503):
                    check.matches(answer.headers.get("retry-after", ""), r"^\d+$", "Retry-After")
                    continue
                check.equal(answer.status, 200, "status")
                check.equal(check.text(check.ok(answer.json())).split()[-1:], [word], "the output")
                done[index % len(clients)] += 1

        # Each has one that it keeps and does not use while it waits for a second one, a stream's.
        parallel(64, work, seconds + 12)
        probe.end()
        fds = len(os.listdir("/proc/%d/fd" % pair.server_pid))
        check.true(fds <= 256, "%d descriptors" % fds)
        check.true(min(done) > 0, "some user got nothing: %s" % done)
        check.true(max(done) / min(done) < 2, "unequal shares: %s" % done)
        check.true(len(probe.own) > 20, "healthz answered %d times", len(probe.own))
        check.true(max(probe.own) < 0.1, "held up: %s", probe.said())


def hold(client, run, count):
    """Opens streams until one is refused -> sockets of those that are open."""
    held = []
    for _ in range(count):
        sock = client.socket()
        sock.sendall(("GET /v1/runs/%s/events?follow=true HTTP/1.1\r\nHost: x\r\n"
                      "Authorization: Bearer %s\r\n\r\n" % (run, client.token)).encode())
        if sock.recv(12)[9:] != b"200":
            sock.close()
            break
        held.append(sock)
    return held


@test("users who hold all connections that they get, together, leave some to others", own=True,
      deadline=40)
def _(_):
    with harness.Pair(slots=16, warm=1, server_args=["--connections", "512"]) as pair:
        users = [pair.user_client("holds-%d" % i) for i in range(8)]
        runs = [one.submit(argv=["sleep", "60"]) for one in users]
        for one in users:
            one.close()
        held = [sock for one, run in zip(users, runs) for sock in hold(one, run, 300)]
        check.within(400, len(held), 508, "streams that they hold")
        other = pair.user_client("comes-late")
        check.equal(other.get("/v1/me").status, 200, "another user's request")
        check.ok(other.run(argv=["true"]))
        for sock in held:
            sock.close()
        check.eventually(lambda: users[0].get("/v1/me").status == 200, 3, "places are free again")
        for one, run in zip(users, runs):
            one.delete("/v1/runs/" + run)

"""Who waits, how long, and behind whom: turns between users, lanes within one, bounds, positions."""

import json
import os
import threading
import time

import check
import harness
from client import Stream
from suite import test

# PINFOLD_TEST_DAYS=minutes makes the shortened days as long as that.
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


def percentile(values, part):
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


class Probe(threading.Thread):
    """Asks /healthz all the time on one connection: how long each answer took."""

    def __init__(self, client):
        super().__init__(daemon=True)
        self.client, self.times, self.over = client, [], False

    def run(self):
        while not self.over:
            start = time.monotonic()
            if self.client.get("/healthz").status != 200:
                break
            self.times.append(time.monotonic() - start)
            time.sleep(0.002)

    def end(self):
        self.over = True
        self.join(5)
        return self.times


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
    probe = Probe(pair.user_client("probe"))
    probe.start()
    cancel(pair.client, blockers)
    answers = [[c.wait_done(r, 60) for r in own] for c, own in zip(clients, runs)]
    return answers, probe.end()


@test("20 users with 10 waiting runs each are served evenly, and healthz answers", own=True, deadline=30)
def _(_):
    with harness.Pair(slots=4, warm=4) as pair:
        answers, healthz = even(pair, 20, 10, 4, ["sleep", "0.03"])
        order = sorted((started(run), user) for user, own in enumerate(answers) for run in own)
        counts = [0] * 20
        worst = 0
        for index, (_, user) in enumerate(order):
            counts[user] += 1
            # What is known of a start is two times, each cut to milliseconds.
            if index + 1 < len(order) and order[index + 1][0] > order[index][0] + 2:
                worst = max(worst, max(counts) - min(counts))
        check.true(worst <= 1, "some user was %d runs ahead of another" % worst)
        check.true(len(healthz) > 50, "healthz answered only %d times" % len(healthz))
        check.true(
            percentile(healthz, 0.99) < 0.1, "p99 of healthz %.0f ms" % (1000 * percentile(healthz, 0.99))
        )


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

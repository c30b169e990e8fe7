"""GET /v1/top: what goes on now; a user sees his own, an administrator everybody's."""

import check
from box import MIB, status
from client import nonce
from harness import Pair
from suite import test


def top(client, **query):
    more = "?" + "&".join("%s=%s" % pair for pair in query.items()) if query else ""
    return status(client.get("/v1/top" + more), 200).json()


def row(seen, kind, ident):
    found = [one for one in seen[kind] if one["id"] == ident]
    check.equal(len(found), 1, "rows of " + ident)
    return found[0]


@test("top shows what runs and waits, with limits, and what ended steps have used", own=True,
      deadline=30)
def shows(_):
    pair = Pair(slots=1, warm=1).start()
    client = pair.client
    try:
        check.equal((top(client)["runs"], top(client)["running"]), ([], 0), "runs at first")
        first = client.submit(
            steps=[{"argv": ["python3", "-c", "sum(range(3000000))"]}, {"argv": ["sleep", "30"]}],
            limits={"mem_bytes": 64 * MIB},
        )
        check.eventually(lambda: row(top(client), "runs", first)["step"] == 1, 10, "its 2nd step")
        second, third = client.submit(argv=["echo", "2"]), client.submit(argv=["echo", "3"])
        seen = top(client)
        check.equal([one["id"] for one in seen["runs"]], [first, second, third], "the order")
        check.equal((seen["running"], seen["queued"]), (1, 2), "counts")
        run = row(seen, "runs", first)
        check.equal(
            [run[key] for key in ("user", "state", "steps", "label", "policy")],
            ["admin", "running", 2, "step-0 step-1", "default"], "the one that runs",
        )
        check.equal(run["limits"]["mem_bytes"], 64 * MIB, "its limit")
        check.true(run["used"]["cpu_ms"] > 0, "no CPU time of the step that is over: %r", run)
        check.true(run["used"]["mem_peak_bytes"] > MIB, "no memory of it: %r", run)
        check.true(run["age_ms"] >= run["running_ms"], "younger than its jail: %r", run)
        check.equal(row(seen, "runs", second)["position"], 0, "position")
        check.equal(row(seen, "runs", third)["position"], 1, "position")
        check.equal(row(seen, "runs", third)["used"], None, "used of one that waits")
        check.equal(seen["users"], [{"user": "admin", "running": 1, "queued": 2, "sandboxes": 0}],
                    "users")
        check.equal((seen["pool"]["slots"], seen["pool"]["slots_in_use"]), (1, 1), "the pool")
        check.true(seen["per_minute"]["runs_accepted"] >= 3, "accepted: %r", seen["per_minute"])
        check.equal(seen["ready"], True, "ready")
        check.equal(len(top(client, limit=2)["runs"]), 2, "rows with a limit")
        check.equal(top(client, limit=2)["queued"], 2, "the count is whole")
        client.delete("/v1/runs/" + first)
        client.wait_done(third)
        check.equal(top(client)["runs"], [], "runs afterwards")
        check.true(top(client)["per_minute"]["runs_ended"] >= 3, "ended")
    finally:
        pair.stop()


def burns(seen, kind, ident):
    live = row(seen, kind, ident)["live"]
    return live is not None and live["cpus_milli"] is not None and live["cpus_milli"] >= 100


@test("top shows what runs and sandboxes use at this moment, and the warm jails of each policy",
      deadline=40)
def live(pair):
    client = pair.client
    work = "x = bytearray(%d)\nwhile True: pass" % (32 * MIB)
    run = client.submit(argv=["python3", "-c", work], limits={"wall_ms": 20000, "cpu_ms": 20000})
    box = status(client.post("/v1/sandboxes", {}), 201).json()["id"]
    idle = status(client.post("/v1/sandboxes", {}), 201).json()["id"]
    try:
        status(client.post("/v1/sandboxes/%s/exec" % box,
                           {"argv": ["python3", "-c", work], "background": True}), 202)
        check.eventually(lambda: burns(top(client), "runs", run), 10, "CPU of the run", 0.5)
        check.eventually(lambda: burns(top(client), "sandboxes", box), 10, "CPU of the sandbox", 0.5)
        seen = top(client)
        for kind, ident in (("runs", run), ("sandboxes", box)):
            used = row(seen, kind, ident)["live"]
            check.true(used["cpu_ms"] > 0, "no CPU time: %r", used)
            check.true(32 * MIB < used["mem_bytes"] < 200 * MIB, "memory: %r", used)
        rest = row(seen, "sandboxes", idle)["live"]
        check.equal((rest["cpu_ms"], rest["cpus_milli"]), (0, 0), "one that rests")
        check.true(rest["mem_bytes"] < 32 * MIB, "memory of one that rests: %r", rest)
        kinds = [(one["policy"], one["image"]) for one in seen["pool"]["kinds"]]
        check.true(("default", "host") in kinds, "kinds of warm jails: %r", kinds)
        lines = client.get("/metrics").body.decode().splitlines()
        wanted = 'pinfold_pool_warm_jails{shard="0",policy="default",image="host"} '
        check.equal(len([one for one in lines if one.startswith(wanted)]), 1, "series of the pool")
    finally:
        client.delete("/v1/runs/" + run)
        client.delete("/v1/sandboxes/" + box)
        client.delete("/v1/sandboxes/" + idle)
    client.wait_done(run)
    check.equal([one for one in top(client)["runs"] if one["id"] == run], [], "afterwards")


@test("a user's top holds nothing of others; an administrator sees all, but no command", case=137)
def own(pair):
    word = nonce()
    other = pair.user_client("top-" + word[:6])
    mine = pair.client.submit(argv=["sleep", "30"])
    theirs = other.submit(argv=["sh", "-c", "sleep 30", word])
    box = status(other.post("/v1/sandboxes", {}), 201).json()["id"]
    try:
        pair.client.wait_state(mine, ("running",))
        other.wait_state(theirs, ("running",))
        status(other.post("/v1/sandboxes/%s/exec" % box, {"sh": "true"}), 200)
        seen = top(other)
        check.equal(seen["of"], "own", "of")
        check.equal([one["id"] for one in seen["runs"]], [theirs], "runs of the user")
        check.equal(row(seen, "runs", theirs)["label"], "sh -c sleep 30 " + word, "label")
        check.equal([one["id"] for one in seen["sandboxes"]], [box], "sandboxes of the user")
        check.equal(row(seen, "sandboxes", box)["executions"], 1, "executions")
        check.true(row(seen, "sandboxes", box)["used"]["mem_peak_bytes"] > 0, "its memory")
        check.equal(len(seen["users"]), 1, "users")
        check.equal(seen["per_minute"], None, "rates")
        check.equal(sorted(seen["pool"]), ["sandbox_places", "shards", "slots"], "the pool")
        answer = pair.client.get("/v1/top")
        check.lacks(answer.body.decode(), word, "the administrator's top")
        everything = answer.json()
        check.equal(everything["of"], "all", "of")
        check.equal({one["id"] for one in everything["runs"]}, {mine, theirs}, "all runs")
        check.equal(row(everything, "runs", theirs)["label"], None, "label of another's")
        check.equal(row(everything, "runs", mine)["label"], "sleep 30", "label of one's own")
        check.true(box in {one["id"] for one in everything["sandboxes"]}, "no sandbox of others")
        check.equal(len(everything["users"]), 2, "users")
    finally:
        pair.client.delete("/v1/runs/" + mine)
        other.delete("/v1/runs/" + theirs)
        other.delete("/v1/sandboxes/" + box)
        other.close()
    check.error(pair.client.get("/v1/top?limit=0"), 400)
    check.error(pair.client.get("/v1/top", headers={"Authorization": None}), 401)

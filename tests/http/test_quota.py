"""Quotas: what is counted, when something is refused or waits, and what GET /v1/me says of it."""

import itertools
import os
import subprocess
import time

import check
import harness
from suite import test

_numbers = itertools.count()
MIB = 1 << 20


def command(pair, *arguments):
    done = subprocess.run(
        [harness.program("pinfold-server"), *arguments, "--state", pair.state],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
    )
    if done.returncode != 0:
        check.fail("%s failed: %s", arguments, done.stderr.decode())
    return done.stdout.decode()


def user(pair, *quotas):
    """A client of a new user with these quotas, in force."""
    name = "quota-%d" % next(_numbers)
    client = pair.user_client(name)
    check.eventually(lambda: client.get("/v1/me").status == 200, 5, "the token is known")
    client.name = name
    if quotas:
        change(pair, client, *quotas)
    return client


def change(pair, client, *quotas):
    before = me(client)["quota"]
    command(pair, "user", "quota", client.name, *quotas)
    check.eventually(lambda: me(client)["quota"] != before, 5, "the new quota is in force")


def me(client):
    answer = client.get("/v1/me")
    check.equal(answer.status, 200, "status of /v1/me")
    return answer.json()


def refused(answer, name, retry=r"^[1-5]$"):
    error = check.error(answer, 429, "quota")
    check.equal(error["quota"], name, "the quota in the error")
    check.holds(error["message"], name, "the message")
    check.matches(answer.headers.get("retry-after", ""), retry, "Retry-After")
    return error


@test("runs: one too many is refused, and there is room again when one has ended")
def _(pair):
    one = user(pair, "runs=2")
    runs = [one.submit(argv=["sleep", "20"]) for _ in range(2)]
    error = refused(one.send(argv=["true"]), "runs")
    check.holds(error["message"], "2 of 2", "the message")
    seen = me(one)
    check.equal((seen["quota"]["runs"], seen["used"]["runs"]), (2, 2), "limit and use")
    check.ok(pair.client.run(argv=["true"]))
    for run in runs:
        one.delete("/v1/runs/" + run)
    check.ok(one.run(argv=["true"]))
    check.equal(me(one)["used"]["runs"], 0, "runs in use at the end")


@test("parallel_runs: what is more waits, others go on, and nothing is refused")
def _(pair):
    one = user(pair, "parallel_runs=1")
    first = one.submit(argv=["sleep", "20"])
    one.wait_state(first, ("running",))
    rest = [one.submit(argv=["true"]) for _ in range(5)]
    check.ok(pair.client.run(argv=["true"]))
    check.equal({one.fetch(run)["state"] for run in rest}, {"queued"}, "states of the others")
    seen = me(one)
    check.equal(seen["used"]["parallel_runs"], 1, "in jails")
    check.equal((seen["queue"]["waiting"], seen["queue"]["set_aside"]), (5, True), "in the queue")
    one.delete("/v1/runs/" + first)
    done = [check.ok(one.wait_done(run, 5)) for run in rest]
    starts = [run["created_at"] + run["timing"]["queue_ms"] for run in done]
    check.true(starts == sorted(starts), "they did not start in their order")


@test("a quota that is raised lets out what waits for it")
def _(pair):
    one = user(pair, "parallel_runs=1")
    first = one.submit(argv=["sleep", "20"])
    one.wait_state(first, ("running",))
    second = one.submit(argv=["true"])
    check.equal(one.fetch(second)["state"], "queued", "state before")
    change(pair, one, "parallel_runs=2")
    check.ok(one.wait_done(second, 5))
    check.equal(one.fetch(first)["state"], "running", "the other one")
    one.delete("/v1/runs/" + first)


@test("mem_bytes: runs wait for each other's memory, what never fits is refused at once")
def _(pair):
    one = user(pair, "mem_bytes=%d" % (300 * MIB), "disk_bytes=2G")
    small = {"mem_bytes": 128 * MIB}
    runs = [one.submit(argv=["sleep", "20"], limits=small) for _ in range(3)]
    for run in runs[:2]:
        one.wait_state(run, ("running",))
    check.equal(me(one)["used"]["mem_bytes"], 256 * MIB, "memory in use")
    check.equal(one.fetch(runs[2])["state"], "queued", "state of the third")
    refused(one.send(argv=["true"], limits={"mem_bytes": 301 * MIB}), "mem_bytes")
    one.delete("/v1/runs/" + runs[0])
    one.wait_state(runs[2], ("running",))
    for run in runs[1:]:
        one.delete("/v1/runs/" + run)
    refused(one.send(argv=["true"], limits={"disk_bytes": 2048 * MIB, "mem_bytes": 301 * MIB}), "mem_bytes")
    check.equal(me(one)["used"]["mem_bytes"], 0, "memory in use at the end")


@test("sandboxes and their memory: refused, counted over a fork, given back when they are deleted")
def _(pair):
    one = user(pair, "sandboxes=2", "mem_bytes=%d" % (300 * MIB))
    body = {"limits": {"mem_bytes": 100 * MIB}}
    box = one.post("/v1/sandboxes", body)
    check.equal(box.status, 201, "the first sandbox")
    box = box.json()["id"]
    refused(one.post("/v1/sandboxes", {"limits": {"mem_bytes": 201 * MIB}}), "mem_bytes")
    refused(one.post("/v1/sandboxes/%s/fork" % box, {"count": 2}), "sandboxes")
    fork = one.post("/v1/sandboxes/%s/fork" % box, {"count": 1})
    check.equal(fork.status, 201, "a fork")
    refused(one.post("/v1/sandboxes", body), "sandboxes")
    # What sandboxes hold does not come back in a moment: a run that needs it does not wait.
    refused(one.send(argv=["true"], limits={"mem_bytes": 101 * MIB}), "mem_bytes")
    check.ok(one.run(argv=["true"], limits={"mem_bytes": 100 * MIB}))
    seen = me(one)["used"]
    check.equal((seen["sandboxes"], seen["mem_bytes"]), (2, 200 * MIB), "in use")
    for it in one.get("/v1/sandboxes").json()["sandboxes"]:
        check.equal(one.delete("/v1/sandboxes/" + it["id"]).status, 204, "deleting")
    seen = me(one)["used"]
    check.equal((seen["sandboxes"], seen["mem_bytes"], seen["disk_bytes"]), (0, 0, 0), "in use")


@test("cpu_ms_per_day: counted from runs and executions, refused until midnight UTC")
def _(pair):
    one = user(pair, "cpu_ms_per_day=1s")
    box = one.post("/v1/sandboxes", {}).json()["id"]
    burn = "end=$((SECONDS+30)); i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"
    step = check.ok(one.sh(burn))["steps"][0]["usage"]
    used = me(one)["used"]["cpu_ms_per_day"]
    spent = step["cpu_user_ms"] + step["cpu_system_ms"]
    check.within(spent - 3, used, spent + 30, "CPU time of the day")
    for _ in range(60):
        answer = one.post("/v1/sandboxes/%s/exec" % box, {"sh": burn})
        if answer.status != 200:
            break
    refused(answer, "cpu_ms_per_day", r"^\d+$")
    left = 86400 - time.time() % 86400
    check.within(left - 30, int(answer.headers["retry-after"]), left + 5, "Retry-After")
    refused(one.send(argv=["true"]), "cpu_ms_per_day", r"^\d+$")
    check.true(me(one)["used"]["cpu_ms_per_day"] >= 1000, "used less than the quota")
    # Looking and cleaning up are not work.
    check.equal(one.delete("/v1/sandboxes/" + box).status, 204, "deleting")
    change(pair, one, "cpu_ms_per_day=none")
    check.ok(one.run(argv=["true"]))


@test("snapshot_bytes: refused when used up, and a deleted snapshot gives its bytes back")
def _(pair):
    one = user(pair, "snapshot_bytes=1M")
    box = one.post("/v1/sandboxes", {}).json()["id"]
    path = "/v1/sandboxes/%s/snapshots" % box
    one.post("/v1/sandboxes/%s/exec" % box, {"sh": "head -c 3000000 /dev/zero > big"})
    first = one.post(path, {"name": "a"})
    check.equal(first.status, 201, "the first snapshot")
    check.true(me(one)["used"]["snapshot_bytes"] >= 3000000, "bytes in use")
    refused(one.post(path, {"name": "b"}), "snapshot_bytes")
    check.equal(one.delete("/v1/snapshots/" + first.json()["id"]).status, 204, "deleting")
    check.equal(me(one)["used"]["snapshot_bytes"], 0, "bytes in use at the end")
    check.equal(one.post(path, {"name": "c"}).status, 201, "another snapshot")
    for snap in one.get("/v1/snapshots").json()["snapshots"]:
        one.delete("/v1/snapshots/" + snap["id"])
    one.delete("/v1/sandboxes/" + box)


@test("result_bytes: stored results count, and new runs are refused when they are too much")
def _(pair):
    one = user(pair, "result_bytes=20000")
    check.ok(one.sh("head -c 30000 /dev/zero | tr '\\0' x"))
    check.true(me(one)["used"]["result_bytes"] >= 20000, "bytes in use")
    refused(one.send(argv=["true"]), "result_bytes")
    change(pair, one, "result_bytes=10M")
    check.ok(one.run(argv=["true"]))


@test("a child token's quotas and budget bind it and not its parent; both are charged")
def _(pair):
    one = user(pair)
    made = one.post(
        "/v1/tokens/children", {"quota": {"parallel_runs": 1, "runs": 4}, "budget": {"runs": 6}}
    )
    check.equal(made.status, 201, "making a child token")
    child = harness.Client(pair.port, made.json()["token"])
    first = child.submit(argv=["sleep", "20"])
    child.wait_state(first, ("running",))
    waiting = [child.submit(argv=["true"]) for _ in range(3)]
    refused(child.send(argv=["true"]), "runs")
    # The parent's own runs pass those that wait for the child's quota.
    check.ok(one.run(argv=["true"]))
    check.equal({child.fetch(run)["state"] for run in waiting}, {"queued"}, "states")
    seen = me(child)
    check.equal(seen["token"]["used"]["runs"], 4, "runs of the child")
    check.equal(seen["token"]["budget"]["runs"], 6, "budget of the child")
    check.equal(me(one)["token"]["used"]["runs"], 4, "runs of the parent's token")
    child.delete("/v1/runs/" + first)
    for run in waiting:
        check.ok(child.wait_done(run, 5))
    for _ in range(2):
        check.ok(child.run(argv=["true"]))
    check.error(child.send(argv=["true"]), 429, "budget")
    check.equal(me(child)["token"]["spent"]["runs"], 6, "spent")
    check.ok(one.run(argv=["true"]))


@test("GET /v1/me names every quota, what is used of it, the token and the place in the queue")
def _(pair):
    seen = me(pair.client)
    for name in (
        "runs parallel_runs sandboxes mem_bytes disk_bytes cpu_ms_per_day result_bytes "
        "snapshot_bytes queued_runs results_kept results_bytes snapshots blobs_bytes"
    ).split():
        check.true(name in seen["quota"], "quota has no %s" % name)
        check.true(isinstance(seen["used"].get(name), int), "used has no %s" % name)
    check.true(seen["used"]["runs_today"] > 0, "no runs today")
    check.equal(seen["token"]["user"], seen["user"], "the token's user")
    check.equal(seen["queue"]["weight"], 100, "weight")
    check.equal(seen["queue"]["share_permille"], 1000, "share of a queue in which nobody waits")
    check.lacks(str(seen), pair.token[:20], "the answer")


@test("quotas of the configuration hold for who has none, and use outlasts the server", own=True, deadline=40)
def _(_):
    pair = harness.Pair(slots=2, warm=1)
    path = os.path.join(pair.work, "pinfold.json")
    with open(path, "w") as out:
        out.write('{"default_quota": {"runs": 1, "cpu_ms_per_day": "1h"}}')
    os.chmod(path, 0o644)
    pair.server_args += ["--config", path]
    with pair:
        one = pair.user_client("one")
        run = one.submit(argv=["sleep", "20"])
        refused(one.send(argv=["true"]), "runs")
        command(pair, "user", "quota", "one", "runs=none")
        check.eventually(lambda: me(one)["quota"]["runs"] is None, 5, "no quota")
        check.ok(one.sh("i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done"))
        used = me(one)["used"]["cpu_ms_per_day"]
        check.true(used >= 10, "only %d ms of CPU time" % used)
        one.delete("/v1/runs/" + run)
        used = me(one)["used"]
        pair.kill9_server()
        pair.start_server()
        pair.wait_ready()
        again = me(one)["used"]
        for name in ("cpu_ms_per_day", "runs_today"):
            check.equal(again[name], used[name], name + " after kill -9")
        check.equal(again["runs"], 0, "runs after kill -9")


@test("what waited for an earlier server is counted and waits for its quota", own=True, deadline=30)
def _(_):
    with harness.Pair(slots=4, warm=1) as pair:
        # With a limit on the day, its use is written at once.
        one = user(pair, "parallel_runs=1", "cpu_ms_per_day=1h")
        first = one.submit(argv=["sleep", "20"])
        one.wait_state(first, ("running",))
        rest = [one.submit(sh="while [ ! -e /workspace/go ]; do sleep 0.05; done; exit 3")
                for _ in range(2)]
        today = me(one)["used"]["runs_today"]
        pair.kill9_server()
        pair.start_server()
        pair.wait_ready()
        check.equal(one.wait_done(first)["steps"][0]["end"]["cause"], "interrupted", "the first")
        one.wait_state(rest[0], ("running",))
        seen = me(one)
        check.equal((seen["used"]["runs"], seen["used"]["parallel_runs"]), (2, 1), "used")
        check.equal(seen["used"]["runs_today"], today, "runs of the day")
        check.equal(one.fetch(rest[1])["state"], "queued", "state of the last")
        one.delete("/v1/runs/" + rest[0])
        one.wait_state(rest[1], ("running",))
        one.delete("/v1/runs/" + rest[1])
        check.eventually(lambda: me(one)["used"]["runs"] == 0, 5, "everything is given back")


@test("what is deleted with its sandbox counts with what it has used, and no more", case=140)
def _(pair):
    client = user(pair)
    used = lambda: me(client)["used"]["cpu_ms_per_day"]
    for argv, least, most in ((["sleep", "60"], 0, 400),
                              (["sh", "-c", "while :; do :; done"], 20, 2000)):
        before = used()
        path = "/v1/sandboxes/" + client.post("/v1/sandboxes", {}).json()["id"]
        for _ in range(2):
            answer = client.post(path + "/exec", {"argv": argv, "background": True})
            check.equal(answer.status, 202, "exec")
        time.sleep(1)
        check.equal(client.delete(path).status, 204, "DELETE")
        check.within(least, used() - before, most, "CPU time of %s" % argv[0])

"""The audit log: what is in it, what is never in it, and that no change of it stays hidden."""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import tempfile

import check
import clean
import harness
import ledger
from box import Box
from client import Client
from suite import test

SECRET = "hunter2-kaleidoscope"


def of(pair, **fields):
    return [
        one for one in ledger.records(pair.state)
        if all(one.get(key) == value for key, value in fields.items())
    ]


def settled(pair):
    """The head has seen the newest record."""

    def probe():
        with open(os.path.join(pair.state, "server", "audit.head")) as file:
            return json.load(file)["seq"] == ledger.records(pair.state)[-1]["seq"]

    check.eventually(probe, 5, "audit.head has seen the newest record")


@test("a run is recorded before it begins and when it is over")
def _(pair):
    answer = pair.client.run(
        argv=["sh", "-c", "echo out; exit 3"], files=[{"path": "a", "content": "x"}],
        limits={"mem_bytes": 64 << 20})
    accepted, = of(pair, type="accepted", id=answer["id"])
    check.equal((accepted["what"], accepted["user"]), ("run", "admin"), "what and who")
    check.matches(accepted["token"], r"^tok_[a-z0-9]{20,}$", "token id")
    check.equal(accepted["policy"], "default", "policy")
    check.equal(accepted["policy_sha256"], answer["policy"]["sha256"], "policy_sha256")
    check.equal(accepted["limits"]["mem_bytes"], 64 << 20, "limits.mem_bytes")
    argv = b"argv\0sh\0-c\0echo out; exit 3\0\0"
    check.equal(accepted["argv_sha256"], hashlib.sha256(argv).hexdigest(), "argv_sha256")
    check.equal(accepted["files_sha256"], ledger.root([("a", 0o644, b"x")]), "files_sha256")
    ended, = of(pair, type="ended", id=answer["id"])
    check.equal((ended["cause"], ended["exit_code"], ended["ok"]), ("exit", 3, False), "end")
    check.equal(ended["stdout_sha256"], hashlib.sha256(b"out\n").hexdigest(), "stdout_sha256")
    check.true(accepted["seq"] < ended["seq"], "the order")
    check.equal(answer["receipt"]["body"]["audit"],
                {"seq": accepted["seq"], "hash": accepted["hash"]}, "what the receipt names")
    check.equal(ended["receipt_sha512"],
                hashlib.sha512(ledger.canonical(answer["receipt"]["body"])).hexdigest(),
                "receipt_sha512")


@test("an execution that cannot be sent after all is recorded as failed")
def _(pair):
    with Box.make(pair.client) as box:
        box.pause()
        check.error(pair.client.post(box.path + "/exec", {"argv": ["true"]}), 409, "paused")
        accepted, = of(pair, type="accepted", what="exec", sandbox=box.id)
        failed, = of(pair, type="failed", of=accepted["seq"])
        check.equal((failed["status"], failed["code"]), (409, "paused"), "how it failed")


@test("sandboxes, executions, files and snapshots are recorded")
def _(pair):
    with Box.make(pair.client) as box:
        done = box.run(argv=["true"])
        box.put("/workspace/f", b"text")
        box.remove("/workspace/f")
        check.equal(
            pair.client.delete("/v1/snapshots/" + box.snapshot("s")["id"]).status, 204, "status")
        name = box.id
    kinds = [(one["type"], one["what"]) for one in ledger.records(pair.state)
             if one.get("sandbox") == name or one.get("id") == name]
    for wanted in (("accepted", "sandbox"), ("accepted", "exec"), ("ended", "exec"),
                   ("asked", "files"), ("asked", "snapshots"), ("ended", "sandbox")):
        check.true(wanted in kinds, "no record %s in %s", wanted, kinds)
    ended, = of(pair, type="ended", id=done["id"], sandbox=name)
    check.equal((ended["cause"], ended["exit_code"]), ("exit", 0), "end of the execution")
    path = [one["path"] for one in of(pair, type="asked", what="files", sandbox=name)]
    check.true(path and all(p.endswith("workspace/f") for p in path), "paths: %s", path)


@test("what does not exist is recorded as asked for and failed")
def _(pair):
    check.error(pair.client.delete("/v1/sandboxes/sb_" + "x" * 24), 404)
    asked = of(pair, type="asked", sandbox="sb_" + "x" * 24)[-1]
    # (written when the answer has left)
    check.eventually(lambda: of(pair, type="failed", of=asked["seq"]), 2, "the failure's record")
    failed, = of(pair, type="failed", of=asked["seq"])
    check.equal((failed["status"], failed["code"]), (404, "not_found"), "the answer")


@test("neither tokens nor contents, environment, stdin or output are in the log")
def _(pair):
    answer = pair.client.run(
        sh="cat; cat f; echo $V; echo %s >&2" % SECRET, stdin=SECRET, env={"V": SECRET},
        files=[{"path": "f", "content": SECRET}], collect=["f"])
    check.holds(check.text(answer), SECRET, "the output")
    with Box.make(pair.client, env={"V": SECRET}) as box:
        box.put("/workspace/f", SECRET.encode())
        check.ok(box.sh("cat; echo $V " + SECRET, stdin=SECRET))
    Client(pair.port, "pf_" + "a" * 52).get("/v1/me")
    text = ledger.text(pair.state)
    check.lacks(text, SECRET.encode(), "the audit log")
    check.lacks(text, pair.token.encode(), "the audit log")
    check.lacks(text, b"a" * 52, "the audit log")


@test("who is turned away is recorded, and a flood of it is counted", deadline=20)
def _(pair):
    stranger = Client(pair.port, "pf_" + "b" * 52)
    before = len(of(pair, type="denied", code="unauthorized"))
    for _ in range(60):
        check.error(stranger.get("/v1/runs"), 401)
    seen = of(pair, type="denied", code="unauthorized")
    check.within(0, len(seen) - before, 20, "records of 60 refusals")
    check.true(seen, "no record of a refusal")
    check.equal((seen[-1]["status"], seen[-1]["client"], "user" in seen[-1]),
                (401, "127.0.0.1", False), "the refusal")
    nobody = pair.user_client("audit-nobody")
    check.error(nobody.get("/metrics"), 403)
    check.eventually(lambda: of(pair, type="denied", status=403, user="audit-nobody"), 2,
                     "the 403 is recorded")


@test("anybody can compute the chain, and `audit verify` agrees")
def _(pair):
    pair.client.run(argv=["true"])
    check.true(ledger.sound(pair.state) > 0, "the chain does not hold")
    code, text = ledger.tool("audit", "verify", state=pair.state)
    check.equal(code, 0, "exit code (%s)" % text)
    code, text = ledger.tool("audit", "show", "--user", "admin", state=pair.state)
    check.equal(code, 0, "exit code (%s)" % text)
    check.matches(text, r"accepted what=run id=run_\w+ user=admin", "audit show")


def changed(pair, name, change, *wanted):
    """`audit verify` of a copy in which change(lines) was done."""
    with tempfile.TemporaryDirectory(prefix="pinfold-audit-") as work:
        state = ledger.copy(pair.state, os.path.join(work, "state"))
        path = ledger.segments(state)[-1]
        with open(path, "rb") as file:
            lines = file.read().splitlines(keepends=True)
        check.true(len(lines) > 4, "only %d records", len(lines))
        with open(path, "wb") as file:
            file.write(b"".join(change(lines)))
        code, text = ledger.tool("audit", "verify", state=state)
        check.equal(code, 1, "exit code of verify after %s (%s)" % (name, text))
        for part in wanted:
            check.holds(text, part, "what verify says after %s" % name)


@test("an edit, a cut, a move, a copy and a missing record are each found", deadline=20)
def _(pair):
    pair.client.run(argv=["true"])
    pair.client.run(argv=["true"])
    settled(pair)
    at = len(ledger.records(pair.state)) // 2
    changed(pair, "an edit",
            lambda l: l[:at] + [l[at].replace(b'"time":1', b'"time":2')] + l[at + 1:],
            "was edited", "record %d" % (at + 1))
    changed(pair, "a missing record", lambda l: l[:at] + l[at + 1:], "is missing")
    changed(pair, "a move", lambda l: l[:at] + [l[at + 1], l[at]] + l[at + 2:],
            "not in its place")
    changed(pair, "a copy", lambda l: l[:at + 1] + l[at:], "there twice")
    changed(pair, "a cut", lambda l: l[:-1], "the end of the chain log is missing")
    changed(pair, "a cut in a record", lambda l: l[:-1] + [l[-1][:40]], "in the middle")
    changed(pair, "a cut at the front", lambda l: l[2:], "records 1 to 2 are missing")
    changed(pair, "nothing left", lambda l: [], "ends with record 0")


@test("a log that was set back together with its head contradicts heads and receipts kept elsewhere")
def _(pair):
    with tempfile.TemporaryDirectory(prefix="pinfold-audit-") as work:
        settled(pair)
        old = ledger.copy(pair.state, os.path.join(work, "old"))
        answer = pair.client.run(argv=["true"])
        with open(os.path.join(work, "answer.json"), "w") as file:
            json.dump(answer, file)
        settled(pair)
        code, text = ledger.tool("audit", "head", state=pair.state)
        head = text.split()[0]
        more = ("--expect-head", head, "--receipt", os.path.join(work, "answer.json"))
        code, text = ledger.tool("audit", "verify", *more, state=pair.state)
        check.equal(code, 0, "exit code (%s)" % text)
        code, text = ledger.tool("audit", "verify", state=old)
        check.equal(code, 0, "the older log alone (%s)" % text)
        code, text = ledger.tool("audit", "verify", *more, state=old)
        check.equal(code, 1, "exit code (%s)" % text)
        check.holds(text, head, "which head is missing")
        check.holds(text, "receipt", "that a receipt's record is missing")


@test("when the log cannot be written no work starts, and it does again without a restart",
      own=True, deadline=40)
def _(_pair):
    pair = harness.Pair()
    pair.init()
    audit = os.path.join(pair.state, "server", "audit")
    os.makedirs(audit, exist_ok=True)
    owner = os.stat(os.path.join(pair.state, "server"))
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o",
         "size=256k,mode=700,uid=%d,gid=%d" % (owner.st_uid, owner.st_gid),
         clean.TEST_MOUNT + "audit", audit],
        check=True)
    with contextlib.ExitStack() as stack:
        stack.callback(pair.discard)
        stack.callback(subprocess.run, ["umount", audit], check=False)
        stack.callback(pair.stop)
        pair.start()
        client = pair.client
        check.ok(client.run(argv=["true"]))
        with Box.make(client) as box:
            running = client.submit(argv=["sleep", "2"])
            client.wait_state(running, ("running",))
            doomed = client.submit(argv=["sleep", "60"])
            client.wait_state(doomed, ("running",))
            box.put("/workspace/old", b"x")
            fill = os.path.join(audit, "fill")
            with open(fill, "wb", buffering=0) as file:
                try:
                    while True:
                        file.write(b"x" * 512)
                except OSError:
                    pass
                size = os.path.getsize(ledger.segments(pair.state)[-1])
                # What is left of the last page of the log is used up by refusals.
                check.eventually(lambda: client.send(argv=["true"]).status == 503, 10,
                                 "runs are refused")
            before = len(of(pair, type="accepted"))
            refused = check.error(client.send(argv=["touch", "/tmp/x"]), 503, "audit")
            check.holds(refused["message"], "audit log cannot be written", "the sentence")
            check.error(box.send(argv=["true"]), 503, "audit")
            check.error(box.write("/workspace/f", b"x"), 503, "audit")
            check.error(client.post("/v1/sandboxes", {}), 503, "audit")
            check.equal(pair.probe("/readyz"), 503, "/readyz")
            check.equal(pair.probe("/healthz"), 200, "/healthz")
            # What ends something needs no room, and makes some.
            check.equal(client.delete("/v1/runs/" + doomed).status, 200, "cancelling a run")
            check.equal(client.delete(box.path + "/files/workspace/old").status, 204,
                        "deleting a file")
            check.ok(client.wait_done(running))
            check.equal(len(of(pair, type="accepted")), before, "records of accepted work")
            os.unlink(fill)
            check.eventually(lambda: client.send(argv=["true"]).status == 200, 3,
                             "runs are taken again")
            check.equal(pair.probe("/readyz"), 200, "/readyz")
            check.ok(box.run(argv=["true"]))
            check.true(size > 0, "the log was empty")
        types = [one["type"] for one in ledger.records(pair.state)]
        check.true("recovered" in types, "no record says that it recovered: %s", types[-9:])
        check.true(of(pair, type="ended", id=running),
                   "the run that ended meanwhile has no record")
        check.true(of(pair, type="asked", op="DELETE /v1/runs/{}", id=doomed),
                   "who cancelled a run meanwhile has no record")
        pair.stop()
        code, text = ledger.tool("audit", "verify", state=pair.state)
        check.equal(code, 0, "exit code of verify (%s)" % text)


@test("a server that was killed in the middle of a record repairs the log and says so",
      own=True, deadline=40)
def _(_pair):
    with harness.Pair() as pair:
        for _ in range(3):
            pair.client.submit(argv=["sleep", "5"])
        pair.kill9_server()
        path = ledger.segments(pair.state)[-1]
        whole = ledger.text(pair.state)
        check.true(whole.endswith(b"\n"), "the log ends with a whole record")
        with open(path, "ab") as file:
            file.write(whole.splitlines()[-1][:77])
        code, text = ledger.tool("audit", "verify", state=pair.state)
        check.equal(code, 1, "exit code before the repair (%s)" % text)
        pair.start_server()
        pair.wait_ready()
        repaired, = of(pair, type="repaired")
        check.equal(repaired["bytes"], 77, "bytes that were cut off")
        check.true(ledger.text(pair.state).startswith(whole), "what was whole is still there")
        check.ok(pair.client.run(argv=["true"]))
        check.true(ledger.sound(pair.state) > 0, "the chain does not hold")
        code, text = ledger.tool("audit", "verify", state=pair.state)
        check.equal(code, 0, "exit code of verify (%s)" % text)
        pair.server.send_signal(signal.SIGTERM)
        pair.server.wait(20)
        check.equal([one["type"] for one in ledger.records(pair.state)][-2:],
                    ["stopped", "checkpoint"], "the last records")
        # A cut while no server ran.
        with open(path, "rb") as file:
            lines = file.read().splitlines(keepends=True)
        with open(path, "wb") as file:
            file.write(b"".join(lines[:-3]))
        pair.start_server()
        pair.wait_ready()
        cut, = of(pair, type="cut_found")
        check.equal((cut["head"], cut["ended_with"]), (len(lines), len(lines) - 3), "the cut")
        code, text = ledger.tool("audit", "verify", state=pair.state)
        check.equal(code, 1, "exit code of verify after the cut")
        check.holds(text, "are missing", "what verify says")


@test("no flood of requests that fail hides the one that succeeds", case=149)
def _(pair):
    with contextlib.closing(pair.user_client("flood")) as one:
        for _ in range(650):
            answer = one.post("/v1/tokens/children", {"scopes": ["admin"]})
        check.error(answer, 403, "wider_than_parent")
        made = one.post("/v1/tokens/children", {"label": "quiet"})
        check.equal(made.status, 201, "status")
        check.equal(one.delete("/v1/tokens/" + made.json()["id"]).status, 204, "status")
        user = one.get("/v1/me").json()["user"]
    # (the records are there before the answers)
    asked = of(pair, type="asked", what="tokens", user=user)
    check.equal(len(asked), 652, "records of what was asked")
    check.equal((asked[-1]["op"], asked[-1]["id"]), ("DELETE /v1/tokens/{}", made.json()["id"]),
                "the newest")
    check.equal(of(pair, type="summed", of="tokens", user=user), [], "sums")


@test("cheap requests that succeed without end are counted, and hide neither work nor rights",
      deadline=40)
def _(pair):
    with contextlib.closing(pair.user_client("cheap")) as one:
        user = one.get("/v1/me").json()["user"]
        at = "/v1/sandboxes/" + one.post("/v1/sandboxes", {}).json()["id"]
        over = one.run(argv=["true"])["id"]
        for _ in range(650):
            check.equal(one.post(at + "/ttl", {"ttl_ms": 600000}).status, 200, "ttl")
            one.delete("/v1/runs/" + over)
        token = "/v1/tokens/" + one.post("/v1/tokens/children", {}).json()["id"]
        check.equal(one.delete(token).status, 204, "revoking")
        check.error(one.delete(token), 404, "not_found")
        for _ in range(3):
            one.run(argv=["true"])
        check.equal(one.delete(at).status, 204, "the sandbox")
    for what in ("ttl", "runs"):
        check.equal(len(of(pair, type="asked", what=what, user=user)), 600, "records of " + what)
    check.equal(len(of(pair, type="asked", what="tokens", user=user)), 3, "records of tokens")
    check.equal(len(of(pair, type="accepted", what="run", user=user)), 4, "records of runs")
    check.equal(len(of(pair, type="ended", what="sandbox", user=user)), 1, "the sandbox's end")


@test("who fails without end is refused for a while, so that the log does not grow as fast as he asks",
      case=149, deadline=40)
def _(pair):
    with contextlib.closing(pair.user_client("fails")) as one, \
            contextlib.closing(pair.user_client("works")) as other:
        user = one.get("/v1/me").json()["user"]
        statuses = [one.delete("/v1/tokens/tok_%024d" % i).status for i in range(1200)]
        refused = statuses.count(429)
        # (a minute may have begun anew in between)
        check.within(1, refused, 200, "refusals")
        check.equal(set(statuses), {404, 429}, "statuses")
        error = check.error(one.post("/v1/tokens/children", {"label": "x"}), 429, "too_many_failures")
        check.holds(error["message"], "minute", "the message")
        # Reading, and what others do, goes on.
        check.equal(one.get("/v1/me").status, 200, "GET")
        check.equal(other.post("/v1/tokens/children", {"label": "x"}).status, 201, "another user")
    check.equal(len(of(pair, type="asked", what="tokens", user=user)), 1200 - refused, "records")
    check.within(1, len(of(pair, type="denied", code="too_many_failures", user=user)), 20, "denials")

"""Receipts of executions: what ran in a sandbox, how it ended, and on which files."""

import json

import check
import harness
import ledger
from box import Box, blob, file_entry, sha256, status
from suite import test
from test_receipt import public_key, verify
from test_sandbox_restart import kill_and_restart


def only(execution):
    return execution["steps"][0]


def receipt(box, execution):
    return status(box.client.get("%s/receipt" % box.at(execution["id"])), 200).json()


def body_of(pair, box, execution):
    """Checked: by an implementation of its own, and by the client without any server."""
    signed = receipt(box, execution)
    check.true(ledger.receipt_holds(signed, public_key(pair)), "the signature does not hold")
    code, said = verify(pair, signed)
    check.equal((code, said["proven"]), (0, True), "pinfold receipt verify")
    return signed["body"]


def synced(box, files, delete=False):
    entries = [file_entry(path, data) for path, data in files.items()]
    for name in status(box.sync(entries, delete=delete), 200).json()["missing"]:
        data = next(d for d in files.values() if sha256(d) == name)
        status(blob(box.client, data), 200, 201, 204)
    check.equal(status(box.sync(entries, delete=delete), 200).json()["applied"], True, "applied")
    return ledger.root([(path, 0o644, data) for path, data in files.items()])


@test("it says what was asked for and how it ended, and holds without a server")
def _(pair):
    with Box.make(pair.client, env={"A": "1"}) as box:
        answer = only(box.run(argv=["sh", "-c", "cat; echo e >&2; exit 3"], stdin="in\n",
                              env={"B": "2"}, limits={"wall_ms": 5000}))
        body = body_of(pair, box, answer)
        check.equal((body["id"], body["sandbox"], body["user"], body["ok"]),
                    (answer["id"], box.id, "admin", 0), "whose")
        check.equal(body["limits"], {k: v["value"] for k, v in answer["limits"].items()}, "limits")
        check.equal(body["policy"], box.get()["policy"], "policy")
        step = body["steps"][0]
        check.equal(step["argv"], ["sh", "-c", "cat; echo e >&2; exit 3"], "argv")
        check.equal(step["end"], {"cause": "exit", "exit_code": 3}, "end")
        check.equal(step["stdin"], {"bytes": 3, "sha256": sha256(b"in\n")}, "stdin")
        check.equal(step["stdout"], {"bytes": 3, "omitted": 0, "sha256": sha256(b"in\n")}, "stdout")
        check.equal(step["stderr"]["sha256"], sha256(b"e\n"), "stderr")
        check.true({"A", "B"} <= set(step["env"]), "names of the environment: %s" % step["env"])
        check.true("files_in" not in body, "a tree, without any sync")
        check.lacks(json.dumps(body), "B=2", "the receipt")
        # Any change is seen.
        signed = receipt(box, answer)
        signed["body"]["steps"][0]["end"]["exit_code"] = 0
        check.equal(verify(pair, signed)[0], 1, "verify of a changed one")


@test("it names the record of the audit log that accepted the execution")
def _(pair):
    with Box.make(pair.client) as box:
        body = body_of(pair, box, box.run(argv=["true"]))
        record = next(r for r in ledger.records(pair.state) if r["seq"] == body["audit"]["seq"])
        check.equal((record["type"], record["what"], record["id"]), ("accepted", "exec", body["id"]),
                    "the record")


@test("it names the files of the last sync, and whether anything may have changed them")
def _(pair):
    files = {"a": b"one\n", "d/b": b"two\n"}
    with Box.make(pair.client) as box:
        root = synced(box, files)
        first = body_of(pair, box, box.run(argv=["cat", "a"]))["files_in"]
        check.equal(first, {"root": "/workspace", "count": 2, "bytes": 8, "sha256": root,
                            "whole": 0, "others": 0}, "of the first command")
        # Looking changes nothing; the command before may have.
        box.changes()
        box.names("/workspace")
        second = body_of(pair, box, box.run(argv=["cat", "a"]))["files_in"]
        check.equal((second["sha256"], second["others"]), (root, 1), "of the second")
        box.put("/workspace/a", b"three\n")
        check.equal(body_of(pair, box, box.run(argv=["true"]))["files_in"]["others"], 3, "then")
        root = synced(box, {"a": b"four\n"}, delete=True)
        last = body_of(pair, box, box.run(argv=["true"]))["files_in"]
        check.equal((last["sha256"], last["whole"], last["others"]), (root, 1, 0), "a new sync")
        elsewhere = body_of(pair, box, box.run(argv=["true"], cwd="/tmp"))
        check.true("files_in" not in elsewhere, "a tree elsewhere")


@test("what is written while it runs, or by what runs beside it, is told")
def _(pair):
    with Box.make(pair.client) as box:
        running = box.start(sh="echo up; exec sleep 30")
        box.wait_output(running, b"up")
        synced(box, {"a": b"1"})
        beside = body_of(pair, box, box.run(argv=["true"]))["files_in"]
        check.equal(beside["others"], 1, "a command that ran already")
        box.cancel(running)
        synced(box, {"a": b"2"})
        ex = box.start(sh="until test -e go; do sleep 0.02; done")
        box.put("/workspace/go", b"")
        check.equal(body_of(pair, box, box.wait_done(ex))["files_in"]["others"], 1, "a write meanwhile")


@test("one that runs has none yet, and large output is hashed as the answer shows it", deadline=30)
def _(pair):
    with Box.make(pair.client) as box:
        ex = box.start(argv=["sleep", "30"])
        answer = box.client.get("%s/receipt" % box.at(ex))
        check.equal((answer.status, answer.json()["error"]["code"]), (409, "running"), "while it runs")
        box.cancel(ex)
        done = box.run(sh="head -c 3000000 /dev/zero; seq 100000 >&2")
        step, seen = body_of(pair, box, done)["steps"][0], only(done)
        for name in ("stdout", "stderr"):
            check.equal(step[name]["bytes"], seen[name + "_bytes"], name)
            check.equal(step[name]["omitted"], seen[name + "_omitted"], name + " omitted")
            check.equal(step[name]["sha256"], sha256(check.output(done, stream=name)),
                        name + " sha256")


@test("another user gets none", case=135)
def _(pair):
    with Box.make(pair.client) as box:
        answer = box.run(argv=["true"])
        stranger = pair.user_client("stranger")
        check.error(stranger.get("%s/receipt" % box.at(answer["id"])), 404, "not_found")


@test("after kill -9 of the server it is the same", own=True, deadline=40)
def _(_):
    with harness.Pair(slots=4, warm=1) as pair:
        pair.rest()
        box = Box.make(pair.client)
        synced(box, {"a": b"1"})
        answer = box.run(argv=["cat", "a"])
        before = receipt(box, answer)
        kill_and_restart(pair)
        check.equal(receipt(box, answer), before, "after a restart")
        # What happened to the files meanwhile is not known to the new server.
        check.true("files_in" not in body_of(pair, box, box.run(argv=["true"])), "a tree")
        box.delete()

"""Receipts: anybody can check them, and they say what happened."""

import base64
import copy
import hashlib
import json
import os
import subprocess
import tempfile

import check
import harness
import ledger
from client import Client
from suite import test


def public_key(pair):
    return bytes.fromhex(Client(pair.port, "").get("/v1/receipt-key").json()["key"])


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def output(body, index, name):
    return body["steps"][index][name]


def verify(pair, document, *more):
    """pinfold receipt verify -> (exit code, object of --json)."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(document, file)
        file.flush()
        done = subprocess.run(
            [harness.program("pinfold"), "receipt", "verify", file.name, "--json", "--key",
             public_key(pair).hex(), *more],
            capture_output=True, timeout=20, env={"PATH": os.environ["PATH"]})
    return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr.decode()


@test("the key needs no token and is the one of the command line")
def _(pair):
    answer = Client(pair.port, "").get("/v1/receipt-key")
    check.equal(answer.status, 200, "status")
    body = answer.json()
    check.equal(body["algorithm"], "ed25519", "algorithm")
    check.equal(body["id"], sha256(bytes.fromhex(body["key"]))[:16], "id")
    code, text = ledger.tool("receipt-key", state=pair.state)
    check.equal((code, text.strip()), (0, body["key"]), "pinfold-server receipt-key")
    mode = os.stat(os.path.join(pair.state, "server", "receipt.key")).st_mode & 0o777
    check.equal(oct(mode), "0o600", "mode of receipt.key")


@test("a receipt holds by hashlib and Ed25519 alone, and says what went in and came out")
def _(pair):
    answer = pair.client.run(
        steps=[{"name": "a", "argv": ["sh", "-c", "cat; echo e >&2; mkdir out; cp x out/y"],
                "stdin": "in\n", "env": {"B": "2"}},
               {"name": "b", "sh": "exit 3", "limits": {"wall_ms": 5000}},
               {"name": "c", "sh": "true"}],
        files=[{"path": "x", "content": "data", "mode": "0755"},
               {"path": "d/z", "content": base64.b64encode(b"\xff\0").decode(),
                "encoding": "base64"}],
        env={"A": "1"}, collect=["out/*", "nothing"])
    receipt = answer["receipt"]
    check.true(ledger.receipt_holds(receipt, public_key(pair)), "the signature does not hold")
    body = receipt["body"]
    check.equal((body["id"], body["user"], body["ok"]), (answer["id"], "admin", 0), "the run")
    check.equal(body["policy"], answer["policy"], "policy")
    check.equal(body["limits"], {k: v["value"] for k, v in answer["limits"].items()}, "limits")
    files = [("x", 0o755, b"data"), ("d/z", 0o644, b"\xff\0")]
    check.equal((body["files_in"]["count"], body["files_in"]["bytes"]), (2, 6), "files in")
    check.equal(body["files_in"]["sha256"], ledger.root(files), "root of the files in")
    check.equal([f["path"] for f in body["files_in"]["list"]], ["d/z", "x"], "list of files in")
    first, second, third = body["steps"]
    check.equal(first["argv"][:2], ["sh", "-c"], "argv")
    check.equal(first["end"], {"cause": "exit", "exit_code": 0}, "end of a")
    check.equal(first["stdin"], {"bytes": 3, "sha256": sha256(b"in\n")}, "stdin")
    check.equal(first["stdout"], {"bytes": 3, "omitted": 0, "sha256": sha256(b"in\n")}, "stdout")
    check.equal(first["stderr"]["sha256"], sha256(b"e\n"), "stderr")
    mark = "PINFOLD_TEST_MARK"
    check.equal(first["env"], sorted(["A", "B", mark]), "names of the environment")
    check.equal(first["env_sha256"],
                sha256(b"A=1\0B=2\0%s=%s\0" % (mark.encode(), pair.client.mark.encode())),
                "env_sha256")
    check.equal((second["sh"], second["end"]["exit_code"], second["limits"]["wall_ms"]),
                ("exit 3", 3, 5000), "step b")
    check.equal((third["state"], "end" in third), ("skipped", False), "step c")
    out = {f["path"]: f for f in body["files_out"]["list"]}
    check.equal(out["out/y"]["sha256"], sha256(b"data"), "file out")
    check.equal(out["nothing"], {"path": "nothing", "error": "not_found"}, "no file")
    check.lacks(json.dumps(receipt), "B=2", "the receipt")
    check.equal(verify(pair, answer)[0], 0, "exit code of pinfold receipt verify")
    check.equal(pair.client.fetch(answer["id"])["receipt"], receipt, "the same one later")


@test("an environment of 50 KB takes a digest's room in receipts, whatever steps set anew")
def _(pair):
    many = {"NAME_%04d_%s" % (i, "x" * 30): "v%d" % i for i in range(1000)}
    anew = {name: "w" for name in list(many)[:500]}
    answer = pair.client.run(env=many, steps=[{"sh": "true", "env": anew}, {"sh": "true"}])
    receipt = check.ok(answer)["receipt"]
    for step, env in zip(receipt["body"]["steps"], (dict(many, **anew), many)):
        env = dict(env, PINFOLD_TEST_MARK=pair.client.mark)
        items = sorted(("%s=%s" % item).encode() for item in env.items())
        check.equal(step["env_sha256"], sha256(b"".join(item + b"\0" for item in items)),
                    "env_sha256")
        check.equal("env" in step, False, "names in the receipt")
    check.within(1, len(json.dumps(receipt)), 6000, "bytes of the receipt")
    check.equal(verify(pair, answer)[0], 0, "exit code of pinfold receipt verify")


@test("large outputs are hashed as the answer shows them", deadline=20)
def _(pair):
    answer = pair.client.sh("head -c 3000000 /dev/zero; seq 100000 >&2")
    body = answer["receipt"]["body"]
    check.true(ledger.receipt_holds(answer["receipt"], public_key(pair)), "the signature")
    for name in ("stdout", "stderr"):
        seen = output(body, 0, name)
        check.equal(seen["bytes"], answer["steps"][0][name + "_bytes"], name + " bytes")
        check.equal(seen["omitted"], answer["steps"][0][name + "_omitted"], name + " omitted")
        check.equal(seen["sha256"], sha256(check.output(answer, stream=name)), name + " sha256")
    check.equal(verify(pair, answer)[0], 0, "exit code of verify")


@test("many files have a root digest instead of a list")
def _(pair):
    files = [("f%03d" % i, 0o644, b"%d" % i) for i in range(120)]
    answer = pair.client.run(
        argv=["true"], collect=["f*"],
        files=[{"path": p, "content": d.decode()} for p, _, d in files])
    body = answer["receipt"]["body"]
    for side in ("files_in", "files_out"):
        check.equal(body[side]["sha256"], ledger.root(files), side)
        check.true("list" not in body[side], "%s has a list", side)
    check.equal(verify(pair, answer)[0], 0, "exit code of verify")
    with tempfile.TemporaryDirectory() as work:
        for path, _, data in files:
            with open(os.path.join(work, path), "wb") as file:
                file.write(data)
            os.chmod(os.path.join(work, path), 0o644)
        check.equal(verify(pair, answer, "--files", work)[0], 0, "the same files")
        with open(os.path.join(work, "f007"), "a") as file:
            file.write("!")
        check.equal(verify(pair, answer, "--files", work)[0], 1, "another file")


def change_exit(a):
    a["steps"][0]["end"]["exit_code"] = 0


def change_output(a):
    a["steps"][0]["stdout"] = "PASS\n"


def change_file(a):
    a["files"][0]["content"] = "else"


def change_step(a):
    del a["steps"][0]


def change_limit(a):
    a["limits"]["mem_bytes"]["value"] *= 2


def change_body(a):
    a["receipt"]["body"]["ok"] = 1


def change_signature(a):
    a["receipt"]["signature"] = "00" * 64


def change_receipt(a):
    a["receipt"] = {}


@test("every change of an answer is found", deadline=20)
def _(pair):
    answer = pair.client.run(sh="echo FAIL; echo f > f; exit 1", collect=["f"])
    check.equal(verify(pair, answer)[0], 0, "exit code for the answer as it was")
    check.equal(verify(pair, answer["receipt"])[0], 0, "exit code for the receipt alone")
    for change in (change_exit, change_output, change_file, change_step, change_limit,
                   change_body, change_signature, change_receipt):
        other = copy.deepcopy(answer)
        change(other)
        code, found = verify(pair, other)
        check.equal((code, found["proven"]), (1, False), "the verdict after " + change.__name__)
    another = pair.client.run(sh="echo PASS", collect=["f"])
    another["receipt"] = answer["receipt"]
    check.equal(verify(pair, another)[0], 1, "the receipt of another run")


@test("a run that never started has a receipt, too")
def _(pair):
    answer = pair.client.run(argv=["/no/such/program"])
    check.ended(answer, "start")
    check.equal(answer["receipt"]["body"]["steps"][0]["end"]["cause"], "start", "cause")
    check.equal(verify(pair, answer)[0], 0, "exit code of verify")


@test("a cancelled run's receipt says so")
def _(pair):
    run = pair.client.submit(argv=["sleep", "60"])
    pair.client.wait_state(run, ("running",))
    check.true("receipt" not in pair.client.fetch(run), "a receipt before the end")
    pair.client.delete("/v1/runs/" + run)
    answer = pair.client.wait_done(run)
    check.equal(answer["receipt"]["body"]["steps"][0]["end"]["cause"], "cancelled", "cause")
    check.true(ledger.receipt_holds(answer["receipt"], public_key(pair)), "the signature")


def replay(pair, run, token=None):
    """pinfold replay --json -> (exit code, object or what it said)."""
    done = subprocess.run(
        [harness.program("pinfold"), "replay", run, "--json"], capture_output=True, timeout=30,
        env={"PATH": os.environ["PATH"], "PINFOLD_TOKEN": token or pair.token,
             "PINFOLD_URL": "http://127.0.0.1:%d" % pair.port})
    return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr.decode()


@test("a replay runs the same inputs again and finds what differs", deadline=20)
def _(pair):
    same = pair.client.run(
        steps=[{"name": "a", "sh": "cat x; cat; echo $A; echo e >&2"}, {"name": "b", "sh": "exit 4"}],
        files=[{"path": "x", "content": "data\n"}], stdin="in\n", env={"A": "1"}, collect=["x"])
    code, found = replay(pair, same["id"])
    check.equal((code, found["equal"]), (0, True), "the verdict (%s)" % found)
    check.equal([row["what"] for row in found["rows"]],
                ["step 1 a", "step 1 stdout", "step 1 stderr", "step 2 b", "step 2 stdout",
                 "step 2 stderr", "file x"], "what was compared")
    again = pair.client.fetch(found["now"])
    check.equal(again["steps"][0]["stdout"], same["steps"][0]["stdout"], "stdout of the replay")
    accepted, = [one for one in ledger.records(pair.state)
                 if one["type"] == "accepted" and one.get("id") == found["now"]]
    check.equal(accepted["from"], same["id"], "what the audit log says of it")
    other = pair.client.sh("date +%s.%N; cat /proc/sys/kernel/random/uuid > u", collect=["u"])
    code, found = replay(pair, other["id"])
    differs = [row["what"] for row in found["rows"] if not row["equal"]]
    check.equal((code, differs), (1, ["step 1 stdout", "file u"]), "the verdict")
    check.equal(replay(pair, "run_" + "x" * 24)[0], 125, "exit code for a run that is not there")
    nobody = pair.user_client("replay-nobody")
    check.error(nobody.post("/v1/runs/%s/replay" % same["id"], None), 404)


@test("large inputs and streamed runs can be replayed, too", deadline=20)
def _(pair):
    with pair.client.stream(
        argv=["sha256sum", "big"], files=[{"path": "big", "content": "x" * 300000}]
    ) as stream:
        run = [event for _, event in stream][0]["id"]
    code, found = replay(pair, run)
    check.equal((code, found["equal"]), (0, True), "the verdict (%s)" % found)
    files = pair.client.fetch(found["now"])["receipt"]["body"]["files_in"]
    check.equal(files["bytes"], 300000, "bytes that went in")


@test("without kept inputs a replay is refused with a sentence", own=True, deadline=30)
def _(_pair):
    with harness.Pair(server_args=["--keep-requests", "no"]) as pair:
        run = pair.client.run(argv=["true"])["id"]
        seen = check.error(pair.client.post("/v1/runs/%s/replay" % run, None), 410, "inputs_gone")
        check.holds(seen["message"], "not kept", "the sentence")


@test("receipts outlive the server, and a run that it took along has one", own=True, deadline=40)
def _(_pair):
    with harness.Pair() as pair:
        done = pair.client.run(argv=["echo", "x"])
        cut = pair.client.submit(argv=["sleep", "60"])
        pair.client.wait_state(cut, ("running",))
        pair.kill9_server()
        pair.start_server()
        pair.wait_ready()
        check.equal(pair.client.fetch(done["id"])["receipt"], done["receipt"], "the same receipt")
        check.equal(verify(pair, pair.client.fetch(done["id"]))[0], 0, "exit code of verify")
        answer = pair.client.wait_done(cut)
        check.ended(answer, "interrupted")
        check.true(ledger.receipt_holds(answer["receipt"], public_key(pair)), "the signature")
        check.equal(answer["receipt"]["body"]["steps"][0]["end"]["cause"], "interrupted", "cause")
        check.equal(verify(pair, answer)[0], 0, "exit code of verify")
        ended, = [one for one in ledger.records(pair.state)
                  if one["type"] == "ended" and one.get("id") == cut]
        check.equal(ended["cause"], "interrupted", "what the audit log says")

"""`pinfold agent` with a scripted model: done only when the verifier says so, and bounded."""

import json
import os
import signal
import subprocess
import time

import box
import check
import harness
import ledger
from model_server import ModelServer, results
from suite import test
from test_receipt import verify
from workspace import RULES, Workspace

VERIFY = "python3 -m unittest -v 2>&1"

GOOD = "def add(a, b):\n    return a + b\n"
WRONG = "def add(a, b):\n    return a - b\n"
TESTS = """import unittest
from sums import add


class Sums(unittest.TestCase):
    def test_small(self):
        self.assertEqual(add(1, 2), 3)

    def test_none(self):
        self.assertEqual(add(0, 0), 0)
"""


def interruptible():
    """A shell that started the tests in the background has SIGINT ignored, which is inherited."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def end(events):
    check.equal(events[-1]["type"], "end", "last event")
    return events[-1]


def outcome(done, events, code, word):
    last = end(events)
    check.equal((done.returncode, last["outcome"]), (code, word), "the end (%s; %s)" % (
        last["why"], done.stderr[-500:]))
    return last


def bound(pair, w, last):
    """The verdict has the server's receipt, which holds without it, of just this tree."""
    with open(last["receipt"]) as file:
        receipt = json.load(file)
    code, said = verify(pair, receipt, "--files", w.path)
    check.equal((code, said["proven"]), (0, True), "pinfold receipt verify: %s" % said)
    body = said["body"]
    step = body["steps"][0]
    check.equal((step["sh"], step["end"]["exit_code"]), (VERIFY, 0), "the verifier")
    check.equal(step["stdout"]["sha256"], last["output_sha256"], "the output's digest")
    files = [(path, mode, data) for path, (kind, mode, data) in w.tree().items() if kind == "file"]
    check.equal(body["files_in"]["sha256"], ledger.root(files), "its files")
    check.equal(body["files_in"]["others"], 0, "nothing else changed them")


def story(protocol):
    def run(pair):
        seen = []

        def mend(messages):
            # It has the real failure in front of it.
            text = results(messages)[-1]
            seen.append(text)
            check.true("test_small" in text and "-1 != 3" in text, "the failure: %s" % text)
            return {"calls": [("edit", {"path": "sums.py", "old": "a - b", "new": "a + b"})]}

        script = [
            {"text": "I begin.", "calls": [("list", {}), ("todo", {"items": "write sums.py"})]},
            {"calls": [("write", {"path": "sums.py", "content": WRONG}),
                       ("write", {"path": "test_sums.py", "content": TESTS})]},
            {"calls": [("done", {"summary": "add() is there"})]},
            mend,
            {"calls": [("run", {"command": "python3 -m unittest"})]},
            {"calls": [("done", {"summary": "add() adds"})]},
        ]
        with Workspace(pair) as w, ModelServer(script) as model:
            done, events = w.agent(model, "make add(a, b)", VERIFY, "--protocol", protocol)
            last = outcome(done, events, 0, "verified")
            check.equal(w.read("sums.py").decode(), GOOD, "sums.py")
            verdicts = [one["pass"] for one in events if one["type"] == "verify"]
            check.equal(verdicts, [False, True], "verdicts")
            check.equal(len(last["tree"]), 64, "the tree's digest")
            bound(pair, w, last)
            while w.tree():
                undone = w.pinfold("undo", "--yes")
                check.equal(undone.returncode, 0, "undo: " + undone.stderr)
            check.equal(w.tree(), {}, "the workspace after undo")

    return run


for name in ("openai", "anthropic"):
    test("from an empty directory to verified, over one failure, and back by undo (%s)" % name,
         deadline=90)(story(name))


@test("it cannot delete a test, write outside, read a secret, push, or lie about being done",
      deadline=90)
def _(pair):
    rules = "deny exec git push **\n" + RULES
    steps = [
        {"calls": [("run", {"command": "rm test_sums.py"})]},
        {"calls": [("write", {"path": "test_sums.py", "content": "pass\n"})]},
        {"calls": [("write", {"path": "../outside", "content": "x"})]},
        {"calls": [("read", {"path": ".env"})]},
        {"calls": [("run", {"command": "git push origin main"})]},
        {"calls": [("run", {"command": "sed -i s/3/-1/ test_sums.py"})]},
        {"calls": [("done", {"summary": "all tests pass"})]},
        {"text": "Everything is done and verified."},
        {"text": "Really."},
        {"text": "I am done."},
    ]
    with Workspace(pair, rules) as w, ModelServer(steps) as model:
        w.write("sums.py", WRONG)
        w.write("test_sums.py", TESTS)
        w.write(".env", "KEY=very-secret")
        before = w.tree()
        done, events = w.agent(model, "make the tests pass", VERIFY)
        last = outcome(done, events, 1, "not_verified")
        check.equal(w.tree(), before, "the workspace")
        check.true(not os.path.exists(os.path.join(w.top, "outside")), "it wrote outside")
        text = json.dumps([one["body"] for one in model.requests])
        check.true("very-secret" not in text, "the model saw the secret")
        told = results(model.requests[-1]["body"]["messages"])
        check.true("write-protected" in told[0], "deleting a test: %s" % told[0])
        check.true("write-protected" in told[1], "replacing a test: %s" % told[1])
        check.true("within the workspace" in told[2], "writing outside: %s" % told[2])
        check.true("denied" in told[3], "reading a secret: %s" % told[3])
        check.true("denied" in told[4] and "git push" in told[4], "pushing: %s" % told[4])
        check.true("Not done" in told[6], "lying: %s" % told[6])
        check.true(any("git push" in one["subject"] for one in last["denials"]), last["denials"])


@test("fewer tests than before, or more skips, is no success")
def _(pair):
    fewer = TESTS.replace("test_none", "none")
    for content, word in ((fewer, "fewer"), (TESTS.replace(
            "    def test_none", "    @unittest.skip('x')\n    def test_none"), "fewer")):
        steps = [{"calls": [("write", {"path": "sums.py", "content": GOOD}),
                            ("write", {"path": "test_sums.py", "content": content})]},
                 {"calls": [("done", {"summary": "x"})]}]
        with Workspace(pair) as w, ModelServer(steps) as model:
            w.write("sums.py", WRONG)
            w.write("test_sums.py", TESTS)
            done, events = w.agent(model, "t", VERIFY, "--allow-tests", "--max-iters", "2")
            outcome(done, events, 1, "not_verified")
            verdict = [one for one in events if one["type"] == "verify"][-1]
            check.true(not verdict["pass"] and word in verdict["why"], verdict)


QUIT = "import os\nos._exit(0)\n"


@test("code that ends the tests with exit code 0 has not passed them", deadline=60)
def _(pair):
    fake = "#!/bin/sh\n%s\nexit 0\n"
    lies = [
        # In the tested module: there is no count, and none was there before.
        ({"sums.py": QUIT + GOOD, "test_sums.py": TESTS}, VERIFY, "how many tests unittest ran"),
        ({"sums.py": QUIT + GOOD, "test_sums.py": TESTS}, "sh -c 'cd . && python3 -m unittest'",
         "how many tests unittest ran"),
        # What runs the tests is not named, but has begun.
        ({"t.sh": fake % "echo '===== test session starts ====='"}, "sh t.sh", "pytest ran"),
        ({"t.sh": fake % "echo TAP version 13; echo '# nothing'"}, "sh t.sh", "TAP ran"),
        # Tests are counted line by line, and lines are missing.
        ({"t.sh": fake % "echo TAP version 13; seq -f 'ok %.0f - x' 1 600000; echo 1..600000"},
         "sh t.sh", "too long to be kept whole"),
    ]
    for files, verify_with, word in lies:
        steps = [{"calls": [("write", {"path": path, "content": text})
                            for path, text in files.items()]},
                 {"calls": [("done", {"summary": "x"})]}]
        with Workspace(pair) as w, ModelServer(steps) as model:
            done, events = w.agent(model, "t", verify_with, "--max-iters", "2")
            outcome(done, events, 1, "not_verified")
            verdict = [one for one in events if one["type"] == "verify"][-1]
            check.true(not verdict["pass"] and word in verdict["why"], verdict)
            check.equal(verdict["exit_code"], 0, "the verifier's exit code")


@test("with --tests-first a pass counts only after a failure, and failing tests stay as they are")
def _(pair):
    more = "import unittest\nfrom sums import twice\n\n\nclass Twice(unittest.TestCase):\n" \
           "    def test_twice(self):\n        self.assertEqual(twice(2), 4)\n"
    steps = [
        {"calls": [("done", {"summary": "nothing to do"})]},
        {"calls": [("write", {"path": "test_twice.py", "content": more})]},
        {"calls": [("done", {"summary": "red"})]},
        {"calls": [("write", {"path": "test_twice.py", "content": "pass\n"})]},
        {"calls": [("write", {"path": "sums.py", "content": GOOD + "\n\ndef twice(a):\n    return a + a\n"})]},
        {"calls": [("done", {"summary": "green"})]},
    ]
    with Workspace(pair) as w, ModelServer(steps) as model:
        w.write("sums.py", GOOD)
        w.write("test_sums.py", TESTS)
        done, events = w.agent(model, "t", VERIFY, "--tests-first")
        outcome(done, events, 0, "verified")
        told = results(model.requests[-1]["body"]["messages"])
        check.true("has not failed before" in told[0], told[0])
        check.true("write-protected" in told[3], told[3])
    with Workspace(pair) as w, ModelServer([{"calls": [("done", {"summary": str(i)})]}
                                            for i in range(3)]) as model:
        w.write("a", "1")
        done, events = w.agent(model, "t", "true", "--tests-first")
        outcome(done, events, 1, "not_verified")


@test("the same action with the same outcome three times in a row is stuck")
def _(pair):
    same = {"calls": [("read", {"path": "nothing"})]}
    with Workspace(pair) as w, ModelServer([same] * 9) as model:
        done, events = w.agent(model, "t", "true")
        outcome(done, events, 7, "stuck")
        check.equal(len(model.requests), 3, "requests")


@test("the same failing tests three times in a row are stuck")
def _(pair):
    steps = [{"calls": [("done", {"summary": str(i)})]} for i in range(9)]
    with Workspace(pair) as w, ModelServer(steps) as model:
        w.write("sums.py", WRONG)
        w.write("test_sums.py", TESTS)
        done, events = w.agent(model, "t", VERIFY)
        outcome(done, events, 7, "stuck")


@test("the same denial twice ends it as denied")
def _(pair):
    steps = [{"calls": [("run", {"command": "curl http://x"})]},
             {"calls": [("list", {})]},
             {"calls": [("run", {"command": "curl http://x"})]},
             {"calls": [("list", {})]}]
    with Workspace(pair) as w, ModelServer(steps) as model:
        done, events = w.agent(model, "t", "true")
        last = outcome(done, events, 3, "denied")
        check.equal(last["denials"][0]["times"], 2, "times")


@test("on a terminal a person is asked for a command: no is told to the model, always is kept")
def _(pair):
    steps = [{"calls": [("run", {"command": "echo install"})]}, {"calls": [("list", {})]},
             {"calls": [("run", {"command": "echo othered"})]},
             {"calls": [("run", {"command": "echo othered"})]},
             {"calls": [("done", {"summary": "x"})]}]
    with Workspace(pair) as w, ModelServer(steps) as m:
        config = os.path.join(w.home, ".config/pinfold")
        os.makedirs(config)
        with open(os.path.join(config, "permissions.rules"), "w") as file:
            file.write("allow write **\nallow model local\n")
        command = ["agent", "t", "--verify", "true", "--model-url", m.url, "--model", "scripted"]
        code, seen = w.ask(command, [("The model wants to run: echo install", "n"),
                                     ("allow exec echo othered", "a")])
        check.equal(code, 0, "exit code: %s" % seen[-1500:])
        told = results(m.requests[-1]["body"]["messages"])
        check.true("denied" in told[0], told[0])
        check.true("othered" in told[2] and "othered" in told[3], told)
        check.equal(seen.count("to run: echo othered"), 1, "it is asked once")


@test("people see what changes, in colour, and what is waited for; without a terminal neither")
def _(pair):
    steps = lambda: [
        {"calls": [("edit", {"path": "a", "old": "one", "new": "two"})]},
        {"calls": [("done", {"summary": "x"})]}]
    with Workspace(pair) as w, ModelServer(steps()) as m:
        w.write("a", "one\n")
        command = lambda model: ["agent", "t", "--verify", "true", "--model-url", model.url,
                                 "--model", "scripted", "--rules", w.rules]
        code, seen = w.ask(command(m), [])
        check.equal(code, 0, "exit code: %s" % seen[-800:])
        check.true("\033[31m    - one\033[m" in seen and "\033[32m    + two\033[m" in seen, seen)
        check.true("[request 2 of 50, 110 tokens, 0.0000 USD, " in seen and
                   "the verifier runs" in seen, seen)
        w.write("a", "one\n")
        with ModelServer(steps()) as again:
            done = w.pinfold(*command(again))
        check.equal(done.returncode, 0, done.stderr)
        check.true("    - one\n" in done.stdout and "\033" not in done.stdout + done.stderr,
                   done.stdout)


@test("in a copy of the sandbox, too, the verifier sees exactly what is here")
def _(pair):
    steps = [{"calls": [("run", {"command": "./run.sh"})]}, {"calls": [("done", {"summary": "x"})]}]
    with Workspace(pair, "deny write ci/**\n" + RULES) as w, ModelServer(steps) as m:
        w.write("ci/a", "1")
        w.write("run.sh", "#!/bin/sh\necho x >ci/kept-away; echo y >here\n", 0o755)
        done, events = w.agent(m, "t", "ls ci; test ! -e ci/kept-away", "--verify-copy")
        outcome(done, events, 0, "verified")


@test("bounds: requests, tokens, time, money without prices")
def _(pair):
    busy = lambda messages: {"calls": [("write", {"path": "n", "content": str(len(messages))})]}
    for more, code, word in ((("--max-iters", "2"), 1, "not_verified"),
                             (("--budget", "200"[:1] + "k"), 4, "budget"),
                             (("--wall", "1ms"), 4, "budget")):
        with Workspace(pair) as w, ModelServer(busy) as model:
            done, events = w.agent(model, "t", "false", *more)
            outcome(done, events, code, word)
            check.true(len(model.requests) <= 25, "%d requests" % len(model.requests))


@test("a model that is busy is asked again; one that rejects is not")
def _(pair):
    busy = {"raw": {"status": 503, "headers": {"Retry-After": "0"}, "body": "{}"}}
    finish = {"calls": [("done", {"summary": "x"})]}
    with Workspace(pair) as w, ModelServer([busy, {"text": "half", "broken": True}, finish]) as m:
        done, events = w.agent(m, "t", "true")
        outcome(done, events, 0, "verified")
    rejects = {"raw": {"status": 401, "body": '{"error":{"message":"no"}}'}}
    with Workspace(pair) as w, ModelServer([rejects, finish]) as m:
        done, events = w.agent(m, "t", "true", PINFOLD_MODEL_KEY="sk-very-secret")
        outcome(done, events, 5, "model")
        check.equal(len(m.requests), 1, "requests")
        check.true("sk-very-secret" not in done.stdout + done.stderr, "the key was told")


@test("a context that overflows is compacted, and the task stays")
def _(pair):
    overflow = {"raw": {"status": 400, "body": json.dumps({"error": {
        "message": "This model's maximum context length is 9000 tokens.", "code": 400}})}}
    fill = {"calls": [("run", {"command": "python3 long.py"})]}
    with Workspace(pair) as w, ModelServer(
            [fill, {"calls": [("run", {"command": "python3 long.py 2"})]}, overflow,
             {"calls": [("done", {"summary": "x"})]}]) as model:
        w.write("long.py", "print('x' * 9000)\n")
        done, events = w.agent(model, "THE-TASK", "true", "--answer", "512")
        outcome(done, events, 0, "verified")
        check.true(any(one["type"] == "compaction" for one in events), "no compaction")
        last = model.requests[-1]["body"]["messages"]
        check.true("THE-TASK" in last[1]["content"], "the task is gone")
        check.true(len(json.dumps(last)) < len(json.dumps(model.requests[2]["body"]["messages"]))
                   * 0.67, "it did not shrink by a third")


@test("with `allow model local` only, no other address is connected to (in a namespace of its own)")
def _(pair):
    with Workspace(pair) as w, ModelServer([]) as model:
        for url in ("http://192.0.2.1:1/v1", "http://example.org/v1"):
            done = w.pinfold("agent", "t", "--verify", "true", "--model-url", url, "--model", "m",
                             "--rules", w.rules, "--json")
            last = json.loads(done.stdout.splitlines()[-1])
            check.equal((done.returncode, last["outcome"]), (3, "denied"), last["why"])
        # What a process tries to connect to, and whom it asks for names, strace shows.
        trace = os.path.join(w.top, "trace")
        done = subprocess.run(
            ["strace", "-f", "-e", "trace=connect,sendto,sendmsg", "-o", trace,
             harness.program("pinfold"), "agent", "t", "--verify", "true", "--model-url",
             "http://localhost:%s/v1" % model.url.split(":")[2].split("/")[0], "--model", "m",
             "--rules", w.rules, "--json", "--max-iters", "1"],
            cwd=w.path, env=w.environment(http_proxy="http://192.0.2.7:3128"),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30,
            start_new_session=True)
        check.equal(len(model.requests), 1, "requests (%s)" % done.stderr[-300:])
        with open(trace) as file:
            for line in file:
                if "AF_INET" in line and "connect(" in line:
                    check.true("127.0.0.1" in line or '"::1"' in line, "connects to: %s" % line)


@test("Ctrl-C leaves nothing half done, and the session can be taken up again", deadline=60)
def _(pair):
    slow = {"calls": [("run", {"command": "sleep 1000"})]}
    with Workspace(pair) as w, ModelServer([slow, {"calls": [("done", {"summary": "x"})]}]) as m:
        w.write("a", "1")
        child = subprocess.Popen(
            [harness.program("pinfold"), "agent", "t", "--verify", "true", "--model-url", m.url,
             "--model", "scripted", "--rules", w.rules, "--json"],
            cwd=w.path, env=w.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=interruptible)
        session = None
        for line in child.stdout:
            event = json.loads(line)
            session = event.get("session", session)
            if event["type"] == "call":
                break
        sandbox = lambda: pair.client.get("/v1/sandboxes").json()["sandboxes"][0]["id"]
        running = lambda: [one for one in box.rows(pair.client.get(
            "/v1/sandboxes/%s/exec" % sandbox()).json()) if one["state"] == "running"]
        check.eventually(running, 10, "the command runs")
        child.send_signal(signal.SIGINT)
        rest = child.stdout.read()
        check.equal(child.wait(10), 130, "exit code (%s)" % rest[-500:])
        check.equal(json.loads(rest.splitlines()[-1])["outcome"], "cancelled", "outcome")
        check.eventually(lambda: not running(), 10, "the command is cancelled")
        done, events = w.agent(m, "t", "true", "--resume", session)
        outcome(done, events, 0, "verified")
        check.true(len(m.requests[-1]["body"]["messages"]) > 2, "the conversation is gone")


def session_of(w):
    (name,) = [one for one in os.listdir(os.path.join(w.home, state_of(w), "agent"))
               if one.startswith("ag_") and one.endswith(".json")]
    return name[:-len(".json")]


def state_of(w):
    base = os.path.join(w.home, ".local/state/pinfold/workspaces")
    return os.path.join(base, os.listdir(base)[0])


@test("killed in the middle of a turn it is taken up again, with what held at its start", deadline=60)
def _(pair):
    steps = [
        {"calls": [("write", {"path": "new_test.py", "content": TESTS}),
                   ("run", {"command": "sleep 1000"}), ("list", {})]},
        {"calls": [("write", {"path": "test_sums.py", "content": "pass\n"})]},
        {"calls": [("done", {"summary": "x"})]},
    ]
    with Workspace(pair) as w, ModelServer(steps) as m:
        w.write("sums.py", GOOD)
        w.write("test_sums.py", TESTS)
        child = subprocess.Popen(
            [harness.program("pinfold"), "agent", "the task", "--verify", VERIFY, "--model-url",
             m.url, "--model", "scripted", "--rules", w.rules, "--json"],
            cwd=w.path, env=w.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, start_new_session=True)
        for line in child.stdout:
            if json.loads(line).get("tool") == "run":
                break
        child.kill()
        child.wait(10)
        check.true("new_test.py" in w.tree(), "what was written before")
        done = w.pinfold("agent", "--resume", session_of(w), "--model-url", m.url, "--model",
                         "scripted", "--rules", w.rules, "--json", timeout=60)
        events = [json.loads(line) for line in done.stdout.splitlines()]
        outcome(done, events, 0, "verified")
        last = m.requests[-1]["body"]["messages"]
        told = results(last)
        check.true("the task" in last[1]["content"], "the task is gone")
        check.true("made new_test.py" in told[0] and "interrupted" in told[1] and
                   "interrupted" in told[2], told)
        check.true("write-protected" in told[3], told[3])


@test("nested agents hang under their parent, in the journal of costs")
def _(pair):
    with Workspace(pair) as w, ModelServer([{"calls": [("done", {"summary": "x"})]}] * 3) as m:
        parent = end(w.agent(m, "t", "true")[1])["session"]
        child = end(w.agent(m, "t", "true", PINFOLD_SESSION=parent)[1])["session"]
        odd = end(w.agent(m, "t", "true", PINFOLD_SESSION="no id" * 9000)[1])
        check.equal(odd["outcome"], "verified", "with a parent that is none")
        lines = [json.loads(one) for one in w.pinfold("journal", "--json").stdout.splitlines()]
        check.equal([(one["session"], one["parent"]) for one in lines[:2]],
                    [(parent, None), (child, parent)], "parents")
        check.equal(lines[2]["parent"], None, "a parent that is none")
        for one in lines:
            check.equal((one["provider"], len(one["rules"])), ("openai", 64), "fields")
            check.true(one["duration_ms"] >= 0 and one["task"] == "t", one)
        shown = w.pinfold("journal", "--by", "session").stdout.splitlines()
        check.true(shown[1].startswith(parent), shown)
        check.true(shown[2].startswith("  " + child), shown)


@test("Ctrl-C while the verifier runs leaves no copy of the sandbox behind")
def _(pair):
    with Workspace(pair) as w, ModelServer([]) as m:
        w.write("a", "1")
        child = subprocess.Popen(
            [harness.program("pinfold"), "agent", "t", "--verify", "sleep 1000", "--model-url",
             m.url, "--model", "scripted", "--rules", w.rules, "--json"],
            cwd=w.path, env=w.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=interruptible)
        there = lambda: pair.client.get("/v1/sandboxes").json()["sandboxes"]
        running = lambda: [one for box_ in there() for one in box.rows(pair.client.get(
            "/v1/sandboxes/%s/exec" % box_["id"]).json()) if one["state"] == "running"]
        check.eventually(running, 10, "the verifier runs")
        check.equal(len(there()), 2, "the sandbox and its copy")
        child.send_signal(signal.SIGINT)
        check.equal(child.wait(10), 130, "exit code")
        check.equal(len([one for one in there() if one["state"] != "gone"]), 1, "sandboxes")


@test("what it costs is written down, chained, and summed up")
def _(pair):
    with Workspace(pair) as w, ModelServer([{"calls": [("done", {"summary": "x"})]}] * 2) as m:
        for _ in range(2):
            done, events = w.agent(m, "t", "true")
            outcome(done, events, 0, "verified")
        lines = [json.loads(one) for one in
                 w.pinfold("journal", "--json").stdout.splitlines()]
        check.equal(len(lines), 2, "lines")
        check.equal(lines[0]["tokens"]["input"], 100, "tokens")
        check.equal(lines[0]["cost_micro_usd"], 0, "a local model's cost")
        check.true(lines[0]["host"].startswith("127.0.0.1:"), lines[0]["host"])
        path = os.path.join(w.home, ".local/state/pinfold/costs.jsonl")
        with open(path) as file:
            text = file.read()
        with open(path, "w") as file:
            file.write(text.replace('"input":100', '"input":1', 1))
        check.equal(w.pinfold("journal").returncode, 1, "exit code after an edit")


def told(pair, commands, *more):
    """-> the results of these commands, one a turn, as the model is told them."""
    steps = [{"calls": [("run", {"command": one})]} for one in commands]
    steps.append({"calls": [("done", {"summary": "x"})]})
    with Workspace(pair) as w, ModelServer(steps) as model:
        w.write("run.sh", "#!/bin/bash\n" + NOISE, 0o755)
        done, events = w.agent(model, "t", "true", *more)
        outcome(done, events, 0, "verified")
        return results(model.requests[-1]["body"]["messages"])


NOISE = """case $1 in
end) for i in {1..5000}; do echo "noise $i"; done; echo "ASSERT FAILED x"; exit 1;;
frames) for i in {1..2000}; do printf 'at %d\\r' $i; done; printf '\\e[31mred\\e[0m\\a\\n';;
binary) head -c 20000 /bin/ls;;
env) env | sort;;
esac
"""


@test("the error at the end is shown, and the rest can be read (case 186)")
def _(pair):
    (first,) = told(pair, ["./run.sh end"], "--context", "9000")
    check.true("ASSERT FAILED x" in first and "noise 1\n" in first, first[-300:])
    check.true("bytes omitted" in first and "read out:1" in first, first[:300])
    check.true(len(first) < 6000, "%d bytes for a model of 9,000 tokens" % len(first))


@test("of a progress bar the last frame is shown, without codes (case 188)")
def _(pair):
    (text,) = told(pair, ["./run.sh frames"])
    check.equal(text, "red\n[exit code 0]\n", "result")


@test("binary output is named, not shown (case 189); a failure is data (case 192)")
def _(pair):
    text, fails = told(pair, ["./run.sh binary", "ls missing-file"])
    check.true(text.startswith("[binary output, 20000 bytes, sha256 "), text[:200])
    check.true("missing-file" in fails and "[exit code 2" in fails, fails)


@test("nothing can ask: stdin is at its end, editors and pagers are off (cases 190, 195)")
def _(pair):
    os.environ["SANDBOX_API_KEY"] = "canary-of-the-client"
    try:
        env, reads = told(pair, ["./run.sh env", "python3"])
    finally:
        del os.environ["SANDBOX_API_KEY"]
    for line in ("GIT_EDITOR=true", "DEBIAN_FRONTEND=noninteractive", "PAGER=cat",
                 "GIT_TERMINAL_PROMPT=0", "PINFOLD_SESSION=ag_"):
        check.true(line in env, "%s is not in %s" % (line, env))
    check.true("canary" not in env and pair.token not in env, "the client's environment: %s" % env)
    check.true("exit code" in reads, reads)


@test("the same command with the same outcome three times in a row is stuck, however long it takes")
def _(pair):
    same = {"calls": [("run", {"command": "./run.sh end"})]}
    with Workspace(pair) as w, ModelServer([same] * 9) as model:
        w.write("run.sh", "#!/bin/bash\n" + NOISE, 0o755)
        done, events = w.agent(model, "t", "true")
        outcome(done, events, 7, "stuck")
        check.equal(len(model.requests), 3, "requests")


@test("when the server is away the agent says so and runs nothing here (case 193)")
def _(pair):
    with Workspace(pair) as w, ModelServer([{"calls": [("run", {"command": "touch canary"})]}]) as m:
        w.write("a", "1")
        done, events = w.agent(m, "t", "true", PINFOLD_URL="http://127.0.0.1:1")
        outcome(done, events, 6, "unreachable")
        check.equal(list(w.tree()), ["a"], "the workspace")


@test("a summary that is cut within a character, and a name that is no UTF-8, break nothing")
def _(pair):
    steps = [{"calls": [("list", {})]}, {"calls": [("done", {"summary": "x" + "\u00e4" * 600})]}]
    with Workspace(pair) as w, ModelServer(steps) as model:
        with open(os.path.join(os.fsencode(w.path), b"caf\xe9"), "w") as file:
            file.write("x")
        done, events = w.agent(model, "t", "true")
        last = outcome(done, events, 0, "verified")
        check.true(last["summary"].startswith("x\u00e4\u00e4"), last["summary"][:20])
        told = results(model.requests[-1]["body"]["messages"])
        check.true("caf?" in told[-1], told)


@test("an agent without a verifier, a model or a task says what is missing")
def _(pair):
    with Workspace(pair) as w:
        for arguments, word in ((("t",), "--verify"), (("t", "--verify", "true"), "--model"),
                                ((), "task"), (("a", "b", "--verify", "x"), "task")):
            done = w.pinfold("agent", *arguments)
            check.equal(done.returncode, 2, "exit code of %r" % (arguments,))
            check.true(word in done.stderr, done.stderr)

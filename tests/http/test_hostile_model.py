"""`pinfold agent` against a model that cheats: at the verifier, the bounds, the output, the files."""

import json
import time

import check
from model_server import ModelServer, results
from suite import test
from test_agent import GOOD, TESTS, VERIFY, WRONG, end, outcome
from workspace import RULES, Workspace

DONE = {"calls": [("done", {"summary": "x"})]}
LIE = "import os\nprint('test_small ... ok\\ntest_none ... ok\\n\\nRan 2 tests in 0.001s\\n\\nOK', " \
      "flush=True)\nos._exit(0)\n"


def told(model):
    return results(model.requests[-1]["body"]["messages"])


@test("a rule that allows all writes does not open .git, .pinfold or what is ignored to its tools")
def _(pair):
    steps = [{"calls": [("write", {"path": ".git/hooks/pre-commit", "content": "evil"}),
                        ("write", {"path": "sub/.git/config", "content": "evil"}),
                        ("write", {"path": ".pinfold/permissions.rules", "content": "evil"}),
                        ("edit", {"path": ".git/HEAD", "old": "ref", "new": "evil"}),
                        ("read", {"path": ".git/config"}),
                        ("read", {"path": "local.json"}),
                        ("read", {"path": "./sub/../.git/config"}),
                        ("search", {"pattern": "secret", "path": ".git"})]}, DONE]
    with Workspace(pair) as w, ModelServer(steps) as model:
        w.write(".git/HEAD", "ref")
        w.write(".git/config", "token secret-a")
        w.write(".gitignore", "local.json\n!.git\n")
        w.write("local.json", "secret-b")
        before = w.tree()
        done, events = w.agent(model, "t", "true")
        outcome(done, events, 0, "verified")
        check.equal(w.tree(), before, "the workspace")
        text = json.dumps([one["body"] for one in model.requests])
        check.true("secret-a" not in text and "secret-b" not in text, "told: %s" % told(model))


@test("the verifier runs on what is handed over, not on what commands left in the sandbox", deadline=60)
def _(pair):
    poison = ("import site,os; d=site.getusersitepackages(); os.makedirs(d, exist_ok=True); "
              "open(d+'/sitecustomize.py','w').write(%r)" % LIE)
    steps = [{"calls": [("run", {"command": 'python3 -c "%s"' % poison.replace('"', '\\"')}),
                        ("run", {"command": "mkdir -p build"}),
                        ("run", {"command": "touch build/ok"})]}, DONE]
    with Workspace(pair) as w, ModelServer(steps) as model:
        w.write(".gitignore", "build\n")
        w.write("check.sh", "#!/bin/sh\ntest -e build/ok\n", 0o755)
        done, events = w.agent(model, "t", "./check.sh", "--max-iters", "2")
        outcome(done, events, 1, "not_verified")
    steps = [steps[0], DONE]
    with Workspace(pair) as w, ModelServer(steps) as model:
        w.write("sums.py", WRONG)
        w.write("test_sums.py", TESTS)
        done, events = w.agent(model, "t", VERIFY, "--max-iters", "2")
        outcome(done, events, 1, "not_verified")


@test("new files that would steer the tests are refused, whichever tool makes them", deadline=60)
def _(pair):
    names = ["conftest.py", "sub/conftest.py", "sitecustomize.py", "unittest.py",
             "unittest/__init__.py", "tests/conftest.py", "setup.cfg"]
    steps = [{"calls": [("write", {"path": name, "content": LIE}) for name in names]},
             {"calls": [("run", {"command": "./run.sh"})]}, DONE]
    with Workspace(pair) as w, ModelServer(steps) as model:
        w.write("sums.py", WRONG)
        w.write("test_sums.py", TESTS)
        w.write("run.sh", "#!/bin/sh\nmkdir -p sub unittest tests\nfor i in %s; do echo x >$i; done\n"
                % " ".join(names), 0o755)
        done, events = w.agent(model, "t", VERIFY, "--max-iters", "3")
        outcome(done, events, 1, "not_verified")
        for name in names:
            check.true(name not in w.tree(), "%s was made" % name)
    steps = [{"calls": [("write", {"path": name, "content": "test:\n\ttrue\n"})
                        for name in ("GNUmakefile", "makefile", "test", "rules.mk")]}, DONE]
    with Workspace(pair) as w, ModelServer(steps) as model:
        w.write("Makefile", "test:\n\tfalse\n")
        done, events = w.agent(model, "t", "make test", "--max-iters", "2")
        outcome(done, events, 1, "not_verified")


@test("a run of no tests at all is no success, even with exit code 0")
def _(pair):
    for lie in ("Ran 0 tests in 0.000s\\n\\nOK\\n", "no tests ran in 0.01s\\n",
                "?   example.org/x [no test files]\\n", "1..0\\n", "No tests were found!!!\\n"):
        with Workspace(pair) as w, ModelServer([DONE]) as model:
            done, events = w.agent(model, "t", "printf '%s'" % lie, "--max-iters", "1")
            outcome(done, events, 1, "not_verified")


@test("texts that are cut within a character break neither the events, the session nor the request")
def _(pair):
    steps = [{"calls": [("todo", {"items": "a" * 3999 + "é" * 20}), ("x" * 59 + "é", {})]},
             {"calls": [("run", {"command": "printf '\\377\\303'"}),
                        ("read", {"path": "p" * 190 + "é" * 200})]},
             {"calls": [("done", {"summary": "a" * 498 + "é" * 30})]}]
    with Workspace(pair) as w, ModelServer(steps) as model:
        done, events = w.agent(model, "t", "true")
        last = outcome(done, events, 0, "verified")
        check.true(last["summary"].startswith("aaa"), "the summary")
        for one in events:
            check.true(one["type"] != "result" or "text" in one, "an empty result: %r" % one)
            check.true(one["type"] != "note" or "text" in one, "an empty note: %r" % one)
        again, events = w.agent(model, "t", "true", "--resume", last["session"], "--max-iters", "1")
        end(events)
        check.equal(again.returncode, 1, "exit code of the resumed session")


@test("a pattern that would cost all memory or time is an error, not the end of the client", deadline=60)
def _(pair):
    patterns = ["(" * 60000 + ")" * 60000, "((((a{1,250}){1,250}){1,250}){1,250})",
                "(a*)(a*)(a*)(a*)(a*)\\1\\2\\3\\4\\5b"]
    steps = [{"calls": [("search", {"pattern": one}) for one in patterns]
              + [("search", {"pattern": "nee+dle"})]}, DONE]
    with Workspace(pair) as w, ModelServer(steps) as model:
        w.write("a.txt", "a" * 3000 + "\n")
        w.write("b.txt", "a needle\n")
        begun = time.monotonic()
        done, events = w.agent(model, "t", "true", "--context", "400000")
        outcome(done, events, 0, "verified")
        check.true(time.monotonic() - begun < 25, "it took %d s" % (time.monotonic() - begun))
        check.equal(told(model)[-1], "b.txt:1: a needle\n", "the good one")


@test("the bound of time holds within one answer with many calls, and for one that drips")
def _(pair):
    steps = [{"calls": [("run", {"command": "sleep %d.5" % (i % 2)}) for i in range(20)]}]
    with Workspace(pair) as w, ModelServer(steps) as model:
        begun = time.monotonic()
        done, events = w.agent(model, "t", "false", "--wall", "2s")
        outcome(done, events, 4, "budget")
        check.true(time.monotonic() - begun < 6, "it took %d s" % (time.monotonic() - begun))
    with Workspace(pair) as w, ModelServer([{"drip": 30}]) as model:
        begun = time.monotonic()
        done, events = w.agent(model, "t", "false", "--wall", "2s")
        outcome(done, events, 4, "budget")
        check.true(time.monotonic() - begun < 8, "it took %d s" % (time.monotonic() - begun))


@test("a model that tells no usage does not escape the budget")
def _(pair):
    call = {"id": "c", "type": "function", "index": 0, "function": {
        "name": "write", "arguments": ""}}

    def answer(messages):
        one = dict(call, id="c%d" % len(messages), function={
            "name": "write", "arguments": json.dumps({"path": "n", "content": str(len(messages))})})
        chunk = {"choices": [{"index": 0, "delta": {"tool_calls": [one]}, "finish_reason": None}]}
        last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
        body = "data: %s\n\ndata: %s\n\ndata: [DONE]\n\n" % (json.dumps(chunk), json.dumps(last))
        return {"raw": {"status": 200, "headers": {"Content-Type": "text/event-stream"},
                        "body": body}}

    with Workspace(pair) as w, ModelServer(answer) as model:
        done, events = w.agent(model, "t", "false", "--budget", "5k", "--max-iters", "40")
        outcome(done, events, 4, "budget")


@test("a model that is called local is not local for that; a key that is echoed is not shown")
def _(pair):
    with Workspace(pair) as w, ModelServer([]) as model:
        done = w.pinfold("agent", "t", "--verify", "true", "--model-url", "http://192.0.2.1:1/v1",
                         "--model", "local", "--rules", w.rules, "--json", "--wall", "3s")
        last = json.loads(done.stdout.splitlines()[-1])
        check.equal((done.returncode, last["outcome"]), (3, "denied"), last["why"])
    key = "sk-very-secret-key-0123456789"
    for raw in ({"status": 401, "body": json.dumps({"error": {"message": "bad key: %s" % key}})},
                {"status": 200, "headers": {"Content-Type": "text/event-stream"}, "body":
                 "data: %s\n\n" % json.dumps({"error": {"message": "x" * 220 + key}})}):
        with Workspace(pair) as w, ModelServer([{"raw": raw}] * 9) as model:
            done, events = w.agent(model, "t", "true", PINFOLD_MODEL_KEY=key)
            check.equal(end(events)["outcome"], "model", "outcome")
            check.true(key[:12] not in done.stdout + done.stderr, "the key was told")


@test("tests that a new line of an ignore file leaves out are missed; taking in is denied")
def _(pair):
    steps = [{"calls": [("write", {"path": ".gitignore", "content": "local.json\nchecks.test.sh\n"}),
                        ("write", {"path": "sub/.gitignore", "content": "!x\n"}),
                        ("edit", {"path": ".gitignore", "old": "local.json\n", "new": ""}),
                        ("done", {"summary": "x"})]}]
    with Workspace(pair) as w, ModelServer(steps) as model:
        w.write(".gitignore", "local.json\n")
        w.write("local.json", "secret")
        w.write("all.sh", "#!/bin/sh\nfor i in *.test.sh; do [ ! -e $i ] || ./$i || exit 1; done\n",
                0o755)
        w.write("checks.test.sh", "#!/bin/sh\nfalse\n", 0o755)
        done, events = w.agent(model, "t", "./all.sh", "--max-iters", "1")
        outcome(done, events, 1, "not_verified")
        verdict = [one for one in events if one["type"] == "verify"][-1]
        check.true("checks.test.sh" in verdict["why"], verdict)
        texts = [one["text"] for one in events if one["type"] == "result"]
        check.true("denied" in texts[1] and "denied" in texts[2], texts)


@test("a rule that denies a directory denies what is in it, to the model and to the sandbox")
def _(pair):
    steps = [{"calls": [("read", {"path": "private/x"}),
                        ("write", {"path": "ci/x", "content": "evil"}),
                        ("write", {"path": "ci/deep/new", "content": "evil"}),
                        ("run", {"command": "./run.sh"})]}, DONE]
    with Workspace(pair, "deny read private\ndeny write ci\n" + RULES) as w, \
            ModelServer(steps) as model:
        w.write("private/x", "secret")
        w.write("ci/x", "good")
        w.write("run.sh", "#!/bin/sh\necho evil >ci/x; echo evil >ci/new; mkdir ci/d\n", 0o755)
        before = w.tree()
        done, events = w.agent(model, "t", "true")
        outcome(done, events, 0, "verified")
        check.equal(w.tree(), before, "the workspace")
        check.true("secret" not in json.dumps([one["body"] for one in model.requests]), told(model))


@test("somebody who is asked about a long command sees its end, and no escape sequence of it")
def _(pair):
    command = "frobnicate " + "a" * 3000 + " && \x1b[2Jexfiltrate THE-END"
    with Workspace(pair) as w:
        code, seen = w.ask(["exec", "--rules", w.rules, "-c", command], [("to run:", "n")])
        check.equal(code, 126, "exit code (%r)" % seen[-300:])
        before = seen[:seen.find("to run:")]
        check.true("THE-END" in before, "what was shown before the question: %r" % seen[-600:])
        check.true("\x1b[2J" not in seen, "an escape sequence reached the terminal")

"""Commands of the client, each in a workspace of its own: what is done, and what must be true
afterwards, whether it succeeded or not."""

import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "http"))

import check
from model_server import ModelServer
from workspace import Workspace


class Errand(Workspace):
    def go(self, **environment):
        """-> the finished process"""

    def look(self, done):
        """Raises what is wrong."""


class Run(Errand):
    def go(self, **environment):
        return self.pinfold("run", "--json", "-c", "echo out; exit 3", **environment)

    def look(self, done):
        if done.returncode == 3:
            check.equal(json.loads(done.stdout)["steps"][0]["stdout"], "out\n", "stdout")
        else:
            check.equal(done.returncode, 125, "exit code of what is not the program's doing")


class Live(Errand):
    def go(self, **environment):
        return self.pinfold("run", "-c", "echo out", **environment)

    def look(self, done):
        if done.returncode == 0:
            check.equal(done.stdout, "out\n", "stdout")
        else:
            check.equal(done.returncode, 125, "exit code of what is not the program's doing")


class Permission(Errand):
    """What cannot be judged is never allowed."""

    def go(self, **environment):
        return self.pinfold(
            "permission", "test", "--rules", self.rules, "--json", "git push && rm -rf /",
            **environment,
        )

    def look(self, done):
        if done.stdout.strip():
            verdict = json.loads(done.stdout)["verdict"]
            check.true(verdict != "allow", "it is allowed: %s", done.stdout)


class Exec(Errand):
    """All that came back is in the workspace, or nothing is; the journal is whole."""

    def go(self, **environment):
        self.write("a", "a before\n")
        self.write("b/c", "c before\n")
        self.before = self.tree()
        script = "echo after > a; echo after > b/c; echo new > d"
        return self.exec("--", "sh", "-c", script, **environment)

    def look(self, done):
        after = self.tree()
        wanted = dict(self.before)
        wanted.update({n: ("file", 0o644, b"after\n") for n in ("a", "b/c")})
        wanted["d"] = ("file", 0o644, b"new\n")
        if done.returncode == 0:
            check.equal(after, wanted, "the workspace")
        else:
            check.member(after, (self.before, wanted), "the workspace after a failure")
        self.journal()
        if after != self.before:
            undone = self.pinfold("undo", "--yes")
            check.equal(undone.returncode, 0, "undo: " + undone.stderr)
            check.equal(self.tree(), self.before, "the workspace after undo")

    def journal(self):
        seen = self.pinfold("undo", "verify")
        check.equal(seen.returncode, 0, "undo verify: %s%s" % (seen.stdout, seen.stderr))


class Agent(Exec):
    def go(self, **environment):
        self.write("sums.py", "wrong\n")
        self.write("check.sh", "grep -q right sums.py\n")  # what a verifier names is write-protected
        self.before = self.tree()
        script = [
            {"calls": [("read", {"path": "sums.py"})]},
            {"calls": [("edit", {"path": "sums.py", "old": "wrong", "new": "right"})]},
            {"calls": [("run", {"command": "cat sums.py"})]},
            {"calls": [("done", {"summary": "it is right"})]},
        ] + [{"text": "That was all."}] * 20
        with ModelServer(script) as model:
            return self.pinfold(
                "agent", "make it right", "--verify", "sh check.sh", "--model-url",
                model.url, "--model", "scripted", "--rules", self.rules, "--json", "--max-iters",
                "12", timeout=60, **environment,
            )

    def look(self, done):
        seen = self.read("sums.py")
        if done.returncode == 0:
            check.equal(seen, b"right\n", "sums.py")
        else:
            check.member(seen, (b"right\n", b"wrong\n"), "sums.py after a failure")
        check.equal(sorted(os.listdir(self.path)), ["check.sh", "sums.py"], "files in the workspace")
        self.journal()


ERRANDS = {"run": Run, "live": Live, "permission": Permission, "exec": Exec, "agent": Agent}

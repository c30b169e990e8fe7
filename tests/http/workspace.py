"""A workspace with a home directory of its own, and the client run in it."""

import json
import os
import pty
import select
import shutil
import subprocess
import tempfile

import box
import harness

RULES = """
allow exec  {sh,bash,cat,ls,make,python3,true,false,echo,rm,touch,mkdir,sed,printf,test,chmod,ln,sleep} **
allow exec  {./run.sh,./spy.sh} **
allow write **
allow model local
"""


class Workspace:
    def __init__(self, pair, rules=RULES):
        self.pair = pair
        self.top = tempfile.mkdtemp(prefix="pinfold-workspace-")
        self.path = os.path.join(self.top, "work")
        self.home = os.path.join(self.top, "home")
        os.mkdir(self.path)
        os.mkdir(self.home)
        self.rules = os.path.join(self.top, "test.rules")
        with open(self.rules, "w") as out:
            out.write(rules)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        box.delete_all(self.pair.client)
        shutil.rmtree(self.top, ignore_errors=True)

    def environment(self, **more):
        scheme = "https" if self.pair.tls else "http"
        return dict(
            {
                "PATH": os.environ["PATH"],
                "HOME": self.home,
                "PINFOLD_URL": "%s://127.0.0.1:%d" % (scheme, self.pair.port),
                "PINFOLD_TOKEN": self.pair.token,
                "LANG": "C.UTF-8",
            },
            **more,
        )

    def pinfold(self, *arguments, timeout=30, cwd=None, stdin=subprocess.DEVNULL, **environment):
        """-> the finished process, without a terminal to ask."""
        return subprocess.run(
            [harness.program("pinfold"), *arguments],
            cwd=cwd or self.path,
            env=self.environment(**environment),
            stdin=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            start_new_session=True,
        )

    def ask(self, arguments, answers, timeout=8, **environment):
        """Runs it on a terminal and types an answer at each question, as it comes: answers are
        [(what the question contains, line)]. -> (exit code, all that was on the terminal)"""
        child, fd = pty.fork()
        if child == 0:
            try:
                os.chdir(self.path)
                program = harness.program("pinfold")
                os.execve(program, [program, *arguments], self.environment(**environment))
            finally:
                os._exit(127)
        seen, asked, answers = "", 0, list(answers)
        try:
            while True:
                if not select.select([fd], [], [], timeout)[0]:
                    raise AssertionError("it hangs: %s" % seen[-800:])
                try:
                    data = os.read(fd, 65536)
                except OSError:
                    break
                if not data:
                    break
                seen += data.decode(errors="replace")
                if answers and answers[0][0] in seen[asked:] and seen.endswith("] "):
                    asked = len(seen)
                    os.write(fd, answers.pop(0)[1].encode() + b"\n")
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), seen
        finally:
            os.close(fd)

    def exec(self, *arguments, **more):
        return self.pinfold("exec", "--rules", self.rules, *arguments, **more)

    def write(self, name, text, mode=0o644):
        path = os.path.join(self.path, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as out:
            out.write(text if isinstance(text, bytes) else text.encode())
        os.chmod(path, mode)

    def read(self, name):
        with open(os.path.join(self.path, name), "rb") as file:
            return file.read()

    def tree(self):
        """-> {path: (kind, mode, contents or link)} of everything in the workspace."""
        found = {}
        for at, names, files in os.walk(self.path):
            for name in names + files:
                path = os.path.join(at, name)
                status = os.lstat(path)
                key = os.path.relpath(path, self.path)
                if os.path.islink(path):
                    found[key] = ("link", 0, os.readlink(path))
                elif os.path.isdir(path):
                    found[key] = ("directory", status.st_mode & 0o777, None)
                else:
                    with open(path, "rb") as file:
                        found[key] = ("file", status.st_mode & 0o777, file.read())
        return found

    def agent(self, model, task, verify, *more, timeout=90, **environment):
        """-> (process, events) of `pinfold agent --json`."""
        done = self.pinfold(
            "agent", task, "--verify", verify, "--model-url", model.url, "--model", "scripted",
            "--rules", self.rules, "--json", *more, timeout=timeout, **environment,
        )
        return done, [json.loads(line) for line in done.stdout.splitlines() if line]

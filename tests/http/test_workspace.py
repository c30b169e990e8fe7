"""`pinfold exec` in a workspace: what is sent, what runs, what comes back, and undo."""

import json
import os
import subprocess

import check
import harness
from suite import test
from workspace import RULES, Workspace


def well(done, code=0):
    check.equal(done.returncode, code, "exit code (%s%s)" % (done.stdout[-300:], done.stderr[-600:]))
    return done


@test("a command sees the workspace, and what it changes comes back")
def _(pair):
    with Workspace(pair) as w:
        w.write("a.txt", "one\n")
        w.write("run.sh", "#!/bin/sh\necho ran\n", 0o755)
        w.write("gone.txt", "x")
        os.symlink("a.txt", os.path.join(w.path, "link"))
        done = well(w.exec("-c", "cat a.txt link; ./run.sh; echo two >a.txt; mkdir -p d/e; "
                           "echo new >d/e/f; rm gone.txt; chmod 700 d/e/f", ))
        check.equal(done.stdout, "one\none\nran\n", "output")
        check.equal(w.read("a.txt"), b"two\n", "a.txt")
        check.equal(w.tree()["d/e/f"], ("file", 0o700, b"new\n"), "d/e/f")
        check.true("gone.txt" not in w.tree(), "gone.txt is still there")
        check.equal(w.tree()["link"], ("link", 0, "a.txt"), "the link")
        check.true("pinfold undo" in done.stderr, "undo is not offered: %s" % done.stderr)


@test("the second command finds the first one's files, and local changes in between")
def _(pair):
    with Workspace(pair) as w:
        w.write("a", "1")
        well(w.exec("-c", "echo 2 >b"))
        w.write("c", "3")
        os.remove(os.path.join(w.path, "a"))
        done = well(w.exec("-c", "ls; cat b c"))
        check.equal(done.stdout, "b\nc\n2\n3", "what the second command sees")


@test("a command in a directory below starts there")
def _(pair):
    with Workspace(pair) as w:
        os.mkdir(os.path.join(w.path, ".pinfold"))
        w.write("sub/x", "here\n")
        done = well(w.exec("--", "cat", "x", cwd=os.path.join(w.path, "sub")))
        check.equal(done.stdout, "here\n", "output")


@test("secrets and what rules keep from reading never leave this machine")
def _(pair):
    rules = "deny read private/**\n" + RULES
    with Workspace(pair, rules) as w:
        w.write(".env", "TOKEN=abc")
        w.write("private/x", "abc")
        w.write("id_rsa", "abc")
        w.write("code.py", "print(1)")
        os.symlink("private/x", os.path.join(w.path, "way"))
        w.write("spy.sh", "#!/bin/sh\nls -a\ncat way .env private/x id_rsa 2>/dev/null\ntrue\n", 0o755)
        done = well(w.exec("--", "./spy.sh"))
        check.true("abc" not in done.stdout, "a secret was sent: %s" % done.stdout)
        check.true("code.py" in done.stdout, "code.py was not sent")
        sandboxes = pair.client.get("/v1/sandboxes").json()["sandboxes"]
        for path in ("/workspace/.env", "/workspace/private/x", "/workspace/id_rsa"):
            answer = pair.client.get("/v1/sandboxes/%s/files%s" % (sandboxes[0]["id"], path))
            check.equal(answer.status, 404, path)


@test("a hard link of what rules keep elsewhere is not sent; one of something else is, and is told")
def _(pair):
    with Workspace(pair) as w:
        ssh, other = os.path.join(w.home, ".ssh"), os.path.join(w.top, "other")
        os.mkdir(ssh)
        for path, text in (os.path.join(ssh, "x"), "secret"), (other, "public"):
            with open(path, "w") as out:
                out.write(text)
        os.link(os.path.join(ssh, "x"), os.path.join(w.path, "one"))
        os.link(other, os.path.join(w.path, "two"))
        done = well(w.exec("--", "sh", "-c", "ls; cat one; cat two; chmod 600 two; true"))
        check.true("secret" not in done.stdout and "public" in done.stdout, done.stdout)
        check.true("one" not in done.stdout.split(), "the link was sent: %s" % done.stdout)
        check.true("outside of the workspace (a hard link): two" in done.stderr, done.stderr)
        # Its mode is changed here, and not by its other name.
        modes = [os.stat(path).st_mode & 0o777 for path in (os.path.join(w.path, "two"), other)]
        check.equal([oct(mode) for mode in modes], ["0o600", "0o644"], "modes")
        check.true("keep what they were" in done.stderr, done.stderr)


@test("what changes by one of its names stays by the others, and that is told; undo brings it back")
def _(pair):
    with Workspace(pair) as w:
        w.write("a", "old")
        os.link(os.path.join(w.path, "a"), os.path.join(w.path, "b"))
        os.link(os.path.join(w.path, "a"), os.path.join(w.top, "c"))
        done = well(w.exec("--", "sh", "-c", "echo new > a"))
        check.true("keep what they were" in done.stderr, done.stderr)
        with open(os.path.join(w.top, "c")) as file:
            check.equal((w.read("a"), w.read("b"), file.read()), (b"new\n", b"old", "old"), "names")
        undone = well(w.pinfold("undo", "--yes"))
        check.equal((w.read("a"), w.read("b")), (b"old", b"old"), "after undo: " + undone.stdout)


@test("what a rule denies to write is dropped and reported, whatever wrote it")
def _(pair):
    rules = "deny write ci/**\n" + RULES
    with Workspace(pair, rules) as w:
        w.write("ci/deploy", "safe")
        w.write("run.sh", "#!/bin/sh\nsed -i s/safe/evil/ ci/deploy; echo x >ci/new; echo y >ok\n",
                0o755)
        done = w.exec("--", "./run.sh")
        check.equal(done.returncode, 126, "exit code (%s)" % done.stderr)
        check.equal(w.read("ci/deploy"), b"safe", "ci/deploy")
        check.true("ci/new" not in w.tree(), "ci/new came back")
        check.equal(w.read("ok"), b"y\n", "what was allowed")
        check.true("ci/deploy" in done.stderr and "deny write" in done.stderr, done.stderr)
        # The sandbox does not keep its own version either.
        done = well(w.exec("-c", "cat ci/deploy; ls ci"))
        check.equal(done.stdout, "safedeploy\n", "the sandbox afterwards")


@test("links that lead out do not come back")
def _(pair):
    with Workspace(pair) as w:
        w.write("a", "1")
        w.write("run.sh", "#!/bin/sh\nln -s /etc/passwd out; ln -s ../../x up; ln -s a in; mkdir d; "
                "ln -s ../a d/in", 0o755)
        done = w.exec("--", "./run.sh")
        tree = w.tree()
        check.true("out" not in tree and "up" not in tree, "a link that leads out came back")
        check.equal(tree["in"], ("link", 0, "a"), "the good link")
        check.equal(tree["d/in"], ("link", 0, "../a"), "the good link below")
        check.equal(done.returncode, 126, "exit code")


@test("a denied command is not run, says the rule, and exits with 126")
def _(pair):
    with Workspace(pair, "deny exec git push **\n" + RULES) as w:
        w.write("a", "1")
        done = w.exec("-c", "echo hi && git push origin main")
        check.equal(done.returncode, 126, "exit code")
        check.equal(done.stdout, "", "output")
        check.true("git push" in done.stderr and "test.rules:1" in done.stderr, done.stderr)
        check.equal(pair.client.get("/v1/sandboxes").json()["sandboxes"], [], "sandboxes made")


@test("without a terminal, what no rule allows is denied")
def _(pair):
    with Workspace(pair) as w:
        done = w.exec("--", "curl", "http://example.org")
        check.equal(done.returncode, 126, "exit code")


@test("on a terminal a person is asked: no, once, always; what is stored counts in the next session")
def _(pair):
    with Workspace(pair) as w:
        w.write("a", "1")
        config = os.path.join(w.home, ".config/pinfold")
        os.makedirs(config)
        with open(os.path.join(config, "permissions.rules"), "w") as file:
            file.write("allow write **\n")
        command = ["exec", "--", "echo", "installed"]
        code, seen = w.ask(command, [("to run: echo installed", "n")])
        check.equal((code, "\ninstalled\r" in seen), (126, False), "no: %s" % seen)
        code, seen = w.ask(command, [("to run: echo installed", "y")])
        check.equal(code, 0, "once: %s" % seen)
        code, seen = w.ask(command, [("a = always from now on: allow exec echo installed", "a")])
        check.equal(code, 0, "always: %s" % seen)
        code, seen = w.ask(command, [])
        check.equal((code, "to run" in seen), (0, False), "afterwards: %s" % seen)
        well(w.pinfold(*command))
        check.equal(well(w.pinfold("exec", "-c", "echo installed; echo other"), 126).stdout, "",
                    "another command")
        check.equal(sorted(w.tree()), ["a"], "nothing is stored in the workspace")


@test("when the server is away nothing runs here instead")
def _(pair):
    with Workspace(pair) as w:
        w.write("a", "1")
        done = w.exec("-c", "touch ran-here", PINFOLD_URL="http://127.0.0.1:1")
        check.equal(done.returncode, 125, "exit code")
        check.true("ran-here" not in w.tree(), "it ran on this machine")
        check.equal(done.stderr.count("\n"), 1, "one line: %s" % done.stderr)


@test("what ignore files name stays on its side")
def _(pair):
    with Workspace(pair) as w:
        w.write(".gitignore", "cache/\n*.o\n")
        w.write(".pinfoldignore", "big.bin\n!keep.o\n")
        w.write("cache/here", "local")
        w.write("big.bin", "local")
        w.write("keep.o", "sent")
        well(w.exec("-c", "mkdir cache && echo remote >cache/distant; echo o >x.o"))
        done = well(w.exec("-c", "ls cache; ls; cat keep.o"))
        check.true("distant" in done.stdout and "here" not in done.stdout, done.stdout)
        check.true("big.bin" not in done.stdout and "sent" in done.stdout, done.stdout)
        check.equal(sorted(w.tree()), [".gitignore", ".pinfoldignore", "big.bin", "cache",
                                       "cache/here", "keep.o"], "the workspace")


@test("a file that somebody changed here meanwhile is reported, not overwritten")
def _(pair):
    with Workspace(pair) as w:
        w.write("a", "1")
        well(w.exec("-c", "true"))
        sandbox = pair.client.get("/v1/sandboxes").json()["sandboxes"][0]["id"]
        answer = pair.client.request("PUT", "/v1/sandboxes/%s/files/workspace/a" % sandbox,
                                     b"theirs")
        check.true(answer.status < 300, "writing in the sandbox: %d" % answer.status)
        w.write("a", "mine")
        done = w.exec("-c", "cat a")
        check.equal(w.read("a"), b"mine", "the file here")
        check.equal(done.stdout, "mine", "what the command saw")


@test("the sandbox is gone: a new one gets the files")
def _(pair):
    with Workspace(pair) as w:
        w.write("a", "1")
        well(w.exec("--", "cat", "a"))
        for one in pair.client.get("/v1/sandboxes").json()["sandboxes"]:
            pair.client.delete("/v1/sandboxes/" + one["id"])
        done = well(w.exec("--", "cat", "a"))
        check.equal(done.stdout, "1", "output")
        check.true("gone" in done.stderr, done.stderr)


@test("undo and redo bring back and forth what a command changed, byte for byte")
def _(pair):
    with Workspace(pair) as w:
        w.write("a", b"\0\1\2")
        w.write("x/keep", "k", 0o600)
        w.write("x/gone", "g")
        os.mkdir(os.path.join(w.path, "empty"))
        before = w.tree()
        well(w.exec("-c", "echo more >>a; rm -r x/gone empty; echo n >x/new; chmod 755 a"))
        after = w.tree()
        check.true(before != after, "nothing was changed")
        well(w.pinfold("undo", "--yes"))
        check.equal(w.tree(), before, "after undo")
        well(w.pinfold("redo", "--yes"))
        check.equal(w.tree(), after, "after redo")
        log = well(w.pinfold("log")).stdout
        check.true("echo more" in log, "log: %s" % log)
        well(w.pinfold("undo", "verify"))


@test("undo by path, back to a point and of everything; redo of everything; from a directory below")
def _(pair):
    with Workspace(pair) as w:
        os.mkdir(os.path.join(w.path, ".pinfold"))
        os.mkdir(os.path.join(w.path, "below"))
        states = [w.tree()]
        for line in ("mkdir d; echo 1 >d/a; echo 1 >b", "echo 2 >d/a; echo 2 >c", "rm b; echo 3 >c"):
            well(w.exec("-c", line))
            states.append(w.tree())
        below = os.path.join(w.path, "below")
        done = well(w.pinfold("undo", "--path", "../d", cwd=below))
        check.true("  d/a\n" in done.stdout, "the path is named: %s" % done.stdout)
        check.equal(w.read("d/a"), b"1\n", "d/a after undo of it")
        check.equal(w.read("c"), b"3\n", "c after undo of d")
        well(w.pinfold("redo", "--path", "d/a"))
        check.equal(w.tree(), states[3], "after redo of the path")
        ids = [line.split()[0] for line in w.pinfold("log").stdout.splitlines() if " exec " in line]
        well(w.pinfold("undo", "--all", ids[1], cwd=below))
        check.equal(w.tree(), states[1], "back to before the second")
        well(w.pinfold("undo", "--all"))
        check.equal(w.tree(), states[0], "back to the beginning")
        check.equal(w.pinfold("undo").returncode, 2, "nothing is left to undo")
        well(w.pinfold("redo", "--all"))
        check.equal(w.tree(), states[3], "everything again")
        well(w.pinfold("undo", "verify"))


@test("undo names what somebody changed meanwhile and leaves it")
def _(pair):
    with Workspace(pair) as w:
        w.write("a", "1")
        well(w.exec("-c", "echo 2 >a; echo 2 >b"))
        w.write("a", "mine")
        done = well(w.pinfold("undo"), 1)
        check.true("a was changed meanwhile" in done.stderr, done.stderr)
        check.equal(w.read("a"), b"mine", "a")
        check.true("b" not in w.tree(), "b is still there")


@test("before many files go, undo shows some and asks; without a terminal only --yes does it")
def _(pair):
    with Workspace(pair) as w:
        w.write("run.sh", "#!/bin/bash\nfor i in {1..120}; do echo $i >n$i; done\n", 0o755)
        well(w.exec("--", "./run.sh"))
        full = w.tree()
        check.equal(len(full), 121, "files")
        done = well(w.pinfold("undo"), 2)
        check.true("would be removed: n1" in done.stderr and "nobody agreed" in done.stderr,
                   done.stderr)
        check.equal(w.tree(), full, "the workspace")
        well(w.pinfold("undo", "--yes"))
        check.equal(list(w.tree()), ["run.sh"], "after undo --yes")
        well(w.pinfold("redo"))
        check.equal(w.tree(), full, "after redo")


@test("a command that deletes many files here is asked about; without a terminal nothing changes")
def _(pair):
    with Workspace(pair) as w:
        for i in range(60):
            w.write("n%d" % i, "x")
        w.write("run.sh", "#!/bin/sh\nrm n*\n", 0o755)
        full = w.tree()
        done = w.exec("--", "./run.sh")
        check.equal(done.returncode, 125, "exit code (%s)" % done.stderr)
        check.true("60" in done.stderr and "nobody agreed" in done.stderr, done.stderr)
        check.equal(w.tree(), full, "the workspace")


@test("on a terminal both are asked: a no changes nothing, a yes does it")
def _(pair):
    with Workspace(pair) as w:
        for i in range(120):
            w.write("n%d" % i, "x")
        w.write("run.sh", "#!/bin/sh\nrm n*\n", 0o755)
        full = w.tree()
        command = ["exec", "--rules", w.rules, "--", "./run.sh"]
        w.ask(command, [("deleted 120 files", "n")])
        check.equal(w.tree(), full, "after a no")
        check.equal(well(w.exec("-c", "ls | cat -n")).stdout.count("\n"), 121, "what the next command sees")
        code, seen = w.ask(command, [("deleted 120 files", "y")])
        check.equal((code, list(w.tree())), (0, ["run.sh"]), "after a yes: %s" % seen)
        well(w.pinfold("undo"))
        check.equal(w.tree(), full, "after undo")
        code, seen = w.ask(["redo"], [("This removes 120 files and directories", "n")])
        check.equal((code, w.tree() == full), (2, True), "redo, no: %s" % seen)
        code, seen = w.ask(["redo"], [("This removes 120 files and directories", "y")])
        check.equal((code, list(w.tree())), (0, ["run.sh"]), "redo, yes: %s" % seen)


@test("while a command runs, log and diff show what is there; undo says that it waits")
def _(pair):
    with Workspace(pair) as w:
        w.write("a", "1")
        well(w.exec("-c", "echo 2 >a"))
        child = subprocess.Popen(
            [harness.program("pinfold"), "exec", "--rules", w.rules, "--stdin", "-", "-c",
             "echo begun; cat"],
            cwd=w.path, env=w.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, start_new_session=True)
        check.equal(child.stdout.readline(), "begun\n", "its first line")
        log = [json.loads(line) for line in well(w.pinfold("log", "--json")).stdout.splitlines()]
        check.equal([entry["by"] for entry in log], ["exec"], "log")
        shown = well(w.pinfold("permission", "list", "--rules", w.rules)).stdout
        check.true("policy          %s\n" % log[0]["rules"] in shown, "the hash of the rules")
        check.true("+2" in well(w.pinfold("diff")).stdout, "diff")
        undo = subprocess.Popen([harness.program("pinfold"), "undo"], cwd=w.path,
                                env=w.environment(), stdin=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        first = undo.stderr.readline()
        check.true("another pinfold" in first, "what undo says: %s" % first)
        child.stdin.close()
        check.equal((child.wait(20), undo.wait(20)), (0, 0), "exit codes")
        check.equal(w.read("a"), b"1", "a")


@test("diff shows the lines that an entry changed, and not what came later from elsewhere")
def _(pair):
    with Workspace(pair) as w:
        w.write("a", "one\n")
        well(w.exec("-c", "echo two >a; echo new >b"))
        shown = well(w.pinfold("diff")).stdout
        check.true("-one\n+two\n" in shown and "+new\n" in shown, shown)
        check.true("\033" not in shown, "colour without a terminal")
        w.write("a", "three\n")
        shown = well(w.pinfold("diff")).stdout
        check.true("three" not in shown and "changed since" in shown, shown)


@test("what is written here while a command runs is seen by the next one")
def _(pair):
    with Workspace(pair) as w:
        w.write("a", "old")
        well(w.exec("-c", "true"))
        child = subprocess.Popen(
            [harness.program("pinfold"), "exec", "--rules", w.rules, "-c",
             "echo begun; sleep 1; echo made >b"],
            cwd=w.path, env=w.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            text=True, start_new_session=True)
        check.equal(child.stdout.readline(), "begun\n", "its first line")
        w.write("a", "new")
        check.equal(child.wait(20), 0, "exit code")
        check.equal(well(w.exec("--", "cat", "a", "b")).stdout, "newmade\n", "the second command")


@test("an unchanged tree is not sent again")
def _(pair):
    with Workspace(pair) as w:
        for i in range(300):
            w.write("d%d/f%d" % (i % 10, i), "x%d" % i)
        well(w.exec("--", "true"))
        before = pair.client.get("/metrics").body.decode()
        well(w.exec("--", "true"))
        after = pair.client.get("/metrics").body.decode()
        count = lambda text: sum(
            float(line.split()[-1]) for line in text.splitlines()
            if line.startswith("pinfold_http_requests_total") and "POST" in line and "sync" in line)
        check.equal(count(after), count(before), "requests to sync")

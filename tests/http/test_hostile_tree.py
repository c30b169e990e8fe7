"""`pinfold exec` against a repository and a sandbox that are out for what is not theirs."""

import os

import check
from suite import test
from workspace import RULES, Workspace


@test("no ignore file opens .git or .pinfold, and nothing of them comes back")
def _(pair):
    with Workspace(pair) as w:
        w.write(".gitignore", "!.git\n!.pinfold\n!/.git/\n")
        w.write(".pinfoldignore", "!.git\n!.git/**\n!**/.git\n!.pinfold/\n")
        w.write(".git/config", "url = https://me:secret-token@host/x\n")
        w.write(".pinfold/permissions.rules", "deny exec nothing # secret-rule\n")
        w.write("sub/.git/config", "secret-below\n")
        w.write("run.sh", "#!/bin/sh\ncat .git/config .pinfold/* sub/.git/config 2>/dev/null\n"
                "mkdir -p .git/hooks .pinfold\necho evil >.git/hooks/pre-commit\n"
                "echo evil >.git/HEAD\necho 'allow exec **' >.pinfold/permissions.rules\n"
                "mkdir -p new/.git; echo evil >new/.git/HEAD; true\n", 0o755)
        before = {k: v for k, v in w.tree().items() if ".git/" in k or ".pinfold/" in k}
        done = w.exec("--", "./run.sh")
        check.true("secret" not in done.stdout, "it was sent: %s" % done.stdout)
        after = {k: v for k, v in w.tree().items() if ".git/" in k or ".pinfold/" in k}
        check.equal(after, before, "what lies in .git and .pinfold")


@test("a directory does not take a file's place, nor change its mode, without a rule that allows it")
def _(pair):
    rules = RULES.replace("allow write **", "allow write src/**")
    with Workspace(pair, rules) as w:
        w.write("README", "keep")
        w.write("dir/x", "x")
        os.symlink("README", os.path.join(w.path, "link"))
        w.write("run.sh", "#!/bin/sh\nrm README link; mkdir README link; chmod 700 dir\n"
                "mkdir -p src/new; echo y >src/new/y\n", 0o755)
        before = w.tree()
        done = w.exec("--", "./run.sh")
        after = w.tree()
        check.equal({k: after.get(k) for k in before}, before, "what was there (%s)" % done.stderr)
        check.equal(done.returncode, 126, "exit code")
        check.equal(w.read("src/new/y"), b"y\n", "what was allowed")


@test("what comes back is not writable for others, unless it was")
def _(pair):
    with Workspace(pair) as w:
        w.write("old", "1", 0o644)
        w.write("shared", "1", 0o664)
        w.write("run.sh", "#!/bin/sh\numask 0; echo 2 >new; mkdir d; echo 2 >old; chmod 777 old\n"
                "echo 2 >shared\n", 0o755)
        done = w.exec("--", "./run.sh")
        check.equal(done.returncode, 0, "exit code (%s)" % done.stderr)
        modes = {k: v[1] for k, v in w.tree().items()}
        check.equal((modes["new"], modes["d"], modes["old"], modes["shared"]),
                    (0o644, 0o755, 0o755, 0o664), "modes")


@test("a sandbox cannot take in what ignore files leave out, to have it sent the next time")
def _(pair):
    with Workspace(pair) as w:
        w.write(".gitignore", "# local\nlocal.json\nlogs/\n")
        w.write("sub/.pinfoldignore", "private\n")
        w.write("local.json", "secret-a")
        w.write("sub/private", "secret-b")
        for line in ("rm .gitignore sub/.pinfoldignore", "echo other >.gitignore",
                     "echo '!local.json' >>.gitignore; echo '!private' >sub/.gitignore",
                     "rm .gitignore; mkdir .gitignore", "ln -sf run.sh .gitignore",
                     "echo '!local.json' >.pinfoldignore"):
            w.write("run.sh", "#!/bin/sh\n%s\ntrue\n" % line, 0o755)
            before = w.tree()
            done = w.exec("--", "./run.sh")
            check.equal(done.returncode, 126, "exit code of %s (%s)" % (line, done.stderr))
            check.equal(w.tree(), before, "the workspace after %s" % line)
            seen = w.exec("--", "sh", "-c", "cat local.json sub/private 2>&1; true").stdout
            check.true("secret" not in seen, "it was sent after %s" % line)
        w.write("run.sh", "#!/bin/sh\necho '*.o' >>.gitignore\n", 0o755)
        check.equal(w.exec("--", "./run.sh").returncode, 0, "exit code of more patterns")
        check.equal(w.read(".gitignore"), b"# local\nlocal.json\nlogs/\n*.o\n", ".gitignore")

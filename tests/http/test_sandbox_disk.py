"""Sandboxes whose files are on a disk by default: told to the runner, or because the kernel can keep
nothing else."""

import subprocess

import check
import harness
from box import MIB, Box, forget, status
from suite import test


@test("with --disk file a sandbox has a disk file unless it asks for memory", own=True, deadline=60)
def _(_):
    with harness.Pair(slots=4, warm=1, runner_args=["--disk", "file"]) as pair:
        with Box.make(pair.client, limits={"mem_bytes": 32 * MIB}) as box:
            check.equal(box.get()["disk"], "file", "disk")
            check.ok(box.sh("head -c 100M /dev/zero > f; echo one > g"))
            kept(pair, box)
        with Box.make(pair.client, disk="memory") as box:
            check.equal(box.get()["disk"], "memory", "disk")
            check.equal(box.text("stat -f -c %T ."), "tmpfs\n", "what it is")
        steps(pair)
        pair.check_clean(2)


def kept(pair, box):
    made = box.snapshot()
    check.ok(box.sh("rm f; echo two > g"))
    with Box.make(pair.client, **{"from": made["id"]}) as copy:
        check.equal(copy.get()["disk"], "file", "disk of what starts from a snapshot")
        check.equal(copy.text("stat -c %s f; cat g"), "104857600\none\n", "what it starts with")
    copies = box.fork(2)
    for one in copies:
        check.equal(one.text("cat g; ls"), "two\ng\n", "a fork")
        one.delete()
    status(box.restore(made["id"]), 200, 204)
    check.equal(box.text("cat g"), "one\n", "restored")
    forget(pair.client, made)


def steps(pair):
    """What a run keeps of its steps is in a file as well, and what it does is the same."""
    run = check.ok(pair.client.run(
        keep_steps=True, collect=["n"], files=[{"path": "given", "content": "file"}],
        steps=[{"sh": "cat given > n; stat -f -c %T . ~ /tmp /var/tmp"}, {"sh": "echo 2 > n"}]))
    check.equal(run["kept_steps"], [0, 1], "kept_steps")
    check.true("tmpfs" not in run["steps"][0]["stdout"].split()[:2], "the workspace is in memory")
    check.equal(run["files"][0]["content"], "2\n", "n")
    with Box.make(pair.client, **{"from": run["id"] + "@1"}) as box:
        check.equal(box.text("cat n"), "file", "before the second step")
    plain = check.ok(pair.client.run(sh="stat -f -c %T ."))
    check.equal(plain["steps"][0]["stdout"], "tmpfs\n", "a run that keeps nothing is in memory")


@test("a disk that is neither memory nor file is refused before anything is done", own=True)
def _(_):
    done = subprocess.run([harness.program("pinfold-runner"), "--state", "/nonexistent", "--disk",
                           "tape"], capture_output=True, text=True, timeout=10, check=False)
    check.equal(done.returncode, 2, "exit code")
    check.true("--disk is memory or file, not" in done.stderr, "%r", done.stderr)

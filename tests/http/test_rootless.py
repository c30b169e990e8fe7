"""The runner without root: a user's own namespace, a delegated cgroup, and the plain word about
what it cannot enforce. On a machine whose cgroup2 tree has all controllers nothing may be missing;
where they are in cgroup v1, which cannot be delegated, they must be given up by name."""

import os
import pwd
import subprocess
import tempfile

import check
import clean
import harness
from suite import Skip, test

LIMITS = ("mem_bytes", "pids", "cpus_milli")


def user():
    """Somebody without ids in /etc/subuid, if the tests are not told of another."""
    return os.environ.get("PINFOLD_TEST_ROOTLESS") or "nobody"


def missing():
    """-> names of what this machine cannot enforce for that user."""
    mounts = clean.mounts_of_cgroups()
    if "" not in mounts:
        raise Skip("no cgroup2 tree is mounted")
    have = clean.read(os.path.join(mounts[""][0], "cgroup.controllers")).decode().split()
    names = [] if {"cpu", "memory", "pids"} <= set(have) else list(LIMITS)
    ranges = [clean.read(one).decode() for one in ("/etc/subuid", "/etc/subgid")]
    if not all("\n%s:" % user() in "\n" + one for one in ranges):
        names.append("separate_ids")
    return names


def pair(allowed):
    arguments = ["--allow-missing", ",".join(allowed)] if allowed else []
    return harness.Pair(warm=1, slots=4, rootless=user(), runner_args=arguments)


def spaces():
    """May a user make a user namespace here?"""
    owner = pwd.getpwnam(user())
    done = subprocess.run(
        ["unshare", "--user", "true"], user=owner.pw_uid, group=owner.pw_gid, extra_groups=[]
    )
    if done.returncode != 0:
        raise Skip("users may not make user namespaces here")


@test("without root, runs and sandboxes work, and what is not enforced is said", own=True, deadline=60)
def works(_):
    spaces()
    lacking = missing()
    with pair(lacking) as own:
        runner = clean.read("/proc/%d/status" % own.runner_pid).decode()
        check.holds(runner, "Uid:\t%d" % pwd.getpwnam(user()).pw_uid, "the runner's status")
        answer = own.client.get("/readyz").json()
        check.equal(sorted(answer["not_enforced"]), sorted(lacking), "not_enforced")
        table = {
            one["name"]: one for one in own.client.get("/v1/capabilities").json()["capabilities"]
        }
        check.equal(table["rootless"]["status"], "enforced", "rootless")
        for name in LIMITS + ("separate_ids",):
            gone = name in lacking
            check.equal(table[name]["status"], "unavailable" if gone else "enforced", name)
            check.equal(table[name].get("accepted"), True if gone else None, name + ".accepted")
        check.equal(table["snapshots"]["status"], "unavailable", "snapshots")
        done = check.ok(own.client.run(sh="id -u; echo x >/dev/null; echo >f; cat /proc/self/uid_map"))
        check.equal(check.lines(done)[0], "1000", "the user inside")
        for name in LIMITS:
            seen = done["limits"][name].get("enforced")
            check.equal(seen, False if name in lacking else None, "limits.%s.enforced" % name)
        box = own.client.post("/v1/sandboxes", {}).json()["id"]
        first = own.client.post("/v1/sandboxes/%s/exec" % box, {"sh": "echo kept >f"}).json()
        check.true(first["ok"], "the first command failed: %r", first)
        second = own.client.post("/v1/sandboxes/%s/exec" % box, {"sh": "cat f"}).json()
        check.equal(second["stdout"], "kept\n", "what the next command read")
        refused = own.client.post("/v1/sandboxes/%s/snapshots" % box, {"name": "s"})
        check.error(refused, 422)
        check.equal(own.client.delete("/v1/sandboxes/" + box).status, 204, "status of DELETE")


# All that it may signal, for a moment: what would be the next step is not there yet.
STOP_ALL = """
import os, signal, time
for _ in range(60):
    try:
        os.kill(-1, signal.SIGSTOP)
    except ProcessLookupError:
        pass
    time.sleep(0.01)
"""


@test("without ids of its own a step cannot stop the one that comes after it", own=True, deadline=90)
def next_step(_):
    spaces()
    lacking = missing()
    if "separate_ids" not in lacking:
        raise Skip("this user has ids of his own")
    with pair(lacking) as own:
        steps = [{"argv": ["python3", "-c", STOP_ALL]}, {"argv": ["echo", "two"]}]
        answer = own.client.wait_done(own.client.submit(steps=steps), 20)
        check.equal([one["end"]["cause"] for one in answer["steps"]], ["exit", "exit"], "ends")
        check.equal(answer["steps"][1]["stdout"], "two\n", "stdout of the second")


@test("a limit that was given up cannot be asked for", own=True, deadline=60)
def refused(_):
    spaces()
    lacking = missing()
    asked = [name for name in LIMITS if name in lacking]
    with pair(lacking) as own:
        for name in LIMITS:
            value = {"mem_bytes": 64 << 20, "pids": 16, "cpus_milli": 500}[name]
            answer = own.client.post("/v1/runs", {"argv": ["true"], "limits": {name: value}})
            if name in asked:
                check.error(answer, 422, "limit_unavailable", "/limits/" + name)
            else:
                check.equal(answer.json()["limits"][name], {"value": value, "from": "request"}, name)


@test("what is missing keeps a rootless runner from starting", own=True, deadline=60)
def fails_closed(_):
    spaces()
    lacking = missing()
    for left_out in lacking:
        own = pair([one for one in lacking if one != left_out])
        try:
            own.init()
            own.start_runner()
            code = own.runner.wait(30)
            check.equal(code, 1, "exit code without --allow-missing " + left_out)
            check.holds(own.logs(), "--allow-missing " + left_out, "what the runner said")
        finally:
            own.discard()
    if not lacking:
        raise Skip("nothing is missing on this machine")


@test("only four things can be given up, and by a rootless runner only", own=True)
def closed_list(_):
    for words in (
        ["--rootless", "--allow-missing", "seccomp"],
        ["--rootless", "--allow-missing", "mem_bytes,network_none"],
        ["--rootless", "--allow-missing", "wall_ms"],
        ["--allow-missing", "mem_bytes"],
        ["--rootless"],  # root itself
    ):
        with tempfile.TemporaryDirectory() as state:
            done = subprocess.run(
                [harness.program("pinfold-runner"), "--state", state, "--check", "--policies"]
                + [harness.POLICIES]
                + ([] if "--rootless" in words else ["--server-user", harness.server_user()])
                + words,
                capture_output=True,
                text=True,
                timeout=20,
            )
            check.equal(done.returncode, 1, "exit code of " + " ".join(words))
            check.matches(done.stderr, "--allow-missing|leave it out", "the message")

"""Process 1 of a jail that does not do its part, and commands that do not die."""

import contextlib
import os
import signal
import threading

import check
import clean
import harness
from box import Box
from suite import Skip, test

FREEZER = "/sys/fs/cgroup/freezer"


def inits(pair):
    """-> pids of the processes 1 of jails"""
    table = clean.processes()
    shards = pair.shard_pids()
    return [pid for pid in clean.family(pair.runner_pid, table)[1] if table[pid][0] in shards]


def silent(script, limits):
    """A run whose process 1 is stopped while its command runs -> how it ended."""
    with harness.Pair(slots=2, warm=0) as pair:
        pair.warm_up([{"policy": "default"}])
        run = pair.client.submit(sh=script, limits=limits)
        pair.client.events(run, follow=True).next("stdout")
        for pid in inits(pair):
            os.kill(pid, signal.SIGSTOP)
        end = check.ended(pair.client.wait_done(run, 25), "internal", exit_code=None)
        check.equal(end["evidence"], {"stage": "wait", "errno": "ETIMEDOUT"}, "evidence")
        pair.check_clean(5)
        check.ok(pair.client.run(argv=["true"]))


@test("a process 1 that does not report an end does not keep the run for ever", own=True, waits=True,
      deadline=40)
def _(_):
    silent("echo up; sleep 1", {})


@test("a limit ends a run whose process 1 reports nothing", own=True, waits=True, deadline=40)
def _(_):
    silent("echo up; sleep 60", {"wall_ms": 1000})


@contextlib.contextmanager
def undying(pids):
    """As if these waited for a disk: who is frozen in such a group does not even die."""
    if not os.path.exists(FREEZER + "/cgroup.procs"):
        raise Skip("no freezer of cgroup v1")
    group = "%s/pinfold-test-%d" % (FREEZER, os.getpid())
    os.mkdir(group)
    try:
        for name, values in (("cgroup.procs", pids), ("freezer.state", ["FROZEN"])):
            for value in values:
                with open(os.path.join(group, name), "w") as file:
                    file.write(str(value))
        yield
    finally:
        with open(group + "/freezer.state", "w") as file:
            file.write("THAWED")
        check.eventually(lambda: not clean.read(group + "/cgroup.procs"), 10, "who was frozen is gone")
        os.rmdir(group)


def sleepers(pair, seconds):
    """-> pids of `sleep SECONDS` in jails"""
    wanted = b"sleep\0%d\0" % seconds
    return [pid for pid in clean.family(pair.runner_pid)[1] if clean.read("/proc/%d/cmdline" % pid) == wanted]


@test("commands that do not die are the end of their own run and sandbox, and of nothing else", own=True, waits=True,
      deadline=150)
def _(_):
    with harness.Pair(slots=4, warm=1) as pair:
        long = {"wall_ms": 200000}
        other = pair.client.submit(argv=["sleep", "201"], limits=long)
        stuck = pair.client.submit(argv=["sleep", "202"], limits={"wall_ms": 2000})
        box = Box.make(pair.client)
        box.background(argv=["sleep", "203"], limits=long)
        check.eventually(lambda: all(sleepers(pair, n) for n in (201, 202, 203)), 5, "they run")
        with undying(sleepers(pair, 202) + sleepers(pair, 203)):
            gone = threading.Thread(target=pair.client.delete, args=(box.path,), kwargs={"timeout": 120})
            gone.start()
            end = check.ended(pair.client.wait_done(stuck, 100), "internal", exit_code=None)
            check.equal(end["evidence"]["errno"], "ETIMEDOUT", "evidence")
            gone.join(30)
            check.equal(gone.is_alive(), False, "the sandbox is still being deleted")
            check.equal(pair.client.fetch(other)["state"], "running", "the other run")
            check.ok(pair.client.run(argv=["true"]))
        check.ok(pair.client.run(argv=["true"]))
        check.equal(pair.client.fetch(other)["state"], "running", "the other run")


@test("a process that does not die keeps nobody from starting the service again", own=True, waits=True, deadline=90)
def _(_):
    with harness.Pair(slots=4, warm=1) as pair:
        pair.client.submit(argv=["sleep", "204"], limits={"wall_ms": 300000})
        check.eventually(lambda: sleepers(pair, 204), 5, "it runs")
        with undying(sleepers(pair, 204)):
            pair.runner.terminate()
            check.equal(pair.runner.wait(25), 0, "exit of the runner")
            pair.start_runner()
            pair.wait_ready(25)
            for _ in range(6):
                check.ok(pair.client.run(argv=["true"]))

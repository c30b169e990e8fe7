"""Process 1 of a jail that does not do its part."""

import os
import signal

import check
import clean
import harness
from suite import test


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


@test("a process 1 that does not report an end does not keep the run for ever", own=True,
      deadline=40)
def _(_):
    silent("echo up; sleep 1", {})


@test("a limit ends a run whose process 1 reports nothing", own=True, deadline=40)
def _(_):
    silent("echo up; sleep 60", {"wall_ms": 1000})

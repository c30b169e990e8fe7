#!/usr/bin/python3
"""Runs the HTTP tests against real servers and prints TAP.

    run.py [--only PATTERN] [--leave PATTERN] [--share K/N] [--part PART] [--group K/N]
           [--quick] [--sanitized]
           [--backend docker] [--engine podman] [--list]

--only takes a regular expression that is searched in "module: name"; it may be given several
times. --leave names those that are not run, each as skipped. --share takes every Nth of what is
chosen, from the Kth on: the N shares together are all. All tests share one server and runner, on a free loopback port and a temporary state
directory, except those that bring their own. --part takes a part of them, so that two can run at
once: shared, own (pairs of their own), docker (which start an engine), alone (what needs the machine for itself) or waits (what waits for a
deadline and loads nothing). --group divides a part
into N that take about as long, for running at once: all of a module are in the same one. --sanitized takes the server that was built with
sanitizers and the tests that send it what is hostile. --backend docker runs those of the shared pair on containers of a Docker engine of its
own (engine.py); --engine takes another one: podman, or remapped (a dockerd that maps users). After every test the shared pair must be
clean (see clean.py)."""

import argparse
import glob
import importlib
import os
import re
import signal
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True

import box
import canary
import check
import clean
import differs
import engine
import harness
import share
import suite


DOCKER_PATIENCE = 3
# How much longer a test may take than on a usual machine: for an emulated one. What a test measures
# stays as it is.
PATIENCE = float(os.environ.get("PINFOLD_TEST_PATIENCE", "1"))
DOCKER_START = 180  # all limits are proved in containers, one after the other


def load():
    here = os.path.dirname(os.path.abspath(__file__))
    for path in sorted(glob.glob(os.path.join(here, "test_*.py"))):
        importlib.import_module(os.path.basename(path)[:-3])


SANITIZED = (
    "smoke",
    "trace",
    "top",
    "api",
    "http",
    "stream",
    "files",
    "io",
    "sandbox_life",
    "sandbox_exec",
    "sandbox_input",
    "sandbox_pty",
    "sandbox_files",
    "sandbox_large",
    "sandbox_tree",
    "sandbox_archive",
    "sandbox_sync",
    "users",
    "isolation",
)


def part(test):
    if test.module in ("docker", "docker_outside", "image_both"):
        return "docker"
    if test.waits:
        return "waits"
    return "alone" if test.alone else "own" if test.own else "shared"


def chosen(arguments):
    tests = suite.TESTS
    if arguments.sanitized:
        tests = [one for one in tests if one.module in SANITIZED and not one.slow and not one.own]
    if arguments.backend == "docker":
        tests = [one for one in tests if not one.own]
    if arguments.part:
        tests = [one for one in tests if part(one) == arguments.part]
    tests = share.group(tests, arguments.group)
    if arguments.quick:
        tests = [one for one in tests if not one.slow]
    if arguments.only:
        tests = [
            one
            for one in tests
            if any(re.search(p, one.title(), re.IGNORECASE) for p in arguments.only)
        ]
    smoke = [one for one in tests if one.module == "smoke"]
    rest = [one for one in tests if one.module != "smoke"]
    # Quick ones first; sorting is stable, so modules stay together.
    tests = smoke + sorted(rest, key=lambda one: (one.slow, one.own))
    return share.of(tests, arguments.share)


def alarm(_number, _frame):
    raise suite.Deadline()


# Jails of a policy that nobody asks for are kept ready for five minutes (POOL_IDLE_NS): in the middle of
# a test's look for leftovers they would be over.
STAY_WARM = 120


class Runner:
    def __init__(self, docker=False, left=()):
        self.pair = None
        self.left = left
        self.number = self.passed = self.failed = self.skipped = 0
        self.trouble = self.warm_at = 0
        self.docker = docker

    def shared(self):
        """The shared pair, started at first use and again after it died."""
        if self.pair is not None and (
            self.pair.server is None
            or self.pair.server.poll() is not None
            or self.pair.runner.poll() is not None
        ):
            print("# the shared server or runner had ended; logs follow")
            self.note(self.pair.logs())
            self.pair.discard()
            self.pair = None
        if self.pair is None:
            if self.trouble >= 3:
                check.fail("the shared server did not start three times; not tried again")
            make = harness.DockerPair if self.docker else harness.Pair
            pair = make(environment=canary.environment())
            try:
                pair.start()
                pair.warm_up()
            except BaseException:
                self.trouble += 1
                pair.discard()
                raise
            self.pair, self.warm_at = pair, time.monotonic()
        elif time.monotonic() > self.warm_at + STAY_WARM:
            for policy in ("ci", "judge"):
                check.ok(self.pair.client.run(argv=["/bin/true"], policy=policy))
            self.warm_at = time.monotonic()
        return self.pair

    def note(self, text):
        for line in text.splitlines():
            print("#   " + line)

    def line(self, word, test, more=""):
        self.number += 1
        print("%s %d - %s%s" % (word, self.number, test.title(), more), flush=True)

    def one(self, test):
        start = time.monotonic()
        reason = trace = None
        # An engine takes its time to make a container, and again to remove it.
        deadline = test.deadline * (DOCKER_PATIENCE if self.docker else 1) * PATIENCE
        try:
            pair = None
            if self.docker and differs.why(test.title()):
                raise suite.Skip(differs.why(test.title()))
            if any(re.search(pattern, test.title()) for pattern in self.left):
                raise suite.Skip("left out here")
            signal.setitimer(signal.ITIMER_REAL, deadline + (DOCKER_START if self.docker else 20) * PATIENCE)
            if not test.own and (test.function is not runner_end or self.pair is not None):
                pair = self.shared()
            signal.setitimer(signal.ITIMER_REAL, deadline)
            try:
                test.function(pair)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            if pair is not None:
                pair.check_clean()
        except suite.Skip as skip:
            self.skipped += 1
            self.line("ok", test, " # SKIP %s" % skip)
            return
        except suite.Deadline:
            reason = "not done within %s s" % deadline
            trace = traceback.format_exc(limit=-4)
        except AssertionError as problem:
            reason = str(problem)
            trace = traceback.format_exc(limit=-3) if not reason else None
        except Exception as problem:
            reason = "%s: %s" % (type(problem).__name__, problem)
            trace = traceback.format_exc(limit=-4)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if reason is None:
            self.passed += 1
            self.line(
                "ok",
                test,
                " # %.2f s" % (time.monotonic() - start)
                if os.environ.get("PINFOLD_TEST_TIMES")
                else "",
            )
            return
        self.failed += 1
        self.line("not ok", test)
        self.note(reason)
        self.note(trace or "")
        self.recover()

    def recover(self):
        """After a failure the next test gets a pair at rest, or a new one."""
        if self.pair is None:
            return
        try:
            signal.setitimer(signal.ITIMER_REAL, 30)
            self.pair.client.close()
            self.cancel_all()
            if self.pair.base is not None:
                end = time.monotonic() + 5
                while clean.differences(self.pair.base, self.pair.snapshot()):
                    if time.monotonic() > end:
                        self.pair.discard()
                        self.pair = None
                        return
                    time.sleep(0.05)
        except (Exception, suite.Deadline):
            self.pair.discard()
            self.pair = None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def cancel_all(self):
        client = self.pair.client
        box.delete_all(client)
        for run in client.get("/v1/runs?limit=100").json().get("runs", []):
            if run.get("state") in ("queued", "running"):
                client.delete("/v1/runs/" + run["id"])


def runner_end(pair):
    """The last test: what was shared is stopped. (A sanitizer's report gives another exit code.)"""
    if pair is not None:
        pair.base = None
        pair.stop()
        left = [one for base in pair.guard.dirs.values() for one in clean.tree(base)]
        check.equal(left, [], "cgroup directories")


def main():
    parser = argparse.ArgumentParser(description="HTTP tests of Pinfold, TAP on stdout")
    parser.add_argument("--only", action="append", metavar="PATTERN")
    parser.add_argument("--leave", action="append", metavar="PATTERN", default=[])
    parser.add_argument("--share", metavar="K/N", type=share.parse, default=(1, 1))
    parser.add_argument("--group", metavar="K/N", type=share.parse, default=(1, 1))
    parser.add_argument("--part", choices=("shared", "own", "docker", "alone", "waits"))
    parser.add_argument("--quick", action="store_true", help="leave the slow ones out")
    parser.add_argument("--sanitized", action="store_true")
    parser.add_argument("--tls", action="store_true", help="speak HTTPS in every test")
    parser.add_argument("--backend", choices=("native", "docker"), default="native")
    parser.add_argument("--engine", choices=sorted(engine.KINDS), default="docker")
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    load()
    tests = chosen(arguments)
    if arguments.list:
        for one in tests:
            print(one.title())
        return 0
    if os.geteuid() != 0:
        print("Bail out! the runner needs root")
        return 1
    if arguments.backend == "docker" and harness.why_no_docker():
        print("Bail out! %s" % harness.why_no_docker())
        return 1
    engine.kind = arguments.engine
    if arguments.sanitized:
        harness.use_sanitized()
    if arguments.tls:
        harness.use_tls()
    signal.signal(signal.SIGALRM, alarm)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    tests.append(
        suite.Test(
            "end",
            "server and runner end with exit code 0 and leave no cgroup",
            runner_end,
            None,
            40,
            False,
            False,
        )
    )
    print("1..%d" % len(tests), flush=True)
    runner = Runner(arguments.backend == "docker", arguments.leave)
    canary.set_up()
    try:
        for one in tests:
            runner.one(one)
        if runner.pair is not None:
            runner.pair.discard()
    finally:
        canary.remove()
    print("# %d passed, %d failed, %d skipped" % (runner.passed, runner.failed, runner.skipped))
    return 1 if runner.failed or len(tests) < 2 else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/python3
"""Attempts to get out of a jail, and proof that none did: prints TAP and a table by class.

    run.py [--backend NAME] [--engine NAME] [--policy NAME] [--class TEXT] [--only PATTERN]
           [--share K/N] [--list] [--quick]

Each attempt is a run of its own in a fresh jail. It passes when it was made (it says so before the
call, with a number that only this run knows) and was refused, and when what it could have reached is
untouched: files, processes, sockets, sysctls, mounts, cgroups and programs of the host, and a
neighbour in a sandbox.

--backend   native, docker, or all (default: all that there are; says which are not, and why)
--engine    of the containers: docker, podman, or remapped, a dockerd that maps users (default: docker)
--policy    default, ci, judge, or all (default: all)
--class     classes whose name contains this
--only      a regular expression that is searched in "class: name"
--share     every Nth of what is chosen, from the Kth on: the N shares together are all
--quick     without those that tests/http makes as well; those from outside under one policy only

Attempts in C are in build/tests/escape; nothing else is needed where this runs but python3."""

import argparse
import base64
import concurrent.futures
import json
import os
import re
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "..", "http"))

import canary
import check
import clean
import client
import control
import engine
import escape
import harness
import scripts
import share
from ground import Ground

POLICIES = ("default", "ci", "judge")
BACKENDS = ("native", "docker")
WORKERS = 3
PATIENCE = float(os.environ.get("PINFOLD_TEST_PATIENCE", "1"))  # on machines that are slower by this

# What a back end cannot refuse, by the attempt's title: the outcome, and what it comes to. Each is
# shown in the table, and deploy/SECURITY.md tells of it.
KNOWN = {}
BINARY = os.path.join(harness.BUILD, "tests", "escape")
# After these the neighbour is asked, too.
NEAR = {"neighbour", "process 1", "warm pool", "control socket", "abstract sockets", "exhaustion"}


class Attempt:
    """right: outcomes that are refusals; most: how much it may have got at most, 0 for no bound."""

    def __init__(self, kind, name, language, right, text="", most=0):
        self.kind, self.name, self.language, self.text = kind, name, language, text
        self.right, self.most = set(right.split()), most
        self.once = False  # does not depend on the policy
        self.again = False  # tests/http makes it as well
        self.backends = BACKENDS

    def title(self):
        return "%s: %s" % (self.kind, self.name)


class Outcome:
    def __init__(self, reached, seen, problem=None):
        self.reached, self.seen, self.problem = reached, seen, problem
        self.known = None  # why it is not refused
        self.seconds = 0.0


def listed():
    """-> (limits, [Attempt]) of the program in C."""
    text = subprocess.run([BINARY, "--list"], capture_output=True, text=True, check=True).stdout
    first, *rest = [line.split("\t") for line in text.splitlines()]
    names = ("mem_bytes", "disk_bytes", "inodes", "pids", "open_files")
    limits = dict(zip(names, map(int, first[1:])), wall_ms=int(12000 * PATIENCE), cpu_ms=int(9000 * PATIENCE), output_bytes=65536)
    found = []
    for kind, name, right, most, what in rest:
        one = Attempt(kind, what, "c", right, name, int(most))
        one.again = name.startswith("probe_")
        found.append(one)
    return limits, found


def within(limits, policy):
    """The limits, none of them above what the policy allows."""
    with open(os.path.join(HERE, "..", "..", "policies", policy + ".json"), encoding="utf-8") as file:
        rows = json.load(file)["limits"]
    return {name: min(value, rows[name]["ceiling"]) if name in rows else value for name, value in limits.items()}


class Caller(client.Client):
    """A client whose runs and sandboxes are of one policy and back end."""

    def choose(self, policy, backend):
        self.chosen = {"policy": policy}
        if backend != "native":
            self.chosen["backend"] = backend
        return self

    def post(self, path, body, **more):
        if path in ("/v1/runs", "/v1/sandboxes") and isinstance(body, dict) and "from" not in body:
            body = dict(self.chosen, **body)
        return super().post(path, body, **more)


def parse(text, nonce):
    """-> (what was reached, outcome, count, why it was not made)"""
    reached = outcome = unfit = None
    count = 0
    for line in text.splitlines():
        word = line.split(" ", 3)
        if len(word) < 4 or word[0] != nonce:
            continue
        if word[1] == "REACHED":
            reached = word[3]
        elif word[1] == "RESULT":
            outcome, _, number = word[3].rpartition(" ")
            count = int(number)
        elif word[1] == "UNFIT":
            unfit = word[3]
    return reached, outcome, count, unfit


class Suite:
    def __init__(self, backend, policy, pair, ground, limits):
        self.backend, self.policy, self.pair, self.ground = backend, policy, pair, ground
        self.limits = within(limits, policy)
        self.caller = Caller(pair.port, pair.token, context=pair.context).choose(policy, backend)
        self.program = {"path": "escape", "mode": "0755", "encoding": "base64",
                        "content": base64.b64encode(harness_binary()).decode()}
        self.environment = dict(ground.environment(), ESCAPE_SECRETS=":".join(escape.SECRETS),
                                ESCAPE_SECONDS=str(int(8 * PATIENCE)))

    def made(self, attempt):
        """-> Outcome"""
        if attempt.language == "http":
            return attempt.text(self)
        nonce, name = client.nonce(), re.sub(r"\W+", "_", attempt.name)
        request = {"env": self.environment, "limits": self.limits}
        if attempt.language == "c":
            request.update(files=[self.program], argv=["./escape", nonce, attempt.text])
        else:
            request["argv"] = scripts.argv(attempt.language, attempt.text, nonce, name)
        step = self.caller.run(**request)["steps"][0]
        text = check.output({"steps": [step]}).decode("utf-8", "replace")
        reached, outcome, count, unfit = parse(text, nonce)
        end = step["end"]
        if end["cause"] == "internal":
            return Outcome(reached, "internal", "the run ended as internal: %s" % check.brief(str(end)))
        if unfit:
            return Outcome(None, "not made", "could not be made: " + unfit)
        if reached is None:
            return Outcome(None, "nothing", "was not reached: %s" % check.brief(check.step({"steps": [step]})))
        if outcome is None:
            # A limit ended the whole step, the process that would have told of it included.
            caused = end["cause"] in ("memory", "cpu_time", "wall_time", "pids", "output", "disk")
            outcome = "LIMIT" if caused else end["cause"]
            if outcome == "LIMIT" and "SIGKILL" in attempt.right:
                outcome = "SIGKILL"
        if outcome not in attempt.right:
            return Outcome(reached, outcome, "%s ended with %s, should be one of %s; %s" % (
                reached, outcome, " ".join(sorted(attempt.right)), check.brief(str(end), 200)))
        if attempt.most and count > attempt.most:
            return Outcome(reached, outcome, "got %d, should be at most %d" % (count, attempt.most))
        return Outcome(reached, outcome)

    def guarded(self, attempt):
        begun = time.monotonic()
        try:
            outcome = self.made(attempt)
            if outcome.problem and outcome.seen == "OK":
                outcome.known = KNOWN.get(self.backend, {}).get(attempt.title())
            outcome.seconds = time.monotonic() - begun
            return outcome
        except AssertionError as problem:
            return Outcome(None, "problem", str(problem))
        except Exception as problem:  # one attempt must not end the others
            return Outcome(None, "problem", "%s: %s" % (type(problem).__name__, problem))

    def close(self):
        self.caller.close()


def harness_binary():
    with open(BINARY, "rb") as file:
        return file.read()


class Report:
    def __init__(self):
        self.number = self.failed = self.skipped = 0
        self.rows = {}  # (backend, class): [attempts, reached, refused, failed]

    def line(self, good, title, more=(), note=""):
        self.number += 1
        print("%s %d - %s%s" % ("ok" if good else "not ok", self.number, title.replace("#", "no."), note), flush=True)
        self.failed += not good
        for text in more:
            for one in str(text).splitlines():
                print("#   " + one)

    def skip(self, title, why):
        self.number += 1
        self.skipped += 1
        print("ok %d - %s # SKIP %s" % (self.number, title, why), flush=True)

    def attempt(self, backend, policy, attempt, outcome):
        row = self.rows.setdefault((backend, attempt.kind), [0, 0, 0, 0, 0])
        row[0] += 1
        row[1] += outcome.reached is not None
        row[2] += outcome.problem is None
        row[3] += outcome.known is not None
        row[4] += outcome.problem is not None and outcome.known is None
        title = "%s/%s %s" % (backend, policy, attempt.title())
        note = ""
        if os.environ.get("PINFOLD_TEST_TIMES"):
            note = " # %.2f s, %s, %s" % (outcome.seconds, outcome.reached, outcome.seen)
        if outcome.known:
            self.skip(title, "not refused: " + outcome.known)
            return
        self.line(outcome.problem is None, title, [outcome.problem] if outcome.problem else [], note)

    def table(self, seconds):
        print("# %-24s %9s %9s %9s %9s %9s" % ("class", "attempts", "reached", "refused", "known", "failed"))
        for backend in sorted({key[0] for key in self.rows}):
            rows = sorted((key[1], row) for key, row in self.rows.items() if key[0] == backend)
            for kind, row in rows:
                print("# %-24s %9d %9d %9d %9d %9d" % ((kind,) + tuple(row)))
            total = [sum(row[i] for _, row in rows) for i in range(5)]
            print("# %-24s %9d %9d %9d %9d %9d  (%.0f s)" % (("all, " + backend,) + tuple(total) + (seconds,)))


def alarm(_number, _frame):
    raise SystemExit("run.py: not done in time")


def unavailable(backend):
    """Why this back end cannot be tried here, or None."""
    if backend == "native":
        return None
    if not os.path.exists(harness.program("pinfold-runner-" + backend)):
        return "build/pinfold-runner-%s is not there" % backend
    if not hasattr(harness, "why_no_" + backend):
        return "tests/http/harness.py cannot start it"
    return getattr(harness, "why_no_" + backend)()


def pair_for(backend):
    if backend == "native":
        return harness.Pair(environment=canary.environment(), slots=24)
    return getattr(harness, backend.capitalize() + "Pair")(environment=canary.environment())


def ours(pair):
    """Mounts of this pair, as the host and as the runner see them. Others come and go meanwhile."""
    return sum(pair.work in line for pid in ("self", pair.runner_pid) for line in clean.mount_lines(pid))


def one_policy(report, backend, policy, pair, ground, chosen, limits):
    suite = Suite(backend, policy, pair, ground, limits)
    kinds = []
    for attempt in chosen:
        if attempt.kind not in kinds:
            kinds.append(attempt.kind)
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        for kind in kinds:
            rows = [one for one in chosen if one.kind == kind]
            for attempt, outcome in zip(rows, pool.map(suite.guarded, rows)):
                report.attempt(backend, policy, attempt, outcome)
            left = ground.problems() + (ground.neighbour.problems() if kind in NEAR else [])
            if left:
                report.line(False, "%s/%s after %s: all is as it was" % (backend, policy, kind), left)
    suite.close()
    left = ground.all_problems()
    report.line(not left, "%s/%s host and neighbour are as they were" % (backend, policy), left)


def one_backend(report, backend, arguments, attempts, limits):
    why = unavailable(backend)
    if why:
        report.skip("the back end %s" % backend, why)
        return
    pair = pair_for(backend)
    try:
        pair.start()
        pair.warm_up()
        base, mounted = pair.base, ours(pair)
        ground = Ground(pair, harness_binary())
        try:
            for policy in arguments.policy:
                chosen = [one for one in attempts if applies(one, backend, policy, arguments)]
                one_policy(report, backend, policy, pair, ground, chosen, limits)
        finally:
            ground.close()
        pair.base = base
        try:
            # What nobody asked for in five minutes is no longer kept warm.
            for policy in POLICIES if backend == "native" else POLICIES[:1]:
                pair.client.run(argv=["/bin/true"], policy=policy)
            pair.check_clean(seconds=5 if backend == "native" else 60, skip=("mounts of the", "threads of the server", "loop devices"))
            check.eventually(lambda: ours(pair) <= mounted, 5, lambda: "%d mounts, at rest %d" % (ours(pair), mounted))
            report.line(True, "%s: nothing is left of any attempt" % backend)
        except AssertionError as left:
            report.line(False, "%s: nothing is left of any attempt" % backend, [left])
        pair.base = None
        pair.stop()
        report.line(True, "%s: server and runner end with exit code 0" % backend)
    except AssertionError as problem:
        report.line(False, "%s: server and runner" % backend, [problem])
    finally:
        pair.discard()


def applies(attempt, backend, policy, arguments):
    first = policy == arguments.policy[0]
    if attempt.once and not first or arguments.quick and (attempt.again or attempt.language == "http" and not first):
        return False
    return backend in attempt.backends


class HugePages:
    """A few of them set aside while the attempts are made, so that there is something to take."""

    PATH = "/proc/sys/vm/nr_hugepages"

    def __init__(self):
        self.before = clean.read(self.PATH)
        self.put(b"4") if self.before.strip() == b"0" else None

    def put(self, text):
        try:
            with open(self.PATH, "wb") as out:
                out.write(text)
        except OSError:
            pass  # this host has none

    def close(self):
        self.put(self.before) if self.before.strip() == b"0" else None


def compared(report):
    """The attempts are real: where nothing confines them they succeed."""
    title = "the same attempts succeed where nothing confines them"
    if subprocess.run(control.UNCONFINED + ["true"], capture_output=True).returncode != 0:
        report.skip(title, "unshare does not work here")
        return
    found, count = control.problems(BINARY)
    # What another kernel lacks is no fault of the attempts.
    report.line(len(found) * 10 <= count, title, found)
    print("# %d of %d chosen ones succeed without a jail" % (count - len(found), count))


def choose(arguments):
    limits, attempts = listed()
    attempts += [Attempt(kind, name, language, right, text)
                 for kind, name, language, text, right in scripts.table()]
    import hostile

    attempts += hostile.table(Attempt, Outcome)
    if arguments.kind:
        attempts = [one for one in attempts if arguments.kind in one.kind]
    if arguments.only:
        attempts = [one for one in attempts if re.search(arguments.only, one.title(), re.I)]
    attempts = share.of(sorted(attempts, key=lambda one: one.kind), arguments.share)
    if not attempts:
        sys.exit("run.py: no attempt is chosen by that; --list shows all")
    return limits, attempts


def names(text, known):
    chosen = known if text == "all" else tuple(text.split(","))
    for one in chosen:
        if one not in known:
            sys.exit("run.py: %s is none of %s" % (one, ", ".join(known)))
    return chosen


def main():
    parser = argparse.ArgumentParser(description="attempts to get out of a jail")
    parser.add_argument("--backend", default="all")
    parser.add_argument("--engine", default="docker", choices=sorted(engine.KINDS))
    parser.add_argument("--policy", default="all")
    parser.add_argument("--class", dest="kind")
    parser.add_argument("--only", metavar="PATTERN")
    parser.add_argument("--share", metavar="K/N", type=share.parse, default=(1, 1))
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--quick", action="store_true", help="without those that tests/http makes as well")
    arguments = parser.parse_args()
    arguments.policy = names(arguments.policy, POLICIES)
    backends = names(arguments.backend, BACKENDS)
    engine.kind = arguments.engine
    limits, attempts = choose(arguments)
    if arguments.list:
        rows = [(backend, policy) for backend in backends for policy in arguments.policy]
        print("\n".join(one.title() for one in attempts if any(applies(one, *row, arguments) for row in rows)))
        return 0
    if os.geteuid() != 0:
        print("Bail out! the runner needs root")
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    begun, report = time.monotonic(), Report()
    canary.set_up()
    pages = None if arguments.quick else HugePages()
    try:
        if not arguments.kind and not arguments.only:
            compared(report)
        for backend in backends:
            one_backend(report, backend, arguments, attempts, limits)
    finally:
        canary.remove()
        if pages:
            pages.close()
    print("1..%d" % report.number)
    report.table(time.monotonic() - begun)
    passed = report.number - report.failed - report.skipped
    print("%s%d passed, %d failed, %d skipped" % (
        "# " if os.environ.get("CMOCKA_MESSAGE_OUTPUT") else "", passed, report.failed, report.skipped))
    return 1 if report.failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())

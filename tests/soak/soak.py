"""A soak: starts the days, kills, looks, and says in the end what it saw."""

import glob
import json
import os
import signal
import subprocess
import sys
import threading
import time

import box
import canary
import clean
import days
import gauge
import harness
import report
from multiprocessing import Value
from book import LOST, read
from client import parallel
from days import GO, PAUSE, STOP, Day
from test_hostile_day import tenant

USERS, EXAMINED, SLOTS = 10, 5, 16
REST_SECONDS = 150  # a client may be behind the whole crowd


class Soak:
    def __init__(self, pair, minutes):
        self.pair, self.minutes = pair, minutes
        self.seconds = 60.0 * minutes
        # A short soak is for the soak itself: fewer clients, so that they can rest in time.
        self.clients = 500 if minutes >= 3 else max(20, int(150 * minutes))
        self.phase, self.resting = Value("i", PAUSE), Value("i", 0)
        self.kills, self.rests, self.samples, self.quiet = [], [], [], []
        self.problems, self.children, self.workers = [], [], 0
        self.users, self.others, self.start, self.lock = {}, {}, time.time(), threading.Lock()
        self.server = Value("i", pair.server_pid)
        self.over = threading.Event()

    def now(self):
        return time.time() - self.start

    def path(self, name):
        return os.path.join(self.pair.work, name + ".book")

    # The days

    def user(self, name, **quota):
        self.users[name] = tenant(self.pair, name, **quota)
        return name, self.users[name]

    def spawn(self, name, threads, *arguments):
        # Long after the end, so that what was asked for can still be answered.
        day = Day(name, self.phase, self.resting, self.path(name),
                  self.start + self.seconds + 3 * REST_SECONDS)
        self.children.append(day.start(threads, *arguments))
        return len(threads)

    def begin(self):
        crowd = [self.user("crowd%d" % i) for i in range(USERS)]
        exam = [self.user("exam%d" % i) for i in range(EXAMINED)]
        _, agent = self.user("agent")
        mallory = tenant(self.pair, "mallory", runs=6, sandboxes=3, mem_bytes=1 << 29)
        _, nora = self.user("nora")
        victim = tenant(self.pair, "victim")
        theirs = {"run": victim.run(sh="echo " + canary.SECRET)["id"],
                  "box": box.Box.make(victim).id}
        victim.close()
        self.others = {"mallory": mallory, "victim": victim}
        hostile = days.Tenant(self.pair, mallory, theirs)
        note = os.path.join(self.pair.work, "agent.box")

        def noted(name):
            with open(note, "w", encoding="utf-8") as out:
                out.write(name)

        self.pair.client.close()
        half = self.clients // 2
        for part in ("a", "b"):
            self.workers += self.spawn("d3" + part, [days.crowd] * half, crowd)
        self.workers += self.spawn("d4", [lambda d, i: days.students(d, i, exam, 200)] * 20)
        self.workers += self.spawn("d7", [lambda d, i: days.agent(d, i, agent, noted)])
        self.workers += self.spawn("d10", [lambda d, i: days.hostile(d, i, hostile)] * 3 + [
            lambda d, i: days.neighbour(d, i, nora, "nora")])
        self.spawn("doctor", [lambda d, i: days.doctor(d, i, self.pair, self.server)])

    # Looking

    def watch(self):
        every = max(0.25, min(2.0, self.seconds / 300))
        while not self.over.wait(every):
            with self.lock:
                try:
                    self.samples.append(gauge.sample(self.pair, self.pair.bases, self.start))
                except OSError:
                    pass  # it was killed while it was looked at

    def rest(self, what):
        """Everybody rests; then what is there is counted."""
        begun = self.now()
        self.phase.value = PAUSE
        end = time.monotonic() + REST_SECONDS
        while self.resting.value < self.workers and time.monotonic() < end:
            if sum(not one.is_alive() for one in self.children):
                break
            time.sleep(0.05)
        if self.resting.value < self.workers:
            self.problems.append("%s: only %d of %d clients came to rest" % (
                what, self.resting.value, self.workers))
        box.delete_all(self.others["mallory"])
        for one in self.everybody():
            one.close()
        self.pair.client.close()
        with self.lock:
            self.quiet.append(gauge.quiet(self.pair, self.pair.bases))
            self.quiet[-1].update(gauge.memory(self.pair))
        self.rests.append((begun, self.now()))
        return self.quiet[-1]

    def hours(self, until):
        """Load until this second."""
        self.phase.value = GO
        while self.now() < until:
            self.pair.check_alive()
            time.sleep(0.1)

    def kill(self, what):
        begun = time.time()
        with self.lock:
            if "s" in what:
                self.pair.kill9_server()
            if "r" in what:
                self.pair.kill9_runner()
            at = time.time()
            if "r" in what:
                self.pair.start_runner()
            if "s" in what:
                self.pair.start_server()
                self.server.value = self.pair.server_pid
        self.pair.wait_ready(30)
        self.kills.append((begun, time.time(), what))

    def compare(self):
        """The agent's sandbox beside a new one, in turn -> quotient of the medians."""
        with open(os.path.join(self.pair.work, "agent.box"), encoding="utf-8") as file:
            old = box.Box(self.users["agent"], {"id": file.read()})
        best = []
        with box.Box.make(self.users["agent"]) as new:
            for _ in range(3):
                times = {old: [], new: []}
                for _ in range(100):
                    for one in (old, new):
                        begun = time.monotonic()
                        one.run(argv=["/bin/true"])
                        times[one].append(time.monotonic() - begun)
                best.append(gauge.percentile(times[old], 0.5) / gauge.percentile(times[new], 0.5))
        self.users["agent"].close()
        return min(best)

    def whole(self):
        self.begin()
        watcher = threading.Thread(target=self.watch, daemon=True)
        watcher.start()
        self.hours(0.1 * self.seconds)
        self.rest("after the warm-up")
        self.long = [self.now(), 0.0]
        self.hours(0.35 * self.seconds)
        self.rest("in the long life")
        self.hours(0.6 * self.seconds)
        self.long[1] = self.now()
        self.rest("after the long life")
        self.ratio = self.compare()
        gap = max(3.0, (self.seconds - self.now()) / 9)
        for what in ("s", "r", "s", "sr", "r", "s"):
            self.hours(self.now() + gap)
            self.kill(what)
        self.hours(max(self.seconds, self.now() + gap))
        self.rest("at the end")
        self.phase.value = STOP
        for one in self.children:
            one.join(30)
            if one.is_alive():
                self.problems.append("a day did not end")
                one.terminate()
        self.over.set()
        watcher.join(10)

    def everybody(self):
        return list(self.users.values()) + list(self.others.values())

    def entries(self):
        return read(glob.glob(os.path.join(self.pair.work, "*.book")))


def audit(pair):
    done = subprocess.run(
        [harness.program("pinfold-server"), "audit", "verify", "--state", pair.state],
        capture_output=True, text=True, timeout=60)
    return [] if done.returncode == 0 else ["audit verify: " + done.stdout[-300:]]


def secrets(pair, users):
    """Tokens and the canary, searched for in the logs."""
    logs = pair.log_bytes()
    words = [canary.SECRET, pair.token] + [one.token for one in users]
    return ["a secret is in a log" for word in words if word.encode() in logs]


def after(soak):
    """Once the days are over -> findings by name."""
    pair = soak.pair
    found = {"canaries": canary.problems(), "audit": audit(pair), "secrets": secrets(
        pair, soak.everybody())}
    for one in soak.everybody():
        box.delete_all(one)
        one.close()
    pair.client.close()
    end = time.monotonic() + 15
    while True:
        found["left"] = left(pair)
        if not found["left"] or time.monotonic() > end:
            return found
        time.sleep(0.2)


def left(pair):
    """-> [sentence] of what there is more of than before the soak."""
    now, problems = pair.snapshot(), []
    for key, was in pair.base.items():
        if isinstance(was, list):
            problems += ["%s: %s" % (key, one) for one in now[key] if one not in was]
        elif now[key] > was:
            problems.append("%s: %d, was %d" % (key, now[key], was))
    return problems


def main(arguments):
    minutes = float(arguments[0]) if arguments else 10.0
    if os.geteuid() != 0:
        print("Bail out! the runner needs root")
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    canary.set_up()
    options = ["--keep-requests", "no", "--keep-runs", "1000000"]
    pair = harness.Pair(shards=2, slots=SLOTS // 2, warm=2, server_args=options,
                        environment=canary.environment())
    soak = None
    try:
        pair.start()
        pair.warm_up()
        soak = Soak(pair, minutes)
        soak.whole()
        return report.tell(soak, after)
    finally:
        if soak:
            for one in soak.children:
                if one.is_alive():
                    one.terminate()
        pair.discard()
        canary.remove()

"""D4: exam day. Students hand in wrong programs again and again; somebody's right one runs next door."""

import json
import os
import resource
import subprocess
import threading
import time

import box
import check
import harness
from apart import Apart
from client import nonce
from probe import others
from suite import test

# PINFOLD_TEST_DAYS=minutes makes the shortened days as long as that.
MINUTES = float(os.environ.get("PINFOLD_TEST_DAYS", "0"))
STUDENTS, TIMES = 200, 30
# Who marks by time leaves a processor to what is next door.
SLOTS = max(1, (os.cpu_count() or 1) - 1)
MIB = 1 << 20
FOREVER = 30000  # what the policy allows; no limit that is to end it comes later

# What they hand in: name, command, limits, and the one verdict that is true: cause, exit code, signal.
PROGRAMS = (
    ("a loop for ever", "while :; do :; done", {"cpu_ms": 100, "wall_ms": FOREVER}, ("cpu_time", None, 9)),
    ("a fork bomb", "f(){ f|f& }; f & exec sleep 60", {"wall_ms": 150, "cpu_ms": 10000, "pids": 32},
     ("wall_time", None, 9)),
    ("printing for ever", "while printf %(word)s; do :; done", {"output_bytes": 65536, "wall_ms": FOREVER},
     ("output", None, 9)),
    ("an array of 10 GB", 'exec python3 -c "x = []\nwhile True: x.append(bytearray(1 << 20))"',
     {"mem_bytes": 64 * MIB, "wall_ms": FOREVER}, ("memory", None, 9)),
    ("reading what is not there", "echo %(word)s; read x || exit 4", {"wall_ms": FOREVER}, ("exit", 4, None)),
    ("reading /etc/passwd", "echo %(word)s; cat /etc/passwd; cat /etc/shadow || exit 5",
     {"wall_ms": FOREVER}, ("exit", 5, None)),
    ("a null pointer", "echo %(word)s; kill -SEGV $$", {"wall_ms": FOREVER}, ("signal", None, 11)),
    ("a right one", "read x; echo %(word)s $x", {"wall_ms": FOREVER}, ("exit", 0, None)),
)
RIGHT = "print(sum(i * i for i in range(2500000)))"
COMMAND = ["/usr/bin/python3", "-S", "-c", RIGHT]


class Exam:
    """The students: each hands in the same program until it was marked often enough."""

    def __init__(self, students, until):
        self.students, self.until = students, until
        self.left = {one[0]: TIMES for one in PROGRAMS}
        self.lock, self.marks, self.wrong = threading.Lock(), [], []

    def take(self, name):
        """May it be handed in once more?"""
        with self.lock:
            self.left[name] -= 1
            return self.left[name] >= 0 or time.time() < self.until

    def hand_in(self, index):
        name, script, limits, _ = PROGRAMS[index % len(PROGRAMS)]
        client, word = self.students[index], "w" + nonce()
        while self.take(name):
            request = {"policy": "judge", "sh": script % {"word": word} if "word" in script else script,
                       "limits": limits}
            if name == "a right one":
                request["stdin"] = "answer\n"
            answer = client.post("/v1/runs", request)
            while answer.status in (429, 503):
                time.sleep(0.2)
                answer = client.post("/v1/runs", request)
            check.equal(answer.status, 200, "status")
            run = answer.json()
            step = run["steps"][0]
            end = step["end"]
            self.marks.append([name, [end["cause"], end["exit_code"], end["signal"]], word, run["id"], index,
                               step["stdout"][:200] + step["stdout"][-1000:], step["stdout_bytes"]])

    def student(self, index):
        try:
            self.hand_in(index)
        except BaseException as problem:
            self.wrong.append("%s: %s" % (type(problem).__name__, str(problem)[:300]))

    def __call__(self, over):
        os.nice(5)  # they only wait
        threading.stack_size(256 * 1024)
        threads = [threading.Thread(target=self.student, args=(i,)) for i in range(len(self.students))]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        return [self.marks, self.wrong[:5]]


def bare():
    """Milliseconds of CPU that the right program takes outside, at this moment."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(COMMAND, stdout=subprocess.DEVNULL, check=True, env={"PATH": "/usr/bin:/bin"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


class Neighbour:
    """The right program, in a sandbox (where it has no turn to wait for) and outside, by turns."""

    def __init__(self, sandbox):
        self.sandbox = sandbox
        self.cpu, self.wall, self.outside = [], [], []

    def once(self):
        usage = check.ok(self.sandbox.run(argv=COMMAND))["steps"][0]["usage"]
        self.cpu.append(usage["cpu_user_ms"] + usage["cpu_system_ms"])
        self.wall.append(usage["wall_ms"])
        self.outside.append(bare())

    def least(self):
        """What others disturbed least: CPU inside, time, CPU outside."""
        return [min(one) for one in (self.cpu, self.wall, self.outside)]


def judged(marks):
    """Every verdict is the true one, every time; nobody saw what another's program said."""
    words = {mark[2] for mark in marks}
    for name, _, _, wanted in PROGRAMS:
        verdicts = [tuple(mark[1]) for mark in marks if mark[0] == name]
        check.true(len(verdicts) >= TIMES, "%s was marked only %d times", name, len(verdicts))
        check.equal({one: verdicts.count(one) for one in verdicts}, {wanted: len(verdicts)}, "verdicts on " + name)
    for name, _, word, _, _, said, count in marks:
        seen = {one for one in words if one in said} if name != "printing for ever" else {word}
        check.true(seen <= {word}, "%s: another's output: %s", name, said[:200])
        if name == "printing for ever":
            check.equal(said[:200].replace(word, ""), word[:200 % len(word)], "what was printed for ever")
            check.true(count >= 65536, "only %d bytes were counted", count)
        elif "word" in dict((one[0], one[1]) for one in PROGRAMS)[name]:
            check.true(word in said, "%s: its own output is missing: %s", name, said[:200])
        if name == "a right one":
            check.equal(said[:len(word) + 7], word + " answer", "the right answer")


@test("exam day: 200 students, the true verdict 30 times, a right program next door as quick as ever",
      case="D4", own=True, alone=True, deadline=150 + 60 * MINUTES)
def _(_):
    with harness.Pair(slots=SLOTS, warm=SLOTS) as pair:
        pair.warm_up()
        students = [pair.user_client("s%d" % i) for i in range(STUDENTS)]
        next_door = pair.user_client("next-door")
        sandbox = box.Box.make(next_door)
        quiet, beside = Neighbour(sandbox), Neighbour(sandbox)
        busy = others()
        for _ in range(15):
            quiet.once()
        exam = Apart(Exam(students, time.time() + 60 * MINUTES))
        begun = time.monotonic()
        while not exam.over():
            beside.once()
        marks, wrong = exam.end()
        took = time.monotonic() - begun
        check.equal(wrong, [], "what went wrong")
        judged(marks)
        for mark in marks[::17]:
            other = students[(mark[4] + 1) % STUDENTS]
            check.error(other.get("/v1/runs/" + mark[3]), 404, "not_found")
        check.true(len(beside.cpu) >= 5, "the right program ran only %d times", len(beside.cpu))
        print("# D4: %d runs in %.1f s, %.1f others; ms of CPU, wall, CPU outside: quiet %s, beside %s" % (
            len(marks), took, busy, quiet.least(), beside.least()))
        cpu, wall, outside = (b / a for a, b in zip(quiet.least(), beside.least()))
        # What a busy processor costs (caches, its clock) it costs the program outside as well, and
        # each other process that wants the processors of this machine may cost as much again.
        check.true(wall < 1 + 0.2 * (1 + busy) or cpu < max(1, outside) * (1 + 0.05 * (1 + busy)),
                   "next door it took %.2f of the CPU and %.2f of the time, outside %.2f", cpu, wall, outside)
        sandbox.delete()
        for one in students + [next_door]:
            one.close()
        pair.check_clean(10)

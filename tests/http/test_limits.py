"""Time, memory, processes: each limit ends what it should, by its own name, and nothing else."""

import os

import check
from check import Stopwatch
from client import nonce, parallel
from suite import table, test

MIB = 1 << 20
SPIN = "while :; do :; done"
EAT = "x = []\nwhile True: x.append(bytearray(1 << 20))"
ROUNDED_MS = 1  # user and system time are rounded down, each


def cpu_ms(answer, index=0):
    usage = answer["steps"][index]["usage"]
    return usage["cpu_user_ms"] + usage["cpu_system_ms"]


def wall_ms(answer, index=0):
    return answer["steps"][index]["usage"]["wall_ms"]


@test("sleeping is not CPU time", case=1)
def _(pair):
    answer = pair.client.run(argv=["sleep", "30"], limits={"cpu_ms": 1000, "wall_ms": 1200})
    check.ended(answer, "wall_time", exit_code=None, limit=1200)
    check.within(1200, wall_ms(answer), 1700, "wall_ms")
    check.within(0, cpu_ms(answer), 50, "CPU of a sleep")


@test("the CPU limit is finer than one second", case=2)
def _(pair):
    answer = pair.client.sh(SPIN, limits={"cpu_ms": 300, "wall_ms": 5000})
    check.ended(answer, "cpu_time", exit_code=None, limit=300)
    check.within(300 - ROUNDED_MS, cpu_ms(answer), 450, "CPU")
    check.within(250, wall_ms(answer), 2500, "wall_ms")
    check.within(300, answer["steps"][0]["end"]["observed"], 450, "end.observed")


@test("the limit that fired is named, and every limit in force is in the answer", case=3)
def _(pair):
    answer = pair.client.run(
        steps=[{"sh": "sleep 30", "limits": {"wall_ms": 300}}], limits={"cpu_ms": 15000}
    )
    check.ended(answer, "wall_time", limit=300)
    check.equal(answer["limits"]["cpu_ms"], {"value": 15000, "from": "request"}, "limits.cpu_ms")
    check.equal(answer["limits"]["wall_ms"]["from"], "default", "limits.wall_ms.from")
    check.equal(answer["steps"][0]["limits"]["wall_ms"]["value"], 300, "the step's own limit")
    for name, one in answer["limits"].items():
        if name != "cpu_ms":
            check.equal(one["from"], "default", "limits.%s.from" % name)
    check.true(len(answer["limits"]) == 11, "not all limits are echoed: %s", list(answer["limits"]))


@test("CPU time is the sum over all processes", case=4)
def _(pair):
    child = "import time\nwhile time.process_time() < 0.6: pass"
    script = "for i in 1 2 3 4; do python3 -c '%s' & done; wait" % child
    answer = pair.client.sh(script, limits={"cpu_ms": 1000, "wall_ms": 10000})
    check.ended(answer, "cpu_time", limit=1000)
    check.within(1000 - ROUNDED_MS, cpu_ms(answer), 1200, "CPU of four processes")


@test("SIGXCPU cannot be caught to pass the CPU limit", case=6)
def _(pair):
    answer = pair.client.python(
        "import signal\nsignal.signal(signal.SIGXCPU, lambda *a: None)\nwhile True: pass",
        limits={"cpu_ms": 1000, "wall_ms": 10000},
    )
    check.ended(answer, "cpu_time")
    check.within(1000 - ROUNDED_MS, cpu_ms(answer), 1200, "CPU")


@test("memory over the cap ends by memory, with the kernel's kill as evidence", case="7, 9")
def _(pair):
    answer = pair.client.python(EAT, limits={"mem_bytes": 64 * MIB})
    end = check.ended(answer, "memory", signal=9, exit_code=None, limit=64 * MIB)
    check.true(end["evidence"]["oom_kills"] >= 1, "no oom kill in the evidence: %r", end)
    usage = answer["steps"][0]["usage"]
    check.true(usage["oom_kills"] >= 1, "no oom kill in the usage: %r", usage)
    check.within(0.95 * 64 * MIB, usage["mem_peak_bytes"], 1.05 * 64 * MIB, "mem_peak_bytes")


@test("a child killed for memory does not hide the exit code of its parent", case=8)
def _(pair):
    answer = pair.client.python(
        "import os, sys\npid = os.fork()\nif not pid:\n x = []\n"
        " while True: x.append(bytearray(1 << 20))\n"
        "print(os.waitpid(pid, 0)[1])",
        limits={"mem_bytes": 64 * MIB},
    )
    check.ended(answer, "exit", exit_code=0)
    check.equal(check.text(answer), "9\n", "wait status of the child")
    check.true(
        answer["steps"][0]["usage"]["oom_kills"] >= 1,
        "no trace of the kill: %s",
        check.step(answer),
    )
    check.true(answer["ok"], "not ok")


def shmem():
    with open("/proc/meminfo") as file:
        return {line.split(":")[0]: int(line.split()[1]) for line in file}["Shmem"]


def tmpfs(pair, place):
    """Files in memory count as memory, and are gone with the run."""
    before = shmem()
    script = "head -c 200000000 /dev/zero > %s/big" % place
    answer = pair.client.sh(script, limits={"mem_bytes": 64 * MIB, "disk_bytes": 400 * MIB})
    end = answer["steps"][0]["end"]
    usage = answer["steps"][0]["usage"]
    # The shell may live on after its child was killed; that the kill happened is what counts.
    check.true(
        end["cause"] == "memory" or usage["oom_kills"] >= 1, "neither: %s", check.step(answer)
    )
    check.equal(answer["ok"], False, "ok")
    # A container is taken away by its engine.
    soon = 10 if hasattr(pair, "engine") else 2
    check.eventually(lambda: shmem() < before + 60000, soon, "the memory of the files is back")
    fresh = pair.client.python("x = b'x' * 40000000; print(len(x))", limits={"mem_bytes": 64 * MIB})
    check.equal(check.text(check.ok(fresh)), "40000000\n", "the next run's full budget")


table(
    [("files in %s are memory" % place, 11, place) for place in ("/tmp", "/dev/shm", "/workspace")],
    tmpfs,
)


@test("a file system smaller than the memory cap gives ENOSPC", case=11)
def _(pair):
    answer = pair.client.sh(
        "head -c 200000000 /dev/zero > /dev/shm/big; echo rc=$?",
        limits={"mem_bytes": 128 * MIB, "disk_bytes": 32 * MIB},
    )
    check.ended(answer, "exit", exit_code=0)
    check.equal(check.text(answer), "rc=1\n", "stdout")
    check.holds(check.text(answer, stream="stderr"), "No space left", "stderr")


@test("touching a map beyond a full tmpfs is SIGBUS, not memory", case=12)
def _(pair):
    answer = pair.client.python(
        "import mmap, os\nfd = os.open('/dev/shm/f', os.O_RDWR | os.O_CREAT)\n"
        "os.ftruncate(fd, 64 << 20)\n"
        "m = mmap.mmap(fd, 64 << 20)\nfor i in range(0, 64 << 20, 4096): m[i] = 1",
        limits={"mem_bytes": 200 * MIB, "disk_bytes": 32 * MIB},
    )
    check.ended(answer, "signal", signal=7)
    check.equal(answer["steps"][0]["usage"]["oom_kills"], 0, "oom_kills")


@test("four times the memory cap ends at once, not in swap", case=13)
def _(pair):
    watch = Stopwatch()
    answer = pair.client.python(
        "x = bytearray(256 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1",
        limits={"mem_bytes": 64 * MIB},
    )
    check.ended(answer, "memory")
    watch.below(5, "four times the cap")


@test("a very small memory cap gives one verdict, every time", case=14, deadline=40)
def _(pair):
    for mem in (4 * MIB, 8 * MIB):
        seen = set()
        for _ in range(pair.rounds(200)):
            answer = pair.client.run(argv=["/bin/true"], limits={"mem_bytes": mem})
            seen.add(answer["steps"][0]["end"]["cause"])
        check.true(seen in ({"exit"}, {"memory"}), "%d bytes: %s", mem, seen)
    for mem in (1, MIB, 2 * MIB):
        check.error(
            pair.client.send(argv=["/bin/true"], limits={"mem_bytes": mem}),
            400,
            field="/limits/mem_bytes",
        )


@test("a fork bomb stays in its jail and ends by the wall limit", case=16, deadline=25)
def _(pair):
    def other(index):
        if index == 0:
            return pair.client.sh("f(){ f|f& };f; " + SPIN, limits={"pids": 32, "wall_ms": 1500})
        worst = 0
        for _ in range(10):
            watch = Stopwatch()
            check.ok(pair.client.run(argv=["/bin/true"]))
            worst = max(worst, watch.seconds())
        return worst

    bomb, worst = parallel(2, other)
    check.ended(bomb, "wall_time")
    check.within(30, bomb["steps"][0]["usage"]["pids_peak"], 32, "pids_peak")
    check.within(0, worst, 1.0, "seconds that a neighbour took")


@test("a fork bomb whose parent exits ends with it", case=16)
def _(pair):
    watch = Stopwatch()
    answer = pair.client.sh("f(){ f|f& };f 2>/dev/null; exit 3", limits={"pids": 32})
    check.ended(answer, "exit", exit_code=3)
    watch.below(3, "the answer")


FORKS = """
import os, signal, sys
made = refused = 0
for _ in range(int(sys.argv[1])):
    try:
        if not os.fork():
            signal.pause()
        made += 1
    except OSError as e:
        assert e.errno == 11, e
        refused += 1
print(made, refused)
"""


@test("the pids limit counts the jail, not the user", case=17, deadline=20)
def _(pair):
    def one(index):
        count = "60" if index == 2 else "40"
        return pair.client.python(FORKS, count, limits={"pids": 50})

    answers = parallel(3, one)
    for index in (0, 1):
        check.equal(check.text(check.ok(answers[index])), "40 0\n", "forks made and refused")
        check.within(41, answers[index]["steps"][0]["usage"]["pids_peak"], 42, "pids_peak")
    made, refused = map(int, check.text(check.ok(answers[2])).split())
    check.equal(made + refused, 60, "forks tried")
    check.within(48, made, 49, "forks made under 50 pids")
    check.within(
        1, answers[2]["steps"][0]["usage"].get("pids_refused", -1), 60, "usage.pids_refused"
    )


@test("meeting the pids limit ends the run only when it is asked for")
def _(pair):
    answer = pair.client.python(FORKS, "40", limits={"pids": 20}, end_on=["pids"])
    end = check.ended(answer, "pids", exit_code=None)
    check.true(end["evidence"]["refused"] >= 1, "no refusal in the evidence: %r", end)
    check.ended(pair.client.python(FORKS, "40", limits={"pids": 20}), "exit", exit_code=0)


@test("thread pools are told the CPU share", case=19)
def _(pair):
    script = (
        "import os; print(os.environ['OMP_NUM_THREADS'], os.environ['OPENBLAS_NUM_THREADS'],"
        "len(os.sched_getaffinity(0)))"
    )
    one, two, cpus = check.text(
        check.ok(pair.client.python(script, limits={"cpus_milli": 1000}))
    ).split()
    check.equal((one, two), ("1", "1"), "threads for one CPU")
    check.within(1, int(cpus), os.cpu_count(), "affinity")


@test("the CPU share holds for many threads", case=29, alone=True)
def _(pair):
    script = "for i in 1 2 3 4 5 6 7 8; do (%s) & done; wait" % SPIN
    answer = pair.client.sh(script, limits={"cpus_milli": 500, "wall_ms": 2000})
    check.ended(answer, "wall_time")
    check.true(
        cpu_ms(answer) <= 0.55 * wall_ms(answer),
        "%d ms of CPU in %d ms",
        cpu_ms(answer),
        wall_ms(answer),
    )
    check.true(answer["steps"][0]["usage"].get("throttled_ms", 1) > 0, "nothing was throttled")


@test("a CPU limit above the wall limit is legal", case=30, alone=True)
def _(pair):
    child = "import time\nwhile time.process_time() < 0.5: pass"
    answer = check.ok(
        pair.client.sh(
            "for i in 1 2; do python3 -c '%s' & done; wait" % child,
            policy="ci",
            limits={"cpus_milli": 2000, "wall_ms": 4000, "cpu_ms": 5000},
        )
    )
    check.within(950, cpu_ms(answer), 1300, "CPU of two processes")
    check.within(400, wall_ms(answer), 2500, "wall_ms")


DESCRIPTORS = """
import errno, os, sys
n = 0
try:
    while True:
        os.open('/dev/null', os.O_RDONLY)
        n += 1
except OSError as e:
    sys.stdout.write('%d %s' % (n, errno.errorcode[e.errno]))
"""


@test("open files are capped per process", case=31)
def _(pair):
    answer = check.ok(pair.client.python(DESCRIPTORS, limits={"open_files": 100}))
    check.equal(check.text(answer), "97 EMFILE", "descriptors that could be opened")


@test("pipe buffers cannot be grown without end", case=31)
def _(pair):
    answer = pair.client.python(
        "import fcntl, os\nkeep = []\ntry:\n for i in range(2000):\n"
        "  r, w = os.pipe(); keep += [r, w]\n"
        "  fcntl.fcntl(w, 1031, 1 << 20)\n  os.write(w, b'x' * (1 << 20))\n"
        "except OSError as e: print(e.errno)",
        limits={"mem_bytes": 64 * MIB, "open_files": 1024},
    )
    check.member(answer["steps"][0]["end"]["cause"], ("exit", "memory"), "cause")
    if answer["ok"]:
        check.member(check.text(answer).strip(), ("1", "24"), "errno of the pipe that was refused")


@test("shared memory segments and memfds are memory", case=33)
def _(pair):
    script = (
        "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.shmat.restype = ctypes.c_void_p\n"
        "i = libc.shmget(0x1234, 200 << 20, 0o1600)\nassert i >= 0\np = libc.shmat(i, None, 0)\n"
        "ctypes.memset(p, 1, 200 << 20)\nprint('touched')"
    )
    answer = pair.client.python(script, limits={"mem_bytes": 64 * MIB})
    check.ended(answer, "memory")
    script = (
        "import os\nfd = os.memfd_create('x')\nfor i in range(200): os.write(fd, bytes(1 << 20))"
    )
    check.ended(pair.client.python(script, limits={"mem_bytes": 64 * MIB}), "memory")


@test("a System V segment is not visible to the next run", case=33)
def _(pair):
    made = check.ok(pair.client.sh("ipcmk -M 1M && ipcs -m | tail -n +4 | grep -c ."))
    check.matches(check.text(made), r"\n1\n$", "segments in the run that made one")
    check.equal(
        check.text(check.ok(pair.client.sh("ipcs -m | tail -n +4 | grep -c . || true"))),
        "0\n",
        "segments in the next run",
    )


PRIORITIES = [
    ("real-time scheduling", "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))"),
    ("a negative niceness", "os.setpriority(os.PRIO_PROCESS, 0, -20)"),
    (
        "the real-time I/O class",
        "r = ctypes.CDLL(None, use_errno=True).syscall(251, 1, 0, 1 << 13)\n"
        " if r: raise OSError(ctypes.get_errno(), 'ioprio_set')",
    ),
]


def priority(pair, code):
    script = (
        "import ctypes, os\ntry:\n %s\n print('done')\nexcept OSError as e: print(e.errno)" % code
    )
    seen = check.text(check.ok(pair.client.python(script))).strip()
    check.member(seen, ("1", "13"), "errno")


table([("%s is refused" % name, 34, code) for name, code in PRIORITIES], priority)


@test("the wall clock starts at exec: waiting in the queue is not charged", case=38, deadline=30)
def _(pair):
    def one(index):
        if index < 50:
            return pair.client.run(argv=["sleep", "0.2"])
        return pair.client.run(argv=["sleep", "0.2"], limits={"wall_ms": 500})

    answers = parallel(51, one)
    for answer in answers:
        check.ended(answer, "exit", exit_code=0)
        check.within(195, wall_ms(answer), 450, "wall_ms")
    check.true(
        max(a["timing"]["queue_ms"] for a in answers) >= 150,
        "51 runs on %d slots and nobody has queued",
        pair.slots,
    )


@test("limits of a step are its own", deadline=20)
def _(pair):
    answer = pair.client.run(
        limits={"wall_ms": 5000, "mem_bytes": 128 * MIB},
        steps=[
            {
                "name": "slow",
                "sh": "sleep 10",
                "limits": {"wall_ms": 300},
                "continue_on_error": True,
            },
            {
                "name": "big",
                "argv": ["python3", "-c", EAT],
                "limits": {"mem_bytes": 32 * MIB},
                "continue_on_error": True,
            },
            {"name": "fits", "argv": ["python3", "-c", "x = b'x' * 80000000"]},
        ],
    )
    check.ended(answer, "wall_time", 0, limit=300)
    check.ended(answer, "memory", 1, limit=32 * MIB)
    check.ended(answer, "exit", 2, exit_code=0)


@test("each step has its wall and CPU time anew")
def _(pair):
    answer = check.ok(
        pair.client.run(
            limits={"wall_ms": 700},
            steps=[{"sh": "sleep 0.4"}, {"sh": "sleep 0.4"}, {"sh": "sleep 0.4"}],
        )
    )
    for index in range(3):
        check.within(395, wall_ms(answer, index), 690, "wall_ms of step %d" % index)


OVER = [
    ("wall_ms", 10**7 * 8),
    ("mem_bytes", 1 << 40),
    ("pids", 32768),
    ("disk_bytes", 1 << 40),
    ("inodes", 16777216),
    ("open_files", 1048576),
    ("cpus_milli", 1024000),
    ("output_bytes", 1 << 30),
    ("cpu_ms", 80000000),
    ("file_bytes", 1 << 40),
    ("stack_bytes", 1 << 30),
]


def over(pair, name, wish):
    error = check.error(
        pair.client.send(argv=["true"], limits={name: wish}), 403, "policy_limit", "/limits/" + name
    )
    ceiling = ceilings(pair)[name]
    for part in (name, str(wish), str(ceiling)):
        check.holds(error["message"], part, "message")
    if name in ("wall_ms", "cpu_ms", "output_bytes"):
        steps = [{"argv": ["true"]}, {"argv": ["true"], "limits": {name: wish}}]
        check.error(pair.client.send(steps=steps), 403, "policy_limit", "/steps/1/limits/" + name)


def ceilings(pair, name="default"):
    """{limit: ceiling} of a policy, as the API tells it."""
    limits = pair.client.get("/v1/policies/" + name).json()["limits"]
    return {key: one["ceiling"] for key, one in limits.items()}


table(
    [
        (
            "a wish for %s over the ceiling is 403 naming field, wish and ceiling" % name,
            None,
            name,
            wish,
        )
        for name, wish in OVER
    ],
    over,
)


@test("a step cannot have more memory, processes or CPUs than its run")
def _(pair):
    for name, run, step in (
        ("mem_bytes", 64 * MIB, 65 * MIB),
        ("pids", 20, 21),
        ("cpus_milli", 500, 501),
    ):
        error = check.error(
            pair.client.send(
                steps=[{"argv": ["true"], "limits": {name: step}}], limits={name: run}
            ),
            400,
        )
        check.equal(error.get("field"), "/steps/0/limits/" + name, "error.field")
        check.holds(error["message"], str(step), "message")
        check.holds(error["message"], str(run), "message")


@test("a judge's limits are short by default and named as defaults", case=3)
def _(pair):
    mark = nonce()
    answer = check.ok(pair.client.run(argv=["echo", mark], policy="judge"))
    check.equal(answer["policy"]["name"], "judge", "policy.name")
    check.equal(answer["limits"]["wall_ms"]["from"], "default", "limits.wall_ms.from")
    check.true(
        answer["limits"]["wall_ms"]["value"] < ceilings(pair)["wall_ms"],
        "the judge's wall limit is not short",
    )

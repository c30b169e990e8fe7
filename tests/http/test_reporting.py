"""Why it ended: exactly one cause, with its evidence, never confused with another."""

import base64
import os
import struct
import subprocess

import check
from check import Stopwatch
from client import parallel
from suite import table, test

MIB = 1 << 20

EXITS = [
    ("exit 137 is not SIGKILL", 39, "exit 137", "exit", 137, None),
    ("exit 143 is not SIGTERM", 39, "exit 143", "exit", 143, None),
    ("exit 139 is not SIGSEGV", 39, "exit 139", "exit", 139, None),
    ("exit 255 is kept", None, "exit 255", "exit", 255, None),
    ("a program's own 127 is an exit", 42, "nosuchcommand", "exit", 127, None),
    ("a program's own 126 is an exit", 42, "/etc/passwd", "exit", 126, None),
    ("SIGKILL to oneself is neither memory nor a limit", 40, "kill -KILL $$", "signal", None, 9),
    ("SIGTERM to oneself is delivered", 41, "kill -TERM $$; echo alive", "signal", None, 15),
    (
        "SIGUSR1 to oneself is delivered",
        41,
        "exec python3 -c 'import os; os.kill(os.getpid(), 10)'",
        "signal",
        None,
        10,
    ),
    ("abort is SIGABRT", 41, "exec python3 -c 'import os; os.abort()'", "signal", None, 6),
    (
        "a fault is SIGSEGV",
        51,
        "exec python3 -c 'import ctypes; ctypes.string_at(0)'",
        "signal",
        None,
        11,
    ),
    (
        "SIGPIPE kills",
        64,
        "exec python3 -c 'import os, signal; signal.signal(13, 0); " "os.kill(os.getpid(), 13)'",
        "signal",
        None,
        13,
    ),
    ("exec true is exit 0", None, "exec true", "exit", 0, None),
    ("a non-zero exit keeps its output", 192, "echo out; echo err >&2; exit 3", "exit", 3, None),
]


def exits(pair, script, cause, code, signal):
    answer = pair.client.sh(script)
    check.ended(answer, cause, exit_code=code, signal=signal)
    check.equal(answer["ok"], code == 0, "ok")
    check.equal(answer["steps"][0]["usage"]["oom_kills"], 0, "oom_kills")
    check.lacks(check.text(answer), "alive", "stdout")


table(EXITS, exits)


def foreign_elf():
    """The head of a program for another processor (AArch64)."""
    ident = b"\x7fELF" + bytes([2, 1, 1, 0]) + bytes(8)
    head = struct.pack("<HHIQQQIHHHHHH", 2, 183, 1, 0x400078, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0x400000, 0x400000, 128, 128, 4096)
    return base64.b64encode(ident + head + load).decode()


STARTS = [
    ("a path that does not exist", ["/no/such"], None, "ENOENT", ["/no/such"]),
    ("a name that is not on the PATH", ["nosuchcommand"], None, "ENOENT", ["nosuchcommand"]),
    ("a file that is not executable", ["/etc/passwd"], None, "EACCES", ["/etc/passwd"]),
    ("a directory", ["/usr"], None, "EACCES", ["/usr"]),
    (
        "a script whose interpreter is missing",
        ["./s"],
        {"path": "s", "content": "#!/no/interp\n", "mode": "0755"},
        "ENOENT",
        ["/no/interp", "./s", "/workspace/s"],
    ),
    (
        "a program of another processor",
        ["./elf"],
        {"path": "elf", "content": foreign_elf(), "encoding": "base64", "mode": "0755"},
        "ENOEXEC",
        ["./elf", "/workspace/elf"],
    ),
    ("a path through a file", ["/etc/passwd/x"], None, "ENOTDIR", ["/etc/passwd/x"]),
]


def start(pair, argv, file, code, paths):
    answer = pair.client.run(argv=argv, files=[file] if file else [])
    end = check.ended(answer, "start", exit_code=None, signal=None)
    check.equal(end["evidence"]["errno"], code, "evidence.errno")
    check.member(end["evidence"]["path"], paths, "evidence.path")
    check.holds(end["message"], end["evidence"]["path"], "message")
    check.equal(answer["ok"], False, "ok")
    check.equal(check.output(answer) + check.output(answer, stream="stderr"), b"", "output")


table(
    [("%s is a start failure with errno and path" % row[0], 42) + row[1:] for row in STARTS], start
)


@test("a cwd that does not exist is a start failure", case=77)
def _(pair):
    end = check.ended(pair.client.run(argv=["pwd"], cwd="/no/such/dir"), "start")
    check.equal(
        (end["evidence"]["errno"], end["evidence"]["stage"]), ("ENOENT", "chdir"), "evidence"
    )
    check.equal(check.text(check.ok(pair.client.run(argv=["pwd"], cwd="/tmp"))), "/tmp\n", "cwd")
    check.equal(check.text(check.ok(pair.client.run(argv=["pwd"]))), "/workspace\n", "default cwd")


@test("peak memory is the program's, not the server's", case=44)
def _(pair):
    check.ok(pair.client.run(argv=["true"], stdin="x" * (24 << 20)))
    answer = check.ok(pair.client.run(argv=["/bin/true"]))
    check.within(1, answer["steps"][0]["usage"]["mem_peak_bytes"], 10 * MIB, "mem_peak_bytes")


@test("output before the timeout is kept", case=45)
def _(pair):
    answer = pair.client.sh("echo early; sleep 60", limits={"wall_ms": 600})
    check.ended(answer, "wall_time")
    check.equal(check.text(answer), "early\n", "stdout")


@test("python's output is not buffered, unless the request says so", case=45)
def _(pair):
    script, limits = "import time; print('early'); time.sleep(60)", {"wall_ms": 600}
    check.equal(check.text(pair.client.python(script, limits=limits)), "early\n", "stdout")
    answer = pair.client.python(script, limits=limits, env={"PYTHONUNBUFFERED": ""})
    check.equal(check.text(answer), "", "stdout that was never flushed")


@test("the last chunk is there, always", case=46, deadline=40)
def _(pair):
    def one(index):
        for _ in range(pair.rounds(50)):
            answer = check.ok(
                pair.client.sh(
                    "head -c 1000000 /dev/zero | tr '\\0' x; printf err >&2; printf end",
                    limits={"output_bytes": 4 * MIB},
                    policy="ci",
                )
            )
            step = answer["steps"][0]
            check.equal((step["stdout_bytes"], step["stdout_omitted"]), (1000003, 0), "bytes")
            check.equal(step["stdout"], "x" * 1000000 + "end", "stdout")
            check.equal(step["stderr"], "err", "stderr")

    parallel(4, one)


@test("exit 0 in a handler of SIGTERM does not hide a timeout", case=47)
def _(pair):
    answer = pair.client.sh("trap 'exit 0' TERM; sleep 60 & wait", limits={"wall_ms": 500})
    check.ended(answer, "wall_time", exit_code=None)
    check.equal(answer["ok"], False, "ok")


@test("what happened first is the cause, every time", case=48, deadline=40)
def _(pair):
    memory = (
        "import sys\nsys.stdout.write('x' * 3000000)\nx = []\n"
        "while True: x.append(bytearray(1 << 20))"
    )
    for _ in range(20):
        answer = pair.client.python(
            memory,
            limits={"mem_bytes": 64 * MIB, "output_bytes": 1024, "cpu_ms": 5000, "wall_ms": 10000},
        )
        check.ended(answer, "memory")
        check.equal(answer["steps"][0]["stdout_bytes"], 3000000, "stdout_bytes")
    spin = "head -c 3000000 /dev/zero; while :; do :; done"
    for _ in range(5):
        answer = pair.client.sh(spin, limits={"cpu_ms": 200, "wall_ms": 8000, "output_bytes": 1024})
        check.ended(answer, "cpu_time")


@test("a slow program below its limit is an exit", case=49)
def _(pair):
    check.ok(pair.client.run(argv=["sleep", "0.4"], limits={"wall_ms": 800}))


@test("stopped is not exited", case=52)
def _(pair):
    answer = pair.client.sh("kill -STOP $$; echo no", limits={"wall_ms": 500})
    check.ended(answer, "wall_time")
    check.equal(check.text(answer), "", "stdout")


@test("the exit code survives when stragglers are killed", case=54)
def _(pair):
    watch = Stopwatch()
    answer = pair.client.sh("sleep 100 & exit 7")
    watch.below(1, "the answer")
    check.ended(answer, "exit", exit_code=7)
    check.equal(answer["steps"][0]["usage"]["stragglers_killed"], 1, "stragglers_killed")


@test("peak memory and CPU of children that are gone count", case=55)
def _(pair):
    answer = check.ok(
        pair.client.sh(
            "python3 -c 'x = bytearray(100 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\n"
            "import time\nwhile time.process_time() < 0.3: pass'; sleep 0.3"
        )
    )
    usage = answer["steps"][0]["usage"]
    check.within(100 * MIB, usage["mem_peak_bytes"], 160 * MIB, "mem_peak_bytes")
    check.within(290, usage["cpu_user_ms"] + usage["cpu_system_ms"], 900, "CPU")


@test("user and system CPU are told apart")
def _(pair):
    user = pair.client.sh("exec python3 -c 'for i in range(6000000): pass'")
    system = pair.client.sh("exec dd if=/dev/zero of=/dev/null bs=1M count=6000")
    one, two = user["steps"][0]["usage"], check.ok(system)["steps"][0]["usage"]
    check.true(one["cpu_user_ms"] > one["cpu_system_ms"], "mostly user: %r", one)
    check.true(two["cpu_system_ms"] > two["cpu_user_ms"], "mostly system: %r", two)


@test("a failure at step six of nine: the answer tells what the six did")
def _(pair):
    steps = [
        {
            "name": "s%d" % i,
            "sh": "echo out%d; echo err%d >&2; exit %d" % (i, i, 4 if i == 5 else 0),
        }
        for i in range(9)
    ]
    answer = pair.client.run(steps=steps)
    check.equal((answer["ok"], answer["failed_step"]), (False, 5), "ok and failed_step")
    for index, step in enumerate(answer["steps"]):
        check.equal((step["index"], step["name"]), (index, "s%d" % index), "index and name")
        if index > 5:
            check.equal(step["state"], "skipped", "state of step %d" % index)
            check.true("end" not in step or step["end"] is None, "a skipped step ended: %r", step)
            continue
        check.equal((step["state"], step["ok"]), ("done", index != 5), "state and ok")
        check.equal(
            (step["stdout"], step["stderr"]), ("out%d\n" % index, "err%d\n" % index), "output"
        )
        check.ended(answer, "exit", index, exit_code=4 if index == 5 else 0)
        check.true(step["usage"]["wall_ms"] >= 0, "no usage")


@test("continue_on_error goes on, and the run is still not ok")
def _(pair):
    answer = pair.client.run(
        steps=[{"sh": "exit 2", "continue_on_error": True}, {"sh": "echo second"}]
    )
    check.equal((answer["ok"], answer["failed_step"]), (False, 0), "ok and failed_step")
    check.equal(check.text(answer, 1), "second\n", "stdout of the second step")


@test("steps share one jail: files, no processes")
def _(pair):
    answer = check.ok(
        pair.client.run(
            steps=[
                {"sh": "echo kept > f; echo kept > /tmp/f; sleep 500 & echo $! > pid"},
                {"sh": "cat f /tmp/f; kill -0 $(cat pid) 2>/dev/null && echo alive || echo dead"},
            ]
        )
    )
    check.equal(check.text(answer, 1), "kept\nkept\ndead\n", "stdout of the second step")


@test("a step that ends by a limit fails the run and skips the rest")
def _(pair):
    answer = pair.client.run(
        steps=[{"sh": "true"}, {"sh": "sleep 9", "limits": {"wall_ms": 200}}, {"sh": "true"}]
    )
    check.equal(answer["failed_step"], 1, "failed_step")
    check.equal([s["state"] for s in answer["steps"]], ["done", "done", "skipped"], "states")


@test("output over the cap ends the run only when it is asked for")
def _(pair):
    limits = {"output_bytes": 4096, "wall_ms": 5000}
    end = check.ended(
        pair.client.sh("yes", limits=limits, end_on=["output"]),
        "output",
        exit_code=None,
        limit=4096,
    )
    check.true(end["observed"] > 4096, "observed is %r", end["observed"])
    check.ended(pair.client.sh("yes | head -c 100000", limits=limits), "exit", exit_code=0)


@test("every end but a plain exit has one sentence for people")
def _(pair):
    for request in (
        {"argv": ["/no/such"]},
        {"sh": "sleep 9", "limits": {"wall_ms": 100}},
        {"sh": "kill -9 $$"},
        {"sh": "while :; do :; done", "limits": {"cpu_ms": 100}},
    ):
        end = pair.client.run(**request)["steps"][0]["end"]
        check.true(end.get("message") and "\n" not in end["message"], "no sentence: %r", end)
        check.true(end["cause"] == "signal" or end.get("evidence"), "no evidence: %r", end)


@test("a killed system call names the signal")
def _(pair):
    # The i386 entry is closed; where the filter kills, the cause must not be a plain signal.
    code = """void _start(void) { int r; __asm__ volatile("int $0x80" : "=a"(r) : "a"(20));
              __asm__ volatile("syscall" : : "a"(60), "D"(r == -38 ? 0 : 1)); }"""
    path = os.path.join(pair.work, "foreign")
    command = ["gcc", "-static", "-nostdlib", "-fno-stack-protector", "-O1", "-xc", "-o", path, "-"]
    subprocess.run(command, input=code.encode(), check=True)
    with open(path, "rb") as file:
        content = base64.b64encode(file.read()).decode()
    files = [{"path": "a.out", "content": content, "encoding": "base64", "mode": "0755"}]
    answer = pair.client.run(files=files, argv=["./a.out"])
    end = answer["steps"][0]["end"]
    if end["cause"] == "syscall":
        check.equal(end["evidence"]["signal"], 31, "evidence.signal")
    else:
        check.ended(answer, "exit", exit_code=0)


@test("the error is at the end: head and tail are kept", case=186)
def _(pair):
    answer = pair.client.sh(
        "for i in {1..5000}; do echo noise $i; done; echo ASSERT FAILED x; exit 1",
        limits={"output_bytes": 4096},
    )
    head, tail = check.cut(answer, 4096)
    check.true(head.startswith(b"noise 1\nnoise 2\n"), "the head is %r", head[:40])
    check.true(tail.endswith(b"noise 5000\nASSERT FAILED x\n"), "the tail is %r", tail[-40:])

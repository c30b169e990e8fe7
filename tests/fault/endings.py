"""Programs whose end is known beforehand: what to ask for, and what the answer must say."""

import base64
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "http"))

import box
import check

MIB = 1 << 20
# Signals whose default action ends a process; SIGKILL comes with those that others send, too.
DEADLY = [n for n in range(1, 65) if n not in (17, 18, 19, 20, 21, 22, 23, 28)]
# Exit codes that people take for something else.
SUSPICIOUS = (0, 1, 2, 77, 124, 125, 126, 127, 128, 129, 130, 134, 137, 139, 143, 152, 159, 255)
PATIENT = {"wall_ms": 60000, "cpu_ms": 60000}


def build(directory):
    """-> the program tests/fault/ending.c as a file for requests."""
    program = os.path.join(directory, "ending")
    subprocess.run(
        ["musl-gcc", "-static", "-Os", "-s", os.path.join(HERE, "ending.c"), "-o", program],
        check=True,
    )
    with open(program, "rb") as file:
        text = base64.b64encode(file.read()).decode()
    return {"path": "ending", "content": text, "encoding": "base64", "mode": "0755"}


class Wrong(AssertionError):
    """An end that is not the known one."""


class Try:
    """One program at one client: its nonce, how it is asked for, and what is checked of every
    answer whatever its end."""

    def __init__(self, client, stranger, program, random):
        self.client = client
        self.stranger = stranger  # a client of another user
        self.program = program
        self.random = random
        self.nonce = "n" + secrets.token_hex(10)

    def argv(self, kind, number=0):
        return ["./ending", self.nonce, kind, str(number)]

    def request(self, kind, number=0, limits=None, **more):
        return dict(
            more,
            argv=self.argv(kind, number),
            files=[self.program],
            limits=dict(PATIENT, **(limits or {})),
        )

    def run(self, kind, number=0, limits=None, **more):
        """Runs the helper and waits -> the run, whose output is this one's."""
        answer = self.client.run(**self.request(kind, number, limits, **more))
        self.mine(answer)
        return answer

    def mine(self, answer, index=0, whole=True):
        """The output begins with the nonce of this try, and has nothing else unless told so. What
        ran out of time may have written nothing yet."""
        seen = check.output(answer, index)
        wanted = self.nonce.encode() + b"\n"
        if seen == b"" and answer["steps"][index]["end"]["cause"] in ("wall_time", "cpu_time"):
            return
        if not seen.startswith(wanted) or (whole and seen != wanted):
            raise Wrong("the output of another run: %r, wanted %r" % (seen[:100], wanted))

    def ended(self, answer, cause, code=None, signal=None, index=0):
        end = check.ended(answer, cause, index, exit_code=code)
        if signal is not None:
            check.equal(end["signal"], signal, "end.signal")
        check.equal(answer["steps"][index]["ok"], cause == "exit" and code == 0, "ok of the step")
        return end


def exits(t):
    code = t.random.choice(SUSPICIOUS + (t.random.randrange(256),))
    t.ended(t.run("exit", code), "exit", code)


def shell_exits(t):
    code = t.random.choice(SUSPICIOUS + (t.random.randrange(256),))
    answer = t.client.sh("echo $NONCE; exit %d" % code, env={"NONCE": t.nonce})
    t.mine(answer)
    t.ended(answer, "exit", code)


def signals(t):
    number = t.random.choice(DEADLY)
    t.ended(t.run("signal", number), "signal", signal=number)


def shell_signals(t):
    number = t.random.choice((1, 6, 9, 11, 13, 15, 31))  # bash sees to SIGINT itself
    answer = t.client.sh("echo $NONCE; kill -%d $$; exit 4" % number, env={"NONCE": t.nonce})
    t.mine(answer)
    t.ended(answer, "signal", signal=number)


def killed_by_itself(t):
    t.ended(t.run("signal", 9), "signal", signal=9)


def shot_by_its_child(t):
    number = t.random.choice((9, 15, 11, 31))
    t.ended(t.run("shot", number), "signal", signal=number)


def sigsys_of_its_own(t):
    t.ended(t.run("signal", 31), "signal", signal=31)


def sigsys_of_the_filter(t):
    end = t.ended(t.run("foreign"), "syscall")
    check.equal(end["evidence"]["signal"], 31, "evidence.signal")


def memory(t):
    answer = t.run("memory", limits={"mem_bytes": t.random.choice((8, 16, 24)) * MIB})
    end = t.ended(answer, "memory")
    check.true(end["evidence"]["oom_kills"] >= 1, "no kill in the evidence: %r", end)


def memory_of_a_child(t):
    code = t.random.randrange(1, 90)
    answer = t.run("child-memory", code, limits={"mem_bytes": 12 * MIB})
    t.ended(answer, "exit", code)
    check.true(answer["steps"][0]["usage"]["oom_kills"] >= 1, "the kill of the child is not told")


def kill_of_a_child(t):
    answer = t.run("child-killed", 137)
    t.ended(answer, "exit", 137)
    check.equal(answer["steps"][0]["usage"]["oom_kills"], 0, "oom_kills")


def cpu(t):
    limit = t.random.randrange(20, 90)
    end = t.ended(t.run("cpu", limits={"cpu_ms": limit}), "cpu_time")
    check.equal(end["limit"], limit, "limit")
    check.true(end["observed"] >= limit, "observed %s of %d ms", end["observed"], limit)


def cpu_of_two(t):
    t.ended(t.run("cpu-two", limits={"cpu_ms": 60}), "cpu_time")


def wall(t):
    limit = t.random.randrange(10, 120)
    end = t.ended(t.run("wait", limits={"wall_ms": limit}), "wall_time")
    check.equal(end["limit"], limit, "limit")
    check.true(end["observed"] >= limit, "observed %s of %d ms", end["observed"], limit)


def wall_hidden(t):
    t.ended(t.run("polite", limits={"wall_ms": 60}), "wall_time")


def wall_stopped(t):
    t.ended(t.run("stop", limits={"wall_ms": 60}), "wall_time")


def wall_or_exit(t):
    """It ends about when its time is over: either is true, and the figures must agree with it."""
    answer = t.run("late", 40, limits={"wall_ms": 40 + t.random.randrange(-1, 4)})
    step = answer["steps"][0]
    limit = answer["limits"]["wall_ms"]["value"]
    if step["end"]["cause"] == "exit":
        t.ended(answer, "exit", 5)
    else:
        end = t.ended(answer, "wall_time")
        check.true(end["observed"] >= limit, "observed %s of %d ms", end["observed"], limit)


def cpu_or_wall(t):
    """Both are near: whichever is told, its own figures must show it."""
    answer = t.run("cpu", limits={"cpu_ms": 30, "wall_ms": 31 + t.random.randrange(4)})
    cause = answer["steps"][0]["end"]["cause"]
    check.member(cause, ("cpu_time", "wall_time"), "cause")
    end = t.ended(answer, cause)
    check.true(end["observed"] >= end["limit"], "observed less than the limit: %r", end)


def pids(t):
    answer = t.run("pids", limits={"pids": 4})
    t.ended(answer, "exit", 11)


def pids_that_end_it(t):
    answer = t.run("pids", limits={"pids": 4}, end_on=["pids"])
    t.ended(answer, "pids")


def disk(t):
    t.ended(t.run("disk", limits={"disk_bytes": MIB}), "exit", 28)


def disk_that_ends_it(t):
    t.ended(t.run("disk", limits={"disk_bytes": MIB}, end_on=["disk"]), "disk")


def output(t):
    size = t.random.randrange(9000, 200000)
    answer = t.client.run(**t.request("output", size, limits={"output_bytes": 4096}))
    t.mine(answer, whole=False)
    t.ended(answer, "exit", 0)
    check.equal(answer["steps"][0]["stdout_bytes"], size + len(t.nonce) + 1, "stdout_bytes")
    check.cut(answer, 4096)


def output_that_ends_it(t):
    request = t.request("output", 1 << 30, limits={"output_bytes": 4096}, end_on=["output"])
    answer = t.client.run(**request)
    t.mine(answer, whole=False)
    t.ended(answer, "output")


def orphans(t):
    code = t.random.randrange(256)
    answer = t.run("orphan", code)
    t.ended(answer, "exit", code)
    check.equal(answer["steps"][0]["usage"]["stragglers_killed"], 1, "stragglers_killed")


STARTS = (
    ({"argv": ["/no/such"]}, "ENOENT", "/no/such"),
    ({"argv": ["nosuchcommand"]}, "ENOENT", "nosuchcommand"),
    ({"argv": ["/etc/passwd"]}, "EACCES", "/etc/passwd"),
    ({"argv": ["/usr"]}, "EACCES", "/usr"),
    ({"argv": ["/etc/passwd/x"]}, "ENOTDIR", "/etc/passwd/x"),
    ({"argv": ["true"], "cwd": "/no/dir"}, "ENOENT", "/no/dir"),
    (
        {"argv": ["./f"], "files": [{"path": "f", "content": "\x7fELF", "mode": "0755"}]},
        "ENOEXEC",
        "./f",
    ),
    (
        {"argv": ["./f"], "files": [{"path": "f", "content": "#!/no/interp\n", "mode": "0755"}]},
        "ENOENT",
        "",
    ),
)


def start(t):
    request, errno, path = t.random.choice(STARTS)
    answer = t.client.run(**request)
    end = t.ended(answer, "start")
    check.equal(end["evidence"]["errno"], errno, "evidence.errno")
    check.holds(end["evidence"]["path"], path, "evidence.path")
    check.equal(check.output(answer), b"", "output")


def cancelled(t):
    run = t.client.submit(**t.request("wait"))
    time.sleep(t.random.random() * 0.05)
    check.equal(t.client.delete("/v1/runs/" + run).status // 100, 2, "status of the cancellation")
    answer = t.client.wait_done(run, 60)
    t.ended(answer, "cancelled")
    seen = check.output(answer)
    check.member(seen, (b"", t.nonce.encode() + b"\n"), "output of a run that was cancelled")


def cancelled_or_exit(t):
    """Cancelled at about the time of its end: one of the two, and never another's."""
    run = t.client.submit(**t.request("late", 10))
    time.sleep(t.random.random() * 0.02)
    t.client.delete("/v1/runs/" + run)
    answer = t.client.wait_done(run, 60)
    if answer["steps"][0]["end"]["cause"] == "exit":
        t.mine(answer)
        t.ended(answer, "exit", 5)
    else:
        t.ended(answer, "cancelled")


def hung_up(t, asked):
    more = {"cancel_on_disconnect": True} if asked else {}
    request = t.request("wait" if asked else "late", 100, **more)
    stream = t.client.stream(**request)
    run = stream.next("accepted")[1]["id"]
    if t.random.random() < 0.5:
        stream.next("stdout")
    box.vanish(stream.connection)
    return t.client.wait_done(run, 60)


def lost_client(t):
    t.ended(hung_up(t, True), "lost_client")


def hung_up_and_done(t):
    answer = hung_up(t, False)
    t.mine(answer)
    t.ended(answer, "exit", 5)


def steps(t):
    """Three ends in one run, each told of its own step."""
    answer = t.client.run(
        files=[t.program],
        steps=[
            {"argv": t.argv("exit", 137), "continue_on_error": True},
            {"argv": t.argv("wait"), "limits": {"wall_ms": 30}, "continue_on_error": True},
            {"argv": t.argv("signal", 9)},
            {"argv": ["true"]},
        ],
    )
    for index in range(3):
        t.mine(answer, index)
    t.ended(answer, "exit", 137, index=0)
    t.ended(answer, "wall_time", index=1)
    t.ended(answer, "signal", signal=9, index=2)
    check.equal(answer["steps"][3]["state"], "skipped", "state of the last step")


def stored(t):
    """What is kept of a run is what was answered, and nobody else may see it."""
    code = t.random.randrange(256)
    answer = t.run("exit", code)
    again = t.client.fetch(answer["id"])
    check.equal(
        json.dumps(again["steps"], sort_keys=True),
        json.dumps(answer["steps"], sort_keys=True),
        "steps of the stored run",
    )
    t.ended(again, "exit", code)
    check.error(t.stranger.get("/v1/runs/" + answer["id"]), 404)


# (function, weight): the quick ones more often.
KINDS = (
    (exits, 8),
    (shell_exits, 6),
    (signals, 10),
    (shell_signals, 3),
    (killed_by_itself, 4),
    (shot_by_its_child, 3),
    (sigsys_of_its_own, 3),
    (sigsys_of_the_filter, 4),
    (memory, 5),
    (memory_of_a_child, 3),
    (kill_of_a_child, 2),
    (cpu, 4),
    (cpu_of_two, 1),
    (wall, 4),
    (wall_hidden, 2),
    (wall_stopped, 2),
    (wall_or_exit, 3),
    (cpu_or_wall, 2),
    (pids, 3),
    (pids_that_end_it, 2),
    (disk, 3),
    (disk_that_ends_it, 2),
    (output, 3),
    (output_that_ends_it, 2),
    (orphans, 2),
    (start, 6),
    (cancelled, 4),
    (cancelled_or_exit, 2),
    (lost_client, 3),
    (hung_up_and_done, 2),
    (steps, 2),
    (stored, 3),
)


def directory():
    return tempfile.TemporaryDirectory(prefix="pinfold-fault-")

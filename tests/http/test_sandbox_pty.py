"""Terminals: size, resize, the window-change signal, input, control characters, the end."""

import time

import check
from box import Box, joined, status
from check import Stopwatch
from suite import table, test

SIZE = {"rows": 24, "cols": 80}


def terminal(box, script, size=None, **more):
    """An execution in a terminal -> its id."""
    return box.start(sh=script, pty=size or SIZE, **more)


def typed(box, ex, data):
    return status(box.stdin(ex, data), 200, 204)


@test("a terminal is one: three descriptors, a name, a size, a session of its own", case=180)
def _(pair):
    with Box.make(pair.client) as box:
        answer = check.ok(box.sh("tty; stty size; test -t 0 && test -t 1 && test -t 2 && echo all; "
                                 "ps -o tty= -p $$ 2>/dev/null | head -1; echo $TERM; "
                                 "exec 3<>/dev/tty && echo ctty",
                                 pty={"rows": 33, "cols": 101}))
        lines = check.text(answer).replace("\r\n", "\n").splitlines()
        check.matches(lines[0], "^/dev/pts/[0-9]+$", "tty")
        check.equal(lines[1], "33 101", "stty size")
        check.true("all" in lines and "ctty" in lines, "lines: %s", lines)
        check.equal(check.text(answer, stream="stderr"), "", "stderr is the terminal too")


@test("python, script and stty agree about the size", case=180)
def _(pair):
    with Box.make(pair.client) as box:
        answer = check.ok(box.python("import os, shutil; print(tuple(os.get_terminal_size()), "
                                     "os.isatty(0), shutil.get_terminal_size().columns)",
                                     pty={"rows": 50, "cols": 132}))
        check.equal(check.text(answer).strip(), "(132, 50) True 132", "stdout")


@test("a resize is seen, and the window-change signal comes")
def _(pair):
    with Box.make(pair.client) as box:
        ex = terminal(box, "trap 'echo changed; stty size' WINCH; echo up; "
                           "while :; do sleep 0.05; done", limits={"wall_ms": 20000})
        box.wait_output(ex, b"up")
        status(box.resize(ex, 41, 123), 200, 204)
        seen = box.wait_output(ex, b"41 123")
        check.holds(seen, b"changed", "output")
        status(box.resize(ex, 10, 20), 200, 204)
        box.wait_output(ex, b"10 20")
        box.cancel(ex)


BAD_SIZES = [{"rows": 0, "cols": 80}, {"rows": 24}, {"rows": -1, "cols": 80}, {"rows": "1", "cols": 1},
             {"rows": 65536, "cols": 1}, {}]


def bad_size(pair, size):
    with Box.make(pair.client) as box:
        ex = terminal(box, "sleep 20")
        check.error(box.client.post(box.at(ex) + "/resize", size), 400)
        box.cancel(ex)
        plain = box.start(argv=["sleep", "20"])
        check.error(box.resize(plain, 24, 80), 409)
        box.cancel(plain)


table([("no resize to %r" % (size,), 127, size) for size in BAD_SIZES], bad_size)


@test("what is typed is echoed and read, line by line")
def _(pair):
    with Box.make(pair.client) as box:
        ex = terminal(box, "echo up; while read -r line; do echo \"got $line\"; done; echo end")
        box.wait_output(ex, b"up")
        typed(box, ex, b"hello\r")
        seen = box.wait_output(ex, b"got hello")
        check.equal(seen.count(b"hello"), 2, "echo and answer: %r" % seen)
        typed(box, ex, "é漢\r".encode())
        box.wait_output(ex, "got é漢".encode())
        typed(box, ex, b"\x04")
        box.wait_output(ex, b"end")
        check.ok(box.wait_done(ex, 2))


@test("ctrl-c interrupts what is in front, the shell stays", deadline=20)
def _(pair):
    with Box.make(pair.client) as box:
        ex = box.start(argv=["bash", "--norc", "-i"], pty=SIZE,
                       env={"PS1": "ready> ", "HISTFILE": ""}, limits={"wall_ms": 20000})
        box.wait_output(ex, b"ready> ")
        typed(box, ex, b"echo start; sleep 30\r")
        box.wait_output(ex, b"start\r\n")
        watch = Stopwatch()
        time.sleep(0.1)
        typed(box, ex, b"\x03")
        check.eventually(lambda: box.seen(ex).count(b"ready> ") >= 2, 3, "the prompt again", 0.03)
        watch.below(3, "the interrupt")
        typed(box, ex, b"jobs; echo job$((40+2))\r")
        box.wait_output(ex, b"job42")
        typed(box, ex, b"exit 5\r")
        check.ended(box.wait_done(ex, 3), "exit", exit_code=5)


@test("ctrl-z stops and fg goes on: job control works")
def _(pair):
    with Box.make(pair.client) as box:
        ex = box.start(argv=["bash", "--norc", "-i"], pty=SIZE, env={"PS1": "ready> "})
        box.wait_output(ex, b"ready> ")
        typed(box, ex, b"sleep 1; echo slept\r")
        time.sleep(0.2)
        typed(box, ex, b"\x1a")
        box.wait_output(ex, b"Stopped")
        typed(box, ex, b"fg\r")
        typed(box, ex, b"exit 0\r")
        box.wait_done(ex, 5)


@test("nobody can type into a terminal by ioctl", case=75)
def _(pair):
    script = ("import fcntl, errno\nfor request in (0x5412, 0x5412 + (1 << 32), 0x541C):\n"
              " try: fcntl.ioctl(0, request, b'i'); print('typed')\n"
              " except (OSError, OverflowError) as e: print('no')\n"
              "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
              "for r in (0x5412, 0x100005412):\n"
              " print('typed' if libc.syscall(16, 0, ctypes.c_ulong(r), b'i') == 0 else 'no')")
    with Box.make(pair.client) as box:
        text = check.text(check.ok(box.python(script, pty=SIZE)))
        check.lacks(text, "typed", "output")
        check.equal(text.count("no"), 5, "refusals")


@test("what a terminal's program writes comes as bytes, without loss", case=188)
def _(pair):
    with Box.make(pair.client) as box:
        answer = check.ok(box.sh("stty raw -echo; printf '\\033[31mred\\a\\0\\377'; seq 1 20000",
                                 pty=SIZE))
        data = check.output(answer)
        check.true(data.startswith(b"\x1b[31mred\x07\x00\xff"), "start: %r", data[:40])
        check.equal(data[12:], "".join("%d\n" % i for i in range(1, 20001)).encode()[-len(data[12:]):],
                    "the numbers")
        check.true(data.endswith(b"20000\n"), "end: %r", data[-20:])


@test("a terminal survives its reader: another follows from where the first was", deadline=20)
def _(pair):
    with Box.make(pair.client) as box:
        first = []
        with box.stream(sh="echo up; while read -r x; do echo \"<$x>\"; done", pty=SIZE) as stream:
            for _, event in stream:
                first.append(event)
                if event["type"] == "stdout" and "up" in event.get("data", ""):
                    break
            stream.connection.sock.close()
        ex = first[0]["id"]
        typed(box, ex, b"one\r")
        box.wait_output(ex, b"<one>")
        follower = box.events(ex, after=first[-1]["seq"], follow=True)
        typed(box, ex, b"two\r")
        box.wait_output(ex, b"<two>")
        typed(box, ex, b"\x04")
        rest = follower.all()
        check.equal([e["seq"] for e in rest],
                    list(range(first[-1]["seq"] + 1, first[-1]["seq"] + 1 + len(rest))), "seq")
        text = joined(rest)
        check.true(b"<one>" in text and b"<two>" in text, "output: %r", text)
        check.equal(rest[-1]["type"], "done", "last event")


@test("a terminal whose program ends leaves no process behind it", case="67, 149")
def _(pair):
    with Box.make(pair.client) as box:
        watch = Stopwatch()
        answer = box.sh("(trap '' HUP; sleep 60) & setsid sleep 60 & echo out; exit 3", pty=SIZE)
        watch.below(1.5, "the answer")
        check.ended(answer, "exit", exit_code=3)
        check.holds(check.text(answer), "out", "output")
        check.equal(box.text("cat /proc/[0-9]*/comm | grep -c sleep || true"), "0\n", "sleepers")


@test("a terminal ends by its limits, is cancelled and dies with its sandbox", deadline=20)
def _(pair):
    with Box.make(pair.client) as box:
        check.ended(box.sh("sleep 60", pty=SIZE, limits={"wall_ms": 300}), "wall_time")
        ex = terminal(box, "trap '' INT TERM HUP; echo up; while :; do sleep 1; done")
        box.wait_output(ex, b"up")
        box.cancel(ex)
        check.ended(box.wait_done(ex, 2), "cancelled")
        stream = box.stream(sh="echo up; sleep 60", pty=SIZE)
        stream.next("stdout")
        watch = Stopwatch()
        box.delete()
        ends = [e["end"]["cause"] for _, e in stream if e["type"] == "end"]
        watch.below(1, "the end")
        check.equal(ends, ["cancelled"], "causes")
        stream.close()


@test("eight terminals at once are eight", case=180)
def _(pair):
    with Box.make(pair.client) as box:
        made = [terminal(box, "echo up; read -r x; echo \"%d:$x\"; tty" % i) for i in range(8)]
        for ex in made:
            box.wait_output(ex, b"up")
        for i, ex in enumerate(made):
            typed(box, ex, b"line%d\r" % i)
        names = set()
        for i, ex in enumerate(made):
            text = check.text(check.ok(box.wait_done(ex, 5)))
            check.holds(text, "%d:line%d" % (i, i), "output")
            names.add(text.split()[-1])
        check.equal(len(names), 8, "names of terminals")


@test("a program that floods its terminal is held, not the server", case=25, deadline=30)
def _(pair):
    with Box.make(pair.client) as box:
        before = pair.memory()
        answer = box.sh("yes | head -c 20000000; echo last", pty=SIZE,
                        limits={"output_bytes": 65536, "wall_ms": 20000})
        check.ended(answer, "exit", exit_code=0)
        check.true(check.output(answer).rstrip().endswith(b"last"), "the end is missing")
        check.true(pair.memory() - before < 16 << 20, "the server grew by %d",
                   pair.memory() - before)


@test("much typed at once into a program that does not read blocks nobody", deadline=20)
def _(pair):
    with Box.make(pair.client) as box:
        ex = terminal(box, "echo up; sleep 30")
        box.wait_output(ex, b"up")
        for _ in range(4):
            answer = box.client.request(
                "POST", box.at(ex) + "/stdin", b"x" * 200000, timeout=8,
                headers={"Content-Type": "application/octet-stream"})
            check.member(answer.status, (200, 204, 409, 429, 503), "stdin")
        watch = Stopwatch()
        check.equal(box.text("echo on"), "on\n", "another execution")
        watch.below(1, "another execution")
        box.cancel(ex)

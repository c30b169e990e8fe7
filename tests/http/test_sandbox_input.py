"""What goes into an execution while it runs: stdin in parts, signals."""

import hashlib

import check
from box import Box, status
from check import Stopwatch
from suite import table, test

# Stdin


@test("without stdin a reader meets the end at once", case=60)
def _(pair):
    with Box.make(pair.client) as box:
        watch = Stopwatch()
        check.equal(box.text("cat; echo rc=$?"), "rc=0\n", "stdout")
        watch.below(1, "the answer")
        check.equal(check.text(check.ok(box.run(argv=["cat"], stdin="given"))), "given", "stdin")


@test("stdin is fed in parts and closed", case=74)
def _(pair):
    with Box.make(pair.client) as box:
        ex = box.start(argv=["cat"], stdin_open=True)
        for part in (b"one\n", bytes(range(256)), b"", b"two\n"):
            status(box.stdin(ex, part), 200, 204)
        box.wait_output(ex, b"two\n")
        check.equal(box.fetch(ex)["state"], "running", "state")
        status(box.stdin(ex, b"three", close=True), 200, 204)
        answer = check.ok(box.wait_done(ex, 3))
        check.equal(check.output(answer), b"one\n" + bytes(range(256)) + b"two\nthree", "stdout")
        check.error(box.stdin(ex, b"late"), 409)


@test("much stdin against a slow reader goes in order, in bounded memory", case="62, 74",
      deadline=30)
def _(pair):
    part = bytes(range(256)) * 4096
    with Box.make(pair.client) as box:
        before = pair.memory()
        ex = box.start(sh="sleep 0.3; sha256sum", stdin_open=True)
        whole = b""
        for index in range(12):
            status(box.stdin(ex, part, close=index == 11), 200, 204)
            whole += part
        answer = check.ok(box.wait_done(ex, 10))
        check.equal(check.text(answer).split()[0], hashlib.sha256(whole).hexdigest(), "sha256")
        check.true(pair.memory() - before < 16 << 20, "the server grew by %d",
                   pair.memory() - before)


@test("stdin for what does not read it does no harm", case=63)
def _(pair):
    with Box.make(pair.client) as box:
        check.ok(box.run(argv=["true"], stdin="x" * 1000000))
        ex = box.start(sh="exec <&-; sleep 1", stdin_open=True)
        for _ in range(3):
            check.member(box.stdin(ex, b"x" * 100000).status, (200, 204, 409), "stdin")
        check.ok(box.wait_done(ex, 4))


# Signals


@test("a signal reaches the whole process group and nobody else", deadline=20)
def _(pair):
    script = ("trap 'echo caught; exit 7' USR1; python3 -c \"import signal,time; "
              "signal.signal(10, lambda *a: open('child','w').write('x')); print('up', flush=True);"
              " time.sleep(0.2); time.sleep(20)\" & wait; wait")
    with Box.make(pair.client) as box:
        ex, other = box.start(sh=script), box.start(sh="sleep 3; echo untouched")
        box.wait_output(ex, b"up")
        status(box.signal(ex, "USR1"), 200, 204)
        answer = box.wait_done(ex, 4)
        check.ended(answer, "exit", exit_code=7)
        check.holds(check.text(answer), "caught", "stdout")
        check.equal(box.read("/workspace/child").status, 200, "the child heard it too")
        check.equal(check.text(check.ok(box.wait_done(other, 5))), "untouched\n", "the other")


SIGNALS = [("TERM", 15), ("INT", 2), ("KILL", 9), ("HUP", 1), ("SIGTERM", 15), (15, 15), (9, 9)]


def signals(pair, name, number):
    with Box.make(pair.client) as box:
        ex = box.start(argv=["python3", "-S", "-c",
                             "import signal,time; signal.signal(2, signal.SIG_DFL); "
                             "print('up', flush=True); time.sleep(60)"])
        box.wait_output(ex, b"up")
        status(box.signal(ex, name), 200, 204)
        check.ended(box.wait_done(ex, 2), "signal", signal=number, exit_code=None)


table([("signal %r ends a program by signal" % (row[0],), 39) + row for row in SIGNALS], signals)


def bad_signal(pair, name):
    with Box.make(pair.client) as box:
        ex = box.start(argv=["sleep", "60"])
        check.error(box.signal(ex, name), 400, field="/signal")
        check.equal(box.fetch(ex)["state"], "running", "state")
        box.cancel(ex)


table([("signal %r is refused" % (name,), 127, name)
       for name in (0, -1, 65, "NOSUCH", "", None, 1.5, "TERM; kill", 1 << 40)], bad_signal)


@test("a signal for what is over is 409")
def _(pair):
    with Box.make(pair.client) as box:
        ex = check.ok(box.run(argv=["true"]))["id"]
        check.error(box.signal(ex, "TERM"), 409)

"""A server that is killed in the middle of passing input on, before each call that has to do with
it: whoever goes on from the number that he knows finds every byte there, once."""

import http.client
import subprocess

import check
import harness
from box import Box, status
from suite import table, test

CALLS = ("pwrite64", "pwritev", "splice", "sendfile", "sendmsg")


class Killer:
    """Kills the server's main thread as it enters a system call of this name."""

    def __init__(self, pair, call):
        self.pair = pair
        self.strace = subprocess.Popen(
            ["strace", "-p", str(pair.server_pid), "-o", "/dev/null", "-e", "trace=" + call,
             "-e", "inject=%s:signal=KILL:when=1" % call],
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        line = self.strace.stderr.readline()
        check.holds(line, "attached", "what strace says first")

    def over(self):
        """-> was it killed? Then it is started again."""
        self.strace.terminate()
        self.strace.wait(5)
        self.strace.stderr.close()
        try:
            self.pair.server.wait(0.05)
            killed = True
        except subprocess.TimeoutExpired:
            killed = False
        self.pair.client.close()
        if killed:
            self.pair.start_server()
            self.pair.wait_ready()
        return killed


def feed(pair, box, ex, call, part, offset, close=None):
    """One part, sent until it is answered. -> was the server killed meanwhile?"""
    pair.client.close()
    killer = Killer(pair, call)
    try:
        answer = box.stdin(ex, part, close=close, offset=offset)
    except (OSError, http.client.HTTPException):
        answer = None
    killed = killer.over()
    if answer is None:
        check.true(killed, "no answer, and nobody was killed")
        answer = box.stdin(ex, part, close=close, offset=offset)
    if close and answer.status == 409:
        check.holds(answer.json()["error"]["message"], " %d bytes" % (offset + len(part)), "taken")
        return killed
    status(answer, 200)
    check.equal(answer.json()["stdin_bytes"], offset + len(part), "bytes taken")
    return killed


def kills(terminal):
    killed = 0
    with harness.Pair(slots=4, warm=1) as pair, Box.make(pair.client) as box:
        for call in CALLS:
            if terminal:
                ex = box.start(sh="stty -echo -onlcr; echo up; cat; echo over; cat; echo twice",
                               pty={"rows": 24, "cols": 80})
                box.wait_output(ex, b"up\n")
            else:
                ex = box.start(sh="echo up; cat; echo over", stdin_open=True)
            first, last = b"first of %s\n" % call.encode(), b"last of %s\n" % call.encode()
            killed += feed(pair, box, ex, call, first, 0)
            box.wait_output(ex, first)
            killed += feed(pair, box, ex, call, last, len(first), True)
            box.wait_output(ex, b"over\n")
            box.text("true")
            check.equal(box.seen(ex).replace(b"\r", b""), b"up\n" + first + last + b"over\n",
                        "all that came out, with a kill at " + call)
            if terminal:
                box.cancel(ex)
    check.true(killed >= 5, "the server was killed only %d times", killed)


table([("no kill of the server between two calls loses or doubles a byte for a %s" % name, None,
        name == "terminal") for name in ("pipe", "terminal")], lambda _, terminal: kills(terminal),
      own=True, deadline=60)

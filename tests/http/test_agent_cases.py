"""Situations of agents (shared cases 191, 194, 196): long silences, a client that dies, a folder full
of traps."""

import os
import signal
import socket
import subprocess
import tempfile
import threading
import time

import box
import check
import harness
from model_server import ModelServer
from suite import test
from test_agent import outcome
from workspace import Workspace

# A clock that runs thirty times as fast, for one program: what waits for a minute gives up after two
# seconds.
CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *t) {
    static int (*real)(clockid_t, struct timespec *);
    static struct timespec first[2];
    int monotonic = id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_RAW || id == CLOCK_BOOTTIME;
    if (real == 0)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int rc = real(id, t);
    if (!monotonic || rc != 0)
        return rc;
    struct timespec *f = &first[0];
    if (f->tv_sec == 0)
        *f = *t;
    long long ns = (t->tv_sec - f->tv_sec) * 1000000000LL + (t->tv_nsec - f->tv_nsec);
    ns = ns * 30 + f->tv_nsec;
    t->tv_sec = f->tv_sec + ns / 1000000000LL;
    t->tv_nsec = ns % 1000000000LL;
    return 0;
}
"""


class Fast:
    """The environment of a program whose clock is fast."""

    def __enter__(self):
        self.dir = tempfile.TemporaryDirectory(prefix="pinfold-clock-")
        path = os.path.join(self.dir.name, "clock")
        with open(path + ".c", "w") as out:
            out.write(CLOCK)
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", path + ".so", path + ".c", "-ldl"],
                       check=True, capture_output=True)
        return {"LD_PRELOAD": path + ".so"}

    def __exit__(self, *_):
        self.dir.cleanup()


@test("the client waits as long as the command may take: two minutes of silence", case=191,
      deadline=60)
def _(pair):
    with Fast() as fast, Workspace(pair) as w, \
            ModelServer([{"calls": [("done", {"summary": "s"})]}]) as model:
        begun = time.monotonic()
        commands = [("run", "--wall", "120s", "-c", "sleep 4; echo over"),
                    ("exec", "--rules", w.rules, "--wall", "120s", "-c", "sleep 4; echo over")]
        for command in commands:
            done = w.pinfold(*command, **fast)
            check.equal((done.returncode, done.stdout), (0, "over\n"), "%s (%s)" % (command[0], done.stderr))
        w.write("check.sh", "sleep 4; exit 0\n")
        done, events = w.agent(model, "t", "sh check.sh", "--wall", "10h", "--step-wall", "1h", **fast)
        outcome(done, events, 0, "verified")
        check.true(time.monotonic() - begun > 12, "nothing was waited for")


class Slow:
    """A server that takes an upload at about one megabyte a second, by the fast clock."""

    def __init__(self):
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen()
        self.url = "http://127.0.0.1:%d" % self.listener.getsockname()[1]
        self.taken = 0
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        try:
            while True:
                one = self.listener.accept()[0]
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
                self.one(one)
        except OSError:
            pass

    def one(self, connection):
        with connection, connection.makefile("rb") as stream:
            while True:
                first, headers = stream.readline(), {}
                if not first:
                    return
                while (line := stream.readline().strip()):
                    name, _, value = line.decode().partition(":")
                    headers[name.lower()] = value.strip()
                if headers.get("expect", "").lower() == "100-continue":
                    connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                left = int(headers.get("content-length", 0))
                while left > 0:
                    piece = stream.read(min(left, 1 << 20))
                    left -= len(piece)
                    self.taken += len(piece)
                    time.sleep(1 / 30)
                body = b'{"state": "ready", "path": "/workspace/big", "size": %d}' % self.taken
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                                   b"Content-Length: %d\r\n\r\n%s" % (len(body), body))

    def close(self):
        self.listener.close()


@test("an upload that takes three minutes is not broken off", case=191, deadline=60)
def _(pair):
    slow = Slow()
    try:
        with Fast() as fast, Workspace(pair) as w:
            with open(os.path.join(w.path, "big"), "wb") as out:
                out.truncate(200 * box.MIB)
            done = w.pinfold("cp", "big", "sb_" + "a" * 20 + ":big", timeout=50,
                             PINFOLD_URL=slow.url, **fast)
            check.equal(done.returncode, 0, "cp (%s)" % done.stderr)
            check.equal(slow.taken, 200 * box.MIB, "bytes that came")
    finally:
        slow.close()


@test("kill -9 of a client: its session can be taken up by its id, and ends when it was to end",
      case=194, deadline=40)
def _(pair):
    with Workspace(pair) as w:
        made = w.pinfold("sandbox", "create", "--ttl", "6s", "--meta", "of=%s" % pair.client.mark,
                         "--env", "PINFOLD_TEST_MARK=%s" % pair.client.mark)
        begun = time.monotonic()
        sandbox = made.stdout.strip()
        check.true(sandbox.startswith("sb_"), made.stderr)
        child = subprocess.Popen(
            [harness.program("pinfold"), "exec", "--sandbox", sandbox, "-c",
             "python3 -m http.server 8000 --bind 127.0.0.1 >/dev/null 2>&1 & echo up; "
             "echo kept >note; sleep 1000"],
            cwd=w.path, env=w.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            text=True, start_new_session=True)
        check.equal(child.stdout.readline(), "up\n", "its first line")
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
        again = w.pinfold("exec", "--sandbox", sandbox, "-c",
                          "cat note; python3 -c \"import time, urllib.request as u\n"
                          "for i in range(50):\n"
                          "    try: print(u.urlopen('http://127.0.0.1:8000').status); break\n"
                          "    except OSError: time.sleep(.05)\"")
        check.equal(again.stdout, "kept\n200\n", "taken up again (%s)" % again.stderr)
        check.eventually(
            lambda: pair.client.get("/v1/sandboxes/" + sandbox).status == 410, 12, "it is gone", 0.1)
        check.within(5.0, time.monotonic() - begun, 11, "seconds until it was gone")


@test("a folder with links out and round, a pipe and a gigabyte: nothing of it leaves, nothing hangs",
      case=196, deadline=40)
def _(pair):
    with Workspace(pair) as w:
        secret = os.path.join(w.home, ".ssh")
        os.makedirs(secret)
        with open(os.path.join(secret, "id_x"), "w") as out:
            out.write("VERY-SECRET\n")
        os.symlink(os.path.join(secret, "id_x"), os.path.join(w.path, "l"))
        os.symlink("../home/.ssh/id_x", os.path.join(w.path, "relative"))
        os.symlink(".", os.path.join(w.path, "loop"))
        os.symlink("loop/loop/loop", os.path.join(w.path, "longer"))
        os.mkfifo(os.path.join(w.path, "fifo"))
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(os.path.join(w.path, "socket"))
        w.write("a", "here\n")
        w.write("look.sh", "cat a loop/a longer/a; cat l relative; ls; true\n")
        check.equal(w.exec("--", "cat", "l").returncode, 126, "a command that names the secret")
        done = w.exec("--", "sh", "look.sh")
        listener.close()
        check.equal(done.returncode, 0, "exit code (%s)" % done.stderr)
        check.true(done.stdout.startswith("here\nhere\nhere\n"), "what is there: %s" % done.stdout)
        check.true("SECRET" not in done.stdout, "a secret was sent")
        check.true("fifo" not in done.stdout and "socket" not in done.stdout, done.stdout)
        made = w.pinfold("sandbox", "create").stdout.strip()
        copied = w.pinfold("cp", "-r", ".", made + ":/workspace/copy")
        seen = w.pinfold("exec", "--sandbox", made, "-c", "cat copy/l copy/relative; ls copy; true")
        check.true("SECRET" not in seen.stdout and "fifo" not in seen.stdout, "cp -r: %s" % seen.stdout)
        check.true("a" in seen.stdout.split(), "cp -r: %s (%s)" % (seen.stdout, copied.stderr))
        # More than the sandbox has room for: a sentence, and no half of it.
        with open(os.path.join(w.path, "huge"), "wb") as out:
            out.truncate(1 << 30)
        done = w.exec("-c", "ls")
        check.true(done.returncode != 0 and "huge" in done.stderr, "a gigabyte: %s" % done.stderr)
        check.equal(len(done.stderr.strip().splitlines()), 1, "one sentence: %s" % done.stderr)
        os.remove(os.path.join(w.path, "huge"))
        check.equal(w.exec("--", "cat", "a").stdout, "here\n", "afterwards")

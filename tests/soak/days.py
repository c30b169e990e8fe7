"""Days of cases.md as processes: D3 (many clients), D4 (exam), D7 (an agent), D10 (a hostile
tenant). Each loops until it is told to stop, and rests while it is told to pause."""

import multiprocessing
import os
import random
import socket
import threading
import time

import box
import check
import clean
import test_hostile_day
from book import LOST, Asker, Book
from client import nonce
from test_sandbox_days import turn

GO, PAUSE, STOP = 0, 1, 2
BIG = ("x" * 127 + "\n") * (5 * 8192)  # 5 MiB
C = "#include <stdio.h>\nint main(void){puts(\"%s\");return 0;}\n"
MEMORY = "x = []\nwhile True: x.append(bytearray(1 << 20))"
MIB = 1 << 20
LONG = {"wall_ms": 600000, "cpu_ms": 60000}  # however busy the machine is

# Students' programs: name, request, the one cause that is true.
EXAM = (
    ("loop", {"sh": "while :; do :; done", "limits": {"cpu_ms": 300, "wall_ms": 600000}},
     "cpu_time"),
    ("fork bomb", {"sh": "f(){ f|f& }; f & exec sleep 60",
                   "limits": {"pids": 32, "wall_ms": 1500, "cpu_ms": 60000}}, "wall_time"),
    ("endless printf", {"sh": "while printf x; do :; done",
                        "limits": {"wall_ms": 1000, "cpu_ms": 60000, "output_bytes": 65536}},
     "wall_time"),
    ("10 GB", {"argv": ["/usr/bin/python3", "-c", MEMORY],
               "limits": {"mem_bytes": 64 * MIB, "wall_ms": 600000, "cpu_ms": 60000}}, "memory"),
    ("reads stdin", {"sh": "cat; echo %(word)s"}, "exit"),
    ("reads passwd", {"sh": "grep -c root /etc/passwd; echo %(word)s"}, "exit"),
    ("crashes", {"sh": "kill -SEGV $$"}, "signal"),
    ("is not there", {"argv": ["/nowhere/at/all"]}, "start"),
    ("is right", {"argv": ["/usr/bin/python3", "-c",
                           "print(sum(i * i for i in range(300000)), '%(word)s')"], "limits": LONG},
     "exit"),
)


class Day:
    """What the process of a day shares with its parent, and how it paces its threads."""

    def __init__(self, name, phase, resting, path, deadline):
        self.name, self.phase, self.resting, self.path = name, phase, resting, path
        self.end = deadline
        self.book = None

    def goes_on(self, client):
        """Rests while the others do, without a connection -> False at the end."""
        if self.phase.value == PAUSE:
            client.rest()
            with self.resting.get_lock():
                self.resting.value += 1
            while self.phase.value == PAUSE:
                time.sleep(0.05)
            with self.resting.get_lock():
                self.resting.value -= 1
        return self.phase.value != STOP

    def start(self, threads, *arguments):
        """Runs `threads`, functions of (day, index), in a process of their own."""
        child = multiprocessing.get_context("fork").Process(
            target=self.main, args=(threads, arguments), daemon=True)
        child.start()
        return child

    def main(self, threads, arguments):
        if self.name != "doctor":
            # Jails measure their own time, the clients only wait: they may come second.
            os.nice(5)
        self.book = Book(self.path)
        threading.stack_size(256 * 1024)
        all_of_them = [threading.Thread(target=self.guarded, args=(one, i) + arguments)
                       for i, one in enumerate(threads)]
        for one in all_of_them:
            one.start()
        for one in all_of_them:
            one.join()
        self.book.close()
        os._exit(0)

    def guarded(self, function, index, *arguments):
        try:
            function(self, index, *arguments)
        except BaseException as problem:
            self.book.write(kind="problem", what="%s: %s: %s" % (
                self.name, type(problem).__name__, problem))

    def asker(self, client, user):
        return Asker(client, user, self.book, lambda: self.end)


# D3: many clients at once


def crowd(day, index, users):
    """One connection of the crowd: 70 % tiny, 10 % compile, 10 % sleep, 5 % upload, 5 % stream."""
    user, client = users[index % len(users)]
    asker, dice = day.asker(client, user), random.Random(index)
    while day.goes_on(client):
        word, die = nonce(), dice.random()
        if die < 0.7:
            asker.run("D3", "tiny", {"argv": ["echo", word]}, word)
        elif die < 0.8:
            asker.run("D3", "compile", {
                "files": [{"path": "m.c", "content": C % word}],
                "sh": "cc -o m m.c && ./m", "limits": LONG}, word)
        elif die < 0.9:
            asker.run("D3", "sleep", {"sh": "sleep 2; echo " + word, "limits": LONG}, word)
        elif die < 0.95:
            asker.run("D3", "upload", {
                "files": [{"path": "big", "content": BIG}, {"path": "w", "content": word}],
                "sh": "wc -c <big; cat w", "limits": LONG}, "%d\n%s" % (len(BIG), word))
        else:
            asker.run("D3", "stream", {"sh": "echo one; sleep 0.1; echo " + word, "stream": True},
                      word)


# D4: exam day


def students(day, index, users, count):
    """Each thread is a row of students who hand in the same program again and again."""
    user, client = users[index % len(users)]
    asker, dice = day.asker(client, user), random.Random(index)
    while day.goes_on(client):
        student = dice.randrange(count)
        name, request, cause = EXAM[student % len(EXAM)]
        word = nonce()
        body = {k: [a % {"word": word} if "%(word)s" in a else a for a in v] if k == "argv" else
                v.replace("%(word)s", word) if k == "sh" else v for k, v in request.items()}
        got = asker.run("D4", name, body, word if "%(word)s" in str(request) else None)
        end = (got["steps"][-1].get("end") or {}) if got else {}
        if got and end.get("cause") not in (cause, "interrupted"):
            day.book.write(kind="problem", what="D4 %s: %s ended as %s, not as %s: %s" % (
                name, got["id"], end.get("cause"), cause, end))


# D7: an agent in one sandbox


def agent(day, index, client, note):
    """Turns in one sandbox; a new one only when a kill of the runner took it. The client starts
    anew after each 200 turns."""
    made, turns, word = None, 0, nonce().encode()
    while day.goes_on(client):
        try:
            if made is None:
                made = box.Box.make(client)
                for i in range(50):
                    made.put("/workspace/src/f%d.py" % i, b"x")
                turns = 0
                note(made.id)
            begun = time.time()
            turn(made, turns, word)
            turns += 1
            day.book.write(kind="turn", at=begun, seconds=time.time() - begun, n=turns,
                           sort="true" if turns % 20 > 8 else "other")
            if turns % 200 == 0:
                client.close()
        except LOST + (AssertionError,) as problem:
            made, turns = again(day, client, made, turns, problem), turns + 1
    client.close()


def again(day, client, made, turns, problem):
    """After something went wrong -> the sandbox, or None when it is gone with its runner."""
    until = time.time() + 30
    while time.time() < until:
        try:
            answer = client.get("%s/%s" % (box.SANDBOXES, made.id if made else "sb_none"))
            if answer.status in (404, 410) or (
                    answer.status == 200 and answer.json().get("state") == "gone"):
                day.book.write(kind="agent", at=time.time(), what="gone", turns=turns,
                               why=str(problem)[:200])
                return None
            if answer.status == 200:
                day.book.write(kind="agent", at=time.time(), what="again", turns=turns,
                               why="%s: %s" % (type(problem).__name__, str(problem)[:300]))
                return made
        except LOST:
            pass
        time.sleep(0.2)
    day.book.write(kind="problem", what="D7: no server for 30 s after: %s" % problem)
    return made


# D10: a hostile tenant beside an honest one


class Tenant(test_hostile_day.Hostile):
    """As in the test of that day, but the server may go away."""

    def expect(self, answer, statuses, what):
        super().expect(answer, tuple(statuses) + (503,), what)


def hostile(day, index, tenant):
    dice, said = random.Random(index), 0
    while day.goes_on(tenant.client):
        try:
            dice.choice([tenant.run, tenant.run, tenant.pry, tenant.pry, tenant.guess,
                         tenant.dawdle, tenant.upload])(dice)
            day.book.write(kind="attempt", at=time.time())
        except LOST:
            time.sleep(0.2)
        for one in tenant.wrong[said:]:
            day.book.write(kind="problem", what="D10: " + one)
        said = len(tenant.wrong)


def neighbour(day, index, client, user):
    asker = day.asker(client, user)
    while day.goes_on(client):
        word = nonce()
        got = asker.run("D10", "neighbour", {"sh": "echo " + word}, word)
        if got and got["steps"][0].get("end", {}).get("cause") not in ("exit", "interrupted"):
            check.fail("the neighbour's run ended as %s", got["steps"][0])
        time.sleep(0.02)


# The one who asks whether it lives


def echo():
    """A process that does nothing but answer, to know how busy the machine itself is -> port."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    parent = os.getpid()
    if os.fork() == 0:
        listener.settimeout(1)
        while os.getppid() == parent:
            try:
                with listener.accept()[0] as one:
                    one.sendall(one.recv(100))
            except OSError:
                pass
        os._exit(0)
    listener.close()
    return port


def waited(pid):
    """Seconds that the main thread of a process has waited for a processor, so far."""
    fields = clean.read("/proc/%d/task/%d/schedstat" % (pid, pid)).split()
    return int(fields[1]) / 1e9 if len(fields) > 1 else 0.0


def doctor(day, index, pair, server):
    port = echo()
    while day.phase.value != STOP:
        begun = time.time()
        with socket.create_connection(("127.0.0.1", port), 10) as one:
            one.sendall(b"well?")
            one.recv(100)
        bare = time.time() - begun
        pid = server.value
        begun, before = time.time(), waited(pid)
        status = pair.probe("/healthz")
        took, waiting = time.time() - begun, max(0.0, waited(pid) - before)
        day.book.write(kind="health", at=begun, ms=1000 * took, status=status,
                       own_ms=1000 * max(0.0, took - waiting), bare_ms=1000 * bare)
        time.sleep(0.2)

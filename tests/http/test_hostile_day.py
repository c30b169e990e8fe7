"""A hostile tenant stays for the day (D10): M does what he can for ten seconds (PINFOLD_TEST_DAYS:
minutes), N works beside him; nothing of N's is lost, mixed up or seen, the canaries are untouched,
the audit log tells what M was denied and holds no secret, and of M nothing is left in the end.

How long N waits is measured in turns: a while alone, a while beside a tenant who only computes, with
as many jails and the same limits as M, a while beside M; again and again, so that whatever else the
machine does meanwhile is in all of them. Who only computes costs N little, since processors are shared
by user, as are the jails that are kept ready; M may not cost him more than twice that and a turn of
the scheduler (TURN). The case wants twice the quiet value, of a day: here M comes anew with each
turn, and the scheduler of some kernels leaves anybody waiting for up to 150 ms beside what he does
until it is known that he takes most (SECURITY.md: how long a neighbour waits)."""

import io
import json
import os
import random
import socket
import subprocess
import tarfile
import threading
import time

import box
import canary
import check
import harness
from client import Client, nonce
from suite import test

SECONDS = 60 * float(os.environ.get("PINFOLD_TEST_DAYS", "0")) or 10

PROGRAMS = [
    ":(){ :|:& };:",
    "while :; do :; done",
    "head -c 2G /dev/zero | tail",
    "dd if=/dev/zero of=/tmp/x bs=1M",
    "while printf x; do :; done",
    "i=0; while mkdir d$i 2>/dev/null; do i=$((i+1)); done",
    "cat /proc/1/environ /proc/*/environ %(root)s; env",
    "echo owned >%(open)s; ln -s %(open)s l; echo owned >l",
    "unshare -Ur true; mount -t proc proc /proc; kill -9 -1",
    "exec 3<>/dev/tcp/127.0.0.1/%(port)s",
    "for p in $(seq 1 200); do kill -9 $p 2>/dev/null; done",
]


LIMITS = {"wall_ms": 700, "cpu_ms": 500, "mem_bytes": 1 << 26, "pids": 40, "disk_bytes": 1 << 24}
THREADS = 4
WARM = 64  # as a runner has it on a host with some gigabytes
QUOTA = {"runs": 6, "sandboxes": 3, "mem_bytes": 1 << 29}


def tar_bomb():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind, link in (("../../out", tarfile.REGTYPE, ""), ("/etc/x", tarfile.REGTYPE, ""),
                                 ("l", tarfile.SYMTYPE, "/etc"), ("l/passwd", tarfile.REGTYPE, ""),
                                 ("h", tarfile.LNKTYPE, "/etc/passwd"), ("d", tarfile.CHRTYPE, "")):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, link
            tar.addfile(member, io.BytesIO(b""))
    return out.getvalue()


class Tenant:
    """Somebody with threads that do one act after the other while they are let."""

    def __init__(self, client):
        self.client, self.go, self.over, self.busy = client, threading.Event(), False, 0
        self.lock, self.wrong, self.threads = threading.Lock(), [], []

    def comes(self):
        for number in range(THREADS):
            self.threads.append(threading.Thread(target=self.day, args=(random.Random(number),)))
            self.threads[-1].start()
        return self

    def count(self, by):
        with self.lock:
            self.busy += by

    def day(self, dice):
        while not self.over:
            self.go.wait(1)
            self.count(1)
            if self.go.is_set() and not self.over:
                try:
                    self.act(dice)
                except Exception as error:
                    self.wrong.append("%s: %s" % (type(error).__name__, error))
            self.count(-1)

    def rests(self):
        """He stops, and waits until what he has begun is over."""
        self.go.clear()
        check.eventually(lambda: self.busy == 0, 20, "a tenant rests", 0.02)

    def leaves(self):
        self.over = True
        self.go.set()
        for one in self.threads:
            one.join(30)


class Honest(Tenant):
    """Uses all that he may, and does nothing else."""

    def act(self, _):
        answer = self.client.post("/v1/runs", self.client.marked(
            {"sh": "while :; do :; done", "limits": LIMITS}))
        if answer.status not in (200, 429):
            self.wrong.append("a run: %d" % answer.status)


class Hostile(Tenant):
    def __init__(self, pair, client, theirs):
        self.pair, self.theirs = pair, theirs
        self.where = {"root": canary.Canaries.root_only, "open": canary.Canaries.open_file,
                      "port": canary.Canaries.tcp_port}
        super().__init__(client)

    def expect(self, answer, statuses, what):
        if answer.status not in statuses:
            self.wrong.append("%s: %d" % (what, answer.status))
        if canary.SECRET.encode() in answer.body:
            self.wrong.append("%s: the canary was read" % what)

    def run(self, dice):
        text = dice.choice(PROGRAMS) % self.where
        answer = self.client.post("/v1/runs", self.client.marked({"sh": text, "limits": LIMITS}))
        self.expect(answer, (200, 429), "a run")

    def pry(self, dice):
        path, method = dice.choice([
            ("/v1/runs/%(run)s", "GET"), ("/v1/runs/%(run)s", "DELETE"),
            ("/v1/runs/%(run)s/events", "GET"), ("/v1/runs/%(run)s/steps/0/stdout", "GET"),
            ("/v1/runs/%(run)s/replay", "POST"), ("/v1/sandboxes/%(box)s", "DELETE"),
            ("/v1/sandboxes/%(box)s/files/workspace/secret", "GET"), ("/v1/users", "GET"),
            ("/v1/tokens/children", "POST"), ("/metrics", "GET"), ("/v1/users/admin", "DELETE")])
        body = {"scopes": ["admin"]} if method == "POST" else None
        answer = self.client.request(method, path % self.theirs, body)
        self.expect(answer, (400, 403, 404, 429), method + " " + path)

    def guess(self, dice):
        token = "pf_" + "".join(dice.choice("abcdefghijklmnopqrstuvwxyz234567") for _ in range(52))
        self.expect(Client(self.pair.port, token).get("/v1/me"), (401,), "a guessed token")

    def dawdle(self, dice):
        with socket.create_connection(("127.0.0.1", self.pair.port)) as one:
            one.sendall(b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Le")
            time.sleep(dice.random() * 0.2)

    def upload(self, dice):
        made = self.client.post("/v1/sandboxes", {"limits": {"mem_bytes": 1 << 26}})
        if made.status != 201:
            self.expect(made, (429,), "a sandbox")
            return
        at = "/v1/sandboxes/" + made.json()["id"]
        self.expect(self.client.request("PUT", at + "/archive/workspace", tar_bomb()),
                    (200, 204, 400, 403, 409, 422), "a hostile tar")
        self.expect(self.client.post(at + "/exec", {"sh": dice.choice(PROGRAMS[:6]), "wait": True,
                                                    "limits": {"wall_ms": 400}}),
                    (200, 429), "an execution")
        self.client.delete(at)

    def act(self, dice):
        dice.choice([self.run, self.run, self.pry, self.pry, self.guess, self.dawdle,
                     self.upload])(dice)


def tenant(pair, name, **quota):
    made = pair.client.post("/v1/users", {"name": name, "quota": quota})
    check.equal(made.status, 201, "a new user")
    token = pair.client.post("/v1/tokens", {"user": name})
    check.equal(token.status, 201, "a new token")
    return Client(pair.port, token.json()["token"], context=pair.context)


def p99(times):
    return sorted(times)[len(times) * 99 // 100]


def works(client, times):
    """One run of the tenant who does normal work: its output is its own."""
    word = nonce()
    watch = check.Stopwatch()
    check.equal(check.ok(client.run(sh="echo " + word))["steps"][0]["stdout"], word + "\n",
                "the other's output")
    times.append(watch.seconds())
    time.sleep(PAUSE)


class Worker:
    """N, in a process of his own: what M's side of this test does must not look like the server's."""

    def __init__(self, client):
        (self.orders, orders), (said, self.said) = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.close(orders)
                os.close(said)
                self.serve(client)
                code = 0
            finally:
                os._exit(code)
        os.close(self.orders)
        os.close(self.said)
        self.orders, self.said = os.fdopen(orders, "w"), os.fdopen(said)

    def serve(self, client):
        with os.fdopen(self.orders) as orders, os.fdopen(self.said, "w") as said:
            for seconds in orders:
                end, times, wrong = time.monotonic() + float(seconds), [], None
                try:
                    while time.monotonic() < end:
                        works(client, times)
                except Exception as problem:
                    wrong = "%s: %s" % (type(problem).__name__, problem)
                print(json.dumps([times, wrong]), file=said, flush=True)

    def works(self, seconds):
        """-> how long each of his runs took."""
        print(seconds, file=self.orders, flush=True)
        times, wrong = json.loads(self.said.readline())
        check.equal(wrong, None, "what the other met")
        return times

    def close(self):
        self.orders.close()
        self.said.close()
        os.waitpid(self.pid, 0)


# What such a kernel costs in the worst of a hundred.
TURN = 0.05
# N works, and does not see how often he can: else he waits for jails that are made for him alone.
PAUSE = 0.02


class Waits:
    """How long N's runs take, alone and beside somebody."""

    def __init__(self):
        self.alone, self.honest, self.hostile = [], [], []

    def slow(self):
        return p99(self.hostile) > 2 * max(p99(self.alone), p99(self.honest)) + TURN

    def __str__(self):
        return ", ".join("%.1f ms of %d %s" % (1000 * p99(times), len(times), name)
                         for name, times in (("alone", self.alone), ("beside one who computes",
                                             self.honest), ("beside him", self.hostile)))


def takes_turns(honest, hostile, n):
    """Goes on for a while when M seems to be in the way: if it was something else, that comes to all,
    and if it was he, it stays so."""
    waits, began = Waits(), time.monotonic()
    while True:
        for who, times, seconds in ((None, waits.alone, 0.6), (honest, waits.honest, 1.2),
                                    (hostile, waits.hostile, 1.5)):
            if who is not None:
                who.go.set()
            times += n.works(seconds)
            if who is not None:
                who.rests()
        spent = time.monotonic() - began
        enough = min(len(waits.honest), len(waits.hostile)) >= 30
        if spent >= 3 * SECONDS or (spent >= SECONDS and enough and not waits.slow()):
            return waits


@test("a hostile tenant stays for the day: the other loses nothing, and nothing of him is left",
      case="D10", alone=True, deadline=60 + 4 * int(SECONDS))
def _(_):
    with harness.Pair(environment=canary.environment(), warm=WARM) as pair:
        pair.warm_up()
        m = tenant(pair, "mallory", **QUOTA)
        n = tenant(pair, "nora")
        theirs = {"run": check.ok(n.run(sh="echo " + canary.SECRET))["id"],
                  "box": n.post("/v1/sandboxes", {}).json()["id"]}
        written = n.request("PUT", "/v1/sandboxes/%s/files/workspace/secret" % theirs["box"],
                            canary.SECRET.encode())
        check.true(written.status < 300, "writing in the sandbox: %d" % written.status)
        worker, hal = Worker(n), tenant(pair, "hal", **QUOTA)
        honest, hostile = Honest(hal).comes(), Hostile(pair, m, theirs).comes()
        try:
            waits = takes_turns(honest, hostile, worker)
        finally:
            honest.leaves()
            hostile.leaves()
            worker.close()
        check.equal(honest.wrong + hostile.wrong, [], "what should not have been answered")
        check.true(len(waits.hostile) >= SECONDS / 3, "the other had only %d runs beside him" %
                   len(waits.hostile))
        print("# p99 of the other's runs: %s" % waits, flush=True)
        check.true(not waits.slow(), "p99 of the other's runs: %s", waits)
        check.equal(canary.problems(), [], "canaries")
        check.equal(n.get("/v1/sandboxes/%s/files/workspace/secret" % theirs["box"]).body,
                    canary.SECRET.encode(), "the other's file")
        box.delete_all(n)
        check.equal(pair.client.delete("/v1/users/mallory").status, 204, "deleting him")
        shown = subprocess.run(
            [harness.program("pinfold-server"), "audit", "show", "--state", pair.state],
            capture_output=True, text=True, timeout=20)
        check.equal(shown.returncode, 0, "audit show: " + shown.stderr[-300:])
        check.true("mallory" in shown.stdout and "denied" in shown.stdout, "the audit is silent")
        for secret in (canary.SECRET, m.token, n.token, pair.token):
            check.true(secret not in shown.stdout, "a secret is in the audit log")
            check.true(secret.encode() not in pair.log_bytes(), "a secret is in a log")
        verified = subprocess.run(
            [harness.program("pinfold-server"), "audit", "verify", "--state", pair.state],
            capture_output=True, text=True, timeout=20)
        check.equal(verified.returncode, 0, "audit verify: " + verified.stdout[-300:])
        for one in (m, n, honest.client):
            one.close()
        pair.check_clean(5)

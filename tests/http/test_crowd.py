"""D3: very many clients at once, asked from processes of their own."""

import json
import os
import random
import threading
import time

import check
import harness
from apart import Apart
from client import Stream, nonce
from probe import Probe, percentile
from suite import test

# PINFOLD_TEST_DAYS=minutes makes the shortened days as long as that.
MINUTES = float(os.environ.get("PINFOLD_TEST_DAYS", "0"))
CLIENTS, PROCESSES, USERS, SLOTS = 500, 2, 10, 4
MIB = 1 << 20
BIG = ("x" * 127 + "\n") * (5 * 8192)  # 5 MiB
C = '#include <stdio.h>\nint main(void){puts("%s");return 0;}\n'
LONG = {"wall_ms": 600000, "cpu_ms": 60000}  # however busy the machine is


def job(word, die):
    """-> what is asked for, and what it must say: 70 % tiny, 10 % compile, 10 % sleep, 5 % upload,
    5 % a stream."""
    if die < 0.7:
        return {"argv": ["echo", word]}, word
    if die < 0.8:
        files = [{"path": "m.c", "content": C % word}]
        return {"files": files, "sh": "cc -o m m.c && ./m", "limits": LONG}, word
    if die < 0.9:
        return {"sh": "sleep 2; echo " + word, "limits": LONG}, word
    if die < 0.95:
        files = [{"path": "big", "content": BIG}, {"path": "w", "content": word}]
        return {"files": files, "sh": "wc -c <big; cat w", "limits": LONG}, "%d\n%s" % (len(BIG), word)
    return {"sh": "echo one; sleep 0.1; echo " + word, "stream": True}, "one\n" + word


class Crowd:
    """Clients of one process: what each user got, how long runs waited for their start."""

    def __init__(self, clients, first, count):
        self.clients, self.first, self.count = clients, first, count
        self.done, self.starts, self.wrong = [0] * len(clients), [], []
        self.refused, self.over = 0, False

    def ask(self, client, body, want):
        """-> how long its start took in ms, or None when it was told to come again."""
        if body.get("stream"):
            stream = Stream(client, "POST", "/v1/runs", json.dumps(body).encode())
            if stream.status == 200:
                said = "".join(event.get("data", "") for event in stream.all())
                check.equal(said.strip(), want, "the stream's output")
                return 0
            status, again = stream.status, stream.response.getheader("Retry-After", "")
            stream.close()
        else:
            answer = client.post("/v1/runs", body)
            if answer.status == 200:
                run = answer.json()
                check.equal(run["steps"][0]["stdout"].strip(), want, "the output")
                return run["timing"]["queue_ms"] + run["timing"]["setup_ms"]
            status, again = answer.status, answer.headers.get("retry-after", "")
        check.member(status, (429, 503), "status")
        check.matches(again, r"^\d+$", "Retry-After")
        return None

    def client(self, index):
        user, dice = index % len(self.clients), random.Random(index)
        while not self.over:
            word = nonce()
            try:
                start = self.ask(self.clients[user], *job(word, dice.random()))
            except BaseException as problem:
                if not self.over:
                    self.wrong.append("%s: %s" % (type(problem).__name__, str(problem)[:300]))
                return
            if start is None:
                self.refused += 1
                time.sleep(0.3)
            elif not self.over:
                self.done[user] += 1
                self.starts.append(start)

    def __call__(self, over):
        os.nice(5)  # they only wait: the machine is the server's and the jails'
        threading.stack_size(256 * 1024)
        for index in range(self.first, self.first + self.count):
            threading.Thread(target=self.client, args=(index,), daemon=True).start()
        while not over(60):
            pass
        self.over = True
        return [self.done, self.starts, self.wrong[:5], self.refused]


def measure(pair, seconds):
    """-> descriptors and resident bytes of the server while the crowd is there."""
    fds, memory, end = [], [], time.monotonic() + seconds
    while time.monotonic() < end:
        fds.append(len(os.listdir("/proc/%d/fd" % pair.server_pid)))
        memory.append(pair.memory())
        time.sleep(0.25)
    return fds, memory


def cancel_all(client):
    """Takes back what clients left waiting that went away: of 500, four are served at a time."""
    while True:
        listed = client.get("/v1/runs?limit=200").json()["runs"]
        open_ones = [run["id"] for run in listed if run["state"] != "done"]
        for run in open_ones:
            check.equal(client.delete("/v1/runs/" + run).status, 200, "cancelling")
        if not open_ones:
            return

@test("D3: 500 clients at once: each job has its own result, users get the same, healthz answers",
      case="D3", own=True, alone=True, deadline=60 + 60 * MINUTES)
def _(_):
    seconds = max(10.0, 60 * MINUTES)
    with harness.Pair(slots=SLOTS, warm=SLOTS) as pair:
        pair.warm_up()
        users = [pair.user_client("c%d" % i) for i in range(USERS)]
        each = CLIENTS // PROCESSES
        probe = Probe(pair.user_client("probe"), pair.server_pid)
        crowds = [Apart(Crowd(users, i * each, each)) for i in range(PROCESSES)]
        fds, memory = measure(pair, seconds)
        results = [crowd.end() for crowd in crowds]
        probe.end()
        done = [sum(one) for one in zip(*(result[0] for result in results))]
        starts = [start for result in results for start in result[1]]
        check.equal([wrong for result in results for wrong in result[2]], [], "what went wrong")
        print("# D3: %d runs, %d told to come again, p99 of the start %d ms, %d descriptors, "
              "%d MiB; %s" % (sum(done), sum(result[3] for result in results), percentile(starts, 0.99),
                              max(fds), max(memory) // MIB, probe.said()))
        check.true(min(done) > 0 and max(done) / min(done) < 2, "unequal shares: %s", done)
        # A connection each, those of the probe and of the test, and what runs and programs need.
        check.within(CLIENTS, max(fds), CLIENTS + 100, "descriptors of the server")
        probe.below(0.95, 0.1, 200)
        check.true(max(probe.own) < 0.1, "held up: %s", probe.said())
        third = memory[len(memory) // 3:]
        check.true(max(third[len(third) // 2:]) < 1.2 * max(third[:len(third) // 2]) + 32 * MIB,
                   "memory grows: %s", [one // MIB for one in memory])
        for user in users:
            cancel_all(user)
            user.close()
        # What clients had sent before they went away may still be taken up, and runs then.
        pair.check_clean(20)

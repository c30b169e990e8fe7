"""kill -9 of the server, now and then of the runner, or of both, at random moments under load: nothing
that somebody was told of is lost or doubled, and nothing is left over.

Here it is done a few times; `make kills N=100` does it as often as wanted."""

import http.client
import json
import os
import random
import threading
import time

import check
import harness
import ledger
from box import SANDBOXES, rows
from client import nonce
from suite import test

KILLS = int(os.environ.get("PINFOLD_TEST_KILLS", "10"))
SEED = int(os.environ.get("PINFOLD_TEST_SEED", "4"))
# Of a runner that was started again, only what belongs to runs and sandboxes can be compared.
NEW_PAIR = ("threads of the server", "descriptors of the server", "processes", "network",
            "descriptors", "threads", "cgroup")


def ask(pair, method, path, body=None, headers=None):
    """With a connection of its own: (status, bytes), or None when it broke."""
    connection = http.client.HTTPConnection("127.0.0.1", pair.port, timeout=20)
    try:
        connection.request(method, path, body if body is None else json.dumps(body), dict(
            {"Authorization": "Bearer " + pair.token, "Content-Type": "application/json"},
            **(headers or {})))
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


class Load:
    """What was asked for, and what was told."""

    def __init__(self, pair):
        self.pair = pair
        self.lock = threading.Lock()
        self.stop = threading.Event()
        self.life = 0  # of the runner; odd while one is being killed
        self.told = {}  # id of a run -> what it says
        self.answered = {}  # id -> the whole answer
        self.keys = {}  # Idempotency-Key -> id
        self.boxes = {}  # id -> Kept
        self.snapshots = {}  # id -> life of the runner

    def runs(self):
        mark = nonce()
        answer = ask(self.pair, "POST", "/v1/runs", {"sh": "echo " + mark, "wait": False})
        if answer and answer[0] == 202:
            self.told[json.loads(answer[1])["id"]] = mark

    def waits(self):
        answer = ask(self.pair, "POST", "/v1/runs", {"sh": "echo %s; sleep 0.02" % nonce()})
        if answer and answer[0] == 200:
            body = json.loads(answer[1])
            self.answered[body["id"]] = body

    def repeats(self):
        """The same request until it is answered, and once more."""
        key, mark, ids = nonce(), nonce(), set()
        for _ in range(2):
            answer = None
            while not self.stop.is_set() and (answer is None or answer[0] != 202):
                answer = ask(self.pair, "POST", "/v1/runs", {"sh": "echo " + mark, "wait": False},
                             {"Idempotency-Key": key})
                if answer is None:
                    time.sleep(0.01)
            if answer and answer[0] == 202:
                ids.add(json.loads(answer[1])["id"])
        check.true(len(ids) < 2, "one key became %s" % ids)
        for one in ids:
            self.told[one] = mark

    def sandboxes(self):
        """One is made, written to, perhaps kept as a snapshot, and every second one is deleted."""
        life = self.life
        answer = ask(self.pair, "POST", SANDBOXES, {"ttl_ms": 3600000})
        if not answer or answer[0] != 201:
            return
        # Made by which runner? Not known when one was killed meanwhile.
        sure = life == self.life and life % 2 == 0
        box = Kept(json.loads(answer[1])["id"], life if sure else None)
        self.boxes[box.id] = box
        for _ in range(3):
            mark = nonce()
            box.sent.append(mark)
            answer = ask(self.pair, "POST", box.path + "/exec",
                         {"sh": "echo %s >> log; echo %s" % (mark, mark)})
            if answer and answer[0] == 200:
                body = json.loads(answer[1])
                if body["ok"]:
                    check.equal(body["stdout"], mark + "\n", "output of an execution")
                    box.done.append(mark)
                    box.answers[body["id"]] = body
        life = self.life
        answer = ask(self.pair, "POST", box.path + "/snapshots", {"name": box.id})
        if answer and answer[0] == 201:
            sure = life == self.life and life % 2 == 0
            self.snapshots[json.loads(answer[1])["id"]] = life if sure else None
        with self.lock:
            keep = sum(one.life == self.life and not one.deleted for one in self.boxes.values()) <= 8
        if not keep or random.random() < 0.5:
            box.asked = True
            answer = ask(self.pair, "DELETE", box.path)
            box.deleted = bool(answer) and answer[0] == 204

    def work(self, step):
        while not self.stop.is_set():
            try:
                step()
            except ValueError:
                pass  # half an answer
            time.sleep(0.005)


class Kept:
    def __init__(self, name, life):
        self.id = name
        self.path = SANDBOXES + "/" + name
        self.life = life
        self.sent, self.done, self.answers = [], [], {}
        self.asked = self.deleted = False


def kill(pair, load, who):
    pair.client.close()
    if who != "server":
        load.life += 1
        pair.kill9_runner()
    if who != "runner":
        pair.kill9_server()
    if who != "server":
        pair.start_runner()
    if who != "runner":
        pair.start_server()
    pair.wait_ready(20)
    if who != "server":
        load.life += 1


def judge_runs(pair, load):
    listed, after = [], ""
    while True:
        page = pair.client.get("/v1/runs?limit=1000&after=" + after).json()
        listed += [one["id"] for one in page["runs"]]
        if page["next"] is None:
            break
        after = page["next"]
    check.equal(len(listed), len(set(listed)), "ids in the list")
    check.equal(listed, sorted(listed, reverse=True), "the order of the list")
    listed, finished = set(listed), 0
    for run, mark in load.told.items():
        check.true(run in listed, "%s is lost" % run)
        answer = pair.client.wait_done(run, 20)
        cause = answer["steps"][0]["end"]["cause"]
        check.true(cause in ("exit", "interrupted"), "%s ended by %s" % (run, cause))
        if cause == "exit":
            finished += 1
            check.equal(answer["steps"][0]["stdout"], mark + "\n", "the output")
    for run, answer in load.answered.items():
        check.equal(pair.client.fetch(run), answer, "an answer that was given")
    check.true(finished > 0, "nothing was finished")


def judge_box(pair, load, box):
    status = pair.client.get(box.path + "/exec").status
    if box.deleted:
        check.member(status, (404, 410), "%s was deleted" % box.id)
        return 0
    if box.life not in (None, load.life):
        check.member(status, (404, 410), "the runner of %s was killed" % box.id)
        return 0
    if (box.asked or box.life is None) and status == 410:
        return 0  # the answer to the DELETE was lost, or it went with its runner
    check.equal(status, 200, "status of %s, which was told of" % box.id)
    for ex, answer in box.answers.items():
        check.equal(pair.client.get("%s/exec/%s" % (box.path, ex)).json(), answer, "an execution")
    answer = pair.client.post(box.path + "/exec", {"sh": "cat log 2>/dev/null; true"}).json()
    there = answer["stdout"].split()
    check.equal([one for one in box.done if there.count(one) != 1], [], "lines that are lost")
    check.equal([one for one in there if one not in box.sent], [], "lines of nobody")
    return 1


def judge_snapshots(pair, load):
    there = {one["id"] for one in pair.client.get("/v1/snapshots").json()["snapshots"]}
    for snapshot, life in load.snapshots.items():
        if life == load.life:
            check.true(snapshot in there, "%s is lost" % snapshot)
        elif life is not None:
            check.true(snapshot not in there, "%s went with its runner" % snapshot)


@test("kill -9 at random moments under load: nothing that was told of is lost or doubled, and "
      "nothing is left over", case="D1, D4, D10, 154", own=True, deadline=60 + (5 if KILLS <= 10 else 20) * KILLS)
def _(_):
    print("# %d times, seed %d" % (KILLS, SEED), flush=True)
    moments = random.Random(SEED)
    with harness.Pair(slots=8, warm=2) as pair:
        pair.warm_up()
        load = Load(pair)
        steps = (load.runs, load.waits, load.runs, load.waits, load.repeats, load.sandboxes,
                 load.sandboxes)
        threads = [threading.Thread(target=load.work, args=(one,)) for one in steps]
        for one in threads:
            one.start()
        try:
            for turn in range(KILLS):
                time.sleep(moments.uniform(0.02, 0.5))
                who = {3: "runner", 6: "both"}.get(turn % 10, "server")
                kill(pair, load, who)
                if turn % 10 == 9:
                    print("# %d kills, %d runs told of" % (turn + 1, len(load.told)), flush=True)
            # Each of the two who make sandboxes deletes at most the one that he has just made.
            check.eventually(lambda: sum(one.life == load.life and not one.asked
                                         for one in list(load.boxes.values())) > 2,
                             15, "sandboxes after the last kill", 0.05)
        finally:
            load.stop.set()
            for one in threads:
                one.join(30)
        check.true(len(load.told) > KILLS, "only %d runs were told of" % len(load.told))
        judge_runs(pair, load)
        alive = sum(judge_box(pair, load, one) for one in load.boxes.values())
        check.true(alive > 0, "no sandbox was left to look at")
        judge_snapshots(pair, load)
        print("# %d runs, %d sandboxes, %d of them there at the end"
              % (len(load.told) + len(load.answered), len(load.boxes), alive), flush=True)
        for one in rows(pair.client.get(SANDBOXES).json()):
            pair.client.delete(SANDBOXES + "/" + one["id"])
        for one in pair.client.get("/v1/snapshots").json()["snapshots"]:
            pair.client.delete("/v1/snapshots/" + one["id"])
        code, text = ledger.tool("audit", "verify", state=pair.state)
        check.equal(code, 0, "exit code of audit verify (%s)" % text)
        pair.check_clean(5, NEW_PAIR)

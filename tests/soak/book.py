"""The book of a soak: every run that a client asked for, what came of it, and whether that agrees
with what the server knows. A request carries an Idempotency-Key of its own and is sent again until
there is an answer, so that at the end each key is one run and each run has one key."""

import http.client
import json
import time

from client import nonce

LOST = (OSError, http.client.HTTPException)
BUSY = (429, 503)


class Stop(Exception):
    """The soak ends before there was an answer."""


class Book:
    """One process's part: a line of JSON for each run and each thing that went wrong."""

    def __init__(self, path):
        # Without a buffer: threads share it, and a line is one system call.
        self.out = open(path, "ab", buffering=0)

    def write(self, **entry):
        self.out.write(json.dumps(entry).encode() + b"\n")

    def close(self):
        self.out.close()


def read(paths):
    found = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            found += [json.loads(line) for line in file]
    return found


class Asker:
    """Asks for runs in the name of one user and writes down what came."""

    def __init__(self, client, user, book, deadline):
        self.client, self.user, self.book, self.deadline = client, user, book, deadline

    def send(self, body, key):
        """-> Answer to be believed: not of a server that is busy or away."""
        while True:
            if time.time() > self.deadline():
                raise Stop(key)
            try:
                answer = self.client.post("/v1/runs", body, headers={"Idempotency-Key": key})
            except LOST:
                time.sleep(0.2)
                continue
            if answer.status not in BUSY:
                return answer
            if "retry-after" not in answer.headers:
                self.book.write(kind="problem", what="%d without Retry-After" % answer.status)
            time.sleep(0.3)

    def run(self, day, name, body, want=None):
        """One run to its end -> its object, or None. `want`: what its stdout must hold."""
        key, begun = nonce(), time.time()
        try:
            if isinstance(body, dict) and body.get("stream"):
                got = self.stream(body, key)
            else:
                answer = self.send(body, key)
                if answer.status != 200:
                    self.book.write(kind="problem", what="%s %s: status %d: %s" % (
                        day, name, answer.status, answer.body[:200].decode("utf-8", "replace")))
                    return None
                got = answer.json()
        except Stop:
            self.book.write(kind="problem", what="%s %s: no answer in time" % (day, name))
            return None
        self.note(day, name, got, want, begun)
        return got

    def note(self, day, name, got, want, begun):
        step = got["steps"][-1]
        cause = (step.get("end") or {}).get("cause")
        text = step.get("stdout", "")
        right = got["state"] == "done" and (
            cause == "interrupted" or want is None or want in text)
        timing = got.get("timing") or {}
        self.book.write(kind="run", day=day, name=name, user=self.user, id=got["id"], cause=cause,
                        code=step["end"].get("exit_code") if step.get("end") else None,
                        right=right, begun=begun, ended=time.time(), want=want,
                        queue_ms=timing.get("queue_ms"), setup_ms=timing.get("setup_ms"),
                        cpu_ms=sum((step.get("usage") or {}).get(k) or 0
                                   for k in ("cpu_user_ms", "cpu_system_ms")))
        if not right:
            self.book.write(kind="problem", what="%s %s: %s: %s, %r instead of %r" % (
                day, name, got["id"], cause, text[:80], want))

    def stream(self, body, key):
        """Reads it live; when the connection breaks, asks again with the same key."""
        while True:
            if time.time() > self.deadline():
                raise Stop(key)
            try:
                run_id = self.follow(body, key)
            except LOST + (ValueError,):
                run_id = None
            if run_id:
                got = self.fetch(run_id)
                if got["state"] == "done":
                    return got
            time.sleep(0.2)

    def follow(self, body, key):
        """-> the id of the run once it is over."""
        one = self.client.connection()
        try:
            data = json.dumps(body)
            one.request("POST", "/v1/runs", data,
                        self.client.headers({"Idempotency-Key": key}, b"x"))
            answer = one.getresponse()
            if answer.status != 200:
                answer.read()
                return None
            run_id, last = None, {}
            while last.get("type") != "done":
                line = answer.readline()
                if not line:
                    break
                last = json.loads(line)
                run_id = last.get("id", run_id)
            return run_id
        finally:
            one.close()

    def fetch(self, run_id):
        while True:
            try:
                answer = self.client.get("/v1/runs/" + run_id)
                if answer.status == 200:
                    return answer.json()
                if answer.status not in BUSY:
                    self.book.write(kind="problem", what="%s: status %d" % (run_id, answer.status))
                    raise Stop(run_id)
            except LOST:
                pass
            if time.time() > self.deadline():
                raise Stop(run_id)
            time.sleep(0.2)


def listed(client):
    """-> {id: state} of all runs of a user, page by page."""
    found, after = {}, None
    while True:
        page = client.get("/v1/runs?limit=1000" + ("&after=" + after if after else "")).json()
        for one in page["runs"]:
            if one["id"] in found:
                raise AssertionError("%s is listed twice" % one["id"])
            found[one["id"]] = one["state"]
        after = page["next"]
        if after is None:
            return found


def account(entries, clients):
    """Compares the book with the server -> {what: count}, [sentence]."""
    runs = [e for e in entries if e["kind"] == "run"]
    wrong = [e["what"] for e in entries if e["kind"] == "problem"]
    known = {}
    for entry in runs:
        if entry["id"] in known:
            wrong.append("%s is the answer to two requests" % entry["id"])
        known[entry["id"]] = entry
    lost = more = 0
    for user, client in clients.items():
        mine = {e["id"] for e in runs if e["user"] == user}
        seen = listed(client)
        for one in mine - set(seen):
            lost += 1
            wrong.append("%s of %s is lost" % (one, user))
        for one in set(seen) - mine:
            more += 1
            wrong.append("%s of %s is %s, and nobody asked for it" % (one, user, seen[one]))
        wrong += ["%s is %s for ever" % (k, v) for k, v in seen.items() if v != "done"]
    counts = {"accepted": len(known), "interrupted": sum(r["cause"] == "interrupted" for r in runs),
              "lost": lost, "made twice": more, "wrong answers": sum(not r["right"] for r in runs)}
    return counts, wrong


def beyond(entries, kills, slack=1.0):
    """Runs that ended as interrupted without a kill while they were there."""
    return [e for e in entries if e["kind"] == "run" and e["cause"] == "interrupted" and not any(
        e["begun"] - slack <= at and begun <= e["ended"] + slack for begun, at, _ in kills)]

"""Results in memory (--keep-results memory): what runs were given and put out never comes to the
disk, everything else is as usual, and what an earlier server has stored is left alone."""

import os
import signal
import subprocess

import check
import harness
from client import nonce
from suite import test

MEMORY = ["--keep-results", "memory"]


def holds(directory, word):
    """Does any file below have it?"""
    done = subprocess.run(["grep", "-rqa", word, directory], check=False)
    return done.returncode == 0


@test("results in memory: runs, lists, events and receipts are as usual, and nothing of them is on disk", own=True)
def _(_):
    with harness.Pair(slots=4, warm=2, server_args=MEMORY) as pair:
        word, secret = nonce(), nonce()
        body = {"sh": "cat; echo %s$((1+1))" % word, "stdin": secret}
        one = check.ok(pair.client.run(**body))
        check.equal(one["steps"][0]["stdout"], secret + word + "2\n", "its output")
        check.true("signature" in one["receipt"], "a receipt")
        check.equal(pair.client.fetch(one["id"])["steps"], one["steps"], "the same run, later")
        listed = [run["id"] for run in pair.client.get("/v1/runs").json()["runs"]]
        check.equal(listed, [one["id"]], "the list")
        large = check.ok(pair.client.run(sh="cat >/dev/null; yes %s3 | head -c 900000" % word, stdin=secret * 9000))
        later = pair.client.submit(**body)
        pair.client.wait_state(later, ("done",))
        for run in (one["id"], later, large["id"]):
            path = "/v1/runs/%s/output/0/stdout" % run
            check.equal(pair.client.get("/v1/runs/" + run).status, 200, path)
        state = os.path.join(pair.state, "server")
        for what in (secret, word + "2", word + "3"):
            check.true(not holds(state, what), "%s is on the disk" % what)
        check.true(holds(os.path.join(state, "audit"), one["id"]), "the audit log has it")
        check.error(pair.client.post("/v1/runs/%s/replay" % one["id"], {}), 410, "inputs_gone")


@test("results in memory: a run with an Idempotency-Key is refused, a sandbox with one is not", own=True)
def _(_):
    with harness.Pair(slots=4, warm=2, server_args=MEMORY) as pair:
        key = {"Idempotency-Key": nonce()}
        answer = pair.client.request("POST", "/v1/runs", {"argv": ["true"]}, headers=key)
        check.error(answer, 422, "results_in_memory")
        box = {"Idempotency-Key": nonce()}
        first = pair.client.request("POST", "/v1/sandboxes", {}, headers=box)
        again = pair.client.request("POST", "/v1/sandboxes", {}, headers=box)
        check.equal((first.status, again.json()["id"]), (201, first.json()["id"]), "the same sandbox")


@test("results in memory: what was stored before is there again for a server that stores", own=True)
def _(_):
    with harness.Pair(slots=4, warm=2) as pair:
        stored = check.ok(pair.client.run(sh="echo stored"))
        pair.end(pair.server, signal.SIGTERM, pid=pair.server_pid)
        pair.server_args = MEMORY
        pair.client.close()
        pair.start_server()
        pair.wait_ready()
        check.error(pair.client.get("/v1/runs/" + stored["id"]), 404, "not_found")
        lost = check.ok(pair.client.run(sh="echo lost"))
        pair.end(pair.server, signal.SIGTERM, pid=pair.server_pid)
        pair.server_args = []
        pair.client.close()
        pair.start_server()
        pair.wait_ready()
        check.equal(pair.client.fetch(stored["id"])["steps"], stored["steps"], "what was stored")
        check.error(pair.client.get("/v1/runs/" + lost["id"]), 404, "not_found")

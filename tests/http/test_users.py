"""Users and tokens: who may do what, what a child token may do, and how soon all of that ends."""

import http.client
import os
import signal
import subprocess
import time

import check
import clean
import harness
from client import Client, nonce, parallel
from suite import test


def command(pair, *words, fails=False):
    """pinfold-server …, as root, beside the server that runs -> its standard output."""
    if not getattr(pair, "commanded", False):
        pair.commanded = True
        command(pair, "user", "add", "first")
        pair.rest()  # the audit log has a part for commands now
    done = subprocess.run(
        [harness.program("pinfold-server"), *words, "--state", pair.state],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=20,
    )
    if (done.returncode != 0) != fails:
        check.fail("pinfold-server %s: %d %s", words, done.returncode, done.stderr)
    return done.stderr if fails else done.stdout


def new_user(pair, **more):
    """-> (name, Client) of a fresh user with a token."""
    name = "u" + nonce()
    answer = pair.client.post("/v1/users", {"name": name})
    check.equal(answer.status, 201, "POST /v1/users")
    return name, new_token(pair, name, **more)


def new_token(pair, name, **more):
    answer = pair.client.post("/v1/tokens", dict(user=name, **more))
    check.equal(answer.status, 201, "POST /v1/tokens: %r" % answer.body)
    return client(pair, answer.json())


def client(pair, document):
    one = Client(pair.port, document["token"])
    one.id = document["id"]
    return one


def child(one, pair, **wish):
    answer = one.post("/v1/tokens/children", wish)
    check.equal(answer.status, 201, "POST /v1/tokens/children: %r" % answer.body)
    return client(pair, answer.json())


def within(seconds, what, function):
    """Waits until function() is true."""
    end = time.monotonic() + seconds
    while not function():
        if time.monotonic() > end:
            check.fail("not within %s s: %s", seconds, what)
        time.sleep(0.005)


def status(one, path="/v1/me"):
    return one.get(path).status


@test("a user and a token made on the command line work at once, and end at once", case=138)
def _(pair):
    name = "u" + nonce()
    command(pair, "user", "add", name)
    text = command(pair, "token", "new", name, "--label", "mine").splitlines()[-1]
    one = Client(pair.port, text)
    within(0.5, "the new token is known", lambda: status(one) == 200)
    check.equal(one.get("/v1/me").json()["user"], name, "user")
    check.equal(check.ok(one.run(argv=["true"]))["ok"], True, "ok")
    listed = [line for line in command(pair, "token", "list", name).splitlines() if "mine" in line]
    check.equal(len(listed), 1, "lines about the token")
    check.lacks(command(pair, "token", "list", "--json"), text, "the list")
    command(pair, "token", "revoke", listed[0].split()[0])
    within(0.5, "the token is refused", lambda: status(one) == 401)
    check.holds(command(pair, "user", "add", name, fails=True), "already", "second user add")
    check.holds(command(pair, "token", "new", "nobody-" + name, fails=True), "user add", "token new")


@test("a disabled user is refused, waits for nothing, and comes back")
def _(pair):
    name, one = new_user(pair)
    stream = one.stream(argv=["sleep", "30"])
    stream.next("started")
    running = one.submit(argv=["sleep", "30"])
    command(pair, "user", "disable", name)
    within(1, "the token is refused", lambda: status(one) == 401)
    start = time.monotonic()
    try:
        rest = list(stream)
    except (OSError, http.client.HTTPException):
        rest = []
    check.within(0, time.monotonic() - start, 1, "seconds until the stream broke off")
    check.true(not any(event["type"] == "done" for _, event in rest), "the stream went on")
    command(pair, "user", "enable", name)
    within(1, "the token is taken again", lambda: status(one) == 200)
    check.equal(one.fetch(running)["state"], "running", "state of what ran")
    box = one.post("/v1/sandboxes", {}).json()["id"]
    at = "/v1/sandboxes/" + box
    ex = one.post(at + "/exec", {"argv": ["sleep", "30"], "background": True}).json()["id"]
    command(pair, "user", "disable", name, "--cancel-running")
    within(1, "the token is refused", lambda: status(one) == 401)
    command(pair, "user", "enable", name)
    within(1, "the token is taken again", lambda: status(one) == 200)
    done = one.wait_done(running, 3)
    check.equal(done["steps"][0]["end"]["cause"], "cancelled", "cause")
    path = at + "/exec/" + ex
    check.eventually(lambda: one.get(path).json()["state"] == "done", 3, "the execution is over")
    check.equal(one.get(path).json()["end"]["cause"], "cancelled", "cause of the execution")
    one.delete(at)


@test("of a deleted user nothing goes on, and the name is never used again", case="D10")
def _(pair):
    name, one = new_user(pair)
    at = "/v1/sandboxes/" + one.post("/v1/sandboxes", {}).json()["id"]
    check.equal(one.post(at + "/exec", {"argv": ["sleep", "60"], "background": True}).status, 202, "exec")
    check.equal(one.post(at + "/snapshots", {}).status, 201, "snapshots")
    one.submit(argv=["sleep", "60"])
    # Nothing of all that is left: see the check after every test.
    check.equal(pair.client.delete("/v1/users/" + name).status, 204, "DELETE")
    check.equal(status(one), 401, "status")
    check.equal(status(pair.client, "/v1/users/" + name), 404, "GET of a deleted user")
    answer = pair.client.post("/v1/users", {"name": name})
    check.error(answer, 409, "name_used")
    check.holds(command(pair, "user", "add", name, fails=True), "deleted", "user add")


@test("revoking a parent ends its children's streams and waiting requests within a second", case=138)
def _(pair):
    name, one = new_user(pair)
    other = new_token(pair, name)
    inner = child(child(one, pair), pair)
    stream = inner.stream(argv=["sleep", "20"])
    stream.next("started")
    waiting = inner.connection(5)
    waiting.request("POST", "/v1/runs", '{"argv": ["sleep", "20"]}', inner.headers(None, b"{}"))
    check.eventually(lambda: len(other.get("/v1/runs").json()["runs"]) == 2, 2, "two runs")
    check.equal(pair.client.delete("/v1/tokens/" + one.id).status, 204, "DELETE")
    start = time.monotonic()
    try:
        events = [event["type"] for _, event in stream]
    except (OSError, http.client.HTTPException):
        events = []
    check.true("done" not in events, "the stream went on to its end: %r", events)
    try:
        check.fail("the waiting request was answered: %d", waiting.getresponse().status)
    except (OSError, http.client.HTTPException):
        pass
    check.within(0, time.monotonic() - start, 1, "seconds until both broke off")
    stream.close()
    waiting.close()
    for each in (one, inner):
        check.equal(status(each), 401, "status")
    for run in other.get("/v1/runs").json()["runs"]:
        other.delete("/v1/runs/" + run["id"])


@test("an upload of a token that is revoked breaks off and leaves nothing", case=138)
def _(pair):
    name, one = new_user(pair)
    other = new_token(pair, name)
    at = "/v1/sandboxes/" + other.post("/v1/sandboxes", {}).json()["id"]
    upload = one.connection(5)
    upload.putrequest("PUT", at + "/files/workspace/half")
    upload.putheader("Authorization", "Bearer " + one.token)
    upload.putheader("Content-Length", "1000000")
    upload.endheaders()
    upload.send(b"x" * 100000)
    check.eventually(lambda: status(other, at) == 200, 2, "the sandbox answers")
    check.equal(pair.client.delete("/v1/tokens/" + one.id).status, 204, "DELETE")
    start = time.monotonic()
    try:
        check.fail("the upload was answered: %d", upload.getresponse().status)
    except (OSError, http.client.HTTPException):
        pass
    check.within(0, time.monotonic() - start, 1, "seconds until it broke off")
    upload.close()
    check.equal(status(other, at + "/files/workspace/half"), 404, "GET of the file")
    check.equal(other.delete(at).status, 204, "DELETE")


@test("a revoked token's waiting runs are cancelled, and --cancel-running ends the others")
def _(pair):
    name, one = new_user(pair)
    other = new_token(pair, name)
    running = one.submit(argv=["sleep", "30"])
    one.wait_state(running, ("running",))
    waiting = [one.submit(argv=["sleep", "30"]) for _ in range(pair.slots + 2)]
    command(pair, "token", "revoke", one.id)
    within(1, "the token is refused", lambda: status(one) == 401)
    states = [other.fetch(each) for each in waiting]
    for each in states:
        if each["state"] == "done":
            check.equal(each["steps"][0]["end"]["cause"], "cancelled", "cause")
    check.true(any(each["state"] == "done" for each in states), "nothing that waited was cancelled")
    check.equal(other.fetch(running)["state"], "running", "state of what ran")
    command(pair, "token", "revoke", one.id, "--cancel-running")
    done = other.wait_done(running, 3)
    check.equal(done["steps"][0]["end"]["cause"], "cancelled", "cause")
    for each in waiting:
        other.wait_done(each, 3)


@test("an expired token is refused, and its stream ends")
def _(pair):
    _, one = new_user(pair)
    short = child(one, pair, ttl_ms=700)
    stream = short.stream(argv=["sleep", "10"])
    stream.next("started")
    start = time.monotonic()
    try:
        for _ in stream:
            pass
    except (OSError, http.client.HTTPException):
        pass
    check.within(0, time.monotonic() - start, 2, "seconds until the stream broke off")
    check.equal(status(short), 401, "status")
    check.equal(status(one), 200, "status of the parent")
    for run in one.get("/v1/runs").json()["runs"]:
        one.delete("/v1/runs/" + run["id"])


@test("scopes: a route says which is missing")
def _(pair):
    name, _ = new_user(pair)
    rows = (
        ("read", "GET", "/v1/runs", 200),
        ("read", "POST", "/v1/runs", "run"),
        ("read", "GET", "/v1/sandboxes", 200),
        ("run", "GET", "/v1/runs", 200),
        ("run", "GET", "/v1/sandboxes", "sandbox or read"),
        ("run", "POST", "/v1/sandboxes", "sandbox"),
        ("files", "GET", "/v1/runs", "run or read"),
        ("files", "GET", "/v1/blobs/" + "a" * 64, 404),
        ("sandbox", "PUT", "/v1/sandboxes/sb_" + "a" * 24 + "/files/x", "files"),
        ("metrics", "GET", "/metrics", 200),
        ("metrics", "GET", "/v1/users", "admin"),
        ("metrics", "GET", "/v1/me", 200),
        ("admin", "GET", "/metrics", 200),
        ("admin", "GET", "/v1/users", 200),
        ("admin", "POST", "/v1/runs", "run"),
    )
    tokens = {}
    for scope, method, path, wanted in rows:
        one = tokens.get(scope) or tokens.setdefault(scope, new_token(pair, name, scopes=[scope]))
        answer = one.request(method, path, {"argv": ["true"]} if method == "POST" else None)
        if isinstance(wanted, int):
            check.equal(answer.status, wanted, "%s: %s %s" % (scope, method, path))
        else:
            error = check.error(answer, 403, "scope")
            check.holds(error["message"], "scope %s." % wanted, "message")
    check.error(pair.client.post("/v1/tokens", {"user": name, "scopes": ["rum"]}), 400, "unknown_scope")


@test("a child token has less than its parent, never more")
def _(pair):
    name, _ = new_user(pair)
    soon = int(time.time() * 1000) + 600000
    one = new_token(
        pair,
        name,
        scopes=["run", "read"],
        policies=["default", "ci"],
        expires_at=soon,
        quota={"runs": 5},
        budget={"cpu_ms": 60000, "runs": 10, "until": soon},
    )
    rows = (
        ("/scopes", {"scopes": ["run", "files"]}),
        ("/policies", {"policies": ["default", "judge"]}),
        ("/expires_at", {"expires_at": soon + 1}),
        ("/expires_at", {"ttl_ms": 700000}),
        ("/quota/runs", {"quota": {"runs": 6}}),
        ("/budget/cpu_ms", {"budget": {"cpu_ms": 60001}}),
        ("/budget/runs", {"budget": {"runs": 11}}),
        ("/budget/until", {"budget": {"until": soon + 1}}),
    )
    for field, wish in rows:
        error = check.error(one.post("/v1/tokens/children", wish), 403, "wider_than_parent")
        check.equal(error["field"], field, "field of %r" % wish)
    made = one.post("/v1/tokens/children", {"policies": ["ci"]}).json()
    check.equal(made["scopes"], ["run", "read"], "scopes")
    check.equal(made["policies"], ["ci"], "policies")
    check.equal(made["expires_at"], soon, "expires_at")
    check.equal(made["budget"], {"cpu_ms": 60000, "runs": 10, "until": soon}, "budget")
    inner = client(pair, made)
    check.equal(inner.send(argv=["true"], policy="ci").status, 200, "an allowed policy")
    error = check.error(inner.send(argv=["true"]), 403, "policy_not_allowed")
    check.equal(error["field"], "/policy", "field")
    # Who sees which.
    check.equal([t["id"] for t in one.get("/v1/tokens").json()["tokens"]], [inner.id], "listed")
    check.equal(inner.get("/v1/tokens").json()["tokens"], [], "listed by the child")
    check.equal(inner.delete("/v1/tokens/" + one.id).status, 404, "DELETE of the parent")
    check.equal(one.delete("/v1/tokens/" + inner.id).status, 204, "DELETE of the child")
    check.equal(status(inner), 401, "status")


@test("child tokens go eight deep")
def _(pair):
    _, one = new_user(pair)
    for _ in range(8):
        one = child(one, pair)
    check.error(one.post("/v1/tokens/children", {}), 403, "too_deep")
    check.ok(one.run(argv=["true"]))


@test("an administrator's child token cannot make tokens that are not its children")
def _(pair):
    name, _ = new_user(pair)
    admin = child(pair.client, pair, scopes=["admin", "run"], budget={"runs": 1})
    check.error(admin.post("/v1/tokens", {"user": name}), 403, "child_token")
    check.equal(status(admin, "/v1/users"), 200, "status")
    # What is left open is inherited, but not these two.
    made = pair.client.post("/v1/tokens/children", {}).json()
    check.equal(made["scopes"], ["run", "sandbox", "files", "read"], "scopes")


@test("a budget of runs is spent by all above, and counts executions")
def _(pair):
    _, one = new_user(pair)
    outer = child(one, pair, budget={"runs": 3})
    inner = child(outer, pair, budget={"runs": 2})
    check.ok(inner.run(argv=["true"]))
    box = inner.post("/v1/sandboxes", {}).json()["id"]
    answer = inner.post("/v1/sandboxes/%s/exec" % box, {"argv": ["true"]})
    check.equal(answer.status, 200, "exec")
    error = check.error(inner.send(argv=["true"]), 429, "budget")
    check.holds(error["message"], "budget runs of this token", "message")
    error = check.error(
        inner.post("/v1/sandboxes/%s/exec" % box, {"argv": ["true"]}), 429, "budget"
    )
    check.equal(inner.get("/v1/sandboxes/" + box).status, 200, "reading goes on")
    check.ok(outer.run(argv=["true"]))
    check.error(outer.send(argv=["true"]), 429, "budget")
    last = child(outer, pair)
    error = check.error(last.send(argv=["true"]), 429, "budget")
    check.ok(one.run(argv=["true"]))
    spent = {t["id"]: t["spent"]["runs"] for t in one.get("/v1/tokens").json()["tokens"]}
    check.equal((spent[outer.id], spent[inner.id]), (3, 2), "spent")
    check.equal(one.delete("/v1/sandboxes/" + box).status, 204, "DELETE")


BUSY = "while :; do :; done"


@test("a budget of CPU time lowers the limit to what is left, and ends")
def _(pair):
    _, one = new_user(pair)
    inner = child(one, pair, budget={"cpu_ms": 300})
    done = inner.run(sh=BUSY)
    check.equal(done["steps"][0]["end"]["cause"], "cpu_time", "cause")
    check.equal(done["limits"]["cpu_ms"], {"value": 300, "from": "budget"}, "limit")
    error = check.error(inner.send(argv=["true"]), 429, "budget")
    check.holds(error["message"], "budget cpu_ms", "message")
    # Steps of one run share what there is.
    inner = child(one, pair, budget={"cpu_ms": 400})
    steps = [{"name": "a", "sh": BUSY, "limits": {"cpu_ms": 250}, "continue_on_error": True},
             {"name": "b", "sh": BUSY}]
    done = inner.run(steps=steps)
    check.equal(done["steps"][1]["end"]["cause"], "cpu_time", "cause")
    used = sum(s["usage"]["cpu_user_ms"] + s["usage"]["cpu_system_ms"] for s in done["steps"])
    check.within(300, used, 800, "CPU time of both")
    # Two at once cannot spend the same rest.
    inner = child(one, pair, budget={"cpu_ms": 5000})
    first = inner.submit(argv=["sleep", "5"], limits={"cpu_ms": 5000})
    error = check.error(inner.send(argv=["true"]), 429, "budget")
    check.holds(error["message"], "held by what runs", "message")
    inner.delete("/v1/runs/" + first)
    check.ok(inner.run(argv=["true"]))


@test("until: nothing new is started, reading goes on")
def _(pair):
    _, one = new_user(pair)
    inner = child(one, pair, budget={"until": int(time.time() * 1000) + 400})
    run = check.ok(inner.run(argv=["true"]))["id"]
    within(2, "nothing is started", lambda: inner.send(argv=["true"]).status == 429)
    error = check.error(inner.post("/v1/sandboxes", {}), 429, "budget")
    check.holds(error["message"], "budget until", "message")
    check.equal(inner.fetch(run)["state"], "done", "state")


@test("a token does not belong into a URL", case=138)
def _(pair):
    for method, path in (("DELETE", "/v1/tokens/"), ("GET", "/v1/runs/"), ("DELETE", "/v1/users/"),
                         ("PUT", "/v1/sandboxes/sb_1/files/workspace/x"), ("POST", "/v1/sandboxes/")):
        path += pair.token.replace("f_", "%66%5f") + ("/pause" if method == "POST" else "")
        check.error(pair.client.request(method, path), 400, "token_in_url")
    for query in ("token=x", "access_token=" + pair.token, "x=" + pair.token):
        answer = pair.client.get("/v1/runs?" + query)
        error = check.error(answer, 400, "token_in_url")
        check.lacks(answer.body.decode(), pair.token, "answer")
        check.holds(error["message"], "Authorization", "message")
        check.error(
            pair.client.get("/v1/runs?" + query, headers={"Authorization": None}),
            401,
            "unauthorized",
        )
    check.true(pair.token.encode() not in pair.log_bytes(), "the token is in a log")


@test("the token that asks does not get into a jail's environment", case=138)
def _(pair):
    bodies = (
        ("/env", {"argv": ["env"], "env": {"T": pair.token}}),
        ("/steps/0/env", {"steps": [{"argv": ["env"], "env": {"T": "x" + pair.token}}]}),
    )
    for field, body in bodies:
        error = check.error(pair.client.post("/v1/runs", body), 400, "token_in_env")
        check.equal(error["field"], field, "field")
    check.error(pair.client.post("/v1/sandboxes", {"env": {"T": pair.token}}), 400, "token_in_env")
    box = pair.client.post("/v1/sandboxes", {}).json()["id"]
    path = "/v1/sandboxes/" + box
    body = {"argv": ["env"], "env": {"T": pair.token}}
    check.error(pair.client.post(path + "/exec", body), 400, "token_in_env")
    # A child token is what an agent inside is given.
    inner = child(pair.client, pair, scopes=["run"])
    done = pair.client.run(argv=["sh", "-c", "echo $T"], env={"T": inner.token})
    check.holds(check.text(check.ok(done)), inner.token, "stdout")
    pair.client.delete(path)


@test("changes of users and tokens are still there after kill -9", own=True)
def _(_):
    with harness.Pair(slots=2, warm=1) as pair:
        name, one = new_user(pair)
        inner = child(one, pair, scopes=["run"], budget={"runs": 2})
        gone = child(one, pair)
        check.equal(one.delete("/v1/tokens/" + gone.id).status, 204, "DELETE")
        run = check.ok(inner.run(argv=["true"]))["id"]
        _, stranger = new_user(pair)
        check.equal(
            pair.client.request("PATCH", "/v1/users/" + name, {"weight": 7}).status, 200, "PATCH"
        )
        pair.kill9_server()
        pair.start_server()
        pair.wait_ready()
        check.equal(pair.client.get("/v1/users/" + name).json()["weight"], 7, "weight")
        check.equal(status(gone), 401, "status of the revoked one")
        # Also what comes from the database is its owner's alone.
        check.equal(inner.fetch(run)["state"], "done", "state")
        none = "run_" + "0" * (len(run) - 4)
        for path in ("", "/events", "/steps/0/stdout"):
            mine, other = (stranger.get("/v1/runs/%s%s" % (x, path)) for x in (run, none))
            check.equal((mine.status, mine.body), (other.status, other.body), "GET " + path)
            check.equal(mine.status, 404, "status of GET " + path)
        check.equal(stranger.get("/v1/runs").json()["runs"], [], "runs of the stranger")
        check.ok(inner.run(argv=["true"]))
        check.error(inner.send(argv=["true"]), 429, "budget")
        check.error(inner.post("/v1/sandboxes", {}), 403, "scope")


@test("a token that has only the scope metrics makes no child that can do more", case=138)
def _(pair):
    name = new_user(pair)[0]
    admin = pair.client.get("/v1/me").json()["user"]
    for owner in (name, admin):
        for scopes in (["metrics"], ["read"], ["run"], ["metrics", "admin"]):
            one = new_token(pair, owner, scopes=scopes)
            answer = one.post("/v1/tokens/children", {})
            check.equal(answer.status, 201, "POST of a child of %r" % scopes)
            check.equal(answer.json()["scopes"], [n for n in scopes if n != "admin"], "scopes")
        only = new_token(pair, owner, scopes=["admin"])
        check.error(only.post("/v1/tokens/children", {}), 400, "missing", "/scopes")
        inner = child(only, pair, scopes=["admin"])
        check.error(inner.post("/v1/tokens/children", {}), 400, "missing", "/scopes")


@test("a token's policies count for what is fed to a shell that runs already", case=138)
def _(pair):
    name, one = new_user(pair)
    at = "/v1/sandboxes/" + one.post("/v1/sandboxes", {"policy": "default"}).json()["id"]
    shell = {"argv": ["sh"], "background": True, "stdin_open": True}
    path = at + "/exec/" + one.post(at + "/exec", shell).json()["id"]
    narrow = new_token(pair, name, policies=["judge"])
    check.error(narrow.request("POST", path + "/stdin", b"echo narrow\n"), 403, "policy_not_allowed")
    late = child(one, pair, budget={"until": int(time.time() * 1000) + 30})
    time.sleep(0.05)
    check.error(late.request("POST", path + "/stdin", b"echo late\n"), 429, "budget")
    allowed = new_token(pair, name, policies=["default"])
    check.equal(allowed.request("POST", path + "/stdin?close=true", b"echo mine\n").status, 200, "stdin")
    check.eventually(lambda: one.get(path).json()["state"] == "done", 3, "the shell is over")
    check.equal(one.get(path + "/stdout").body, b"mine\n", "output")
    one.delete(at)


@test("what waits for the next server stays counted by its token's budget", own=True, deadline=30)
def _(_):
    with harness.Pair(slots=1, warm=1) as pair:
        _, one = new_user(pair)
        inner = child(one, pair, budget={"runs": 2})
        first = one.submit(argv=["sleep", "1"])
        one.wait_state(first, ("running",))
        rest = [inner.submit(argv=["true"]) for _ in range(2)]
        os.kill(pair.server_pid, signal.SIGTERM)
        check.equal(pair.server.wait(15), 0, "exit code of the server")
        pair.server = None
        pair.client.close()
        pair.start_server()
        pair.wait_ready()
        for run in rest:
            check.ok(inner.wait_done(run))
        check.error(inner.send(argv=["true"]), 429, "budget")


@test("of a user who was deleted while no server ran nothing is left", own=True, deadline=30)
def _(_):
    with harness.Pair(slots=4, warm=1) as pair:
        name, one = new_user(pair)
        box = one.post("/v1/sandboxes", {}).json()["id"]
        at = "/v1/sandboxes/" + box
        check.equal(one.post(at + "/exec", {"argv": ["sleep", "60"], "background": True}).status, 202,
                    "exec")
        check.equal(one.post(at + "/snapshots", {}).status, 201, "snapshots")
        command(pair, "user", "list")
        pair.kill9_server()
        command(pair, "user", "delete", name)
        pair.start_server()
        pair.wait_ready()
        none = b'\npinfold_sandboxes{state="ready"} 0\n'
        check.eventually(lambda: none in pair.client.get("/metrics").body, 5, "its sandbox ends")
        check.eventually(lambda: b"\npinfold_snapshots 0\n" in pair.client.get("/metrics").body, 5,
                         "its snapshot goes")
        check.eventually(lambda: not clean.marked(pair.client.mark), 5, "no program is left")


@test("forks that are asked for at once get no more sandboxes than the quota has", case=140)
def _(pair):
    name = "u" + nonce()
    check.equal(pair.client.post("/v1/users", {"name": name, "quota": {"sandboxes": 4}}).status, 201,
                "status")
    one = new_token(pair, name)
    path = "/v1/sandboxes/%s/fork" % one.post("/v1/sandboxes", {}).json()["id"]

    def fork(_):
        other = Client(pair.port, one.token)
        answer = other.post(path, {"count": 2})
        other.close()
        return answer

    answers = parallel(5, fork)
    made = [answer for answer in answers if answer.status == 201]
    check.equal(len(made), 1, "forks that were made")
    for answer in answers:
        if answer.status != 201:
            check.error(answer, 429, "quota")
    boxes = one.get("/v1/sandboxes").json()["sandboxes"]
    check.equal(len(boxes), 3, "sandboxes")
    for box in boxes:
        one.delete("/v1/sandboxes/" + box["id"])


@test("who holds as many connections as he gets leaves some to others", own=True, deadline=30)
def _(_):
    with harness.Pair(slots=4, warm=1, server_args=["--connections", "24"]) as pair:
        one, other = new_user(pair)[1], new_user(pair)[1]
        run = one.submit(argv=["sleep", "20"])
        held = []
        for _ in range(40):
            sock = one.socket()
            sock.sendall(("GET /v1/runs/%s/events?follow=true HTTP/1.1\r\nHost: x\r\n"
                          "Authorization: Bearer %s\r\n\r\n" % (run, one.token)).encode())
            held.append(sock)
            status = sock.recv(12)[9:]
            if status != b"200":
                break
        check.equal(status, b"429", "status of the first that is refused")
        check.within(8, len(held) - 1, 18, "streams that one user holds")
        check.equal(other.get("/v1/me").status, 200, "another user's request")
        check.ok(other.run(argv=["true"]))
        for sock in held:
            sock.close()
        check.eventually(lambda: one.get("/v1/me").status == 200, 3, "places are free again")
        one.delete("/v1/runs/" + run)


@test("whoever deletes a sandbox has used what ran in it", case=140)
def _(pair):
    name, one = new_user(pair)
    inner = child(one, pair, budget={"cpu_ms": 5000})
    path = "/v1/sandboxes/" + inner.post("/v1/sandboxes", {}).json()["id"]
    loop = {"sh": "while :; do :; done", "background": True}
    check.equal(inner.post(path + "/exec", loop).status, 202, "exec")
    time.sleep(0.4)
    check.equal(inner.delete(path).status, 204, "DELETE")
    me = inner.get("/v1/me").json()
    check.within(20, me["token"]["spent"]["cpu_ms"], 2000, "spent of the budget")
    check.within(20, one.get("/v1/me").json()["used"]["cpu_ms_per_day"], 2000, "used today")

"""Two users on one server: on every route, what is another's is what does not exist.

The routes come from GET /openapi.json, so a new one is tried as well; one with a parameter that is
not known here fails the test until somebody has thought about it."""

import hashlib
import json
import re

import check
from client import nonce, parallel
from suite import test
from test_users import child, new_user

METHODS = ("get", "put", "post", "delete", "patch")
# Of the server as a whole, the same for everybody.
COMMON = ("/v1/policies/{name}",)
# For administrators, who see everything; everybody else gets the same 403 with any name.
ADMIN = ("/v1/users/{name}", "/v1/users", "/metrics")


def unknown(value):
    """An id of the same form that nobody has."""
    prefix, underscore, rest = value.rpartition("_")
    return prefix + underscore + "1" * len(rest)


class Other:
    """A user with one of everything, and a word that nobody else may see."""

    def __init__(self, pair):
        self.name, self.client = new_user(pair)
        self.secret = "secret" + nonce()
        steps = [{"name": "a", "sh": "echo %s; echo 1 >f" % self.secret}, {"name": "b", "sh": "cat f"}]
        answer = self.client.send(steps=steps, keep_steps=True, env={"S": self.secret})
        self.run = answer.json()
        check.ok(self.run)
        self.trace = self.run["trace"]["id"]
        self.box = self.make("/v1/sandboxes", {"metadata": {"word": self.secret}}, 201)
        self.at = "/v1/sandboxes/" + self.box["id"]
        self.exec = self.make(self.at + "/exec", {"sh": "echo " + self.secret}, 200)
        self.content = self.secret.encode()
        self.sha = hashlib.sha256(self.content).hexdigest()
        self.sync(200)
        check.member(self.client.request("PUT", "/v1/blobs/" + self.sha, self.content).status,
                     (200, 201, 204), "PUT of a blob")
        self.sync(200)
        self.snapshot = self.make(self.at + "/snapshots", {"name": self.secret}, 201)
        self.token = child(self.client, pair, label=self.secret)

    def make(self, path, body, status):
        answer = self.client.post(path, body)
        check.equal(answer.status, status, "POST %s: %r" % (path, answer.body[:300]))
        return answer.json()

    def sync(self, status):
        entry = {"path": "w", "type": "file", "mode": "0644", "size": len(self.content),
                 "sha256": self.sha}
        body = {"root": "/workspace", "entries": [entry], "delete": False}
        return self.make(self.at + "/sync", body, status)

    def ids(self):
        return {
            "run": self.run["id"],
            "sandbox": self.box["id"],
            "ex": self.exec["id"],
            "snapshot": self.snapshot["id"],
            "token": self.token.id,
            "sha256": self.sha,
            "trace": self.trace,
        }

    def whole(self):
        """All that is its own is still there."""
        check.equal(self.client.get(self.at).json()["state"], "ready", "state of the sandbox")
        for path in ("/v1/runs/" + self.run["id"], self.at + "/exec/" + self.exec["id"],
                     "/v1/snapshots/" + self.snapshot["id"], self.at + "/files/workspace/w"):
            check.equal(self.client.get(path).status, 200, "GET " + path)
        check.equal(self.token.get("/v1/me").status, 200, "status of the child token")

    def remove(self):
        self.client.delete(self.at)
        self.client.delete("/v1/snapshots/" + self.snapshot["id"])
        self.client.delete("/v1/runs/" + self.run["id"])


def parameter(path, name):
    """Which of the ids belongs there."""
    family = path.split("/")[2] if path.count("/") > 1 else ""
    known = {"id": {"runs": "run", "sandboxes": "sandbox", "snapshots": "snapshot",
                    "traces": "trace"}.get(family),
             "ex": "ex", "token": "token", "sha256": "sha256"}
    if known.get(name) is None:
        check.fail("the parameter {%s} of %s is not known here; think about isolation", name, path)
    return known[name]


def fill(path, ids):
    def value(match):
        name = match.group(1)
        if name == "n":
            return "0"
        if name == "path":
            return "workspace/w"
        return ids[parameter(path, name)]

    return re.sub(r"\{(\w+)\}", value, path)


def body_of(method, path, snapshot):
    """Something that the route would take from its owner."""
    last = path.rsplit("/", 1)[-1]
    if method in ("get", "delete"):
        return None
    if method == "put" or last == "stdin":
        return b""
    rows = {
        "ttl": {"ttl_ms": 60000},
        "restore": {"snapshot": snapshot},
        "move": {"from": "/workspace/w", "to": "/workspace/v"},
        "exec": {"argv": ["true"]},
        "signal": {"signal": 15},
        "resize": {"rows": 5, "cols": 5},
        "sync": {"root": "/workspace", "entries": [], "delete": True},
    }
    return rows.get(last, {})


def plain(answer, ids):
    """The answer without what may differ: the id that was sent, and the time."""
    text = answer.body.decode("utf-8", "replace")
    for value in ids.values():
        text = text.replace(value, "ID")
    skip = ("date", "traceparent")
    headers = {k: v for k, v in answer.headers.items() if k not in skip}
    return answer.status, text, headers


def same(one, request, mine, none):
    """Both answers, to what is another's and to what is not, are the same 404."""
    method, path, body = request
    answers = []
    for ids in (mine, none):
        sent = body(ids) if callable(body) else body
        answers.append(plain(one.request(method.upper(), fill(path, ids), sent), ids))
    check.equal(answers[0], answers[1], "%s %s" % (method, path))
    return answers[0]


def routes(pair):
    for path, item in pair.client.get("/openapi.json").json()["paths"].items():
        for method in METHODS:
            if method in item:
                yield method, path


@test("on every route, another's id is answered as one that does not exist", case=135, deadline=40)
def _(pair):
    other = Other(pair)
    name, one = new_user(pair)
    mine, none = other.ids(), {k: unknown(v) for k, v in other.ids().items()}
    tried = 0
    for method, path in routes(pair):
        if "{" not in path or path in COMMON + ADMIN:
            continue
        body = lambda ids, m=method, p=path: body_of(m, p, ids["snapshot"])
        status, text, _ = same(one, (method, path, body), mine, none)
        if (method, path) == ("put", "/v1/blobs/{sha256}"):
            continue  # whoever has the bytes may bring them
        check.equal(status, 404, "%s %s: %s" % (method, path, text))
        for word in (other.name, other.secret, pair.state):
            check.lacks(text, word, "%s %s" % (method, path))
        tried += 1
    check.true(tried > 35, "only %d routes were tried", tried)
    other.whole()
    other.remove()


@test("names of another's things in a body or a query are names of nothing", case=135)
def _(pair):
    other = Other(pair)
    name, one = new_user(pair)
    own = one.post("/v1/sandboxes", {}).json()["id"]
    at = "/v1/sandboxes/" + own
    mine, none = other.ids(), {k: unknown(v) for k, v in other.ids().items()}
    requests = (
        ("post", "/v1/sandboxes", lambda ids: {"from": ids["snapshot"]}),
        ("post", "/v1/sandboxes", lambda ids: {"from": ids["run"] + "@1"}),
        ("post", at + "/restore", lambda ids: {"snapshot": ids["snapshot"]}),
        ("post", at + "/restore", lambda ids: {"snapshot": ids["run"] + "@1"}),
        ("post", "/v1/tokens/children", lambda ids: {"from_run": ids["run"]}),
        ("get", "/v1/runs?after={run}", None),
        ("get", "/v1/sandboxes?after={sandbox}", None),
        ("get", "/v1/snapshots?after={snapshot}", None),
        ("get", "/v1/tokens?after={token}", None),
        ("get", at + "/exec?after={ex}", None),
        ("get", at + "/exec/{ex}", None),
    )
    for method, path, body in requests:
        query = lambda ids, p=path: re.sub(r"\{(\w+)\}", lambda m: ids[m.group(1)], p)
        answers = []
        for ids in (mine, none):
            sent = body(ids) if body else None
            answers.append(plain(one.request(method.upper(), query(ids), sent), ids))
        check.equal(answers[0], answers[1], "%s %s" % (method, path))
        check.equal(answers[0][0], 404, "%s %s: %s" % (method, path, answers[0][1]))
    other.whole()
    other.remove()
    check.equal(one.delete(at).status, 204, "DELETE")


@test("knowing a digest does not give its contents", case=135)
def _(pair):
    other = Other(pair)
    name, one = new_user(pair)
    box = one.post("/v1/sandboxes", {}).json()["id"]
    at = "/v1/sandboxes/" + box
    check.equal(one.get("/v1/blobs/" + other.sha).status, 404, "GET of the blob")
    entry = {"path": "w", "type": "file", "mode": "0644", "size": len(other.content),
             "sha256": other.sha}
    body = {"root": "/workspace", "entries": [entry], "delete": False}
    for _ in range(2):
        answer = one.post(at + "/sync", body)
        check.equal(answer.json().get("missing"), [other.sha], "missing")
    check.equal(one.get(at + "/files/workspace/w").status, 404, "GET of the file")
    # Wrong bytes under the right name do not help either.
    answer = one.request("PUT", "/v1/blobs/" + other.sha, b"x" * len(other.content))
    check.true(answer.status >= 400, "wrong bytes were taken: %d", answer.status)
    check.equal(one.get("/v1/blobs/" + other.sha).status, 404, "GET of the blob")
    other.remove()
    check.equal(one.delete(at).status, 204, "DELETE")


@test("listings, metrics and errors show nothing of another user", case=137)
def _(pair):
    other = Other(pair)
    name, one = new_user(pair)
    words = [other.name, other.secret, other.client.id] + list(other.ids().values())
    for method, path in routes(pair):
        if method != "get" or "{" in path:
            continue
        answer = one.get(path)
        if path in ADMIN:
            check.error(answer, 403, "scope")
        elif path != "/readyz":
            check.equal(answer.status, 200, "GET " + path)
        text = answer.body.decode() + json.dumps(answer.headers)
        for word in words + [pair.state, pair.token]:
            check.lacks(text, word, "GET " + path)
    # An administrator's metrics are counts.
    text = pair.client.get("/metrics").body.decode()
    for word in words + [pair.state, pair.token]:
        check.lacks(text, word, "/metrics")
    for path in ("/v1/users/" + other.name, "/v1/users/" + unknown("u_" + nonce())):
        check.error(one.get(path), 403, "scope")
    other.remove()


@test("the same Idempotency-Key of another user is another key", case=146)
def _(pair):
    _, first = new_user(pair)
    _, second = new_user(pair)
    key = {"Idempotency-Key": nonce()}
    body = {"sh": "echo $RANDOM$RANDOM; date +%N"}
    a = first.post("/v1/runs", body, headers=key).json()
    b = second.post("/v1/runs", body, headers=key).json()
    check.true(a["id"] != b["id"], "both got run %s", a["id"])
    check.true(check.text(check.ok(a)) != check.text(check.ok(b)), "both got the same output")
    check.equal(second.get("/v1/runs/" + a["id"]).status, 404, "GET of the other's run")


@test("a child token sees what is its user's, and nobody else's")
def _(pair):
    _, one = new_user(pair)
    _, stranger = new_user(pair)
    run = check.ok(one.run(argv=["true"]))["id"]
    inner = child(one, pair, scopes=["read"])
    check.equal(inner.get("/v1/runs/" + run).status, 200, "GET with the child token")
    check.equal(child(stranger, pair).get("/v1/runs/" + run).status, 404, "GET by a stranger's")


@test("a token that was listed before a request is known to it, whatever else comes in that moment", case=138)
def _(pair):
    refused = []

    def one(_index):
        for _ in range(25):
            answer = pair.user_client("t" + nonce()[:6]).get("/v1/me")
            if answer.status != 200:
                refused.append(answer.status)

    parallel(6, one, 30)
    check.equal(refused, [], "requests with tokens that were in the list already")

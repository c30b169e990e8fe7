"""What is said of sandboxes that are gone: the same at once, a moment later, and by the next server;
and what the server keeps of them."""

import re
import threading
import time

import check
import clean
import harness
from box import SANDBOXES, Box, create, rows
from suite import Skip, test

DELETED = "The sandbox is gone: it was deleted."
NEVER = "sb_" + "a" * 24

# Of what each route answers when its sandbox is gone.
ROUTES = [
    ("GET", "", None),
    ("DELETE", "", None),
    ("POST", "/ttl", {"ttl_ms": 60000}),
    ("POST", "/pause", None),
    ("POST", "/resume", None),
    ("POST", "/restore", {"snapshot": "snap_" + "a" * 24}),
    ("POST", "/snapshots", {}),
    ("POST", "/fork", {"count": 2}),
    ("GET", "/files/workspace/f", None),
    ("PUT", "/files/workspace/f", b"bytes"),
    ("DELETE", "/files/workspace/f", None),
    ("GET", "/stat/workspace", None),
    ("GET", "/list/workspace", None),
    ("POST", "/mkdir/workspace/d", None),
    ("POST", "/move", {"from": "/workspace/a", "to": "/workspace/b"}),
    ("GET", "/watch/workspace", None),
    ("GET", "/archive/workspace", None),
    ("GET", "/exec", None),
    ("POST", "/exec", {"argv": ["true"]}),
    ("GET", "/exec/%s", None),
    ("DELETE", "/exec/%s", None),
    ("GET", "/exec/%s/events", None),
    ("GET", "/exec/%s/stdout", None),
    ("GET", "/exec/%s/receipt", None),
    ("POST", "/exec/%s/signal?name=TERM", None),
    ("GET", "/changes", None),
]


def asked(client, box, ex):
    """Every route of one -> {route: (status, body)}."""
    found = {}
    for method, path, body in ROUTES:
        answer = client.request(method, box.path + (path % ex if "%s" in path else path), body)
        found[method + " " + path] = (answer.status, answer.body)
    return found


def told(why):
    """The body of every one of those answers."""
    return b'{"error":{"code":"gone","message":"%s","field":null}}' % why.encode()


def all_gone(answers, why):
    for route, (status, body) in answers.items():
        check.equal(status, 410, route)
        check.equal(body.strip(), told(why), route)


def stays(look, seconds=1):
    """What is seen is the same all the time. (Whoever asks for too much that fails is refused.)"""
    first, end = look(), time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.1)
        check.equal(look(), first, "what is said a moment later")
    return first


@test("every route of one that is gone answers 410 with its reason, also later and after a restart", own=True,
      deadline=40)
def _(_):
    with harness.Pair(slots=8, warm=2) as pair:
        other = pair.user_client("other")
        box, idle = Box.make(pair.client), Box.make(pair.client, idle_ms=200)
        ex = check.ok(box.sh("echo over"))["id"]
        box.put("/workspace/f", b"kept")
        trace = box.get()["trace"]["id"]
        check.equal(pair.client.request("DELETE", box.path).status, 204, "deleted")
        answers = stays(lambda: asked(pair.client, box, ex))
        all_gone(answers, DELETED)
        check.equal(other.get(box.path).body, other.get(SANDBOXES + "/" + NEVER).body, "to another user")
        # To look at itself would be to use it.
        check.eventually(lambda: not rows(pair.client.get(SANDBOXES).json()), 5, "it is gone", 0.05)
        why = "The sandbox is gone: nothing happened in it for idle_ms."
        check.equal(pair.client.get(idle.path).body.strip(), told(why), "of the idle one")
        seen = stays(lambda: pair.client.get("/v1/traces/" + trace).body)
        check.true(box.id.encode() in seen and ex.encode() in seen, "its trace")
        pair.client.close()
        pair.kill9_server()
        pair.start_server()
        pair.wait_ready()
        check.equal(asked(pair.client, box, ex), answers, "the next server")
        check.equal(pair.client.get(idle.path).body.strip(), told(why), "the next server, of the other")
        check.equal(pair.client.get("/v1/traces/" + trace).body, seen, "its trace")


@test("lists leave out those that are gone, and go on behind one that is", own=True)
def _(_):
    with harness.Pair(slots=8, warm=2) as pair:
        made = [Box.make(pair.client) for _ in range(5)]
        for one in (made[3], made[1]):
            one.delete()

        def listed(after=None):
            answer = pair.client.get(SANDBOXES + ("?after=" + after.id if after else "")).json()
            return [one["id"] for one in rows(answer)]

        def all_lists():
            return [listed()] + [listed(one) for one in made]

        left = [made[i].id for i in (4, 2, 0)]  # the newest first
        wanted = [left, [], left[2:], left[2:], left[1:], left[1:]]
        check.equal(stays(all_lists), wanted, "the lists")
        check.error(pair.client.get(SANDBOXES + "?after=" + NEVER), 404, "not_found")
        check.error(pair.user_client("other").get(SANDBOXES + "?after=" + made[1].id), 404, "not_found")


@test("one whose runner died says so, with what it was", own=True, deadline=40)
def _(_):
    with harness.Pair(slots=8, warm=2) as pair:
        box = Box.make(pair.client)
        ex = check.ok(box.sh("true"))["id"]
        pair.kill9_runner()
        check.eventually(lambda: pair.client.get(box.path).status == 410, 15, "it is gone", 0.1)
        answers = stays(lambda: asked(pair.client, box, ex))
        all_gone(answers, "The sandbox is gone: the runner that had it died.")


@test("a fork's answer has all of a child that was deleted while another waited for its place", own=True,
      deadline=40)
def _(_):
    with harness.Pair(slots=8, warm=2, runner_args=["--sandboxes", "3"]) as pair:
        box, second = Box.make(pair.client, ttl_ms=600000), Box.make(pair.client)
        answers = []
        asker = threading.Thread(target=lambda: answers.append(
            pair.client.post(box.path + "/fork", {"count": 3})))
        asker.start()

        def child():
            """The one that is there and was not made by us."""
            left = [one for one in rows(pair.client.get(SANDBOXES).json())
                    if one["id"] not in (box.id, second.id) and one["state"] == "ready"]
            return left[0] if left else None

        first = check.eventually(child, 10, "the first child")
        check.equal(pair.client.request("DELETE", SANDBOXES + "/" + first["id"]).status, 204, "deleted")
        check.eventually(lambda: (child() or first)["id"] != first["id"], 10, "the second child")
        stays(lambda: pair.client.get(SANDBOXES + "/" + first["id"]).body)
        check.equal(answers, [], "the third waits")
        second.delete()
        asker.join(15)
        check.equal(answers[0].status, 201, "status")
        made = {one["id"]: one for one in rows(answers[0].json())}
        check.equal([made[first["id"]]["state"], len(made)], ["gone", 3], "the answer")
        check.equal(made[first["id"]], dict(first, state="gone", metadata={}), "the child that is gone")


def anonymous(pid):
    """Bytes of memory that are the process's own."""
    text = clean.read("/proc/%d/smaps_rollup" % pid).decode()
    return int(re.search(r"Pss_Anon:\s+(\d+) kB", text).group(1)) * 1024


@test("one that is gone costs the server less than a kilobyte and a half", own=True, alone=True, deadline=60)
def _(_):
    if harness.sanitized():
        raise Skip("a sanitizer keeps what was freed")
    with harness.Pair(slots=8, warm=4) as pair:
        def spend(count):
            for _ in range(count):
                answer = create(pair.client)
                check.equal(answer.status, 201, "made")
                path = SANDBOXES + "/" + answer.json()["id"]
                check.equal(pair.client.request("DELETE", path).status, 204, "deleted")

        def rest():
            """Memory goes back half a second after the last request."""
            seen = []
            check.eventually(lambda: (seen.append(anonymous(pair.server_pid)) or len(seen) > 8) and
                             len(set(seen[-4:])) == 1, 15, "the server rests", 0.25)
            return seen[-1]

        spend(300)
        before = rest()
        spend(700)
        check.within(-1 << 30, (rest() - before) / 700, 1500, "bytes for each")

"""Tracing: W3C traceparent in, kept, handed into the jail and shown."""

import json
import secrets

import check
from box import query, status
from client import Client
from harness import Pair
from suite import table, test

ID = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
PARENT = "00-%s-%s-01" % (ID, SPAN)
SHOW = 'echo "$TRACEPARENT"; echo "${TRACESTATE-none}"'


def traced(client, headers, **request):
    """A run with these headers -> (its answer's headers, its object)."""
    answer = client.post("/v1/runs", client.marked(request), headers=headers)
    status(answer, 200)
    return answer.headers, answer.json()


def names(trace):
    return "00-%s-%s-01" % (trace["id"], trace["span"])


@test("a run hangs under the request's traceparent, and what it starts under the run")
def run_under_parent(pair):
    headers, run = traced(
        pair.client, {"traceparent": PARENT, "tracestate": "congo=t61rcWkgMzE"}, sh=SHOW
    )
    trace = run["trace"]
    check.equal(trace["id"], ID, "trace.id")
    check.equal(trace["parent"], SPAN, "trace.parent")
    check.matches(trace["span"], "^[0-9a-f]{16}$", "trace.span")
    check.true(trace["span"] not in (SPAN, "0" * 16), "the span is not its own: %s", trace)
    check.equal(headers.get("traceparent"), names(trace), "the answer's traceparent")
    check.equal(
        check.lines(run), [names(trace), "congo=t61rcWkgMzE"], "TRACEPARENT and TRACESTATE inside"
    )
    again = pair.client.get("/v1/runs/" + run["id"])
    check.equal(again.json()["trace"], trace, "trace of GET")
    check.equal(again.headers.get("traceparent"), names(trace), "traceparent of GET")


@test("a run without traceparent begins a trace of its own")
def run_without_parent(pair):
    seen = set()
    for _ in range(3):
        headers, run = traced(pair.client, {"tracestate": "congo=t61rcWkgMzE"}, sh=SHOW)
        check.equal(run["trace"]["parent"], None, "trace.parent")
        check.equal(headers.get("traceparent"), names(run["trace"]), "the answer's traceparent")
        check.equal(check.lines(run), [names(run["trace"]), "none"], "inside")
        seen.update((run["trace"]["id"], run["trace"]["span"]))
    check.equal(len(seen), 6, "different ids")


BAD = [
    ("of a wrong length", PARENT + "0"),
    ("in upper case", PARENT.upper()),
    ("with a trace of zeros", "00-%s-%s-01" % ("0" * 32, SPAN)),
    ("with a span of zeros", "00-%s-%s-01" % (ID, "0" * 16)),
    ("of version ff", "ff" + PARENT[2:]),
    ("that is empty", ""),
    ("with control characters", PARENT[:-1] + "\x7f"),
    ("of 4,000 bytes", "00-" + "a" * 4000),
    ("that is there twice", (PARENT, PARENT)),
]


def ignored(pair, value):
    values = value if isinstance(value, tuple) else (value,)
    one = pair.client.connection()
    body = b'{"sh": "echo $TRACEPARENT"}'
    one.putrequest("POST", "/v1/runs")
    for name, text in pair.client.headers(body=body).items():
        one.putheader(name, text)
    for text in values:
        one.putheader("traceparent", text)
    one.putheader("Content-Length", str(len(body)))
    one.endheaders(body)
    got = one.getresponse()
    check.equal(got.status, 200, "status")
    run = json.loads(got.read())
    one.close()
    check.true(run["trace"]["id"] != ID, "it was taken")
    check.equal(run["trace"]["parent"], None, "trace.parent")
    check.equal(check.text(run).strip(), names(run["trace"]), "TRACEPARENT inside")


table([("a traceparent %s is ignored" % name, None, text) for name, text in BAD], ignored)


@test("a newer version is read as far as ours; a tracestate that is too long is not passed on")
def newer_and_long(pair):
    _, run = traced(
        pair.client,
        {"traceparent": "cc" + PARENT[2:] + "-later", "tracestate": "a=" + "x" * 511},
        sh=SHOW,
    )
    check.equal(run["trace"]["id"], ID, "trace.id")
    check.equal(check.lines(run)[1], "none", "TRACESTATE inside")


@test("env of a request goes before TRACEPARENT, and steps share the run's span")
def own_env(pair):
    _, run = traced(
        pair.client,
        {"traceparent": PARENT},
        env={"TRACEPARENT": "mine"},
        steps=[{"sh": SHOW}, {"sh": SHOW, "env": {"TRACEPARENT": ""}}],
    )
    check.equal(check.lines(run)[0], "mine", "of the run")
    check.equal(check.lines(run, index=1)[0] if check.lines(run, index=1) else "", "", "of a step")
    _, run = traced(pair.client, {}, steps=[{"sh": SHOW}, {"sh": SHOW}])
    check.equal(check.lines(run), check.lines(run, index=1), "of two steps")


@test("executions hang under their sandbox, or under what their request says")
def executions(pair):
    made = status(pair.client.post("/v1/sandboxes", {}, headers={"traceparent": PARENT}), 201)
    box = made.json()
    where = "/v1/sandboxes/" + box["id"]
    try:
        check.equal(box["trace"]["id"], ID, "trace of the sandbox")
        check.equal(box["trace"]["parent"], SPAN, "parent of the sandbox")
        check.equal(made.headers.get("traceparent"), names(box["trace"]), "traceparent")
        plain = status(pair.client.post(where + "/exec", {"sh": SHOW}), 200)
        one = plain.json()
        check.equal(one["trace"]["id"], ID, "trace of an execution")
        check.equal(one["trace"]["parent"], box["trace"]["span"], "its parent")
        check.equal(plain.headers.get("traceparent"), names(one["trace"]), "traceparent")
        check.equal(one["stdout"].split()[0], names(one["trace"]), "TRACEPARENT inside")
        other = "00-%s-%s-00" % ("ab" * 16, "cd" * 8)
        two = status(
            pair.client.post(where + "/exec", {"sh": SHOW}, headers={"traceparent": other}), 200
        ).json()
        check.equal(two["trace"]["id"], "ab" * 16, "trace by the request")
        check.equal(two["trace"]["parent"], "cd" * 8, "parent by the request")
        kept = pair.client.get(where + "/exec/" + one["id"]).json()
        check.equal(kept["trace"], one["trace"], "trace of GET")
        check.equal(pair.client.get(where).json()["trace"], box["trace"], "trace of GET")
        fork = status(pair.client.post(where + "/fork", {"count": 1}), 201).json()["sandboxes"][0]
        pair.client.delete("/v1/sandboxes/" + fork["id"])
        check.equal(fork["trace"]["parent"], box["trace"]["span"], "parent of a fork")
    finally:
        pair.client.delete(where)


def spans(client, trace, **more):
    """GET /v1/traces/{id} -> {id: span}, over all pages."""
    found, after = {}, ""
    while after is not None:
        page = status(
            client.get("/v1/traces/%s%s" % (trace, query(after=after or None, **more))), 200
        ).json()
        check.equal(page["id"], trace, "id")
        check.true(page["spans"], "an empty page")
        for span in page["spans"]:
            check.true(span["id"] not in found, "%s comes twice", span["id"])
            found[span["id"]] = span
        after = page["next"]
    return found


@test("a trace shows runs, executions and sandboxes with causes and durations, in pages")
def whole_trace(pair):
    own = "%032x" % secrets.randbits(127)
    header = {"traceparent": "00-%s-%s-01" % (own, SPAN)}
    _, bad = traced(pair.client, header, sh="exit 3")
    _, slow = traced(
        pair.client, header, argv=["sleep", "5"], limits={"wall_ms": 120}
    )
    inner = {"traceparent": names(bad["trace"])}
    _, below = traced(pair.client, inner, argv=["echo", "hi\x1b[31m"])
    box = status(pair.client.post("/v1/sandboxes", {}, headers=header), 201).json()
    try:
        where = "/v1/sandboxes/%s/exec" % box["id"]
        one = status(pair.client.post(where, {"sh": "true"}), 200).json()
        run = status(pair.client.post(where, {"sh": "sleep 30", "wait": False}), 202).json()
        for more in ({}, {"limit": 1}, {"limit": 2}):
            seen = spans(pair.client, own, **more)
            check.equal(
                set(seen), {bad["id"], slow["id"], below["id"], box["id"], one["id"], run["id"]},
                "what is there",
            )
        check.equal(
            [seen[bad["id"]][key] for key in ("kind", "label", "state", "ok", "cause", "exit_code")],
            ["run", "exit 3", "done", False, "exit", 3], "the run that failed",
        )
        check.equal(seen[slow["id"]]["cause"], "wall_time", "cause")
        check.within(110, seen[slow["id"]]["duration_ms"], 2000, "duration_ms")
        check.equal(seen[below["id"]]["parent"], bad["trace"]["span"], "parent of the one below")
        check.equal(seen[below["id"]]["label"], "echo hi [31m", "label")
        check.equal(seen[box["id"]]["kind"], "sandbox", "kind")
        check.equal(seen[box["id"]]["state"], "ready", "state of the sandbox")
        check.equal(seen[one["id"]]["parent"], box["trace"]["span"], "parent of the execution")
        check.equal(seen[one["id"]]["sandbox"], box["id"], "sandbox of the execution")
        check.equal(
            [seen[run["id"]][key] for key in ("state", "cause", "duration_ms")],
            ["running", None, None], "the one that runs",
        )
        starts = [span["created_at"] for span in seen.values()]
        check.equal(starts, sorted(starts), "the order")
    finally:
        pair.client.delete("/v1/sandboxes/" + box["id"])
    check.equal(spans(pair.client, own)[box["id"]]["state"], "gone", "state after its end")


def child(pair, user, body=None, **headers):
    """A client with a child token of the user's."""
    made = status(user.post("/v1/tokens/children", body or {}, headers=headers), 201).json()
    return Client(pair.port, made["token"]), made


@test("runs with a child token hang under the run that it came from, whatever they send")
def nested(pair):
    user = pair.user_client("trace-nested")
    outer = user.run(argv=["true"])
    # As an agent inside would: the token is made with the run's own TRACEPARENT.
    inner, made = child(pair, user, traceparent=names(outer["trace"]))
    check.equal(made["from_run"], outer["id"], "from_run")
    named, made = child(pair, user, {"from_run": outer["id"]})
    check.equal(made["from_run"], outer["id"], "from_run")
    deeper, made = child(pair, named)
    try:
        _, one = traced(inner, {}, sh="true")
        _, two = traced(named, {"traceparent": PARENT}, sh="true")
        own_span = "00-%s-%s-01" % (outer["trace"]["id"], "ab" * 8)
        _, three = traced(named, {"traceparent": own_span}, sh="true")
        _, four = traced(deeper, {}, sh="true")
        box = status(inner.post("/v1/sandboxes", {}), 201).json()
        inner.delete("/v1/sandboxes/" + box["id"])
        for what in (one, two, four, box):
            check.equal(what["trace"]["id"], outer["trace"]["id"], "trace of " + what["id"])
            check.equal(what["trace"]["parent"], outer["trace"]["span"], "parent")
            check.equal(what["trace"]["from"], outer["id"], "from")
        check.equal(three["trace"]["id"], outer["trace"]["id"], "trace")
        check.equal(three["trace"]["parent"], "ab" * 8, "the nearer parent")
        check.equal(three["trace"]["from"], outer["id"], "from")
        seen = spans(user, outer["trace"]["id"])
        check.equal(
            set(seen), {run["id"] for run in (outer, one, two, three, four, box)}, "the trace"
        )
        check.equal(seen[three["id"]]["from"], outer["id"], "from in the trace")
        # Another's run is none, and its traceparent says nothing about ours.
        check.error(
            pair.client.post("/v1/tokens/children", {"from_run": outer["id"]}), 404, "not_found"
        )
        _, made = child(pair, pair.client, traceparent=names(outer["trace"]))
        check.equal(made.get("from_run"), None, "from_run of another's traceparent")
    finally:
        for one in (user, inner, named, deeper):
            one.close()


@test("what a child token makes hangs under an execution that is gone, with its sandbox, also later",
      own=True)
def gone(_):
    with Pair() as pair:
        box = status(pair.client.post("/v1/sandboxes", {}), 201).json()["id"]
        outer = status(pair.client.post("/v1/sandboxes/%s/exec" % box, pair.client.marked(
            {"argv": ["true"]})), 200).json()
        inner, made = child(pair, pair.client, {"from_run": outer["id"]})
        check.equal(made["from_run"], outer["id"], "from_run")
        pair.client.delete("/v1/sandboxes/" + box)
        for _ in range(2):
            _, run = traced(inner, {}, sh="true")
            check.equal(run["trace"]["id"], outer["trace"]["id"], "trace")
            check.equal(run["trace"]["parent"], outer["trace"]["span"], "parent")
            check.equal(run["trace"]["from"], outer["id"], "from")
            inner.close()
            pair.client.close()
            pair.kill9_server()
            pair.start_server()
            pair.wait_ready()
        inner.close()


def hidden(span):
    """What a span says but for how long the sandbox lived, which is told when it is over."""
    return {k: v for k, v in span.items() if k not in ("state", "duration_ms")}


@test("executions of a sandbox that is gone stay in their traces, also after a restart, "
      "and so does the sandbox", own=True, deadline=30)
def deleted(_):
    with Pair() as pair:
        outer = "%032x" % secrets.randbits(127)
        box = status(pair.client.post("/v1/sandboxes", {}), 201).json()
        own, where = box["trace"]["id"], "/v1/sandboxes/%s/exec" % box["id"]
        made = [status(pair.client.post(where, {"sh": "exit %d" % i}), 200).json() for i in range(5)]
        apart = status(pair.client.post(where, {"sh": "true"}, headers={
            "traceparent": "00-%s-%s-01" % (outer, SPAN)}), 200).json()
        late = status(pair.client.post(where, {"sh": "sleep 30", "wait": False}), 202).json()
        before = spans(pair.client, own)
        check.equal(set(before), {one["id"] for one in made + [box, late]}, "what is there")
        status(pair.client.delete("/v1/sandboxes/" + box["id"]), 204)

        def same(what):
            after = spans(pair.client, own)
            check.equal(set(after), set(before), "what is there " + what)
            for one in made:
                check.equal(after[one["id"]], before[one["id"]], "an execution " + what)
            check.equal(hidden(after[box["id"]]), hidden(before[box["id"]]), "the sandbox " + what)
            check.equal(after[box["id"]]["state"], "gone", "its state " + what)
            check.within(1, after[box["id"]]["duration_ms"], 20000, "its time " + what)
            check.equal([after[late["id"]][key] for key in ("state", "cause", "ok")],
                        ["done", "cancelled", False], "the one that ran " + what)
            check.equal(spans(pair.client, outer)[apart["id"]]["sandbox"], box["id"], "the other trace " + what)
            return after

        seen = same("after its end")
        for _ in range(2):
            pair.client.close()
            pair.kill9_server()
            pair.start_server()
            pair.wait_ready()
            check.equal(same("after a restart"), seen, "the trace after a restart")
        other = pair.user_client("looks-in")
        check.error(other.get("/v1/traces/" + own), 404, "not_found")
        # A token that is made in its name now hangs what it starts under it.
        inner, _ = child(pair, pair.client, {"from_run": made[0]["id"]})
        _, run = traced(inner, {}, sh="true")
        check.equal(run["trace"]["parent"], made[0]["trace"]["span"], "parent")
        for one in (other, inner):
            one.close()


@test("executions that their sandbox has forgotten stay in its trace, for as long as runs are kept",
      own=True, deadline=60)
def forgotten(_):
    with Pair(server_args=["--keep-runs", "230"]) as pair:
        box = status(pair.client.post("/v1/sandboxes", {}), 201).json()
        where, made = "/v1/sandboxes/%s/exec" % box["id"], []
        for _ in range(210):
            made.append(status(pair.client.post(where, {"argv": ["true"]}), 200).json()["id"])
        listed = pair.client.get(where + "/" + made[0])
        check.equal(listed.status, 404, "the status of one that is forgotten")
        own = box["trace"]["id"]
        check.equal(set(spans(pair.client, own)), set(made) | {box["id"]}, "what is there")
        status(pair.client.delete("/v1/sandboxes/" + box["id"]), 204)
        check.equal(set(spans(pair.client, own)), set(made) | {box["id"]}, "what is there when it is gone")
        # More than is kept: the oldest go.
        box = status(pair.client.post("/v1/sandboxes", {}), 201).json()
        more = [status(pair.client.post("/v1/sandboxes/%s/exec" % box["id"], {"argv": ["true"]}), 200).json()
                for _ in range(50)]
        status(pair.client.delete("/v1/sandboxes/" + box["id"]), 204)
        pair.kill9_server()
        pair.client.close()
        pair.start_server()
        pair.wait_ready()
        check.eventually(lambda: len(spans(pair.client, own)) == 230 - 51, 20, "the oldest are gone")
        left = spans(pair.client, own)
        check.true(made[0] not in left and made[-1] in left, "the wrong ones went")
        check.equal(len(spans(pair.client, box["trace"]["id"])), len(more) + 1, "the newest are there")


@test("another's trace is 404, also when it is known", case=135)
def not_mine(pair):
    own = "%032x" % secrets.randbits(127)
    header = {"traceparent": "00-%s-%s-01" % (own, SPAN)}
    _, mine = traced(pair.client, header, sh="true")
    other = pair.user_client("trace-other")
    try:
        check.error(other.get("/v1/traces/" + own), 404, "not_found")
        _, theirs = traced(other, header, sh="true")
        check.equal(set(spans(other, own)), {theirs["id"]}, "what the other sees")
        check.equal(set(spans(pair.client, own)), {mine["id"]}, "what we see")
        check.error(other.get("/v1/traces/%s?after=%s" % (own, mine["id"])), 404, "not_found")
    finally:
        other.close()
    for text in ("0" * 32, own.upper(), own[:-1], own + "0", "x" * 32, "%00", "..", mine["id"]):
        check.member(pair.client.get("/v1/traces/" + text).status, (400, 404), "status of " + text)
    check.error(pair.client.get("/v1/traces/%s?limit=0" % own), 400)


@test("a trace outlives the server and the memory of it", own=True, deadline=40)
def stored(_):
    pair = Pair(slots=2, warm=1).start()
    try:
        outer = pair.client.run(sh="exit 7")
        inner, _ = child(pair, pair.client, {"from_run": outer["id"], "scopes": ["run", "read"]})
        _, below = traced(inner, {}, argv=["echo", "below"])
        box = status(
            pair.client.post("/v1/sandboxes", {}, headers={"traceparent": names(outer["trace"])}),
            201,
        ).json()
        where = "/v1/sandboxes/%s/exec" % box["id"]
        one = status(pair.client.post(where, {"sh": "true"}), 200).json()
        before = spans(pair.client, outer["trace"]["id"])
        pair.kill9_server()
        pair.client.close()
        inner.close()
        pair.start_server()
        pair.wait_ready()
        after = spans(pair.client, outer["trace"]["id"])
        check.equal(after, before, "the trace after a restart")
        check.equal(set(after), {x["id"] for x in (outer, below, box, one)}, "what is in it")
        check.equal(after[outer["id"]]["exit_code"], 7, "exit_code")
        check.equal(after[below["id"]]["from"], outer["id"], "from")
        check.equal(pair.client.fetch(below["id"])["trace"], below["trace"], "trace of the run")
        again = pair.client.get(where + "/" + one["id"]).json()
        check.equal(again["trace"], one["trace"], "trace of the execution")
        # The run that the token came from is only in the store now.
        _, more = traced(inner, {}, sh="true")
        check.equal(more["trace"]["parent"], outer["trace"]["span"], "parent")
        named, made = child(pair, pair.client, {"from_run": outer["id"]})
        check.equal(made["from_run"], outer["id"], "from_run")
        named.close()
        inner.close()
        listed = [r for r in pair.client.get("/v1/runs").json()["runs"] if r["id"] == outer["id"]]
        check.equal(
            [listed[0][key] for key in ("cause", "exit_code")], ["exit", 7],
            "the line in the list",
        )
    finally:
        pair.stop()

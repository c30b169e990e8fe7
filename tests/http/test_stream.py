"""Events, resume, raw output with Range, cancel, list, DELETE."""

import base64
import json
import socket
import struct

import check
from check import Stopwatch
from client import Stream, nonce, parallel
from suite import table, test

MIB = 1 << 20


def joined(events, stream, step=None):
    """The bytes of a stream, put together from its events."""
    data = b""
    for event in events:
        if event["type"] == stream and step in (None, event["step"]):
            data += (
                base64.b64decode(event["data"], validate=True)
                if event["encoding"] == "base64"
                else event["data"].encode()
            )
    return data


def dense(events, first):
    check.equal([e["seq"] for e in events], list(range(first, first + len(events))), "seq")


def drop(run):
    """A run object without the parts that tell about time."""
    return {k: v for k, v in run.items() if k not in ("timing",)}


@test("a partial line is sent within 500 ms", case=70)
def _(pair):
    with pair.client.stream(sh="printf 'password: '; sleep 2; echo x") as stream:
        seconds, event = stream.next("stdout")
        check.equal(event["data"], "password: ", "data")
        check.within(0, seconds, 0.5, "seconds until the event")
        events = [e for _, e in stream]
    check.equal(joined(events, "stdout"), b"x\n", "the rest")
    check.equal(events[-1]["type"], "done", "last event")


@test("events come in dense order, the end of a step after its output, done last", case=46)
def _(pair):
    with pair.client.stream(
        steps=[
            {"sh": "for i in {1..200}; do echo $i; echo e$i >&2; done"},
            {"sh": "echo two; exit 3"},
            {"sh": "true"},
        ]
    ) as stream:
        events = [e for _, e in stream]
    dense(events, 0)
    check.equal(events[0]["type"], "accepted", "first event")
    check.matches(events[0]["id"], "^run_", "id")
    check.equal((events[-1]["type"], events[-1]["ok"]), ("done", False), "last event")
    check.equal(
        joined(events, "stdout", 0), "".join("%d\n" % i for i in range(1, 201)).encode(), "stdout"
    )
    check.equal(
        joined(events, "stderr", 0), "".join("e%d\n" % i for i in range(1, 201)).encode(), "stderr"
    )
    check.equal(joined(events, "stdout", 1), b"two\n", "stdout of step 1")
    for step in (0, 1):
        kinds = [e["type"] for e in events if e.get("step") == step]
        check.equal(
            (kinds[0], kinds[-1]), ("started", "end"), "first and last event of step %d" % step
        )
        end = [e for e in events if e["type"] == "end" and e["step"] == step][0]
        check.equal(end["end"]["cause"], "exit", "cause")
        check.true(end["usage"]["wall_ms"] >= 0, "no usage in the end event")
    order = [e["step"] for e in events if "step" in e]
    check.equal(order, sorted(order), "steps in order")


@test("one byte at a time gives the exact bytes", case=59)
def _(pair):
    text = "é漢😀x\n" * 40
    script = "import sys, os\nfor b in %r.encode(): os.write(1, bytes([b]))" % text
    with pair.client.stream(argv=["python3", "-c", script]) as stream:
        events = [e for _, e in stream]
    check.equal(joined(events, "stdout").decode(), text, "stdout")
    check.true(
        all(e["encoding"] == "utf-8" for e in events if e["type"] == "stdout"),
        "a character was cut and sent as base64",
    )


@test("bytes that are not UTF-8 are streamed as base64, exactly", case=56)
def _(pair):
    with pair.client.stream(
        sh="printf 'a\\377'; sleep 0.2; printf '\\303'; sleep 0.2; " "printf '\\251\\200z'"
    ) as stream:
        events = [e for _, e in stream]
    check.equal(joined(events, "stdout"), b"a\xff\xc3\xa9\x80z", "stdout")
    check.true(any(e.get("encoding") == "base64" for e in events), "no base64")


@test("a large stream is complete, in chunks of at most 64 KiB", deadline=30)
def _(pair):
    size = 30000000
    before = pair.memory()
    with pair.client.stream(sh="head -c %d /dev/zero | tr '\\0' x" % size) as stream:
        total, last = 0, None
        for _, event in stream:
            last = event
            check.true(
                event["type"] != "omitted", "a reader that keeps up has lost something: %r", event
            )
            if event["type"] == "stdout":
                check.within(1, len(event["data"]), 65536, "bytes of a chunk")
                total += len(event["data"])
    check.equal(total, size, "bytes streamed")
    check.true(
        pair.memory() - before < 8 << 20, "the server grew by %d bytes", pair.memory() - before
    )
    check.equal(last["type"], "done", "last event")


@test("events after the end are the same as the stream's, from any point")
def _(pair):
    with pair.client.stream(sh="for i in 1 2 3; do echo $i; sleep 0.1; done") as stream:
        live = [e for _, e in stream]
    run = live[0]["id"]
    stored = pair.client.events(run).all()
    dense(stored, 1)
    check.equal(joined(stored, "stdout"), joined(live, "stdout"), "stdout")
    check.equal(stored[-1], dict(live[-1], seq=stored[-1]["seq"]), "done")
    for after in range(len(stored)):
        rest = pair.client.events(run, after=after).all()
        check.equal(rest, stored[after:], "events after %d" % after)
    check.equal(pair.client.events(run, after=len(stored)).all(), [], "events after the last")
    check.equal(
        pair.client.events(run, after=0, follow=True).all(), stored, "following what is over"
    )


@test("a broken stream is resumed without a gap or a repetition")
def _(pair):
    script = "for i in {1..30}; do echo line$i; sleep 0.03; done"
    first = []
    with pair.client.stream(sh=script) as stream:
        for _, event in stream:
            first.append(event)
            if len(first) >= 6:
                break
        stream.connection.sock.close()
    run, after = first[0]["id"], first[-1]["seq"]
    with pair.client.events(run, after=after, follow=True) as stream:
        rest = [e for _, e in stream]
    dense(first + rest, 0)
    check.equal(
        joined(first + rest, "stdout"),
        "".join("line%d\n" % i for i in range(1, 31)).encode(),
        "stdout",
    )
    check.equal(rest[-1]["type"], "done", "last event")


@test("events without follow answer at once with what there is")
def _(pair):
    run = pair.client.submit(sh="echo first; sleep 1.5; echo second")
    check.eventually(
        lambda: joined(pair.client.events(run).all(), "stdout") == b"first\n", 1, "first"
    )
    watch = Stopwatch()
    events = pair.client.events(run, follow=False).all()
    watch.below(0.5, "events without follow")
    check.true(events[-1]["type"] != "done", "it is over already")
    pair.client.wait_done(run)


@test("ten followers see the same")
def _(pair):
    run = pair.client.submit(sh="for i in {1..50}; do echo $i; sleep 0.005; done")
    seen = parallel(10, lambda _: pair.client.events(run, follow=True).all())
    for events in seen:
        dense(events, 1)
        check.equal(
            joined(events, "stdout"), "".join("%d\n" % i for i in range(1, 51)).encode(), "stdout"
        )


@test("a follower that does not read delays nobody and loses only the middle", deadline=30)
def _(pair):
    run = pair.client.submit(
        sh="head -c 60000000 /dev/zero | tr '\\0' x; sleep 0.2; echo end",
        limits={"output_bytes": 65536},
    )
    stuck = Stream(pair.client, "GET", "/v1/runs/%s/events?follow=true" % run)
    answer = pair.client.wait_done(run, 12)
    check.equal(answer["steps"][0]["stdout_bytes"], 60000004, "stdout_bytes")
    events = stuck.all()
    # An omitted event stands for all that were lost up to its own number.
    last = 0
    for event in events:
        check.true(
            event["seq"] == last + 1 or (event["type"] == "omitted" and event["seq"] > last),
            "event %d follows %d: %r",
            event["seq"],
            last,
            event,
        )
        last = event["seq"]
    check.equal(events[-1]["type"], "done", "last event")
    lost = sum(e["bytes"] for e in events if e["type"] == "omitted")
    check.equal(len(joined(events, "stdout")) + lost, 60000004, "bytes seen and told as lost")


@test("bad queries for events are refused by name")
def _(pair):
    run = check.ok(pair.client.run(argv=["true"]))["id"]
    for query in ("after=-1", "after=x", "after=", "follow=maybe", "after=99999999999999999999"):
        check.error(pair.client.get("/v1/runs/%s/events?%s" % (run, query)), 400)


# Raw output


def raw_setup(pair):
    answer = check.ok(pair.client.sh("seq 1 1000; printf '\\377' >&2"))
    return answer, "/v1/runs/%s/steps/0/" % answer["id"]


RANGES = [
    ("the first ten bytes", "bytes=0-9", 206, lambda d: d[:10], "bytes 0-9/3893"),
    ("the middle", "bytes=100-199", 206, lambda d: d[100:200], "bytes 100-199/3893"),
    ("an open end", "bytes=3890-", 206, lambda d: d[3890:], "bytes 3890-3892/3893"),
    ("the last five", "bytes=-5", 206, lambda d: d[-5:], "bytes 3888-3892/3893"),
    ("more than there is", "bytes=3000-99999", 206, lambda d: d[3000:], "bytes 3000-3892/3893"),
    ("a suffix longer than all", "bytes=-99999", 206, lambda d: d, "bytes 0-3892/3893"),
    ("beyond the end", "bytes=3893-", 416, None, "bytes */3893"),
    ("nonsense, which is ignored", "lines=1-2", 200, lambda d: d, None),
    ("backwards, which is ignored", "bytes=9-2", 200, lambda d: d, None),
]


def ranges(pair, wish, status, part, header):
    answer, path = raw_setup(pair)
    whole = check.output(answer)
    got = pair.client.get(path + "stdout", headers={"Range": wish})
    check.equal(got.status, status, "status")
    if part:
        check.equal(got.body, part(whole), "body")
    if header:
        check.equal(got.headers.get("content-range"), header, "Content-Range")


table([("raw output honours a range: " + row[0], None) + row[1:] for row in RANGES], ranges)


@test("raw output is all that was kept, as bytes")
def _(pair):
    answer, path = raw_setup(pair)
    got = pair.client.get(path + "stdout")
    check.equal((got.status, got.body), (200, check.output(answer)), "stdout")
    check.equal(pair.client.get(path + "stderr").body, b"\xff", "stderr")
    check.holds(got.headers["content-type"], "application/octet-stream", "Content-Type")
    long = check.ok(pair.client.sh("yes | head -c 10000", limits={"output_bytes": 1000}))
    got = pair.client.get("/v1/runs/%s/steps/0/stdout" % long["id"])
    check.equal(
        (len(got.body), got.headers.get("x-pinfold-omitted")), (1000, "9000"), "kept and omitted"
    )


def raw_missing(pair, tail):
    run = check.ok(pair.client.run(argv=["true"]))["id"]
    check.error(pair.client.get("/v1/runs/%s/%s" % (run, tail)), 404)


table(
    [
        ("no raw output at %s" % tail, None, tail)
        for tail in (
            "steps/1/stdout",
            "steps/-1/stdout",
            "steps/0/stdin",
            "steps/x/stdout",
            "steps/99999999999999999999/stdout",
            "steps",
            "steps/0",
        )
    ],
    raw_missing,
)


# Cancel


@test("a cancelled run ends by cancelled, within a second")
def _(pair):
    run = pair.client.submit(sh="echo before; sleep 60")
    check.eventually(lambda: joined(pair.client.events(run).all(), "stdout"), 3, "output")
    watch = Stopwatch()
    check.member(pair.client.delete("/v1/runs/" + run).status, (200, 202, 204), "status of DELETE")
    answer = pair.client.wait_done(run, 1)
    watch.below(1, "the cancel")
    check.ended(answer, "cancelled", exit_code=None)
    check.equal(check.text(answer), "before\n", "output before the cancel")


@test("a cancel ends the stream and the caller who waits", case=141)
def _(pair):
    with pair.client.stream(sh="echo go; sleep 60") as stream:
        _, accepted = stream.next("accepted")
        stream.next("stdout")
        watch = Stopwatch()
        pair.client.delete("/v1/runs/" + accepted["id"])
        events = [e for _, e in stream]
        watch.below(1, "the end of the stream")
    check.equal(events[-1]["type"], "done", "last event")
    end = [e for e in events if e["type"] == "end"][0]
    check.equal(end["end"]["cause"], "cancelled", "cause")


@test("a cancel skips the steps that follow")
def _(pair):
    run = pair.client.submit(steps=[{"sh": "sleep 60", "continue_on_error": True}, {"sh": "true"}])
    pair.client.wait_state(run, ("running",))
    pair.client.delete("/v1/runs/" + run)
    answer = pair.client.wait_done(run, 2)
    check.ended(answer, "cancelled")
    check.equal(answer["steps"][1]["state"], "skipped", "state of step 1")


@test("DELETE twice, twenty at once, and of what is over", case=141)
def _(pair):
    run = pair.client.submit(argv=["sleep", "60"])
    codes = parallel(20, lambda _: pair.client.delete("/v1/runs/" + run).status)
    check.true(set(codes) <= {200, 202, 204, 404}, "answers of 20 DELETEs: %s", sorted(set(codes)))
    answer = pair.client.wait_done(run, 2)
    check.ended(answer, "cancelled")
    check.member(pair.client.delete("/v1/runs/" + run).status, (200, 204, 404), "a further DELETE")
    check.ended(pair.client.fetch(run), "cancelled")
    done = check.ok(pair.client.run(argv=["true"]))
    check.member(
        pair.client.delete("/v1/runs/" + done["id"]).status, (200, 204, 404), "DELETE after the end"
    )
    check.ok(pair.client.fetch(done["id"]))


# A client that goes away


def vanish(pair, reset, seconds=60, **request):
    """Sends a run and closes the connection after it has started -> the run's id."""
    known = {r["id"] for r in listing(pair)}
    body = dict(request, sh="echo on; sleep %s" % seconds)
    one = pair.client.connection()
    one.request(
        "POST", "/v1/runs", json.dumps(pair.client.marked(body)), pair.client.headers(None, b"x")
    )
    run = check.eventually(
        lambda: [
            r["id"] for r in listing(pair) if r["id"] not in known and r["state"] == "running"
        ],
        3,
        "the run has started",
    )[0]
    if reset:
        one.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.sock.close()
    one.close()
    return run


def listing(pair, query=""):
    answer = pair.client.get("/v1/runs" + query)
    check.equal(answer.status, 200, "status of the list")
    return answer.json()["runs"]


def lost(pair, reset):
    run = vanish(pair, reset, cancel_on_disconnect=True)
    watch = Stopwatch()
    answer = pair.client.wait_done(run, 1)
    watch.below(1, "the end")
    check.ended(answer, "lost_client", exit_code=None)


table(
    [
        ("a client that goes away by %s cancels when it asked for that" % name, 134, reset)
        for name, reset in (("FIN", False), ("RST", True))
    ],
    lost,
)


@test("a client that goes away loses nothing otherwise", case=134)
def _(pair):
    run = vanish(pair, True, seconds=0.5)
    check.ok(pair.client.wait_done(run, 3))


@test("a follower that goes away cancels nothing")
def _(pair):
    run = pair.client.submit(sh="echo go; sleep 0.6; echo end")
    with pair.client.events(run, follow=True) as stream:
        stream.next("stdout")
        stream.connection.sock.close()
    check.ok(pair.client.wait_done(run, 3))


@test("a stream that goes away cancels when it asked for that", case=134)
def _(pair):
    with pair.client.stream(sh="echo go; sleep 60", cancel_on_disconnect=True) as stream:
        _, accepted = stream.next("accepted")
        stream.next("stdout")
        stream.connection.sock.shutdown(socket.SHUT_RDWR)
        stream.connection.sock.close()
    check.ended(pair.client.wait_done(accepted["id"], 1), "lost_client")


# List


@test("the list is newest first, in pages without gap or repetition")
def _(pair):
    made = [check.ok(pair.client.run(argv=["true"]))["id"] for _ in range(7)]
    seen = [r["id"] for r in listing(pair, "?limit=7")]
    check.equal(seen, made[::-1], "the newest seven")
    paged, after = [], ""
    for _ in range(4):
        page = listing(pair, "?limit=2" + after)
        check.within(1, len(page), 2, "entries of a page")
        paged += [r["id"] for r in page]
        after = "&after=" + page[-1]["id"]
    check.equal(paged[:7], seen, "pages of two")
    for entry in listing(pair, "?limit=3"):
        for key in ("id", "state"):
            check.true(key in entry, "an entry lacks %s: %r", key, entry)


def bad_list(pair, query):
    check.error(pair.client.get("/v1/runs?" + query), (400, 404) if "after" in query else 400)


table(
    [
        ("the list refuses %s" % query, None, query)
        for query in ("limit=0", "limit=-1", "limit=x", "limit=100001", "after=../x")
    ],
    bad_list,
)


@test("two runs have nothing in common but the caller", case=137)
def _(pair):
    mark = nonce()
    first = check.ok(pair.client.run(argv=["echo", mark]))
    text = str(listing(pair))
    check.lacks(text, "echo " + mark, "the list")
    check.equal(drop(pair.client.fetch(first["id"])), drop(first), "the stored run")

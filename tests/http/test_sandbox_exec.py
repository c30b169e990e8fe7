"""Executions in a sandbox: several at once, each with its own limits and end; events, stdin,
signals, background, retries."""

import json
import time

import check
import clean
from box import MIB, Box, as_run, dense, joined, status, vanish
from check import Stopwatch
from client import nonce, parallel
from suite import table, test

SPIN = "while :; do :; done"
EAT = "x = []\nwhile True: x.append(bytearray(1 << 20))"

# What ends badly (and how), while others in the same sandbox must not notice.
ENDS = [
    ("a wall limit", "165, 47", {"sh": "trap '' TERM; sleep 60 & sleep 60",
                                 "limits": {"wall_ms": 400}}, "wall_time"),
    ("a CPU limit", 2, {"sh": SPIN, "limits": {"cpu_ms": 200}}, "cpu_time"),
    ("too much memory", 7, {"argv": ["python3", "-c", EAT], "limits": {"mem_bytes": 32 * MIB}},
     "memory"),
    ("a fork bomb", 16, {"sh": "f(){ f|f& };f; " + SPIN, "limits": {"pids": 24, "wall_ms": 700}},
     "wall_time"),
    ("a segmentation fault", 39, {"argv": ["python3", "-c", "import os; os.kill(os.getpid(), 11)"]},
     "signal"),
    ("a flood of output", 25, {"sh": "yes", "limits": {"wall_ms": 500, "output_bytes": 4096}},
     "wall_time"),
    ("a command that is not there", 42, {"argv": ["/no/such"]}, "start"),
    ("a stopped process", 52, {"sh": "kill -STOP $$; echo no", "limits": {"wall_ms": 400}},
     "wall_time"),
    ("a daemon", 149, {"sh": "setsid sleep 100 >/dev/null 2>&1 & exit 0"}, "exit"),
    ("a forker", 151, {"sh": "g(){ (g &) ; }; g; sleep 30",
                       "limits": {"wall_ms": 500, "pids": 32}}, "wall_time"),
]


def spoils_nothing(pair, request, cause):
    """What runs beside it and what comes next are as if it had not been."""
    with Box.make(pair.client) as box:
        beside = box.start(sh="for i in {1..20}; do echo $i; sleep 0.05; done; echo end")
        answer = box.run(**request)
        if cause is not None:
            check.ended(answer, cause)
        watch = Stopwatch()
        check.equal(box.text("echo hi"), "hi\n", "the next one")
        watch.below(0.5, "the next one")
        seen = check.ok(box.wait_done(beside, 5))
        check.equal(check.lines(seen)[-1:], ["end"], "what ran beside it")
        check.equal(seen["steps"][0]["usage"]["oom_kills"], 0, "oom_kills beside it")
        count = check.ok(box.sh("ls /proc | grep -c '^[0-9]'"))
        check.within(1, int(check.text(count)), 6, "processes left in the sandbox")


table(
    [("%s spoils neither its neighbour nor the next" % row[0], row[1]) + row[2:] for row in ENDS],
    spoils_nothing,
    deadline=20,
)


@test("each execution has limits of its own", case=17)
def _(pair):
    with Box.make(pair.client) as box:

        def one(index):
            return box.sh("sleep 0.3 & " * 12 + "wait",
                          limits={"pids": 64 if index else 8, "wall_ms": 5000})

        tight, wide = parallel(2, one)
        check.true(tight["steps"][0]["usage"]["pids_peak"] <= 8, "%s", check.step(tight))
        check.ok(wide)
        check.within(12, wide["steps"][0]["usage"]["pids_peak"], 20, "pids_peak")
        check.equal(tight["steps"][0]["limits"]["pids"], {"value": 8, "from": "request"}, "echo")


@test("usage is that of the execution alone", case="44, 55")
def _(pair):
    with Box.make(pair.client) as box:
        spin = box.start(sh=SPIN, limits={"cpu_ms": 5000, "wall_ms": 20000})
        small = check.ok(box.run(argv=["sleep", "0.3"]))["steps"][0]["usage"]
        check.within(0, small["cpu_user_ms"] + small["cpu_system_ms"], 60, "CPU of a sleep")
        check.within(250, small["wall_ms"], 900, "wall_ms of a sleep")
        big = check.ok(box.python("x = b'x' * (100 << 20)"))["steps"][0]["usage"]
        check.true(big["mem_peak_bytes"] >= 100 * MIB, "mem_peak_bytes %d", big["mem_peak_bytes"])
        small = check.ok(box.run(argv=["/bin/true"]))["steps"][0]["usage"]
        check.within(0, small["mem_peak_bytes"], 12 * MIB, "mem_peak_bytes of true")
        box.cancel(spin)
        usage = box.wait_done(spin)["steps"][0]["usage"]
        check.true(usage["cpu_user_ms"] + usage["cpu_system_ms"] > 100, "CPU of a loop: %r", usage)


@test("sixteen at once each get their own answer", deadline=25)
def _(pair):
    words = [nonce() for _ in range(16)]
    with Box.make(pair.client, limits={"pids": 200}) as box:

        def one(index):
            answer = box.sh("echo %s; sleep 0.2; echo %s >&2; exit %d"
                            % (words[index], words[index][::-1], index))
            check.ended(answer, "exit", exit_code=index)
            check.equal(check.text(answer), words[index] + "\n", "stdout")
            check.equal(check.text(answer, stream="stderr"), words[index][::-1] + "\n", "stderr")
            return answer["id"]

        ids = parallel(16, one)
        check.equal(len(set(ids)), 16, "different ids")
        listed = {one["id"] for one in box.executions()}
        check.true(set(ids) <= listed, "not all are listed")


@test("forty new sandboxes at once: each has its first command and the next ones", deadline=30)
def _(pair):
    # More than are kept ready; what each gets next is made while others get their first.
    def one(index):
        with Box.make(pair.client) as box:
            for turn in range(3):
                check.equal(box.text("echo $((%d + %d))" % (index, turn)),
                            "%d\n" % (index + turn), "sandbox %d, command %d" % (index, turn))
            return box.id

    check.equal(len(set(parallel(40, one))), 40, "different sandboxes")


@test("one cannot signal or trace another's processes beyond what its user may", case=96)
def _(pair):
    with Box.make(pair.client) as box:
        answer = check.ok(box.sh("kill -9 1; echo $?; ls -l /proc/1/fd 2>&1 | wc -l; "
                                 "cat /proc/1/environ 2>/dev/null | wc -c"))
        check.equal(check.lines(answer)[2], "0", "bytes of its environment")
        check.equal(box.text("echo on"), "on\n", "afterwards")


@test("kill -9 -1 ends what the same user runs, and the sandbox goes on", case=95)
def _(pair):
    with Box.make(pair.client) as box:
        beside = box.start(argv=["sleep", "60"])
        check.eventually(lambda: clean.marked(pair.client.mark), 3, "it runs")
        answer = box.sh("kill -9 -1; exit 5")
        check.member(answer["steps"][0]["end"]["cause"], ("exit", "signal"), "cause")
        check.ended(box.wait_done(beside, 2), "signal", signal=9)
        box.put("/workspace/f", b"x")
        check.equal(box.text("cat f; echo on"), "xon\n", "the next one")


@test("what a command does to process 1 and to its own shell keeps no later one waiting", case=143,
      deadline=30)
def _(pair):
    with Box.make(pair.client) as box:
        for script in ("kill -9 $PPID; kill -9 1; kill -TERM 1; exit 3", "exec false", "exit 7",
                       "kill -STOP 1; kill -9 $$"):
            end = box.sh(script)["steps"][0]["end"]
            check.member((end["cause"], end["exit_code"] or end["signal"]),
                         (("exit", 3), ("exit", 1), ("exit", 7), ("signal", 9)), script)
            check.equal(box.text("cat <<'E'\nhi $HOME\nE"), "hi $HOME\n", "the next one")


# Background


@test("a server in the background answers the next execution over loopback", case=166, deadline=40)
def _(pair):
    with Box.make(pair.client) as box:
        box.put("/workspace/page", b"served")
        watch = Stopwatch()
        ex = box.background(argv=["python3", "-u", "-m", "http.server", "8000", "--bind",
                                  "127.0.0.1"])
        watch.below(0.5, "the call")
        fetch = ("import time, urllib.request\nfor i in range(200):\n try: print(urllib.request."
                 "urlopen('http://localhost:8000/page', timeout=2).read().decode()); break\n"
                 " except OSError: time.sleep(0.1)")
        check.equal(check.text(check.ok(box.python(fetch))), "served\n", "the page")
        check.equal(box.fetch(ex)["state"], "running", "state of the server")
        check.ended(box.sh("exit 1"), "exit")
        check.equal(check.text(check.ok(box.python(fetch))), "served\n", "the page again")
        box.wait_output(ex, b"GET /page", kind="stderr")
        box.cancel(ex)
        answer = box.wait_done(ex, 2)
        check.ended(answer, "cancelled")
        check.ended(box.python("import socket; socket.create_connection(('localhost', 8000), 1)"),
                    "exit", exit_code=1)


@test("what is in the background ends as a whole tree at its own limit", case=166)
def _(pair):
    with Box.make(pair.client) as box:
        ex = box.background(sh="setsid sleep 100 & (sleep 100 &) ; sleep 100",
                            limits={"wall_ms": 600})
        answer = box.wait_done(ex, 3)
        check.ended(answer, "wall_time")
        check.equal(box.text("cat /proc/[0-9]*/comm | grep -c sleep || true"), "0\n",
                    "sleepers left")


@test("a neighbour's end does not touch what is in the background")
def _(pair):
    with Box.make(pair.client) as box:
        ex = box.background(sh="while :; do date +%N > beat; sleep 0.05; done")
        for _ in range(3):
            check.ended(box.sh("sleep 9", limits={"wall_ms": 100}), "wall_time")
        first = box.content("/workspace/beat")
        check.eventually(lambda: box.content("/workspace/beat") not in (first, b""), 2, "it beats")
        check.equal(box.fetch(ex)["state"], "running", "state")


# Retries


@test("a retry with the same id is the same execution", case=146, deadline=20)
def _(pair):
    with Box.make(pair.client) as box:
        name = "ex_" + nonce()
        request = dict(sh="echo once >> log; sleep 0.3; wc -l < log", id=name)
        box.connection_lost(request)
        answer = status(box.send(**request), 200).json()
        check.equal((answer["id"], answer["ok"]), (name, True), "id and ok")
        again = status(box.send(**request), 200).json()
        check.equal((again["stdout"], answer["stdout"]), ("1\n", "1\n"), "lines of the log")
        seen = parallel(8, lambda _: status(box.send(**request), 200).json()["stdout"])
        check.equal(set(seen), {"1\n"}, "eight retries at once")
        check.equal(box.content("/workspace/log"), b"once\n", "the log")


@test("ten at once with one new id run once", case=146)
def _(pair):
    with Box.make(pair.client) as box:
        request = dict(sh="echo x >> log; sleep 0.1", id="ex_" + nonce())
        seen = parallel(10, lambda _: status(box.send(**request), 200).json()["id"])
        check.equal(set(seen), {request["id"]}, "ids")
        check.equal(box.content("/workspace/log"), b"x\n", "the log")


@test("another command under an id that is taken is refused", case=146)
def _(pair):
    with Box.make(pair.client) as box:
        name = "ex_" + nonce()
        check.ok(box.run(sh="echo one", id=name))
        answer = box.send(sh="echo two", id=name)
        if answer.status == 200:
            check.equal(answer.json()["stdout"], "one\n", "the answer is the first one's")
        else:
            check.error(answer, 409, field="/id")


@test("the same id in two sandboxes is two executions", case=146)
def _(pair):
    name = "ex_" + nonce()
    with Box.make(pair.client) as a, Box.make(pair.client) as b:
        check.equal(check.text(a.run(sh="echo a", id=name)), "a\n", "the first")
        check.equal(check.text(b.run(sh="echo b", id=name)), "b\n", "the second")


def bad_id(pair, name):
    with Box.make(pair.client) as box:
        check.error(box.send(argv=["true"], id=name), 400, field="/id")


table(
    [("an execution cannot be called %r" % str(name)[:20], 123, name)
     for name in ("", "../x", "x" * 65, 5, "ex_a/b", "ex_\n" + "a" * 22)],
    bad_id,
)


BAD_EXEC = [
    ("argv and sh", {"argv": ["true"], "sh": "true"}, None),
    ("neither", {}, None),
    ("steps", {"steps": [{"sh": "true"}]}, "/steps"),
    ("a misspelt field", {"argv": ["true"], "backgroud": True}, "/backgroud"),
    ("a pty without a size", {"argv": ["true"], "pty": {}}, None),
    ("a pty of 0 rows", {"argv": ["true"], "pty": {"rows": 0, "cols": 80}}, "/pty/rows"),
    ("a pty of 70000 columns", {"argv": ["true"], "pty": {"rows": 1, "cols": 70000}}, "/pty/cols"),
    ("a NUL in argv", {"argv": ["a\0b"]}, "/argv/0"),
    ("background as text", {"argv": ["true"], "background": "yes"}, "/background"),
    ("a policy", {"argv": ["true"], "policy": "ci"}, "/policy"),
    ("wall_ms of 0", {"argv": ["true"], "limits": {"wall_ms": 0}}, "/limits/wall_ms"),
]


def bad_exec(pair, body, field):
    with Box.make(pair.client) as box:
        error = check.error(box.client.post(box.path + "/exec", body), 400)
        if field is not None:
            check.equal(error.get("field"), field, "error.field")


table([("an execution with %s is refused" % row[0], "127, 128") + row[1:] for row in BAD_EXEC],
      bad_exec)


# Events


@test("events are dense, the end after the output, done last, and stay", case=46)
def _(pair):
    with Box.make(pair.client) as box:
        with box.stream(sh="for i in {1..100}; do echo $i; echo e$i >&2; done; exit 3") as stream:
            events = [event for _, event in stream]
        dense(events, 0)
        check.equal(events[0]["type"], "accepted", "first event")
        check.matches(events[0]["id"], "^ex_", "id")
        check.equal(joined(events), "".join("%d\n" % i for i in range(1, 101)).encode(), "stdout")
        check.equal(joined(events, "stderr"),
                    "".join("e%d\n" % i for i in range(1, 101)).encode(), "stderr")
        kinds = [e["type"] for e in events]
        check.equal((kinds[1], kinds[-2:]), ("started", ["end", "done"]), "order")
        check.equal(events[-2]["end"]["exit_code"], 3, "exit_code")
        check.equal(events[-1]["ok"], False, "ok")
        stored = box.events(events[0]["id"]).all()
        dense(stored)
        check.equal(joined(stored), joined(events), "stored stdout")
        for after in range(0, len(stored), 7):
            check.equal(box.events(events[0]["id"], after=after).all(), stored[after:],
                        "events after %d" % after)
        check.equal(box.events(events[0]["id"], after=len(stored)).all(), [], "after the last")


@test("a broken stream is resumed without a gap or a repetition")
def _(pair):
    with Box.make(pair.client) as box:
        first = []
        with box.stream(sh="for i in {1..40}; do echo line$i; sleep 0.02; done") as stream:
            for _, event in stream:
                first.append(event)
                if len(first) >= 6:
                    break
            stream.connection.sock.close()
        rest = box.events(first[0]["id"], after=first[-1]["seq"], follow=True).all()
        dense(first + rest, 0)
        check.equal(joined(first + rest),
                    "".join("line%d\n" % i for i in range(1, 41)).encode(), "stdout")


@test("a partial line is sent at once", case=70)
def _(pair):
    with Box.make(pair.client) as box:
        with box.stream(sh="printf 'password: '; sleep 1; echo x") as stream:
            seconds, event = stream.next("stdout")
            check.equal(event["data"], "password: ", "data")
            check.within(0, seconds, 0.5, "seconds")


@test("what is not UTF-8 and what is cut in a character come exactly", case="56, 59")
def _(pair):
    with Box.make(pair.client) as box:
        answer = check.ok(box.sh("printf 'a\\377\\0b'"))
        check.equal(check.output(answer), b"a\xff\0b", "stdout")
        text = "é漢😀\n" * 30
        with box.stream(argv=["python3", "-c", "import os\nfor b in %r.encode(): "
                              "os.write(1, bytes([b]))" % text]) as stream:
            check.equal(joined([e for _, e in stream]).decode(), text, "stream")


@test("ten followers see the same")
def _(pair):
    with Box.make(pair.client) as box:
        ex = box.start(sh="for i in {1..60}; do echo $i; sleep 0.005; done")
        seen = parallel(10, lambda _: box.events(ex, follow=True).all())
        for events in seen:
            dense(events)
            check.equal(joined(events), "".join("%d\n" % i for i in range(1, 61)).encode(),
                        "stdout")


@test("the spool is bounded: of much output the beginning and the end are kept", case="25, 72",
      deadline=30)
def _(pair):
    with Box.make(pair.client) as box:
        before = pair.memory()
        answer = check.ok(box.sh("echo first; head -c 80000000 /dev/zero | tr '\\0' x; echo; "
                                 "echo last", limits={"output_bytes": 65536}))
        step = answer["steps"][0]
        check.equal(step["stdout_bytes"], 80000012, "stdout_bytes")
        head, tail = check.cut(answer, 65536)
        check.true(head.startswith(b"first\n") and tail.endswith(b"last\n"), "head or tail")
        events = box.events(answer["id"]).all()
        lost = sum(e["bytes"] for e in events if e["type"] == "omitted")
        check.equal(len(joined(events)) + lost, 80000012, "bytes in events and told as lost")
        check.true(events[-1]["type"] == "done", "last event")
        check.true(pair.memory() - before < 16 << 20, "the server grew by %d",
                   pair.memory() - before)


@test("a follower that does not read delays nobody", deadline=30)
def _(pair):
    with Box.make(pair.client) as box:
        ex = box.start(sh="head -c 30000000 /dev/zero | tr '\\0' x; echo end",
                       limits={"output_bytes": 65536})
        stuck = box.events(ex, follow=True)
        answer = check.ok(box.wait_done(ex, 15))
        check.equal(answer["steps"][0]["stdout_bytes"], 30000004, "stdout_bytes")
        events = stuck.all()
        lost = sum(e["bytes"] for e in events if e["type"] == "omitted")
        check.equal(len(joined(events)) + lost, 30000004, "bytes")


def gone_away(pair, asked, used=False):
    with Box.make(pair.client) as box:
        body = {"sh": "echo up; sleep 1; echo end", "id": "ex_" + nonce()}
        if asked:
            body["cancel_on_disconnect"] = True
        one = pair.client.connection()
        if used:
            one.request("GET", "/v1/me", headers=pair.client.headers())
            one.getresponse().read()
        one.request("POST", box.path + "/exec", json.dumps(pair.client.marked(body)),
                    pair.client.headers(None, b"x"))
        check.eventually(lambda: pair.client.get(box.at(body["id"])).status == 200, 3, "it exists")
        box.wait_output(body["id"], b"up")
        vanish(one)
        answer = box.wait_done(body["id"], 3)
        if asked:
            check.ended(answer, "lost_client")
        else:
            check.equal(check.text(check.ok(answer)), "up\nend\n", "stdout")


table(
    [("a client that hangs up ends nothing", 134, False),
     ("a client that hangs up ends what it asked to be ended", 134, True),
     ("a hang-up is noticed on a connection that had requests before", 134, True, True)],
    gone_away,
)


def bad_events(pair, query):
    with Box.make(pair.client) as box:
        ex = check.ok(box.run(argv=["true"]))["id"]
        check.error(pair.client.get(box.at(ex) + "/events?" + query), 400)


table([("events refuse %s" % q, None, q)
       for q in ("after=-1", "after=x", "follow=maybe", "after=99999999999999999999")], bad_events)


@test("an execution that is not there is 404 on every route")
def _(pair):
    with Box.make(pair.client) as box:
        for name in ("ex_" + "a" * 24, "x", "..%2f", "ex_" + "A" * 24):
            for method, tail, body in (("GET", "", None), ("GET", "/events", None),
                                       ("POST", "/stdin", b"x"),
                                       ("POST", "/signal", {"signal": "TERM"}),
                                       ("POST", "/resize", {"rows": 1, "cols": 1}),
                                       ("DELETE", "", None)):
                kind = ({"Content-Type": "application/octet-stream"}
                        if isinstance(body, bytes) else None)
                check.error(pair.client.request(method, box.at(name) + tail, body, headers=kind),
                            (400, 404))


# Cancel and the list


@test("a cancelled execution ends within a second with its output, the sandbox stays", case=141)
def _(pair):
    with Box.make(pair.client) as box:
        ex = box.start(sh="echo before; sleep 60 & sleep 60")
        box.wait_output(ex, b"before")
        watch = Stopwatch()
        box.cancel(ex)
        answer = box.wait_done(ex, 1.5)
        watch.below(1, "the end")
        check.ended(answer, "cancelled", exit_code=None)
        check.equal(check.text(answer), "before\n", "stdout")
        check.equal(box.text("echo on"), "on\n", "the next")
        check.member(pair.client.delete(box.at(ex)).status, (200, 204, 404), "again")


@test("the list of executions is newest first and tells their states")
def _(pair):
    with Box.make(pair.client) as box:
        made = [check.ok(box.run(argv=["true"]))["id"] for _ in range(3)]
        made.append(box.start(argv=["sleep", "30"]))
        listed = box.executions()
        check.equal([e["id"] for e in listed], made[::-1], "the list")
        check.equal([e["state"] for e in listed], ["running"] + ["done"] * 3, "states")


@test("no more than documented run at once, and the answer says so", case=139, deadline=30)
def _(pair):
    with Box.make(pair.client, limits={"pids": 512}) as box:
        made, answer = [], None
        for _ in range(300):
            answer = box.send(argv=["sleep", "60"], background=True)
            if answer.status != 202:
                break
            made.append(answer.json()["id"])
        if answer.status != 202:
            check.error(answer, (409, 429))
            check.true(len(made) >= 8, "only %d at once", len(made))
            box.cancel(made[0])
            box.wait_done(made[0], 2)
            check.equal(box.text("echo room"), "room\n", "when one has ended")


# What piles up


@test("no zombies, no processes and no descriptors stay in a long-lived sandbox", case=157,
      deadline=30)
def _(pair):
    with Box.make(pair.client) as box:
        check.ok(box.run(argv=["true"]))
        base = clean.settle(pair.snapshot)
        for _ in range(20):
            check.ok(box.sh("for i in {1..20}; do (sleep 0.01 &); done; exit 0"))

        def more():
            now = pair.snapshot()
            return [k for k, v in base.items() if isinstance(v, int) and now[k] > v]

        # An engine makes the next warm containers meanwhile, over connections of the runner's.
        patience = 2 if pair.rounds(10) == 10 else 30
        check.eventually(lambda: not more(), patience, lambda: "at rest again: %s" % more())
        answer = box.text("for p in /proc/[0-9]*/stat; do read -r x < $p && [[ $x == *') Z '* ]] "
                          "&& echo zombie; done 2>/dev/null; echo end")
        check.equal(answer, "end\n", "zombies inside")


@test("wait:false and background answer at once, foreground in time order", deadline=20)
def _(pair):
    with Box.make(pair.client) as box:
        watch = Stopwatch()
        ex = box.start(sh="sleep 0.5; echo end")
        watch.below(0.4, "wait:false")
        check.equal(box.fetch(ex)["state"], "running", "state")
        check.equal(check.text(check.ok(box.wait_done(ex))), "end\n", "stdout")


@test("a fetched execution is the answer it gave")
def _(pair):
    with Box.make(pair.client) as box:
        answer = status(box.send(sh="echo out; echo err >&2; exit 2"), 200).json()
        again = box.fetch(answer["id"])["steps"][0]
        check.equal(again, answer, "the execution")
        check.ended(as_run(answer), "exit", exit_code=2)


@test("stragglers of a foreground command end with it, and are counted", case="54, 67")
def _(pair):
    with Box.make(pair.client) as box:
        watch = Stopwatch()
        answer = box.sh("sleep 100 & echo done; exit 7")
        watch.below(1, "the answer")
        check.ended(answer, "exit", exit_code=7)
        check.equal(answer["steps"][0]["usage"]["stragglers_killed"], 1, "stragglers_killed")
        time.sleep(0.1)
        check.equal(box.text("cat /proc/[0-9]*/comm | grep -c sleep || true"), "0\n", "sleepers")


@test("what is kept can be fetched while the program runs, also when that is much", deadline=30)
def _(pair):
    for cap, size in ((4 * MIB, 6 * MIB), (MIB, 6 * MIB), (8 * MIB, 3 * MIB)):
        with Box.make(pair.client) as box:
            ex = box.start(
                argv=["python3", "-c", "import sys\nfor i in range(%d): print('%%015d' %% i)\n"
                      "sys.stdout.flush(); print('full', file=sys.stderr, flush=True)\n"
                      "sys.stdin.read()" % (size // 16)],
                stdin_open=True, limits={"output_bytes": cap})
            box.wait_output(ex, b"full", kind="stderr")
            path, kept = box.at(ex) + "/stdout", min(cap, size)
            whole = b"".join(b"%015d\n" % i for i in range(size // 16))
            whole = whole[:kept // 2] + whole[size - (kept - kept // 2):]

            def length():
                answer = status(pair.client.get(path, headers={"Range": "bytes=0-0"}), 206)
                return answer.headers["x-pinfold-bytes"] == str(size)

            check.eventually(length, 5, "all of it is there")
            check.true(status(pair.client.get(path), 200).body == whole, "other bytes: %d", cap)
            one = pair.client.connection()
            one.request("GET", path, None, pair.client.headers(
                {"Range": "bytes=%d-" % (kept // 2 - 100)}))
            got = one.getresponse()
            check.equal(got.status, 206, "status")
            first = got.read(50)
            box.stdin(ex, b"", close=True)
            check.ok(box.wait_done(ex))
            check.true(first + got.read() == whole[kept // 2 - 100:], "other bytes at the end")
            one.close()
            check.true(status(pair.client.get(path), 200).body == whole, "other bytes: done")

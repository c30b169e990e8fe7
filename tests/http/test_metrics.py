"""What operators see: /metrics, /readyz, the log."""

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time

import check
import clean
from box import status
from client import nonce, parallel
from harness import Pair
from suite import test

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(r"^(%s)(\{.*\})? ([^ ]+)$" % NAME)
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')


class Family:
    def __init__(self, name):
        self.name, self.help, self.type, self.samples = name, None, None, {}


def labels_of(text):
    """'{a="b",c="d"}' -> (("a", "b"), …)"""
    found, at, inner = [], 0, (text or "{}")[1:-1]
    while at < len(inner):
        match = LABEL.match(inner, at)
        check.true(match, "labels are not well formed: %s", text)
        found.append((match[1], match[2]))
        at = match.end()
    check.equal(len(dict(found)), len(found), "no label twice in " + str(text))
    return tuple(sorted(found))


def family_name(sample, families):
    for end in ("_bucket", "_sum", "_count"):
        base = sample.removesuffix(end)
        if base != sample and base in families and families[base].type == "histogram":
            return base
    return sample


def check_histogram(family):
    """Buckets rise, end with +Inf, and agree with _count; each set of labels has all of them."""
    series = {}
    for (name, labels), value in family.samples.items():
        plain = tuple(pair for pair in labels if pair[0] != "le")
        kind = name[len(family.name) :]
        check.member(kind, ("_bucket", "_sum", "_count"), "a sample of " + family.name)
        bound = dict(labels).get("le")
        check.equal(bound is not None, kind == "_bucket", "le in " + name)
        series.setdefault(plain, {}).setdefault(kind, []).append((bound, value))
    for labels, parts in series.items():
        where = "%s %r" % (family.name, labels)
        check.equal(sorted(parts), ["_bucket", "_count", "_sum"], "parts of " + where)
        bounds = [float(bound) for bound, _ in parts["_bucket"]]
        counts = [value for _, value in parts["_bucket"]]
        check.equal(bounds, sorted(set(bounds)), "bounds of " + where)
        check.equal(bounds[-1], float("inf"), "the last bound of " + where)
        check.equal(counts, sorted(counts), "counts of " + where)
        check.equal(counts[-1], parts["_count"][0][1], "count of " + where)
        if counts[-1] == 0:
            check.equal(parts["_sum"][0][1], 0.0, "sum of nothing in " + where)


def parse(text):
    """What promtool would read and complain of -> {name: Family}."""
    families, current = {}, None
    check.true(text.endswith("\n"), "the last line does not end")
    for line in text.split("\n")[:-1]:
        check.true(line != "", "an empty line")
        if line.startswith("# "):
            kind, name, rest = line[2:].split(" ", 2)
            check.member(kind, ("HELP", "TYPE"), "a comment")
            check.matches(name, "^%s$" % NAME, "a name")
            if current is None or current.name != name:
                check.true(name not in families, "%s is in two places", name)
                current = families[name] = Family(name)
            check.true(not current.samples, "%s of %s behind its samples", kind, name)
            check.equal(getattr(current, kind.lower()), None, "only one %s of %s" % (kind, name))
            setattr(current, kind.lower(), rest)
            continue
        match = SAMPLE.match(line)
        check.true(match, "not a sample: %r", line)
        owner = family_name(match[1], families)
        check.true(current is not None and current.name == owner, "%s is not with its kind", line)
        key = (match[1], labels_of(match[2]))
        check.true(key not in current.samples, "the series %s is there twice", line)
        current.samples[key] = float(match[3])
    for name, family in families.items():
        check.true(name.startswith("pinfold_"), "%s has no prefix", name)
        check.true(family.help and family.help.endswith("."), "HELP of %s: %s", name, family.help)
        check.member(family.type, ("counter", "gauge", "histogram"), "TYPE of " + name)
        check.true(family.samples, "%s has no sample", name)
        check.equal(
            name.endswith("_total"), family.type == "counter", "_total in the name of " + name
        )
        check.lacks(name, "_ms", "a name: base units are seconds and bytes")
        if family.type == "histogram":
            check_histogram(family)
        for value in family.samples.values():
            check.true(value >= 0, "a value of %s is below 0", name)
    return families


def scrape(client, path="/metrics"):
    answer = status(client.get(path), 200)
    check.equal(
        answer.headers["content-type"],
        "text/plain; version=0.0.4; charset=utf-8",
        "Content-Type",
    )
    return parse(answer.body.decode("utf-8"))


def value(families, sample, **labels):
    """Of one series."""
    key = ("pinfold_" + sample, tuple(sorted(labels.items())))
    for family in families.values():
        if key in family.samples:
            return family.samples[key]
    check.fail("there is no series %s %r", sample, labels)
    return None


def grown(before, after, sample, **labels):
    return value(after, sample, **labels) - value(before, sample, **labels)


@test("metrics are what Prometheus reads, before and after work")
def valid(pair):
    before = scrape(pair.client)
    check.ok(pair.client.run(argv=["true"]))
    pair.client.run(argv=["false"])
    pair.client.run(argv=["sleep", "9"], limits={"wall_ms": 100})
    pair.client.get("/v1/runs/run_nosuch")
    pair.client.send(argv=["true"], policy="no-such")
    box = status(pair.client.post("/v1/sandboxes", {}), 201).json()["id"]
    status(pair.client.post("/v1/sandboxes/%s/exec" % box, {"sh": "exit 4"}), 200)
    pair.client.delete("/v1/sandboxes/" + box)
    after = scrape(pair.client)
    for wanted, sample, labels in (
        (3, "runs_accepted_total", {}),
        (1, "runs_ended_total", {"ok": "true"}),
        (2, "runs_ended_total", {"ok": "false"}),
        (2, "step_ends_total", {"cause": "exit"}),
        (1, "step_ends_total", {"cause": "wall_time"}),
        (1, "execution_ends_total", {"cause": "exit"}),
        (3, "queue_wait_seconds_count", {}),
        (3, "start_latency_seconds_count", {}),
        (3, "run_duration_seconds_count", {}),
        (1, "execution_wall_seconds_count", {}),
        (1, "refusals_total", {"reason": "not_found"}),
        (1, "refusals_total", {"reason": "unknown_policy"}),
        (5, "http_request_duration_seconds_count", {"route": "runs"}),
        (1, "http_request_duration_seconds_count", {"route": "exec"}),
        (1, "sandboxes_created_total", {}),
    ):
        check.equal(grown(before, after, sample, **labels), wanted, "%s %r" % (sample, labels))
    check.within(
        0.1, grown(before, after, "run_duration_seconds_sum"), 3, "run_duration_seconds_sum"
    )
    check.true(grown(before, after, "loop_round_seconds_count") > 10, "rounds of the loop")
    check.true(grown(before, after, "loop_round_seconds_sum") > 0, "their time")
    check.within(
        0.00001, grown(before, after, "start_latency_seconds_sum"), 1, "start_latency_seconds_sum"
    )
    # A run of 100 ms is above the bound of 100 ms, and so in the next bucket.
    check.equal(
        grown(before, after, "run_duration_seconds_bucket", le="0.5")
        - grown(before, after, "run_duration_seconds_bucket", le="0.1"),
        1,
        "runs between 100 and 500 ms",
    )


@test("metrics show the pool, the layers, the disk and the queue")
def gauges(pair):
    seen = scrape(pair.client)
    check.equal(value(seen, "ready"), 1, "ready")
    for layer in ("server", "runner", "store", "disk", "queue", "audit"):
        check.equal(value(seen, "layer_healthy", layer=layer), 1, "layer " + layer)
    check.true(value(seen, "state_free_bytes") > 0, "no free space")
    check.true(value(seen, "users") >= 1, "no user")
    slots = sum(seen["pinfold_shard_slots"].samples.values())
    check.equal(slots, value(seen, "slots"), "slots of all shards")
    check.equal(value(seen, "slots"), pair.slots * pair.shards, "slots")
    run = pair.client.submit(argv=["sleep", "20"])
    try:
        pair.client.wait_state(run, ("running",))
        seen = scrape(pair.client)
        check.equal(value(seen, "runs_active"), 1, "runs_active")
        check.equal(value(seen, "slots_in_use"), 1, "slots_in_use")
        check.equal(sum(seen["pinfold_shard_slots_in_use"].samples.values()), 1, "of the shards")
        check.equal(value(seen, "users_active"), 1, "users_active")
    finally:
        pair.client.delete("/v1/runs/" + run)


@test("metrics name nobody, unless somebody who may asks for users", case=137)
def users(pair):
    name = "metrics-" + nonce()[:8]
    other = pair.user_client(name)
    run = other.submit(argv=["sleep", "20"])
    try:
        other.wait_state(run, ("running",))
        text = status(pair.client.get("/metrics"), 200).body.decode()
        check.lacks(text, name, "the metrics")
        seen = scrape(pair.client, "/metrics?users=true")
        check.equal(value(seen, "user_used", user=name, quota="runs"), 1, "runs of the user")
        check.error(other.get("/metrics"), 403)
        check.error(other.get("/metrics?users=true"), 403)
        check.error(pair.client.get("/metrics?users=maybe"), 400)
    finally:
        other.delete("/v1/runs/" + run)
        other.close()


# /readyz


def ready(pair):
    """-> (status, {layer: message})"""
    answer = pair.client.get("/readyz", headers={"Authorization": None})
    body = answer.json()
    check.equal(body["ready"], answer.status == 200, "ready")
    check.equal(body["reasons"] == [], answer.status == 200, "no reasons")
    for reason in body["reasons"]:
        check.equal(sorted(reason), ["layer", "message"], "fields of a reason")
        check.true(len(reason["message"]) > 8, "no sentence: %r", reason)
    if answer.status != 200:
        check.equal(answer.status, 503, "status")
        check.equal(body["error"]["code"], "not_ready", "code")
        check.equal(answer.headers.get("retry-after"), "1", "Retry-After")
    else:
        check.equal(body["status"], "ready", "status")
    return answer.status, {r["layer"]: r["message"] for r in body["reasons"]}


def turns(pair, layer, seconds=10):
    """Waits until /readyz is red because of this layer -> the message; /healthz stays green, and
    /metrics says the same."""
    check.eventually(lambda: layer in ready(pair)[1], seconds, "red because of " + layer)
    check.equal(pair.probe("/healthz"), 200, "/healthz")
    seen = scrape(pair.client)
    check.equal(value(seen, "layer_healthy", layer=layer), 0, "layer_healthy of " + layer)
    check.equal(value(seen, "ready"), 0, "ready")
    return ready(pair)[1][layer]


def turns_green(pair, seconds=10):
    check.eventually(lambda: ready(pair)[0] == 200, seconds, "green")
    check.equal(value(scrape(pair.client), "ready"), 1, "ready in the metrics")


@test("readyz: no runner, then one again", own=True, deadline=30)
def red_runner(_):
    pair = Pair(slots=2, warm=1).start()
    try:
        check.equal(ready(pair), (200, {}), "at first")
        shards = clean.identity(pair.shard_pids())
        pair.kill9_runner()
        turns(pair, "runner")
        check.eventually(lambda: not clean.alive(shards), 5, "the shards are gone")
        check.error(pair.client.send(argv=["true"]), 503, "no_runner")
        pair.start_runner()
        turns_green(pair)
        check.ok(pair.client.run(argv=["true"]))
    finally:
        pair.stop()


@test("readyz: a full queue, then room again", own=True, deadline=30)
def red_queue(_):
    pair = Pair(slots=1, warm=1, server_args=["--queue", "1"]).start()
    try:
        first = pair.client.submit(argv=["sleep", "20"])
        pair.client.wait_state(first, ("running",))
        second = pair.client.submit(argv=["true"])
        turns(pair, "queue")
        pair.client.delete("/v1/runs/" + first)
        pair.client.wait_done(second)
        turns_green(pair)
    finally:
        pair.stop()


@test("readyz: draining", own=True, deadline=30)
def red_drain(_):
    pair = Pair(slots=1, warm=1, server_args=["--grace", "15s"]).start()
    try:
        run = pair.client.submit(argv=["sleep", "20"])
        pair.client.wait_state(run, ("running",))
        os.kill(pair.server_pid, signal.SIGTERM)
        turns(pair, "server")
        pair.client.delete("/v1/runs/" + run)
        check.equal(pair.server.wait(10), 0, "exit code")
        pair.server = None
        pair.start_server()
        pair.wait_ready()
        turns_green(pair)
    finally:
        pair.stop()


@contextlib.contextmanager
def small(path, owner_of, size):
    """A file system of its own at `path`, of this many bytes, as if that disk were small."""
    os.makedirs(path, exist_ok=True)
    owner = os.stat(owner_of)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o",
         "size=%d,mode=755,uid=%d,gid=%d" % (size, owner.st_uid, owner.st_gid),
         clean.TEST_MOUNT + "seeing", path],
        check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", path], check=False)


def fill(path):
    """Takes all the space that is left where `path` is, even that of a file that grows."""
    with open(path, "ab", buffering=0) as file:
        for size in (1 << 20, 4096, 64):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                pass


def accepts(pair):
    return pair.client.send(argv=["true"]).status == 200


@test("readyz: the disk of the state directory is full, then has room again", own=True, deadline=40)
def red_disk(_):
    with tempfile.TemporaryDirectory(prefix="pinfold-small-") as work:
        os.chmod(work, 0o755)
        disk = os.path.join(work, "disk")
        with small(disk, work, 160 << 20):
            pair = Pair(slots=2, warm=1, state=os.path.join(disk, "state")).start()
            try:
                check.ok(pair.client.run(argv=["true"]))
                free = value(scrape(pair.client), "state_free_bytes")
                check.within(1 << 20, free, 160 << 20, "state_free_bytes")
                fill(os.path.join(disk, "fill"))
                sentence = turns(pair, "store")
                check.matches(sentence, "full|space", "the reason")
                check.true("disk" in ready(pair)[1], "no layer disk: %r", ready(pair))
                check.within(0, value(scrape(pair.client), "state_free_bytes"), 20 << 20, "free")
                check.member(pair.client.send(argv=["true"]).status, (503, 507), "a run")
                os.unlink(os.path.join(disk, "fill"))
                turns_green(pair)
                check.eventually(lambda: accepts(pair), 5, "work is taken again")
                about = [line for line in log_lines(pair, "not_ready") if line["layer"] == "store"]
                check.equal(len(about), 1, "lines about it")
                check.equal(log_lines(pair, "ready")[-1]["ts"] > about[0]["ts"], True, "its end")
            finally:
                pair.stop()


@test("readyz: the audit log cannot be written, then it can again", own=True, deadline=40)
def red_audit(_):
    pair = Pair(slots=2, warm=1)
    pair.init()
    server = os.path.join(pair.state, "server")
    audit = os.path.join(server, "audit")
    with small(audit, server, 256 << 10):
        pair.start()
        try:
            check.ok(pair.client.run(argv=["true"]))
            fill(os.path.join(audit, "fill"))
            # What is left of the last page of the log is used up first.
            check.eventually(lambda: not accepts(pair), 10, "runs are refused")
            check.holds(turns(pair, "audit"), "audit", "the reason")
            check.error(pair.client.send(argv=["true"]), 503, "audit")
            os.unlink(os.path.join(audit, "fill"))
            turns_green(pair)
            check.ok(pair.client.run(argv=["true"]))
        finally:
            pair.stop()


# The log


def log_lines(pair, event):
    """Lines of the server's log with this event, as {key: value}."""
    found = []
    with open(os.path.join(pair.work, "server.log"), encoding="utf-8") as file:
        for line in file:
            fields = dict(re.findall(r'(\w+)=("[^"]*"|[^ "\n]*)', line))
            if fields.get("event") == event:
                found.append({k: v.strip('"') for k, v in fields.items()})
    return found


@test("the log of events: who, with which token, which run, which trace; and no secrets",
      case=148, own=True, deadline=30)
def log_events(_):
    pair = Pair(slots=2, warm=1, server_args=["--verbose"]).start()
    secret, evil = "SECRET" + nonce(), "\n[ERROR] forged\x1b]0;x\x07%s%n"
    try:
        run = pair.client.run(argv=["echo", secret, evil], env={"KEY": secret})
        check.error(
            pair.client.get("/v1/runs/%s?x=%s" % ("a%0A%1B", secret),
                            headers={"Authorization": "Bearer " + secret}), 401
        )
        for kind in ("run_accepted", "run_ended"):
            check.eventually(lambda: log_lines(pair, kind), 5, kind)
            line = log_lines(pair, kind)[-1]
            check.equal(line["run"], run["id"], "run of " + kind)
            check.equal(line["user"], "admin", "user of " + kind)
            check.matches(line["token"], "^tok_", "token of " + kind)
            check.equal(line["trace"], run["trace"]["id"], "trace of " + kind)
        check.equal(log_lines(pair, "run_ended")[-1]["cause"], "exit", "cause")
        check.eventually(lambda: log_lines(pair, "refused"), 5, "refused")
        line = log_lines(pair, "refused")[-1]
        check.equal([line["status"], line["code"]], ["401", "unauthorized"], "the refusal")
        check.eventually(
            lambda: any(x["route"] == "/v1/runs" and x["status"] == "200"
                        for x in log_lines(pair, "request")), 5, "the request's line"
        )
        text = pair.log_bytes()
        for word in (secret, "forged", pair.token):
            check.true(word.encode() not in text, "%s is in the log", word)
        for byte in text:
            check.true(byte == 10 or 32 <= byte < 127, "the byte %d is in the log", byte)
    finally:
        pair.stop()


@test("a log that cannot be written stops nothing", own=True, deadline=40)
def log_full(_):
    pair = Pair(slots=2, warm=1, server_args=["--log-level", "debug"])
    pair.init()
    with small(os.path.join(pair.work, "log"), pair.work, 64 << 10):
        log = os.path.join(pair.work, "log", "server.log")
        os.symlink(log, os.path.join(pair.work, "server.log"))
        pair.start()
        try:
            other = os.path.join(pair.work, "log", "fill")
            fill(other)
            for _ in range(30):
                check.ok(pair.client.run(argv=["true"]))
            check.eventually(
                lambda: accepts(pair) and value(scrape(pair.client), "log_lines_lost_total") > 0,
                10, "lines are lost")
            os.unlink(other)
            check.ok(pair.client.run(argv=["true"]))
            check.eventually(
                lambda: b" lost=" in pair.log_bytes() and pair.probe("/healthz"), 5,
                "the next line says how many were lost")
        finally:
            pair.stop()


@test("the level of the log is a setting", own=True, deadline=30)
def log_level(_):
    for level, wanted in (("info", 1), ("error", 0)):
        pair = Pair(slots=2, warm=1, server_args=["--log-level", level]).start()
        try:
            check.ok(pair.client.run(argv=["true"]))
            check.equal(len(log_lines(pair, "serving")), wanted, "lines `serving` with " + level)
            check.equal(log_lines(pair, "run_ended"), [], "lines about runs with " + level)
        finally:
            pair.stop()


@test("refusals do not flood the log", own=True, deadline=30)
def log_flood(_):
    pair = Pair(slots=2, warm=1).start()
    try:
        began = time.monotonic()
        parallel(4, lambda _: [
            pair.client.get("/v1/me", headers={"Authorization": "Bearer x"}) for _ in range(100)
        ])
        seconds = time.monotonic() - began
        most = 20 * (int(seconds) + 2)
        check.within(1, len(log_lines(pair, "refused")), most, "lines about refusals")
        # The next one says how many were left out.
        def told():
            pair.client.get("/v1/me", headers={"Authorization": "Bearer x"})
            return any("left_out" in line for line in log_lines(pair, "refused"))
        check.eventually(told, 5, "left_out")
    finally:
        pair.stop()

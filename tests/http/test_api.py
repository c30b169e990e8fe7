"""Requests: what is refused, by which code and field, and who may ask."""

import json
import re

import canary
import check
import harness
from check import Stopwatch
from client import nonce, parallel
from suite import table, test

MIB = 1 << 20

# Limits: raw JSON, so that what no library would write can be sent.
BAD_LIMITS = [
    "0",
    "-1",
    "1e308",
    "NaN",
    '"100"',
    "1.5",
    "null",
    "true",
    "9223372036854775808",
    "[]",
    "{}",
    "1e3",
    "-0",
    "18446744073709551616",
    "Infinity",
]
LIMITS = ("wall_ms", "mem_bytes", "pids")


def raw(pair, text, **more):
    body = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return pair.client.post("/v1/runs", body, **more)


def bad_limit(pair, name, value):
    answer = raw(pair, '{"argv":["true"],"limits":{"%s":%s}}' % (name, value))
    error = check.error(answer, 400)
    if value not in (
        "NaN",
        "Infinity",
        "9223372036854775808",
        "18446744073709551616",
    ):
        check.equal(error.get("field"), "/limits/" + name, "error.field")


table(
    [
        ("%s: %s is refused" % (name, value), 127, name, value)
        for name in LIMITS
        for value in BAD_LIMITS
    ],
    bad_limit,
)

# What is wrong, the body, the field that the error names (None: any or none).
BAD_FIELDS = [
    ("a misspelt limit", {"argv": ["true"], "limits": {"wal_ms": 1000}}, "/limits/wal_ms"),
    ("a misspelt field", {"argv": ["true"], "netwrok": False}, "/netwrok"),
    (
        "a field of a step that does not exist",
        {"steps": [{"argv": ["true"], "x": 1}]},
        "/steps/0/x",
    ),
    (
        "a field of a file that does not exist",
        {"argv": ["true"], "files": [{"path": "a", "content": "", "x": 1}]},
        "/files/0/x",
    ),
    ("argv and sh", {"argv": ["true"], "sh": "true"}, None),
    ("argv and steps", {"argv": ["true"], "steps": [{"sh": "true"}]}, None),
    ("a step with argv and sh", {"steps": [{"argv": ["true"], "sh": "true"}]}, None),
    ("a step with neither", {"steps": [{"name": "x"}]}, None),
    ("none of steps, argv, sh", {}, None),
    ("no steps", {"steps": []}, "/steps"),
    ("an empty argv", {"argv": []}, "/argv"),
    ("argv as a string", {"argv": "true"}, "/argv"),
    ("a number in argv", {"argv": ["a", 1]}, "/argv/1"),
    ("a NUL in argv", {"argv": ["a", "b\0c"]}, "/argv/1"),
    ("a NUL in sh", {"sh": "echo \0"}, "/sh"),
    ("an empty argv[0]", {"argv": [""]}, "/argv/0"),
    ("a NUL in env", {"argv": ["true"], "env": {"A": "\0"}}, "/env/A"),
    ("an = in the name of a variable", {"argv": ["true"], "env": {"A=B": "x"}}, None),
    ("an empty name of a variable", {"argv": ["true"], "env": {"": "x"}}, None),
    ("a number as a variable", {"argv": ["true"], "env": {"A": 1}}, "/env/A"),
    ("env as a list", {"argv": ["true"], "env": ["A=1"]}, "/env"),
    ("a relative cwd with a NUL", {"argv": ["true"], "cwd": "/tmp\0"}, "/cwd"),
    ("cwd as a number", {"argv": ["true"], "cwd": 1}, "/cwd"),
    ("stdin as a number", {"argv": ["true"], "stdin": 1}, "/stdin"),
    (
        "an unknown encoding of stdin",
        {"argv": ["true"], "stdin": "", "stdin_encoding": "latin1"},
        "/stdin_encoding",
    ),
    (
        "base64 that is none",
        {"argv": ["true"], "stdin": "a*b", "stdin_encoding": "base64"},
        "/stdin",
    ),
    ("base64 that is cut", {"argv": ["true"], "stdin": "YQ", "stdin_encoding": "base64"}, "/stdin"),
    ("wait as a string", {"argv": ["true"], "wait": "yes"}, "/wait"),
    ("stream as a number", {"argv": ["true"], "stream": 1}, "/stream"),
    ("a network that does not exist", {"argv": ["true"], "network": "host"}, None),
    ("a network as a boolean", {"argv": ["true"], "network": False}, "/network"),
    ("limits as a list", {"argv": ["true"], "limits": []}, "/limits"),
    ("files as an object", {"argv": ["true"], "files": {}}, "/files"),
    ("collect as a string", {"argv": ["true"], "collect": "x"}, "/collect"),
    ("an unknown end_on", {"argv": ["true"], "end_on": ["memory"]}, None),
    ("a policy that does not exist", {"argv": ["true"], "policy": "nosuch"}, "/policy"),
    ("an image that does not exist", {"argv": ["true"], "image": "nosuch"}, "/image"),
    (
        "a file's mode as a number",
        {"argv": ["true"], "files": [{"path": "a", "content": "", "mode": 420}]},
        "/files/0/mode",
    ),
    (
        "a file's mode that is no octal number",
        {"argv": ["true"], "files": [{"path": "a", "content": "", "mode": "0999"}]},
        "/files/0/mode",
    ),
    ("a file without a path", {"argv": ["true"], "files": [{"content": ""}]}, None),
    (
        "a step's name with control characters",
        {"steps": [{"name": "a\nb", "sh": "true"}]},
        "/steps/0/name",
    ),
    ("too many steps", {"steps": [{"sh": "true"}] * 1001}, "/steps"),
    (
        "a step wish for the disk",
        {"steps": [{"sh": "true", "limits": {"disk_bytes": 1000000}}]},
        None,
    ),
]


def bad_field(pair, body, field):
    watch = Stopwatch()
    answer = pair.client.post("/v1/runs", body)
    watch.below(1, "the answer")
    error = check.error(answer, (400, 404) if "nosuch" in str(body) else 400)
    if field is not None:
        check.equal(error.get("field"), field, "error.field")


table([("is refused: " + row[0], 128) + row[1:] for row in BAD_FIELDS], bad_field)

# Hostile JSON (case 130): what, the body.
HOSTILE = [
    ("100,000 opening brackets", "[" * 100000),
    ("100,000 opening braces", '{"a":' * 100000),
    ("100,000 nested arrays, closed", '{"argv":' + "[" * 100000 + "]" * 100000 + "}"),
    (
        "a number of a million digits",
        '{"argv":["true"],"limits":{"wall_ms":' + "1" * 1000000 + "}}",
    ),
    ("an escape that is cut", '{"argv":["\\u00"]}'),
    ("a lone surrogate", '{"argv":["\\ud800"]}'),
    ("raw bytes that are not UTF-8", b'{"argv":["\xff"]}'),
    ("text after the object", '{"argv":["true"]} x'),
    ("two objects", '{"argv":["true"]}{"argv":["true"]}'),
    ("a byte order mark", "\ufeff" + '{"argv":["true"]}'),
    ("an empty body", ""),
    ("only spaces", "   \n"),
    ("null", "null"),
    ("a string", '"argv"'),
    ("a list", '["true"]'),
    ("single quotes", "{'argv':['true']}"),
    ("a trailing comma", '{"argv":["true"],}'),
    ("a comment", '{"argv":["true"]/* x */}'),
    ("a key twice", '{"argv":["true"],"argv":["false"]}'),
    ("a limit twice", '{"argv":["true"],"limits":{"wall_ms":1,"wall_ms":60000}}'),
    ("a key twice, once escaped", '{"argv":["true"],"cwd":"/tmp","c\\u0077d":"/"}'),
    ("a NUL in a key", '{"argv":["true"],"cwd\\u0000x":"/"}'),
    ("a raw NUL", b'{"argv":["true"]}\0'),
    ("a raw control character in a string", '{"argv":["a\nb"]}'),
    ("200,000 keys", "{" + ",".join('"k%d":1' % i for i in range(200000)) + "}"),
]


HOSTILE_SECONDS = 0.1


def hostile(pair, body):
    pid, took = pair.server_pid, []
    # Once it must be that quick: other tests want the processors, too.
    while not took or (min(took) >= HOSTILE_SECONDS and len(took) < 5):
        watch = Stopwatch()
        answer = raw(pair, body)
        took.append(watch.seconds())
        check.error(answer, (400, 413))
    check.true(min(took) < HOSTILE_SECONDS * (10 if harness.sanitized() else 1), "answers took %s s", took)
    check.equal(pair.server_pid, pid, "the server's pid")
    check.ok(pair.client.run(argv=["true"]))


table([("hostile JSON: " + row[0], 130) + row[1:] for row in HOSTILE], hostile)


@test("a 10 MB string is carried or refused, quickly", case=130)
def _(pair):
    watch = Stopwatch()
    answer = raw(pair, json.dumps({"argv": ["true"], "stdin": "x" * 10000000}))
    watch.below(2, "the answer")
    check.equal(answer.status, 200, "status")
    check.error(raw(pair, json.dumps({"argv": ["true", "x" * 10000000]})), (400, 413))


SIZES = [
    ("argv", {"argv": ["/bin/echo", "x" * 131071]}, 200),
    ("argv", {"argv": ["/bin/echo", "x" * 131072]}, 400),
    ("sh", {"sh": "#" + "x" * 200000}, 400),
    ("env", {"argv": ["true"], "env": {"A": "x" * 200000}}, 400),
]


def size(pair, what, body, status):
    answer = pair.client.post("/v1/runs", body)
    if status == 200:
        check.equal(answer.status, 200, "status")
        check.ok(answer.json())
    else:
        error = check.error(answer, 400)
        check.matches(error["message"], r"131071|128 KiB|131072", "the limit in the message")
        check.true(
            error.get("field", "").startswith("/" + what), "error.field is %r", error.get("field")
        )


table(
    [
        (
            "%s of %d bytes: %d" % (what, max(len(str(v)) for v in body.values()), status),
            116,
            what,
            body,
            status,
        )
        for what, body, status in SIZES
    ],
    size,
)


def code_size(pair, count):
    answer = check.ok(
        pair.client.run(
            argv=["python3", "main.py"],
            files=[{"path": "main.py", "content": "x = '%s'\nprint(len(x))\n" % ("y" * count)}],
        )
    )
    check.equal(check.text(answer), "%d\n" % count, "stdout")


table(
    [("code of %d bytes works as a file" % n, 116, n) for n in (131071, 131072, 1000000)], code_size
)


@test("everything omitted: no network, no root, all caps on", case=129)
def _(pair):
    answer = check.ok(pair.client.post("/v1/runs", {"argv": ["id"]}).json())
    check.matches(check.text(answer), r"^uid=1000\(user\) gid=1000\([a-z]+\)", "id")
    check.equal(answer["network"]["mode"], "none", "network.mode")
    check.equal(
        {one["from"] for one in answer["limits"].values()}, {"default"}, "where limits come from"
    )


@test("the environment of the request is passed, and may replace the defaults")
def _(pair):
    answer = check.ok(
        pair.client.sh(
            'echo "$A|$HOME|$LANG"; pwd', env={"A": "é 'x' \"y\"\n", "LANG": "C"}, cwd="/tmp"
        )
    )
    check.equal(check.text(answer), "é 'x' \"y\"\n|/home/user|C\n/tmp\n", "stdout")


# Tokens (case 138)
def token_rows():
    return [
        ("no header", lambda t: None),
        ("only the scheme", lambda t: "Bearer"),
        ("an empty token", lambda t: "Bearer "),
        ("another scheme", lambda t: "Basic " + t),
        ("a wrong token", lambda t: "Bearer pf_" + "a" * 52),
        ("a prefix of the token", lambda t: "Bearer " + t[:-1]),
        ("the token and more", lambda t: "Bearer " + t + "a"),
        ("upper case", lambda t: "Bearer " + t.upper()),
        ("only the token", lambda t: t),
        ("a list of tokens", lambda t: "Bearer x, Bearer " + t),
        ("a very long token", lambda t: "Bearer " + "a" * 6000),
        ("a NUL-like escape", lambda t: "Bearer " + t + "%00"),
    ]


ROUTES = [
    ("POST", "/v1/runs"),
    ("GET", "/v1/runs"),
    ("GET", "/v1/runs/run_aaaaaaaaaaaaaaaaaaaaaaaa"),
    ("DELETE", "/v1/runs/run_aaaaaaaaaaaaaaaaaaaaaaaa"),
    ("GET", "/v1/policies"),
    ("GET", "/v1/policies/default"),
    ("GET", "/v1/capabilities"),
    ("GET", "/metrics"),
    ("GET", "/v1/me"),
    ("GET", "/v1/images"),
    ("GET", "/v1/runs/run_aaaaaaaaaaaaaaaaaaaaaaaa/events"),
]


def token(pair, make):
    for method, path in ROUTES:
        body = {"argv": ["touch", "/tmp/x"]} if method == "POST" else None
        answer = pair.client.request(method, path, body, {"Authorization": make(pair.token)})
        error = check.error(answer, 401, "unauthorized")
        check.lacks(error["message"], pair.token[:12], "message")
        check.holds(answer.headers.get("www-authenticate", ""), "Bearer", "WWW-Authenticate")


table([("401 on every route for %s" % name, 138, make) for name, make in token_rows()], token)


@test("a token in the query is no token", case=138)
def _(pair):
    answer = pair.client.get(
        "/v1/runs?token=%s&access_token=%s" % (pair.token, pair.token),
        headers={"Authorization": None},
    )
    check.equal(answer.status, 401, "status")


@test("the scheme's name may be written in any case", case=138)
def _(pair):
    answer = pair.client.get("/v1/runs", headers={"Authorization": "bearer " + pair.token})
    check.equal(answer.status, 200, "status")


@test("no token, no secret, no output and no environment in the logs", case="138, 148")
def _(pair):
    mark = nonce()
    check.ok(pair.client.sh("echo %s; echo $K" % mark, env={"K": mark}, stdin=mark))
    pair.client.get("/v1/runs", headers={"Authorization": "Bearer " + pair.token + "x"})
    text = pair.log_bytes().decode("utf-8", "replace")
    for secret in (pair.token, mark, canary.SECRET):
        check.lacks(text, secret, "the log")


@test("text from requests cannot forge log lines", case=148)
def _(pair):
    wild = "x\n[ERROR] forged\x1b]0;x\x07%s%n\r\nFORGED"
    pair.client.post("/v1/runs", {"argv": [wild], "policy": wild})
    pair.client.run(argv=["/no/" + wild], env={"A": wild})
    pair.client.run(steps=[{"argv": ["/no/" + wild]}], cwd="/" + wild)
    pair.client.raw(
        b"GET /%0a[ERROR]%20forged%1b HTTP/1.1\r\nHost: x\r\nUser-Agent: \x1b]0;x\x07\r\n"
        b"Connection: close\r\n\r\n"
    )
    log = pair.log_bytes()
    check.true(b"\x1b" not in log and b"\x07" not in log, "a raw control character in the log")
    check.true(not re.search(rb"^(\[ERROR\] forged|FORGED)", log, re.M), "a forged line in the log")


@test("a start failure with a hostile path stays one line of text", case=148)
def _(pair):
    wild = "/no/\x1b[31m\n\u00e9x"
    end = check.ended(pair.client.run(argv=[wild]), "start")
    check.equal(end["evidence"]["path"], wild, "evidence.path")
    check.true(
        "\n" not in end["message"] and "\x1b" not in end["message"], "message is %r", end["message"]
    )


# Routes
WRONG = [
    ("GET", "/", 404),
    ("GET", "/v1", 404),
    ("GET", "/v1/nosuch", 404),
    ("GET", "/v2/runs", 404),
    ("GET", "/v1/runs/", 404),
    ("GET", "/v1/runs/run_aaaaaaaaaaaaaaaaaaaaaaaa", 404),
    ("GET", "/v1/runs/x", 404),
    ("GET", "/v1/runs/RUN_AAAA", 404),
    ("GET", "/v1/runs/" + "a" * 300, 404),
    ("GET", "/v1/runs/..%2f..%2fetc", 404),
    ("GET", "/v1/runs/%00", (400, 404)),
    ("GET", "/v1/runs/../runs", 404),
    ("GET", "//v1/runs", 404),
    ("GET", "/v1/policies/nosuch", 404),
    ("GET", "/v1/policies/..%2f..%2fetc%2fpasswd", 404),
    ("DELETE", "/v1/runs/run_aaaaaaaaaaaaaaaaaaaaaaaa", 404),
    ("GET", "/v1/runs/run_aaaaaaaaaaaaaaaaaaaaaaaa/events", 404),
    ("PUT", "/v1/runs", 405),
    ("DELETE", "/v1/runs", 405),
    ("PATCH", "/v1/runs", 405),
    ("POST", "/healthz", 405),
    ("POST", "/v1/policies", 405),
    ("PUT", "/v1/capabilities", 405),
]


def wrong(pair, method, path, status):
    answer = pair.client.request(method, path)
    check.error(answer, status)
    if status == 405:
        check.true(
            re.fullmatch(r"[A-Z]+(, [A-Z]+)*", answer.headers.get("allow", "")),
            "Allow is %r",
            answer.headers.get("allow"),
        )


table(
    [
        ("%s %s: %s" % (method, path[:60], status), 123, method, path, status)
        for method, path, status in WRONG
    ],
    wrong,
)


@test("a body that is not JSON by its own word is 415")
def _(pair):
    check.error(
        pair.client.post("/v1/runs", {"argv": ["true"]}, headers={"Content-Type": "text/plain"}),
        415,
    )
    for kind in ("application/json", "application/json; charset=utf-8", None):
        answer = pair.client.post("/v1/runs", {"argv": ["true"]}, headers={"Content-Type": kind})
        check.equal(answer.status, 200, "status for Content-Type %s" % kind)


@test("healthz, readyz and openapi.json need no token, and HEAD works")
def _(pair):
    for path in ("/healthz", "/readyz", "/openapi.json"):
        answer = pair.client.get(path, headers={"Authorization": None})
        check.equal(answer.status, 200, "status of " + path)
        head = pair.client.request("HEAD", path, headers={"Authorization": None})
        check.equal((head.status, head.body), (200, b""), "HEAD " + path)
    described = pair.client.get("/openapi.json").json()
    check.true(
        str(described["openapi"]).startswith("3."), "openapi is %r", described.get("openapi")
    )
    for path in (
        "/v1/runs",
        "/v1/runs/{id}",
        "/v1/runs/{id}/events",
        "/v1/policies",
        "/v1/capabilities",
    ):
        check.true(path in described["paths"], "openapi.json lacks %s", path)


@test("capabilities list every limit and layer with how and proof", case=50)
def _(pair):
    seen = pair.client.get("/v1/capabilities").json()
    rows = seen["capabilities"] if isinstance(seen, dict) and "capabilities" in seen else seen
    rows = {row["name"]: row for row in rows} if isinstance(rows, list) else rows
    for name in (
        "wall_ms",
        "cpu_ms",
        "mem_bytes",
        "pids",
        "disk_bytes",
        "inodes",
        "output_bytes",
        "open_files",
        "cpus_milli",
    ):
        check.true(name in rows, "no capability for %s: %s", name, sorted(rows))
    for name, row in rows.items():
        check.member(row["status"], ("enforced", "unavailable"), name + ".status")
        if row["status"] == "enforced":
            check.true(row.get("how") and row.get("proof"), "%s has no how or proof: %r", name, row)
    check.true(
        any("seccomp" in name for name in rows), "no capability for seccomp: %s", sorted(rows)
    )


@test("metrics are counts, and tell no command, id or path", case=137)
def _(pair):
    mark = nonce()
    run = check.ok(pair.client.run(argv=["echo", mark]))["id"]
    answer = pair.client.get("/metrics")
    check.holds(answer.headers["content-type"], "text/plain", "Content-Type")
    text = answer.body.decode()
    for word in (mark, run, pair.state, pair.token):
        check.lacks(text, word, "the metrics")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            check.matches(
                line,
                r"^[a-zA-Z_:][a-zA-Z0-9_:]*(\{[^{}]*\})? [0-9.eE+-]+$",
                "a line of the metrics",
            )
    check.holds(text, "pinfold_", "the metrics")


@test("me and images answer")
def _(pair):
    me = pair.client.get("/v1/me").json()
    check.equal(me.get("user"), "admin", "user")
    images = pair.client.get("/v1/images").json()
    names = [row["name"] for row in (images["images"] if isinstance(images, dict) else images)]
    check.true("host" in names, "no image host: %s", names)


@test("32 clients: no answer is mixed up with another", deadline=40)
def _(pair):
    def one(index):
        for turn in range(12):
            mark = nonce()
            if turn % 4 == 0:
                answer = pair.client.run(argv=["cat"], stdin=mark)
            elif turn % 4 == 1:
                answer = pair.client.run(sh="echo $N >&2; printf %s $N", env={"N": mark})
                check.equal(check.text(answer, stream="stderr"), mark + "\n", "stderr")
            elif turn % 4 == 2:
                answer = pair.client.run(
                    argv=["cat", "f"], files=[{"path": "f", "content": mark}], collect=["f"]
                )
                check.equal(answer["files"][0]["content"], mark, "collected file")
            else:
                answer = pair.client.run(
                    steps=[{"argv": ["printf", mark]}, {"sh": "exit %d" % (index % 7)}]
                )
                check.ended(answer, "exit", 1, exit_code=index % 7)
            check.equal(check.text(answer), mark, "stdout")
            check.equal(check.text(pair.client.fetch(answer["id"])), mark, "stored stdout")

    parallel(32, one)

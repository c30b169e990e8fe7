"""Hostile framing, slow clients, vanishing clients, huge bodies: raw sockets against the real
server."""

import concurrent.futures
import json
import re
import socket
import ssl
import threading
import time

import check
import clean
import harness
from box import rows
from check import Stopwatch
from client import exchange, parallel
from suite import table, test

BODY = b'{"argv":["true"]}'


def head(pair, *lines, method=b"POST", path=b"/v1/runs", version=b"HTTP/1.1"):
    text = method + b" " + path + b" " + version + b"\r\nHost: x\r\n"
    text += b"Authorization: Bearer " + pair.token.encode() + b"\r\n"
    return text + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def status(data):
    match = re.match(rb"HTTP/1\.[01] (\d{3}) ", data)
    return int(match.group(1)) if match else 0


def statuses(data):
    return [int(m) for m in re.findall(rb"HTTP/1\.[01] (\d{3}) ", data)]


def refused(pair, data, wanted, closes=True):
    # Where waiting is right, five seconds say no more than one.
    got, closed = pair.client.raw(data, 1 if "waiting" in wanted else 5)
    seen = status(got)
    if not got:
        seen = "closed" if closed else "waiting"
    check.member(seen, wanted, "answer %s to %s" % (check.brief(got), check.brief(data[-120:])))
    if closes and seen != "waiting":
        check.true(
            closed,
            "the connection stays open after %s: %s",
            check.brief(data[-120:]),
            check.brief(got),
        )
    check.true(len(statuses(got)) <= 1, "one request, several answers: %s", check.brief(got))
    check.ok(pair.client.run(argv=["true"]))


def framing(pair, make, wanted):
    refused(pair, make(pair), wanted)


SMUGGLED = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
FRAMING = [
    (
        "Content-Length and chunked",
        lambda p: head(p, b"Content-Length: 5", b"Transfer-Encoding: chunked")
        + b"0\r\n\r\n"
        + SMUGGLED,
        (400,),
    ),
    (
        "chunked and Content-Length",
        lambda p: head(p, b"Transfer-Encoding: chunked", b"Content-Length: 5")
        + b"0\r\n\r\n"
        + SMUGGLED,
        (400,),
    ),
    (
        "two different lengths",
        lambda p: head(p, b"Content-Length: 17", b"Content-Length: 5") + BODY,
        (400,),
    ),
    (
        "the same length twice",
        lambda p: head(p, b"Content-Length: 17", b"Content-Length: 17") + BODY,
        (400,),
    ),
    ("a list of lengths", lambda p: head(p, b"Content-Length: 17, 17") + BODY, (400,)),
    ("a negative length", lambda p: head(p, b"Content-Length: -1") + BODY, (400,)),
    ("a signed length", lambda p: head(p, b"Content-Length: +17") + BODY, (400,)),
    ("a hexadecimal length", lambda p: head(p, b"Content-Length: 0x11") + BODY, (400,)),
    (
        "a length of 2^64",
        lambda p: head(p, b"Content-Length: 18446744073709551616") + BODY,
        (400, 413),
    ),
    (
        "a length of 2^63",
        lambda p: head(p, b"Content-Length: 9223372036854775808") + BODY,
        (400, 413),
    ),
    ("an empty length", lambda p: head(p, b"Content-Length:") + BODY, (400,)),
    (
        "a huge chunk",
        lambda p: head(p, b"Transfer-Encoding: chunked") + b"ffffffffffffffff\r\nx",
        # A length that can be said, of which only one byte came: as slow as any other client, and
        # cut at the deadline of a body, or refused when more than a body may have has come.
        (400, 413, "waiting"),
    ),
    (
        "a chunk of 2^64",
        lambda p: head(p, b"Transfer-Encoding: chunked") + b"10000000000000000\r\nx",
        (400, 413),
    ),
    ("a negative chunk", lambda p: head(p, b"Transfer-Encoding: chunked") + b"-1\r\nx", (400,)),
    (
        "a chunk that is no number",
        lambda p: head(p, b"Transfer-Encoding: chunked") + b"zz\r\nx\r\n",
        (400,),
    ),
    (
        "a chunk without its end",
        lambda p: head(p, b"Transfer-Encoding: chunked") + b"3\r\nabcdef\r\n0\r\n\r\n",
        (400,),
    ),
    (
        "an unknown transfer encoding",
        lambda p: head(p, b"Transfer-Encoding: gzip") + BODY,
        (400, 501),
    ),
    (
        "chunked twice",
        lambda p: head(p, b"Transfer-Encoding: chunked, chunked") + b"0\r\n\r\n",
        (400, 501),
    ),
    (
        "an obfuscated transfer encoding",
        lambda p: head(p, b"Transfer-Encoding: xchunked") + b"0\r\n\r\n",
        (400, 501),
    ),
    ("a header of 1 MB", lambda p: head(p, b"X: " + b"a" * 1000000), (400, 413, 431, "closed")),
    (
        "10,000 headers",
        lambda p: head(p, *[b"X%d: a" % i for i in range(10000)]),
        (400, 413, 431, "closed"),
    ),
    (
        "a request line of 1 MB",
        lambda p: b"GET /" + b"a" * 1000000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        (400, 413, 414, 431, "closed"),
    ),
    ("no host", lambda p: b"GET /healthz HTTP/1.1\r\n\r\n", (400,)),
    ("HTTP/0.9", lambda p: b"GET /healthz\r\n\r\n", (400, 505, "closed")),
    (
        "HTTP/2.0 in words",
        lambda p: b"GET /healthz HTTP/2.0\r\nHost: x\r\n\r\n",
        (400, 505, "closed"),
    ),
    (
        "the preface of HTTP/2",
        lambda p: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        (400, 405, 505, "closed"),
    ),
    (
        "TLS",
        lambda p: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 200 + b"\r\n\r\n",
        (400, 501, "closed"),
    ),
    # Lines that begin with NUL count as empty; the deadline of a header ends the waiting.
    ("noise", lambda p: b"\x00\xff\x01\r\n\r\n\r\n\r\n", (400, 501, "closed", "waiting")),
    ("a header without a colon", lambda p: head(p, b"nonsense"), (400,)),
    ("a space before the colon", lambda p: head(p, b"Content-Length : 17") + BODY, (400,)),
    ("a NUL in a header", lambda p: head(p, b"X: a\0b", b"Content-Length: 17") + BODY, (400,)),
]

table([("framing is refused: " + row[0], 131) + row[1:] for row in FRAMING], framing)


@test("a NUL in the path is refused", case=131)
def _(pair):
    refused(
        pair,
        b"GET /v1/runs\0x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        (400, 401, 404),
        closes=False,
    )


@test("a chunked body works", case=131)
def _(pair):
    data = head(
        pair, b"Transfer-Encoding: chunked", b"Content-Type: application/json", b"Connection: close"
    )
    data += b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n\r\n"
    got, _ = pair.client.raw(data, 5)
    check.equal(status(got), 200, "status")


@test("100-continue is answered", case=131)
def _(pair):
    with pair.client.socket(5) as sock:
        sock.sendall(
            head(
                pair,
                b"Expect: 100-continue",
                b"Content-Length: %d" % len(BODY),
                b"Connection: close",
            )
        )
        first = sock.recv(100)
        check.true(first.startswith(b"HTTP/1.1 100"), "first answer: %r", first)
        got, _ = exchange(sock, BODY)
        check.equal(status(got), 200, "status")


@test("two requests in one packet get two answers in order")
def _(pair):
    one = head(pair, b"Content-Length: %d" % len(BODY)) + BODY
    two = head(pair, b"Connection: close", method=b"GET", path=b"/v1/nosuch")
    got, closed = pair.client.raw(one + two, 5)
    check.equal(statuses(got), [200, 404], "answers")
    check.true(closed, "not closed")


@test("HTTP/1.0 gets an answer and the connection ends")
def _(pair):
    got, closed = pair.client.raw(b"GET /healthz HTTP/1.0\r\n\r\n", 5)
    check.equal((status(got), closed), (200, True), "status, closed")


@test("a keep-alive connection serves a thousand requests")
def _(pair):
    for _ in range(1000):
        answer = pair.client.get("/healthz")
        check.equal(answer.status, 200, "status")
    check.equal(len(pair.client.all), 1, "connections used")


@test("a body cut in the middle runs nothing", case=114)
def _(pair):
    before = len(pair.client.get("/v1/runs?limit=100").json()["runs"])
    for data in (
        head(pair, b"Content-Length: 1000000") + BODY,
        head(pair, b"Transfer-Encoding: chunked") + b"11\r\n" + BODY + b"\r\n",
    ):
        with pair.client.socket(5) as sock:
            sock.sendall(data)
    check.ok(pair.client.run(argv=["true"]))
    after = len(pair.client.get("/v1/runs?limit=100").json()["runs"])
    check.within(before, after, before + 1, "runs in the list")


def too_large(pair, announced):
    """A body of 1 GB, announced or chunked: refused before it has all been sent, memory flat."""
    before = pair.memory()
    lines = [b"Content-Length: %d" % (1 << 30)] if announced else [b"Transfer-Encoding: chunked"]
    got, sent = b"", 0
    block = b'{"argv":["' + b"x" * 65526
    if not announced:
        block = b"10000\r\n" + block[:65536] + b"\r\n"
    with pair.client.socket(5) as sock:
        sock.sendall(head(pair, *lines, b"Content-Type: application/json"))
        sock.settimeout(5)
        try:
            while sent < 1 << 30:
                sock.setblocking(False)
                try:
                    got += sock.recv(65536)
                except (BlockingIOError, ssl.SSLWantReadError):
                    pass
                sock.settimeout(5)
                if got:
                    break
                sock.sendall(block)
                sent += len(block)
        except (BrokenPipeError, ConnectionResetError):
            pass
        try:
            got = got or sock.recv(65536)
        except ConnectionResetError:
            pass
    # The limit of a body is some 100 MB (64 MiB of stdin in base64): far below what was announced.
    check.within(0, sent, 300 << 20, "bytes that were taken")
    check.member(status(got) if got else "closed", (413, "closed"), "status")
    check.true(
        pair.memory() - before < 350 << 20, "the server grew by %d bytes", pair.memory() - before
    )
    check.ok(pair.client.run(argv=["true"]))


table(
    [
        ("a body of 1 GB is refused, %s" % name, 130, announced)
        for name, announced in (("announced", True), ("chunked", False))
    ],
    too_large,
    deadline=60,
)


@test("the memory of a huge refused body is given back", case=130, deadline=30)
def _(pair):
    check.error(
        pair.client.post("/v1/runs", b'{"argv":["true"],"stdin":"' + b"x" * (20 << 20)), 400
    )
    check.eventually(lambda: pair.memory() < 120 << 20, 5, "the server is below 120 MB")


@test("a body that a wrong token sends is not read to the end", case=138)
def _(pair):
    data = (
        b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer no\r\n"
        b"Content-Length: 1073741824\r\n\r\n"
    )
    got, _ = pair.client.raw(data + b"x" * 100000, 5)
    check.equal(status(got), 401, "status")


@test("500 idle and dribbling connections delay nobody", case=133, deadline=40)
def _(pair):
    slow = []
    try:
        for i in range(500):
            sock = pair.client.socket(5)
            sock.sendall(b"POST /v1/runs HTTP/1.1\r\nHo"[: i % 26])
            slow.append(sock)

        def one(index):
            for _ in range(10):
                watch = Stopwatch()
                check.ok(pair.client.run(argv=["true"]))
                watch.below(2, "a run")
                slow[index * 50 + 3].send(b"x")

        parallel(5, one)
    finally:
        for sock in slow:
            sock.close()


def ask(connection):
    """-> status of a GET on a connection that is kept; None: it was closed."""
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        answer.read()
        return answer.status
    except ConnectionError:
        return None


@test("when all connections are taken, the next client gets one that nobody uses", own=True)
def _(_pair):
    with harness.Pair(warm=1, slots=2, server_args=["--connections", "16"]) as pair, \
            concurrent.futures.ThreadPoolExecutor(1) as pool:
        pair.client.close()
        run = pool.submit(pair.client.run, argv=["sleep", "2"])
        kept = []
        try:
            while len(kept) < 16:
                kept.append(pair.client.connection())
                watch = Stopwatch()
                check.equal(ask(kept[-1]), 200, "status")
                watch.below(2, "the answer on connection %d" % len(kept))
                if len(kept) == 14:
                    dribble = pair.client.socket()
                    dribble.sendall(b"GET /heal")
            # Those that nobody had used the longest, as many as waited, and not who waits for a run.
            left = [ask(one) for one in kept]
            check.equal(left, [None] * 2 + [200] * 14, "statuses of those that were kept")
            check.ok(run.result(10))
        finally:
            for one in kept:
                one.close()
            dribble.close()


@test("clients who ask without a pause let those have a turn who wait for a connection", own=True)
def _(_pair):
    with harness.Pair(warm=1, slots=2, server_args=["--connections", "16"]) as pair:
        done, asked = threading.Event(), [0] * 16
        pair.client.close()
        one = harness.Client(pair.port, pair.token, context=pair.context)

        def work(index):
            while not done.is_set():
                check.equal(pair.client.get("/healthz").status, 200, "status")
                asked[index] += 1

        def late():
            check.eventually(lambda: all(asked), 5, "all connections are in use")
            watch = Stopwatch()
            check.equal(one.get("/healthz", timeout=10).status, 200, "status of who comes late")
            watch.below(3, "a turn")

        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            loops = [pool.submit(work, i) for i in range(16)]
            try:
                late()
            finally:
                done.set()
                one.close()
            for loop in loops:
                loop.result()
        pair.client.close()


@test(
    "a connection that never completes its header is cut, and its descriptor freed",
    case=133,
    deadline=60,
    slow=True,
    own=True,
)
def _(_pair):
    with harness.Pair(warm=1, slots=2, server_args=["--header-timeout", "2s"]) as pair:
        pair.rest()
        base = pair.base["descriptors of the server"]
        socks = [pair.client.socket(5) for _ in range(3)]
        request = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 100
        cut, start = [None] * 3, time.monotonic()
        for turn in range(90):
            for i, sock in enumerate(socks):
                if cut[i] is not None:
                    continue
                sock.setblocking(False)
                try:
                    if i == 0:
                        sock.send(request[turn : turn + 1] if turn < len(request) else b"a")
                    if sock.recv(1000) == b"":
                        cut[i] = time.monotonic() - start
                except (BlockingIOError, ssl.SSLWantReadError):
                    pass
                except OSError:
                    cut[i] = time.monotonic() - start
            if None not in cut:
                break
            time.sleep(0.1)
        for sock in socks:
            sock.close()
        check.true(None not in cut, "not cut after %d s: %r", time.monotonic() - start, cut)
        check.within(1.5, max(cut), 6, "seconds until the cut")
        check.eventually(
            lambda: pair.snapshot()["descriptors of the server"] == base, 2, "descriptors freed"
        )


@test(
    "a server with few descriptors refuses the excess and lives",
    case="133, D3",
    own=True,
    deadline=40,
)
def _(_pair):
    with harness.Pair(warm=1, slots=4, nofile=256) as pair:
        socks = []
        try:
            for _ in range(400):
                try:
                    socks.append(pair.client.socket(1))
                except OSError:
                    break
            before = clean.cpu_ticks(pair.server_pid)
            time.sleep(0.5)
            spent = clean.cpu_ticks(pair.server_pid) - before
            check.true(spent < 25, "accept spins: %d ticks of CPU in half a second", spent)
        finally:
            for sock in socks:
                sock.close()
        check.eventually(lambda: pair.probe("/healthz") == 200, 5, "the server answers again")
        check.ok(pair.client.run(argv=["true"]))


@test("2,000 connections that come and go leave no descriptor")
def _(pair):
    for i in range(2000):
        sock = pair.client.socket(5)
        if i % 3 == 0:
            sock.send(b"GET /heal")
        sock.close()
    check.ok(pair.client.run(argv=["true"]))


@test("a client that sends its request and never reads is not waited for", deadline=30)
def _(pair):
    socks = []
    request = json.dumps(
        {
            "sh": "head -c 8000000 /dev/zero | tr '\\0' x",
            "policy": "ci",
            "limits": {"output_bytes": 8 << 20},
        }
    ).encode()
    for _ in range(4):
        sock = pair.client.socket(5)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(head(pair, b"Content-Length: %d" % len(request)) + request)
        socks.append(sock)
    watch = Stopwatch()
    for _ in range(20):
        check.ok(pair.client.run(argv=["true"]))
    watch.below(5, "20 runs of others")
    for sock in socks:
        sock.close()
    # They go on, each with its pipes, until they are over.
    check.eventually(
        lambda: not [one for one in rows(pair.client.get("/v1/runs?limit=50").json())
                     if one["state"] in ("queued", "running")],
        15, "their runs are over")

"""HTTPS with real clients: curl, Python's ssl and our own. Everything else of the API can be tried
over TLS by run.py --tls; here is what only TLS has."""

import hashlib
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import threading
import time

import certs
import check
import clean
import harness
from box import Box
from check import Stopwatch
from client import Client
from suite import test


def fresh(made, **more):
    return harness.Pair(slots=4, warm=2, tls=made, **more)


class ServerOnly(harness.Pair):
    """A server without a runner: enough for handshakes."""

    def start_runner(self):
        pass

    def wait_ready(self, seconds=15, wanted=200):
        check.eventually(lambda: self.probe("/healthz") == 200 or self.check_alive(), seconds,
                         "the server answers")


def curl(made, pair, *arguments, stdin=None):
    done = subprocess.run(
        ["curl", "-sS", "--cacert", made.ca, "-H", "Authorization: Bearer " + pair.token]
        + [one.replace("@@", "https://127.0.0.1:%d" % pair.port) for one in arguments],
        stdin=stdin or subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
    )
    return done.returncode, done.stdout, done.stderr.decode()


def client(pair, *arguments, **environment):
    """Our own -> (exit code, stdout, stderr)."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("PINFOLD_")}
    env.update(PINFOLD_URL="https://127.0.0.1:%d" % pair.port, PINFOLD_TOKEN=pair.token)
    env.update(environment)
    done = subprocess.run(
        [harness.program("pinfold")] + list(arguments),
        env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=20,
    )  # fmt: skip
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def serial(sock):
    return sock.getpeercert()["serialNumber"]


@test("curl: keep-alive, a run, an upload that has to wait, a download", own=True, deadline=40)
def _(_):
    made = certs.Certificates()
    with fresh(made) as pair:
        code, out, why = curl(made, pair, "@@/healthz", "@@/readyz", "-w", "<%{num_connects}>")
        check.equal((code, why), (0, ""), "curl")
        check.equal(re.findall(rb"<(\d)>", out), [b"1", b"0"], "new connections of each request")
        code, out, why = curl(made, pair, "@@/v1/runs", "-d", '{"sh": "echo hi; exit 3"}')
        check.equal((code, why), (0, ""), "curl")
        check.equal(json.loads(out)["steps"][0]["stdout"], "hi\n", "output")
        box = Box.make(pair.client)
        data = os.urandom(1 << 20) * 12
        path = made.path("large")
        with open(path, "wb") as file:
            file.write(data)
        files = "@@/v1/sandboxes/%s/files/workspace/large" % box.id
        code, out, why = curl(made, pair, "-T", path, files)
        check.equal((code, why), (0, ""), "the upload: %r" % out[:200])
        code, out, why = curl(made, pair, files)
        check.equal((code, why), (0, ""), "the download")
        check.equal(hashlib.sha256(out).digest(), hashlib.sha256(data).digest(), "its bytes")
        box.delete()


@test("our client: a run, a stream, and a sentence when the server cannot be verified", own=True,
      deadline=40)
def _(_):
    made, other = certs.Certificates(), certs.Certificates()
    with fresh(made) as pair:
        code, out, why = client(pair, "run", "-c", "echo out; exit 3", PINFOLD_CA=made.ca)
        check.equal((code, out, why), (3, "out\n", ""), "run")
        code, out, why = client(pair, "--ca", made.ca, "run", "--", "echo", "hi")
        check.equal((code, out, why), (0, "hi\n", ""), "run with --ca")
        code, out, why = client(pair, "--ca=" + made.ca, "run", "--", "echo", "hi")
        check.equal((code, out), (0, "hi\n"), "run with --ca=")

        def refused(part, *arguments, **environment):
            code, out, why = client(pair, *arguments, "run", "--", "true", **environment)
            check.equal((code, out), (125, ""), "refusal")
            check.holds(why, part, "what is said")
            check.equal(why.count("\n"), 1, "lines")

        refused("signed by an authority that this machine does not know; if it is your own, name "
                "the file with its certificate in PINFOLD_CA or with --ca")
        refused("was not signed by the authority in", PINFOLD_CA=other.ca)
        refused("PINFOLD_CA or --ca names /nowhere, which holds no certificate", PINFOLD_CA="/nowhere")
        refused("PINFOLD_CA or --ca names /dev/null, which holds no", "--ca", "/dev/null",
                PINFOLD_CA=made.ca)
        refused("write https:// in the address", PINFOLD_URL="http://127.0.0.1:%d" % pair.port)
        made.issue("DNS:elsewhere.example")
        os.kill(pair.server_pid, signal.SIGHUP)
        check.eventually(lambda: b"elsewhere.example" in pair.log_bytes(), 5, "renewed")
        refused("is made out to another name", PINFOLD_CA=made.ca)
    check.equal(client(pair, "--ca")[0], 2, "exit code of --ca alone")


@test("a certificate that has expired is served, said so in the log, and refused by our client",
      own=True)
def _(_):
    made = certs.Certificates()
    made.issue(start="20200101000000Z", end="20200102000000Z")
    with ServerOnly(tls=Unverified(made)) as pair:
        check.holds(pair.log_bytes().decode(), "event=certificate_out_of_date", "log")
        code, _, why = client(pair, "run", "--", "true", PINFOLD_CA=made.ca)
        check.equal(code, 125, "exit code")
        check.holds(why, "has expired; its administrator must renew it", "what is said")


class Unverified:
    """The same certificates for a client that believes everything."""

    def __init__(self, made):
        self.made = made

    def arguments(self):
        return self.made.arguments()

    def context(self):
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context


@test("TLS 1.3 and 1.2 are spoken; 1.1, 1.0, weak ciphers and plain HTTP end cleanly", own=True)
def _(_):
    made = certs.Certificates()
    with ServerOnly(tls=made, server_args=["--header-timeout", "1s"]) as pair:

        def shake(version, ciphers=None):
            context = made.context()
            context.minimum_version = context.maximum_version = version
            context.set_ciphers(ciphers or "ALL:@SECLEVEL=0")
            with socket.create_connection(("127.0.0.1", pair.port), 5) as sock:
                with context.wrap_socket(sock, server_hostname="127.0.0.1") as tls:
                    return tls.version()

        check.equal(shake(ssl.TLSVersion.TLSv1_3), "TLSv1.3", "version")
        check.equal(shake(ssl.TLSVersion.TLSv1_2), "TLSv1.2", "version")
        for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
            try:
                check.fail("%s is spoken: %s", version, shake(version))
            except ssl.SSLError as refusal:
                check.holds(str(refusal).lower(), "alert", "the refusal")
        for ciphers in ("AES128-SHA:@SECLEVEL=0", "ECDHE-ECDSA-AES128-SHA:@SECLEVEL=0", "AES128-GCM-SHA256"):
            try:
                check.fail("%s is spoken: %s", ciphers, shake(ssl.TLSVersion.TLSv1_2, ciphers))
            except ssl.SSLError as refusal:
                check.holds(str(refusal).lower(), "alert", "the refusal of " + ciphers)
        for line in (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
                     b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n" + b"x" * 300000):
            plain = Client(pair.port, pair.token)
            got, closed = plain.raw(line)
            check.true(closed and got.startswith(b"HTTP/1.1 400 "), "plain HTTP: %r", got[:300])
            head, _, body = got.partition(b"\r\n\r\n")
            check.equal(json.loads(body)["error"]["code"], "plain_http", "code")
            check.holds(head.decode(), "Content-Length: %d" % len(body), "head")
        for noise in (b"\x16\x03\x01\xff\xff" + b"x" * 65535, b"\x00" * 100, b"get / http", b"\x80" * 70000,
                      b"\x16\x03\x01\x00\x05hello"):
            check.true(Client(pair.port, pair.token).raw(noise)[1], "%r is cut off", noise[:9])
        check.equal(pair.probe("/healthz"), 200, "afterwards")


@test("a handshake that stops, or dribbles, is cut at the deadline, with its descriptor", own=True,
      case=133)
def _(_):
    made = certs.Certificates()
    with ServerOnly(tls=made, server_args=["--header-timeout", "1s"]) as pair:
        where = "/proc/%d/fd" % pair.server_pid
        before = settled(lambda: len(os.listdir(where)))
        hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 500
        socks = [socket.create_connection(("127.0.0.1", pair.port), 5) for _ in range(3)]
        socks[1].sendall(hello[:200])
        spent = clean.cpu_ticks(pair.server_pid)
        start, cut, turn = time.monotonic(), {}, 0
        while len(cut) < 3 and time.monotonic() - start < 5:
            for i, sock in enumerate(socks):
                try:
                    if i == 2:
                        sock.send(hello[turn : turn + 1])
                    if i not in cut and sock.recv(100, socket.MSG_DONTWAIT) == b"":
                        cut[i] = time.monotonic() - start
                except BlockingIOError:
                    pass
                except OSError:
                    cut.setdefault(i, time.monotonic() - start)
            turn += 1
            time.sleep(0.05)
        check.equal(sorted(cut), [0, 1, 2], "connections that were cut")
        check.within(0, clean.cpu_ticks(pair.server_pid) - spent, 20, "ticks of CPU of the server meanwhile")
        check.within(0.5, min(cut.values()), 3, "seconds until the first was cut")
        for sock in socks:
            sock.close()
        check.eventually(lambda: len(os.listdir(where)) == before, 3, "descriptors freed")
        # Within the session, too: the headers.
        slow = pair.client.socket()
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: ")
        watch = Stopwatch()
        check.equal(read_end(slow), b"", "what comes")
        watch.below(3, "the cut")
        check.equal(pair.probe("/healthz"), 200, "afterwards")


def settled(look):
    """The value once it has been the same for a moment."""
    value, since = look(), time.monotonic()
    while time.monotonic() - since < 0.2:
        now = look()
        if now != value:
            value, since = now, time.monotonic()
        time.sleep(0.01)
    return value


def read_end(sock):
    got = b""
    while True:
        try:
            part = sock.recv(4096)
        except (ConnectionResetError, ssl.SSLEOFError):
            return got
        if not part:
            return got
        got += part


@test("SIGHUP: new connections get the new certificate, old ones and streams go on", own=True,
      deadline=30)
def _(_):
    made = certs.Certificates()
    with fresh(made) as pair:
        first = int(made.serial(), 16)
        kept = pair.client.connection()
        check.equal(int(serial(kept.sock), 16), first, "serial number at first")
        stream = pair.client.stream(sh="echo a; sleep 1; echo b")
        check.equal(stream.next("stdout")[1]["data"], "a\n", "output")

        def renewed(count):
            os.kill(pair.server_pid, signal.SIGHUP)
            check.eventually(
                lambda: pair.log_bytes().count(b"event=certificate_") == count, 5, "the log says so"
            )
            one = pair.client.connection()
            number = int(serial(one.sock), 16)
            one.close()
            return number

        second = int(made.issue(), 16)
        check.true(first != second, "another serial number")
        check.equal(renewed(1), second, "serial number after SIGHUP")
        kept.request("GET", "/healthz")
        check.equal(kept.getresponse().read(), b'{"status":"ok"}', "on the old connection")
        check.equal([e["type"] for e in stream.all()], ["stdout", "end", "done"], "the stream")
        # Bad ones, one after the other: the good one stays, and the log says why.
        before = open(made.certificate, "rb").read(), open(made.key, "rb").read()
        bad = [
            (b"-----BEGIN CERTIFICATE-----\nnonsense\n", None, "reading the certificate"),
            (None, b"nonsense", "reading the key"),
            (None, certs.Certificates().read_key(), "belongs to another certificate"),
            (b"", b"", "reading the certificate"),
        ]
        for count, (certificate, key, why) in enumerate(bad):
            with open(made.certificate, "wb") as out:
                out.write(before[0] if certificate is None else certificate)
            with open(made.key, "wb") as out:
                out.write(before[1] if key is None else key)
            check.equal(renewed(2 + count), second, "serial number after a bad file")
            check.holds(pair.log_bytes().decode().splitlines()[-1], why, "the log")
        made.issue(start="20200101000000Z", end="20200102000000Z")
        check.equal(renewed(6), second, "serial number after one that has expired")
        check.holds(pair.log_bytes().decode(), "has expired at 2020-01-02", "the log")
        os.unlink(made.key)
        check.equal(renewed(7), second, "serial number without a key")
        third = int(made.issue(), 16)
        check.equal(renewed(8), third, "serial number after the next good one")
        kept.request("GET", "/healthz")
        check.equal(kept.getresponse().status, 200, "the oldest connection")


@test("a client that goes away is noticed, while it waits and while it streams", own=True, case=134)
def _(_):
    made = certs.Certificates()
    with fresh(made) as pair:
        for stream in (False, True):
            one = pair.client.connection()
            body = json.dumps({"sh": "sleep 60", "cancel_on_disconnect": True, "stream": stream})
            one.request("POST", "/v1/runs", body, pair.client.headers(None, body))
            running = lambda: [r for r in pair.client.get("/v1/runs").json()["runs"]
                               if r["state"] == "running"]
            check.eventually(running, 5, "it runs")
            run = running()[0]["id"]
            watch = Stopwatch()
            one.sock.close()
            if stream:
                one.close()
            end = pair.client.wait_done(run)["steps"][0]["end"]
            check.equal(end["cause"], "lost_client", "cause")
            watch.below(3, "noticing")
        silent(pair)


def silent(pair):
    """Clients that neither send nor read cost no time: half a request, half a body, a stream with
    nothing in it, an answer that is not read."""
    box = Box.make(pair.client)
    box.put("/workspace/large", b"x" * (8 << 20))
    body = b'{"sh": "sleep 5", "stream": true, "cancel_on_disconnect": true}'

    def head(method, path, length=0):
        return b"%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n" % (
            method, path.encode(), pair.token.encode(), length)  # fmt: skip

    socks = [pair.client.socket() for _ in range(5)]
    socks[0].sendall(b"GET /heal")
    socks[1].sendall(head(b"PUT", box.file("/workspace/up"), 1000000) + b"x" * 1000)
    socks[2].sendall(head(b"POST", "/v1/runs", len(body)) + body)
    socks[3].sendall(head(b"GET", box.file("/workspace/large")))
    time.sleep(0.3)
    before = clean.cpu_ticks(pair.server_pid)
    time.sleep(0.7)
    check.within(0, clean.cpu_ticks(pair.server_pid) - before, 15, "ticks of CPU of the server meanwhile")
    for sock in socks:
        sock.close()


@test("many handshakes at once, some broken off, delay nobody for long", own=True, deadline=30)
def _(_):
    made = certs.Certificates()
    with fresh(made) as pair:
        stop, done, problems = threading.Event(), [], []

        def shake(index):
            context = made.context()
            while not stop.is_set():
                try:
                    sock = socket.create_connection(("127.0.0.1", pair.port), 5)
                    if index % 3 == 0:
                        sock.sendall(b"\x16\x03\x01\x02\x00\x01")
                    else:
                        sock = context.wrap_socket(sock, server_hostname="127.0.0.1")
                        done.append(1)
                    sock.close()
                except OSError as problem:
                    problems.append(problem)

        threads = [threading.Thread(target=shake, args=(i,), daemon=True) for i in range(6)]
        for one in threads:
            one.start()
        worst = 0
        for _ in range(40):
            start = time.monotonic()
            check.ok(pair.client.run(argv=["true"]))
            worst = max(worst, time.monotonic() - start)
        stop.set()
        for one in threads:
            one.join(10)
        check.equal(problems, [], "failed handshakes")
        check.true(len(done) > 20, "handshakes: %d", len(done))
        check.within(0, worst, 1.5, "seconds of the slowest run")

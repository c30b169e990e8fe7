"""An HTTP client for tests: keep-alive, streams of events, and raw sockets for hostile framing."""

import http.client
import json
import os
import secrets
import socket
import ssl
import threading
import time

MARK = "PINFOLD_TEST_MARK"


class Answer:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = {k.lower(): v for k, v in headers}
        self.body = body

    def json(self):
        try:
            return json.loads(self.body.decode("utf-8"))
        except (UnicodeDecodeError, ValueError) as problem:
            raise AssertionError(
                "not JSON (%s, status %d): %r" % (problem, self.status, self.body[:300])
            )


class Client:
    """One connection per thread, kept alive until close(). With a `context` it speaks HTTPS."""

    def __init__(self, port, token, timeout=60, context=None):
        self.port = port
        self.context = context
        self.token = token
        self.timeout = timeout
        self.local = threading.local()
        self.all = []
        self.mark = "m" + secrets.token_hex(8)

    def connection(self, timeout=None):
        where, timeout = ("127.0.0.1", self.port), timeout or self.timeout
        if self.context is not None:
            new = http.client.HTTPSConnection(*where, timeout=timeout, context=self.context)
        else:
            new = http.client.HTTPConnection(*where, timeout=timeout)
        new.connect()
        new.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return new

    def close(self):
        for one in self.all:
            one.close()
        self.all.clear()
        self.local = threading.local()

    def headers(self, more=None, body=None):
        headers = {"Authorization": "Bearer " + self.token}
        if body is not None:
            headers["Content-Type"] = "application/json"
        headers.update(more or {})
        return {k: v for k, v in headers.items() if v is not None}

    def request(self, method, path, body=None, headers=None, timeout=None):
        """-> Answer. A dict as body is sent as JSON. A kept connection that the server closed
        meanwhile is opened again, once."""
        if body is not None and not isinstance(body, (bytes, bytearray)):
            body = json.dumps(body).encode()
        fresh = getattr(self.local, "kept", None) is None
        while True:
            if fresh:
                self.local.kept = self.connection()
                self.all.append(self.local.kept)
            kept = self.local.kept
            kept.sock.settimeout(timeout or self.timeout)
            try:
                kept.request(method, path, body, self.headers(headers, body))
                got = kept.getresponse()
                answer = Answer(got.status, got.getheaders(), got.read())
                if kept.sock is None:
                    self.forget()
                return answer
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError,
                    ssl.SSLEOFError):
                self.forget()
                if fresh:
                    raise
                fresh = True
            except BaseException:
                self.forget()
                raise

    def rest(self):
        """Closes this thread's connection, if there is one."""
        if getattr(self.local, "kept", None) is not None:
            self.forget()

    def forget(self):
        kept, self.local.kept = self.local.kept, None
        if kept is not None:
            kept.close()
            if kept in self.all:
                self.all.remove(kept)

    def get(self, path, **more):
        return self.request("GET", path, **more)

    def post(self, path, body, **more):
        return self.request("POST", path, body, **more)

    def delete(self, path, **more):
        return self.request("DELETE", path, **more)

    def marked(self, request):
        """The request with the mark in its environment, by which left-over processes are found."""
        request = dict(request)
        if isinstance(request.get("env", {}), dict):
            request["env"] = dict(request.get("env", {}), **{MARK: self.mark})
        return request

    def send(self, **request):
        """POST /v1/runs -> Answer, whatever the status."""
        return self.post("/v1/runs", self.marked(request))

    def run(self, **request):
        """POST /v1/runs -> the run object. Anything but a 200 fails the test."""
        answer = self.send(**request)
        if answer.status != 200:
            raise AssertionError(
                "POST /v1/runs answered %d: %s"
                % (answer.status, answer.body[:600].decode("utf-8", "replace"))
            )
        return answer.json()

    def sh(self, script, **request):
        return self.run(sh=script, **request)

    def python(self, script, *arguments, **request):
        return self.run(argv=["/usr/bin/python3", "-c", script] + list(arguments), **request)

    def submit(self, **request):
        """A run in the background -> its id."""
        answer = self.send(wait=False, **request)
        if answer.status != 202:
            raise AssertionError(
                "POST /v1/runs with wait:false answered %d: %s"
                % (answer.status, answer.body[:600].decode("utf-8", "replace"))
            )
        return answer.json()["id"]

    def fetch(self, run_id):
        answer = self.get("/v1/runs/" + run_id)
        if answer.status != 200:
            raise AssertionError("GET /v1/runs/%s answered %d" % (run_id, answer.status))
        return answer.json()

    def wait_done(self, run_id, seconds=15):
        return self.wait_state(run_id, ("done",), seconds)

    def wait_state(self, run_id, states, seconds=15):
        end = time.monotonic() + seconds
        while True:
            seen = self.fetch(run_id)
            if seen["state"] in states:
                return seen
            if time.monotonic() > end:
                raise AssertionError(
                    "run %s is still %s after %s s, not %s"
                    % (run_id, seen["state"], seconds, "/".join(states))
                )
            time.sleep(0.01)

    def stream(self, **request):
        """POST /v1/runs with stream:true -> Stream."""
        body = json.dumps(self.marked(dict(request, stream=True))).encode()
        return Stream(self, "POST", "/v1/runs", body)

    def events(self, run_id, after=None, follow=None):
        query = []
        if after is not None:
            query.append("after=%d" % after)
        if follow is not None:
            query.append("follow=" + ("true" if follow else "false"))
        return Stream(
            self, "GET", "/v1/runs/%s/events%s" % (run_id, "?" + "&".join(query) if query else "")
        )

    def raw(self, data, seconds=5, half_close=False):
        """Sends bytes as they are -> what came back until the server closed the connection or
        `seconds` were over, and whether it was closed."""
        with self.socket(seconds) as sock:
            return exchange(sock, data, seconds, half_close)

    def socket(self, seconds=5):
        """A connection for bytes as they are, within TLS if that is what is spoken."""
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=seconds)
        if self.context is not None:
            sock = self.context.wrap_socket(sock, server_hostname="127.0.0.1")
        return sock


def exchange(sock, data, seconds=5, half_close=False):
    end = time.monotonic() + seconds
    try:
        sock.settimeout(seconds)
        sock.sendall(data)
        if half_close:
            sock.shutdown(socket.SHUT_WR)
    except (BrokenPipeError, ConnectionResetError):
        pass
    except socket.timeout:
        return b"", False
    got = b""
    while True:
        left = end - time.monotonic()
        if left <= 0:
            return got, False
        sock.settimeout(left)
        try:
            part = sock.recv(65536)
        except socket.timeout:
            return got, False
        except ConnectionResetError:
            return got, True
        if not part:
            return got, True
        got += part


class Stream:
    """The events of a run as they come: iterate for (seconds since the request, event)."""

    def __init__(self, client, method, path, body=None):
        self.start = time.monotonic()
        self.connection = client.connection()
        self.connection.request(method, path, body, client.headers(None, body))
        self.response = self.connection.getresponse()
        self.status = self.response.status
        self.type = self.response.getheader("Content-Type", "")

    def __iter__(self):
        if self.status != 200:
            raise AssertionError(
                "the stream answered %d: %r" % (self.status, self.response.read()[:300])
            )
        while True:
            line = self.response.readline()
            if not line:
                return
            if not line.endswith(b"\n"):
                raise AssertionError("the stream ends in the middle of a line: %r" % line[:200])
            yield time.monotonic() - self.start, json.loads(line.decode("utf-8"))

    def next(self, kind=None):
        """-> (seconds, event): the next event, of the given type when one is given."""
        for seconds, event in self:
            if kind is None or event["type"] == kind:
                return seconds, event
        raise AssertionError("the stream ended before a %s event" % (kind or "further"))

    def all(self):
        try:
            return [event for _, event in self]
        finally:
            self.close()

    def close(self):
        self.response.close()
        self.connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def parallel(count, function, seconds=60):
    """Runs function(index) in `count` threads -> the results in order. The first problem is
    raised."""
    results, problems = [None] * count, []

    def work(index):
        try:
            results[index] = function(index)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(count)]
    for one in threads:
        one.start()
    end = time.monotonic() + seconds
    for one in threads:
        one.join(max(0.0, end - time.monotonic()))
    if problems:
        raise problems[0]
    if any(one.is_alive() for one in threads):
        raise AssertionError(
            "%d of %d clients still wait after %s s"
            % (sum(t.is_alive() for t in threads), count, seconds)
        )
    return results


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def nonce():
    return secrets.token_hex(12)


def repo():
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

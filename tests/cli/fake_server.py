#!/usr/bin/python3
"""A scripted server: answers runs as told by the first word of their command, so that the client can
meet every stream, also those that a sound server never sends.

Usage: fake_server.py DIR
Writes its port to DIR/port; every request becomes one line of JSON in DIR/requests. The answer of
GET /v1/NAME (not a run) is the file DIR/NAME.json when there is one.
"""

import base64
import http.server
import json
import os
import signal
import sys
import threading
import time

import fake_sandbox

DIR = sys.argv[1]
LOCK = threading.Lock()
RUNS = {}
TOKEN = "pf_test"


def event(seq, kind, **more):
    return dict({"seq": seq, "type": kind}, **more)


def end(seq, step=0, cause="exit", exit_code=0, sig=None, usage=None, **more):
    answer = dict({"cause": cause, "exit_code": exit_code, "signal": sig}, **more)
    return event(seq, "end", step=step, end=answer, usage=usage or {"wall_ms": 5})


def text(seq, data, stream="stdout", step=0):
    return event(seq, stream, step=step, data=data, encoding="utf-8")


def blob(seq, data, stream="stdout", step=0):
    return event(seq, stream, step=step, data=base64.b64encode(data).decode(), encoding="base64")


def done(seq, ok=True):
    return event(seq, "done", ok=ok)


def ends(ok=False, **end_fields):
    return [event(1, "started", step=0), end(2, **end_fields), done(3, ok)]


def flood(count, size):
    block = bytes(i & 0xff for i in range(size))
    events = [event(1, "started", step=0)]
    events += [blob(2 + i, block) for i in range(count)]
    return events + [end(2 + count), done(3 + count)]


STEPS = [event(1, "started", step=0), text(2, "one\n"), end(3), event(4, "started", step=1),
         text(5, "two\n", "stderr", 1), end(6, 1, "memory", None, 9, limit=67108864,
                                           observed=67108864, evidence={"oom_kills": 1}),
         event(7, "skipped", step=2), done(8, False)]

FILES = [
    {"path": "out/a.txt", "content": "abc", "encoding": "utf-8", "size": 3, "mode": "0644"},
    {"path": "out/tool", "content": base64.b64encode(b"\0\xff").decode(), "encoding": "base64",
     "size": 2, "mode": "4755"},
    {"path": "missing.txt", "error": "not_found"},
    {"path": "../escaped", "content": "x", "encoding": "utf-8", "size": 1, "mode": "0644"},
    {"path": "/tmp/pinfold-escaped", "content": "x", "encoding": "utf-8", "size": 1,
     "mode": "0644"},
    {"path": "link/escaped", "content": "x", "encoding": "utf-8", "size": 1, "mode": "0644"},
    {"path": "target", "content": "x", "encoding": "utf-8", "size": 1, "mode": "0644"},
    {"path": ".git/hooks/post-checkout", "content": "x", "encoding": "utf-8", "size": 1,
     "mode": "0755"},
    {"path": "here.txt", "content": "new", "encoding": "utf-8", "size": 3, "mode": "0644"},
]

SCRIPTS = {
    "hello": [event(1, "started", step=0), text(2, "hi\u00e9\n"), text(3, "err\n", "stderr"),
              end(4), done(5)],
    "binary": [event(1, "started", step=0), blob(2, bytes(range(256))), text(3, "a\0b"), end(4),
               done(5)],
    "exit7": ends(exit_code=7),
    "segv": ends(cause="signal", exit_code=None, sig=11),
    "wall": ends(cause="wall_time", exit_code=None, sig=9, limit=2000, observed=2003,
                 evidence={"wall_ms": 2003}, usage={"wall_ms": 2003}),
    "memory": ends(cause="memory", exit_code=None, sig=9, limit=67108864, observed=67108864,
                   evidence={"oom_kills": 1}),
    "start": ends(cause="start", exit_code=None,
                  evidence={"errno": "ENOENT", "stage": "exec", "path": "/no/such"}),
    "future": ends(cause="moonphase", exit_code=None),
    "unfinished": [event(1, "started", step=0), done(2, False)],
    "lines": [event(1, "started", step=0), text(2, "0123456789" * 10), text(3, "abcdefghij" * 10),
              end(4), done(5)],
    "omitted": [event(1, "started", step=0), text(2, "a"),
                event(9, "omitted", step=0, stream="stdout", bytes=700), text(10, "z"), end(11),
                done(12)],
    "flood": flood(400, 50000),
    "repeat": [event(1, "started", step=0), text(2, "x"), text(2, "x"), end(3), done(4)],
    "escape": ends(cause="start", exit_code=None,
                   evidence={"errno": "ENOENT", "stage": "exec", "path": "\u001b[31mred"}),
    "collect": ends(ok=True),
}
# The connection breaks after that many events; each attempt gets as many more.
BREAKS = {"drop": ("hello", 2), "dropforever": ("hello", 0), "dropflood": ("flood", 90)}
RAW = {
    "garbage": b"this is not JSON\n",
    "array": b"[1,2]\n",
    "untyped": b"{\"seq\": 1}\n",
    "longline": b"{\"seq\": 1, \"type\": \"" + b"x" * 3000000 + b"\"}\n",
    "badbase64": b"{\"seq\":1,\"type\":\"stdout\",\"step\":0,\"data\":\"?\",\"encoding\":\"base64\"}\n",
}


SANDBOXES = fake_sandbox.Sandboxes(DIR, SCRIPTS, BREAKS)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def note(self, body=None):
        with LOCK, open(os.path.join(DIR, "requests"), "a") as out:
            out.write(json.dumps({"method": self.command, "path": self.path, "body": body,
                                  "token": self.headers.get("Authorization")}) + "\n")

    def answer(self, status, body, kind="application/json", **headers):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if status != 204:
            self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, status, code, message, field=None):
        error = {"code": code, "message": message}
        if field:
            error["field"] = field
        self.answer(status, {"error": error})

    def hang_up(self):
        self.wfile.flush()
        self.close_connection = True
        self.connection.shutdown(2)

    def cut_short(self, data):
        self.send_response(200)
        self.send_header("Content-Length", str(len(data) + 1))
        self.end_headers()
        self.wfile.write(data)
        self.hang_up()

    def answer_slowly(self, data):
        """In forty pieces and two seconds."""
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        piece = max(1, len(data) // 40)
        for at in range(0, len(data), piece):
            self.wfile.write(data[at:at + piece])
            self.wfile.flush()
            time.sleep(0.05)

    def read_body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        body = b""
        while True:
            size = int(self.rfile.readline(), 16)
            body += self.rfile.read(size)
            self.rfile.readline()
            if size == 0:
                return body

    def sandboxes(self):
        """True when the request is about sandboxes: it has been answered then."""
        path, _, query = self.path.partition("?")
        if path.split("/")[2] not in ("sandboxes", "snapshots"):
            return False
        body = self.read_body()
        try:
            self.note(json.loads(body))
        except ValueError:
            self.note(len(body))
        arguments = dict(pair.split("=") for pair in query.split("&") if "=" in pair)
        if SANDBOXES.down():
            self.hang_up()
        elif self.headers.get("Authorization") != "Bearer " + TOKEN:
            self.refuse(401, "unauthorized", "The token is not known.")
        else:
            SANDBOXES.handle(self, self.command, path, arguments, body)
        return True

    def do_PUT(self):
        self.sandboxes()

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def stream(self):
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def send_events(self, script, after, accepted=None):
        self.stream()
        if accepted:
            self.chunk(json.dumps(event(0, "accepted", id=accepted)).encode() + b"\n")
        name, most = BREAKS.get(script, (script, 1 << 60))
        for one in SCRIPTS[name]:
            if one["seq"] <= after:
                continue
            line = json.dumps(one).encode() + b"\n"
            if most == 0:
                # In the middle of a line.
                self.chunk(line[:len(line) // 2])
                self.wfile.flush()
                self.close_connection = True
                self.connection.shutdown(2)
                return
            most -= 1
            self.chunk(line)
        self.wfile.write(b"0\r\n\r\n")

    def hang(self, run):
        """A run that lasts until it is cancelled."""
        self.stream()
        self.chunk(json.dumps(event(0, "accepted", id=run)).encode() + b"\n")
        self.chunk(json.dumps(text(1, "waiting\n")).encode() + b"\n")
        self.wfile.flush()
        if RUNS[run]["event"].wait(20):
            self.chunk(json.dumps(end(2, cause="cancelled", exit_code=None)).encode() + b"\n")
            self.chunk(json.dumps(done(3, False)).encode() + b"\n")
        self.wfile.write(b"0\r\n\r\n")

    def do_POST(self):
        if self.sandboxes():
            return None
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        try:
            request = json.loads(body)
        except ValueError:
            return self.refuse(400, "bad_json", "The body is not JSON.")
        self.note(request)
        if self.headers.get("Authorization") != "Bearer " + TOKEN:
            return self.refuse(401, "unauthorized", "The token is not known.")
        if "steps" in request:
            script = "steps"
        else:
            script = request.get("argv", [request.get("sh", "")])[0].split()[0]
        with LOCK:
            run = "run_%020d" % (len(RUNS) + 1)
            RUNS[run] = {"script": script, "event": threading.Event()}
        if script == "refuse":
            return self.refuse(403, "policy_limit", "wall_ms is 9 but the ceiling is 8.",
                               "/limits/wall_ms")
        if script == "html":
            return self.answer(502, b"<html>Bad gateway</html>", "text/html")
        if script == "redirect":
            return self.answer(302, b"", Location="http://127.0.0.1:1/steal")
        if script == "hang":
            return self.hang(run)
        if script in RAW:
            self.stream()
            self.chunk(json.dumps(event(0, "accepted", id=run)).encode() + b"\n")
            self.chunk(RAW[script])
            self.wfile.write(b"0\r\n\r\n")
            return None
        return self.send_events(script, 0, run)

    def do_GET(self):
        if self.path.startswith("/v1/") and self.sandboxes():
            return None
        self.note()
        path, _, query = self.path.partition("?")
        parts = path.strip("/").split("/")
        arguments = dict(pair.split("=") for pair in query.split("&") if "=" in pair)
        if self.headers.get("Authorization") != "Bearer " + TOKEN and path != "/healthz":
            return self.refuse(401, "unauthorized", "The token is not known.")
        if len(parts) > 2 and parts[1] == "runs":
            run = RUNS.get(parts[2])
            if run is None:
                return self.refuse(404, "not_found", "There is no such run.")
            if parts[-1] == "events":
                return self.send_events(run["script"], int(arguments.get("after", "0")))
            return self.answer(200, {"id": parts[2], "state": "done", "ok": True,
                                     "files": FILES if run["script"] == "collect" else []})
        file = os.path.join(DIR, parts[-1] + ".json")
        if os.path.exists(file):
            with open(file, "rb") as data:
                return self.answer(200, data.read())
        return self.refuse(404, "not_found", "There is no such thing.")

    def do_DELETE(self):
        if self.sandboxes():
            return None
        self.note()
        run = RUNS.get(self.path.rsplit("/", 1)[-1])
        if run is None:
            return self.refuse(404, "not_found", "There is no such run.")
        if os.path.exists(os.path.join(DIR, "slow_delete")):
            time.sleep(20)
        run["event"].set()
        return self.answer(200, {"state": "done"})


SCRIPTS["steps"] = STEPS


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass


def main():
    server = Server(("127.0.0.1", 0), Handler)
    with open(os.path.join(DIR, "port.new"), "w") as out:
        out.write(str(server.server_address[1]))
    os.rename(os.path.join(DIR, "port.new"), os.path.join(DIR, "port"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        server.serve_forever()
    finally:
        SANDBOXES.quit()


main()

"""Sandboxes of the scripted server: executions that follow a script, `cat`, or a real shell on a
terminal of this machine; files in a directory of the test."""

import base64
import fcntl
import io
import json
import os
import pty
import select
import signal
import struct
import subprocess
import tarfile
import termios
import threading
import urllib.parse


def claim_terminal():
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # A background job of a script has it ignored.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Execution:
    """Its events, to which they are appended as they happen."""

    def __init__(self, ex, request):
        self.id = ex
        self.request = request
        self.events = []
        self.wake = threading.Condition()
        self.stdin = b""
        self.closed = False
        self.master = None
        self.process = None
        self.sizes = []

    def add(self, kind, **more):
        with self.wake:
            self.events.append(dict({"seq": len(self.events) + 1, "type": kind}, **more))
            self.wake.notify_all()

    def output(self, data):
        self.add("stdout", data=base64.b64encode(data).decode(), encoding="base64")

    def finish(self, cause="exit", code=0, **more):
        end = dict({"cause": cause, "exit_code": code, "signal": None}, **more)
        self.add("end", end=end, usage={"wall_ms": 5})
        self.add("done", ok=cause == "exit" and code == 0)

    @property
    def done(self):
        return bool(self.events) and self.events[-1]["type"] == "done"

    def answer(self):
        last = self.events[-2] if self.done else {}
        return {"id": self.id, "state": "done" if self.done else "running",
                "command": " ".join(self.request.get("argv", [self.request.get("sh", "")])),
                "pty": self.request.get("pty"), "last_seq": len(self.events),
                "stdin_bytes": len(self.stdin), "created_at": 1700000000000, "ended_at": 1700000001500,
                "end": last.get("end"), "usage": last.get("usage"), "stdout": "",
                "sizes": self.sizes}

    # What runs.

    def run_script(self, events):
        for one in events:
            if one["type"] != "accepted":
                self.add(**{("kind" if k == "type" else k): v for k, v in one.items()
                            if k not in ("seq", "step")})

    def run_cat(self):
        self.add("started")

    def feed(self, data, offset, close):
        """Bytes of stdin; those that are there already are skipped. False: a gap."""
        have = len(self.stdin)
        if offset > have:
            return False
        new = data[have - offset:]
        self.stdin += new
        if self.master is not None:
            if new:
                os.write(self.master, new)
            if close and not self.closed:
                os.write(self.master, b"\x04")
        elif self.request.get("stdin_open"):
            if new:
                self.output(new)
            if close and not self.closed:
                self.finish()
        self.closed = self.closed or close
        return True

    def run_terminal(self, rows, cols):
        self.master, slave = pty.openpty()
        self.resize(rows, cols)
        env = dict(os.environ, PS1="inside$ ", TERM=self.request.get("env", {}).get("TERM", "dumb"))
        shell = ["bash", "--norc", "--noprofile", "-i"]
        self.process = subprocess.Popen(
            ["cat"] if self.request.get("argv") == ["cat"] else shell, stdin=slave, stdout=slave, stderr=slave,
            env=env, start_new_session=True,
            preexec_fn=claim_terminal)
        os.close(slave)
        self.add("started")
        threading.Thread(target=self.pump, daemon=True).start()

    def pump(self):
        while True:
            try:
                data = os.read(self.master, 4096)
            except OSError:
                data = b""
            if not data:
                break
            self.output(data)
        self.finish(code=self.process.wait())

    def resize(self, rows, cols):
        self.sizes.append([rows, cols])
        if self.master is not None:
            fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def kill(self):
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
        elif not self.done:
            self.finish("cancelled", None)


class Sandboxes:
    def __init__(self, directory, scripts, breaks):
        self.directory = directory
        self.files = os.path.join(directory, "files")
        self.scripts = scripts
        self.breaks = breaks
        self.lock = threading.Lock()
        self.boxes = {}
        self.execs = {}

    def down(self):
        """A server that is away: the test made a file of that name."""
        return os.path.exists(os.path.join(self.directory, "down"))

    def quit(self):
        for ex in self.execs.values():
            if ex.process is not None:
                ex.kill()

    # Requests. `h` is the handler.

    def handle(self, h, method, path, arguments, body):
        parts = path.strip("/").split("/")[1:]
        if parts[0] == "snapshots":
            return self.snapshots(h, method, parts)
        if len(parts) == 1:
            return self.all(h, method, body)
        box = self.boxes.get(parts[1])
        if box is None:
            return h.refuse(404, "not_found", "There is no such sandbox.")
        if len(parts) == 2:
            return self.one(h, method, box)
        if parts[2] == "exec":
            return self.exec(h, method, parts[3:], arguments, body)
        if parts[2] in ("files", "list", "archive"):
            return self.file(h, method, parts[2], "/".join(parts[3:]), arguments, body)
        return self.life(h, parts[2], box, body)

    def all(self, h, method, body):
        if method == "GET":
            return h.answer(200, {"sandboxes": list(self.boxes.values())})
        request = json.loads(body)
        if request.get("policy") == "none":
            return h.refuse(403, "policy", "There is no policy none.", "/policy")
        with self.lock:
            box = {"id": "sb_%020d" % (len(self.boxes) + 1), "state": "ready",
                   "policy": {"name": "default"},
                   "image": "host", "created_at": 1700000000000, "expires_at": 1700003600000,
                   "metadata": request.get("metadata", {})}
            self.boxes[box["id"]] = box
        return h.answer(201, box)

    def one(self, h, method, box):
        if method == "DELETE":
            del self.boxes[box["id"]]
            return h.answer(204, b"")
        return h.answer(200, box)

    def life(self, h, what, box, body):
        request = json.loads(body) if body else {}
        if what == "ttl":
            box["expires_at"] = 1700000000000 + request["ttl_ms"]
        elif what == "pause":
            box["state"] = "paused"
        elif what == "resume":
            box["state"] = "ready"
        elif what == "snapshots":
            return h.answer(201, {"id": "snap_1", "name": request.get("name"), "bytes": 1, "files": 1})
        elif what == "fork":
            return h.answer(201, {"sandboxes": [{"id": "sb_fork%d" % i}
                                                for i in range(request["count"])]})
        elif what == "restore":
            if request["snapshot"] != "snap_1":
                return h.refuse(404, "not_found", "There is no such snapshot.")
        else:
            return h.refuse(404, "not_found", "There is no such thing.")
        return h.answer(200, box)

    def snapshots(self, h, method, parts):
        if method == "DELETE":
            if parts[1] != "snap_1":
                return h.refuse(404, "not_found", "There is no such snapshot.")
            return h.answer(204, b"")
        return h.answer(200, {"snapshots": [{"id": "snap_1", "name": "a\x1bb", "bytes": 2048,
                                             "files": 3, "created_at": 1700000000000}]})

    # Executions.

    def exec(self, h, method, parts, arguments, body):
        if not parts and method == "GET":
            return h.answer(200, {"execs": [ex.answer() for ex in self.execs.values()]})
        if not parts:
            return self.start(h, json.loads(body))
        ex = self.execs.get(parts[0])
        if ex is None:
            return h.refuse(404, "not_found", "There is no such execution.")
        what = parts[1] if len(parts) > 1 else ""
        if what == "events":
            return self.follow(h, ex, int(arguments["after"]), arguments["follow"] == "true")
        if what == "stdin":
            return self.stdin(h, ex, arguments, body)
        if what == "resize":
            size = json.loads(body)
            ex.resize(size["rows"], size["cols"])
            return h.answer(204, b"")
        if what == "signal":
            ex.finish("signal", None, signal=15)
            return h.answer(204, b"")
        if method == "DELETE":
            ex.kill()
            return h.answer(204, b"")
        return h.answer(200, ex.answer())

    def start(self, h, request):
        script = request.get("argv", [request.get("sh", "")])[0].split()[0]
        with self.lock:
            ex = self.execs.get(request["id"])
            new = ex is None
            if new:
                ex = self.execs[request["id"]] = Execution(request["id"], request)
        if script == "refuse":
            return h.refuse(403, "policy_limit", "wall_ms is 9 but the ceiling is 8.",
                            "/limits/wall_ms")
        if new and script == "lostpost":
            # The request arrives, the answer does not.
            ex.run_script(self.scripts["hello"])
            return h.hang_up()
        if new and "pty" in request:
            ex.run_terminal(**request["pty"])
        elif new and script in ("cat", "slowcat"):
            ex.run_cat()
        elif new and script == "hang":
            ex.add("started")
            ex.output(b"waiting\n")
        elif new:
            name = self.breaks.get(script, (script, 0))[0]
            ex.run_script(self.scripts["hello" if name == "lostpost" else name])
        if request.get("background"):
            return h.answer(202, ex.answer())
        return self.follow(h, ex, 0, True, True)

    def follow(self, h, ex, after, follow, accepted=False):
        script = ex.request.get("argv", [""])[0]
        most = self.breaks[script][1] if script in self.breaks else 1 << 60
        h.stream()
        if accepted:
            h.chunk(json.dumps({"seq": 0, "type": "accepted", "id": ex.id}).encode() + b"\n")
        at = after
        while True:
            with ex.wake:
                while follow and len(ex.events) == at and not ex.done and not self.down():
                    ex.wake.wait(0.05)
                batch = ex.events[at:]
            if self.down():
                return h.hang_up()
            for one in batch:
                line = json.dumps(one).encode() + b"\n"
                if most == 0:
                    h.chunk(line[:len(line) // 2])
                    return h.hang_up()
                most -= 1
                h.chunk(line)
            h.wfile.flush()
            at += len(batch)
            if not follow or (ex.done and at == len(ex.events)):
                return h.wfile.write(b"0\r\n\r\n")

    def stdin(self, h, ex, arguments, body):
        script = ex.request.get("argv", [""])[0]
        offset = int(arguments["offset"])
        if script == "slowcat":
            # Takes a little, and loses the answer of every other part.
            body = body[:70000]
            close = "close" in arguments and offset + len(body) >= ex.request["total"] \
                if "total" in ex.request else "close" in arguments and len(body) < 70000
            ex.feed(body, offset, close)
            ex.turn = not getattr(ex, "turn", False)
            if ex.turn:
                return h.hang_up()
            return h.answer(200, {"stdin_bytes": len(ex.stdin), "closed": ex.closed})
        if ex.done:
            return h.refuse(409, "stdin_closed", "Nobody reads it.")
        if not ex.feed(body, offset, arguments.get("close") == "true"):
            return h.refuse(409, "stdin_gap", "Bytes are missing.")
        return h.answer(200, {"stdin_bytes": len(ex.stdin), "closed": ex.closed})

    # Files.

    def file(self, h, method, kind, path, arguments, body):
        path = urllib.parse.unquote(path)
        real = os.path.join(self.files, path)
        if kind == "list":
            if os.path.isdir(real):
                return h.answer(200, {"entries": [], "more": False})
            if os.path.exists(real):
                return h.refuse(409, "not_directory", "It is not a directory.")
            return h.refuse(404, "not_found", "There is no such file.")
        if kind == "archive":
            return self.archive(h, method, real, body)
        if os.path.isdir(real):
            return h.refuse(409, "is_directory", "It is a directory.")
        if method == "PUT":
            os.makedirs(os.path.dirname(real), exist_ok=True)
            with open(real, "wb") as out:
                out.write(body)
            os.chmod(real, int(arguments.get("mode", "0644"), 8))
            return h.answer(201, {"path": "/" + path})
        if not os.path.exists(real):
            return h.refuse(404, "not_found", "There is no such file.")
        with open(real, "rb") as data:
            content = data.read()
        if path.endswith("cut-short"):
            return h.cut_short(content)
        if path.endswith("slowly"):
            return h.answer_slowly(content)
        return h.answer(200, content, "application/octet-stream",
                        **{"X-Pinfold-Mode": "0%o" % (os.stat(real).st_mode & 0o7777)})

    def archive(self, h, method, real, body):
        if method == "GET":
            if os.path.exists(real + ".tar"):
                with open(real + ".tar", "rb") as data:
                    return h.answer(200, data.read(), "application/x-tar")
            out = io.BytesIO()
            with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
                tar.add(real, ".")
            return h.answer(200, out.getvalue(), "application/x-tar")
        os.makedirs(real, exist_ok=True)
        with tarfile.open(fileobj=io.BytesIO(body)) as tar:
            tar.extractall(real)
        return h.answer(200, {})

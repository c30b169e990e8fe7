"""A sandbox for tests: what one may do in it, in few words, and that it is gone afterwards.

An execution is wrapped as a run of one step, so that everything in check.py works on both."""

import base64
import hashlib
import io
import json
import socket
import struct
import tarfile
import time
import urllib.parse

import check
from client import Stream

MIB = 1 << 20
SANDBOXES = "/v1/sandboxes"


def quote(path):
    """A path, text or bytes, for a URL."""
    raw = path if isinstance(path, bytes) else path.encode("utf-8", "surrogateescape")
    return urllib.parse.quote(raw, safe="/")


def query(**fields):
    wanted = {
        k: ("true" if v is True else "false" if v is False else v)
        for k, v in fields.items()
        if v is not None
    }
    return "?" + urllib.parse.urlencode(wanted) if wanted else ""


def as_run(step):
    """An execution in the shape of a run."""
    return {
        "id": step.get("id"),
        "state": step.get("state"),
        "ok": step.get("ok"),
        "failed_step": 0,
        "steps": [step],
    }


def status(answer, *wanted):
    """The answer has one of these statuses -> the answer."""
    if answer.status not in wanted:
        check.fail(
            "status is %d, should be %s: %s",
            answer.status,
            "/".join(map(str, wanted)),
            answer.body[:600].decode("utf-8", "replace"),
        )
    return answer


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def create(client, **request):
    """POST /v1/sandboxes -> Answer, whatever the status."""
    return client.post(SANDBOXES, request)


def bytes_of(event):
    if event["encoding"] == "base64":
        return base64.b64decode(event["data"], validate=True)
    check.equal(event["encoding"], "utf-8", "encoding of an event")
    return event["data"].encode()


def joined(events, kind="stdout"):
    """The bytes of a stream, put together from its events."""
    return b"".join(bytes_of(event) for event in events if event["type"] == kind)


def dense(events, first=1):
    """Numbers without a gap or a repetition."""
    check.equal([e["seq"] for e in events], list(range(first, first + len(events))), "seq")


class Box:
    """A sandbox. As a context it is deleted at the end."""

    def __init__(self, client, body):
        self.client = client
        self.body = body
        self.id = body["id"]
        self.path = "%s/%s" % (SANDBOXES, self.id)

    @classmethod
    def make(cls, client, **request):
        answer = status(create(client, **request), 201)
        body = answer.json()
        check.matches(body.get("id", ""), r"^sb_[a-z0-9]{20,32}$", "id")
        check.equal(body.get("state"), "ready", "state of a new sandbox")
        return cls(client, body)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        # After a failure the failure is what counts.
        answer = self.client.delete(self.path)
        if kind is None:
            status(answer, 204, 404, 410)

    def other(self, client):
        """The same sandbox as another client sees it."""
        return Box(client, self.body)

    # Life

    def get(self):
        return status(self.client.get(self.path), 200).json()

    def delete(self):
        return status(self.client.delete(self.path), 204)

    def pause(self):
        return status(self.client.post(self.path + "/pause", {}), 200, 204)

    def resume(self):
        return status(self.client.post(self.path + "/resume", {}), 200, 204)

    def ttl(self, ms):
        return status(self.client.post(self.path + "/ttl", {"ttl_ms": ms}), 200, 204)

    def wait_gone(self, seconds, since=None):
        """Until it answers 410 -> seconds since `since` (or now)."""
        start = time.monotonic() if since is None else since
        end = time.monotonic() + seconds
        while True:
            answer = self.client.get(self.path + "/exec")
            if answer.status == 410:
                check.error(answer, 410, "gone")
                return time.monotonic() - start
            status(answer, 200)
            if time.monotonic() > end:
                check.fail("the sandbox is still there after %s s", seconds)
            time.sleep(0.02)

    # Executions

    def send(self, **request):
        """POST …/exec -> Answer, whatever the status."""
        return self.client.post(self.path + "/exec", self.client.marked(request))

    def run(self, **request):
        """POST …/exec and wait -> the execution, as a run."""
        return as_run(status(self.send(**request), 200).json())

    def sh(self, script, **request):
        return self.run(sh=script, **request)

    def python(self, script, *arguments, **request):
        return self.run(argv=["/usr/bin/python3", "-c", script] + list(arguments), **request)

    def text(self, script, **request):
        """Runs a shell line that must succeed -> its stdout."""
        return check.text(check.ok(self.sh(script, **request)))

    def start(self, **request):
        """An execution that nobody waits for -> its id."""
        return status(self.send(wait=False, **request), 202).json()["id"]

    def connection_lost(self, request, seconds=0.1):
        """Sends an execution and closes the connection before there is an answer."""
        one = self.client.connection()
        body = json.dumps(self.client.marked(request))
        one.request("POST", self.path + "/exec", body, self.client.headers(None, b"x"))
        time.sleep(seconds)
        vanish(one)

    def background(self, **request):
        """An execution in the background -> its id."""
        return status(self.send(background=True, **request), 202).json()["id"]

    def at(self, ex):
        return "%s/exec/%s" % (self.path, ex)

    def fetch(self, ex):
        return as_run(status(self.client.get(self.at(ex)), 200).json())

    def wait_done(self, ex, seconds=15):
        end = time.monotonic() + seconds
        while True:
            seen = self.fetch(ex)
            if seen["state"] == "done":
                return seen
            if time.monotonic() > end:
                check.fail("%s is still %s after %s s", ex, seen["state"], seconds)
            time.sleep(0.01)

    def stream(self, **request):
        body = json.dumps(self.client.marked(dict(request, stream=True))).encode()
        return Stream(self.client, "POST", self.path + "/exec", body)

    def events(self, ex, after=None, follow=None):
        return Stream(
            self.client, "GET", self.at(ex) + "/events" + query(after=after, follow=follow)
        )

    def seen(self, ex, kind="stdout"):
        """What there is of its output now."""
        return joined(self.events(ex, follow=False).all(), kind)

    def wait_output(self, ex, part, seconds=5, kind="stdout"):
        """Until `part` is in its output -> all of it."""
        found = []

        def probe():
            found[:] = [self.seen(ex, kind)]
            return part in found[0]

        check.eventually(probe, seconds, lambda: "%r in the output: %r" % (part, found), 0.02)
        return found[0]

    def stdin(self, ex, data, close=None, offset=None):
        return self.client.request(
            "POST",
            self.at(ex) + "/stdin" + query(close=close, offset=offset),
            data,
            headers={"Content-Type": "application/octet-stream"},
        )

    def signal(self, ex, name):
        return self.client.post(self.at(ex) + "/signal", {"signal": name})

    def resize(self, ex, rows, cols):
        return self.client.post(self.at(ex) + "/resize", {"rows": rows, "cols": cols})

    def cancel(self, ex):
        return status(self.client.delete(self.at(ex)), 200, 202, 204)

    def executions(self):
        return rows(status(self.client.get(self.path + "/exec?limit=100"), 200).json())

    # Files

    def file(self, path):
        return self.path + "/files/" + quote(path).lstrip("/")

    def read(self, path, headers=None):
        return self.client.get(self.file(path), headers=headers)

    def content(self, path):
        return status(self.read(path), 200).body

    def head(self, path):
        return self.client.request("HEAD", self.file(path))

    def write(self, path, data, mode=None):
        return self.client.request(
            "PUT",
            self.file(path) + query(mode=mode),
            data,
            headers={"Content-Type": "application/octet-stream"},
        )

    def put(self, path, data, mode=None):
        return status(self.write(path, data, mode), 200, 201, 204)

    def remove(self, path, recursive=None):
        return self.client.delete(self.file(path) + query(recursive=recursive))

    def listing(self, path, depth=None, limit=None, after=None):
        return self.client.get(
            self.path
            + "/list/"
            + quote(path).lstrip("/")
            + query(depth=depth, limit=limit, after=after)
        )

    def names(self, path, **more):
        """Paths below `path`, as the listing has them."""
        return [one["path"] for one in rows(status(self.listing(path, **more), 200).json())]

    def archive(self, path):
        return self.path + "/archive/" + quote(path).lstrip("/")

    def download(self, path):
        return self.client.get(self.archive(path) + "?format=tar")

    def tar(self, path):
        """-> an open tarfile of the archive of `path`."""
        return tarfile.open(fileobj=io.BytesIO(status(self.download(path), 200).body))

    def upload(self, path, data):
        return self.client.request(
            "PUT", self.archive(path), data, headers={"Content-Type": "application/x-tar"}
        )

    # Snapshots

    def snapshot(self, name=None):
        """-> the snapshot object."""
        body = {} if name is None else {"name": name}
        made = status(self.client.post(self.path + "/snapshots", body), 201).json()
        check.matches(made.get("id", ""), r"^snap_[a-z0-9]{20,32}$", "id")
        return made

    def restore(self, snapshot):
        return self.client.post(self.path + "/restore", {"snapshot": snapshot})

    def fork(self, count):
        """-> [Box]"""
        made = status(self.client.post(self.path + "/fork", {"count": count}), 201).json()
        return [Box(self.client, one) for one in rows(made)]

    # Transfer

    def sync(self, entries, root="/workspace", delete=False):
        return self.client.post(
            self.path + "/sync", {"root": root, "entries": entries, "delete": delete}
        )

    def changes(self, root="/workspace"):
        """-> {path: entry}"""
        answer = status(self.client.get(self.path + "/changes" + query(root=root)), 200)
        return {one["path"]: one for one in rows(answer.json())}


def rows(body):
    """The list of an answer that has one."""
    if isinstance(body, list):
        return body
    lists = [value for value in body.values() if isinstance(value, list)]
    if len(lists) != 1:
        check.fail("not one list in the answer: %s", check.brief(body))
    return lists[0]


def blob(client, data, name=None):
    """PUT /v1/blobs/SHA256 -> Answer."""
    return client.request(
        "PUT",
        "/v1/blobs/" + (name or sha256(data)),
        data,
        headers={"Content-Type": "application/octet-stream"},
    )


def file_entry(path, data, mode="0644"):
    return {"path": path, "type": "file", "mode": mode, "size": len(data), "sha256": sha256(data)}


def forget(client, *snapshots):
    for one in snapshots:
        status(client.delete("/v1/snapshots/" + one["id"]), 204)


def delete_all(client):
    """Everything that a test may have left at the server."""
    for kind in (SANDBOXES, "/v1/snapshots"):
        answer = client.get(kind)
        if answer.status != 200:
            continue
        for one in rows(answer.json()):
            if one.get("state") != "gone":
                client.delete("%s/%s" % (kind, one["id"]))


def warm_up(client):
    """Uses everything once, so that what is made once and kept is there. Problems are for the tests
    to find."""
    try:
        with Box.make(client) as box:
            for _ in range(3):
                box.run(argv=["echo", "x"])
                box.text("echo x > f; echo out; sleep 0.02; echo more; echo more >&2")
                box.stream(sh="echo x; sleep 0.02; echo y", pty={"rows": 9, "cols": 9}).all()
            box.put("/workspace/g", b"x")
            box.tar("/workspace").close()
            box.sync([file_entry("h", b"x")])
            status(blob(client, b"x"), 200, 201, 204)
            for one in box.fork(1):
                one.delete()
            forget(client, box.snapshot())
    except AssertionError:
        pass


def vanish(connection, reset=True):
    """Closes a connection as a client that dies does."""
    if reset:
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.sock.close()
    connection.close()


def make_tar(*members):
    """-> bytes of a tar of (name, what) or (TarInfo, data)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, what in members:
            info = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            if isinstance(what, bytes):
                info.size = len(what)
                tar.addfile(info, io.BytesIO(what))
            else:
                tar.addfile(info)
    return out.getvalue()


def member(name, kind=tarfile.REGTYPE, **fields):
    info = tarfile.TarInfo(name)
    info.type = kind
    for key, value in fields.items():
        setattr(info, key, value)
    return info

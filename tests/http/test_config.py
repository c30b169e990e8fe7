"""Settings: the file, what `pinfold-server config` says of them, and `pinfold-server check`."""

import json
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import time

import certs
import check
import harness
from client import free_port, repo
from suite import test
from test_tls import ServerOnly

EXAMPLE = os.path.join(repo(), "deploy", "pinfold.json")


def server(*arguments):
    """pinfold-server … -> (exit code, stdout, stderr)."""
    done = subprocess.run(
        [harness.program("pinfold-server")] + list(arguments),
        stdin=subprocess.DEVNULL, capture_output=True, timeout=20, cwd="/",
    )  # fmt: skip
    return done.returncode, done.stdout.decode(), done.stderr.decode()


class Place:
    """A state directory, policies and a file for settings."""

    def __enter__(self):
        self.pair = harness.Pair()
        self.pair.init()
        self.state = self.pair.state
        self.policies = os.path.join(self.pair.work, "policies")
        shutil.copytree(harness.POLICIES, self.policies)
        for where, _, names in os.walk(self.policies):
            for one in [where] + [os.path.join(where, name) for name in names]:
                os.chown(one, 0, 0)
                os.chmod(one, 0o755)
        self.file = os.path.join(self.pair.work, "settings.json")
        return self

    def __exit__(self, *_):
        self.pair.discard()

    def write(self, text):
        with open(self.file, "w") as out:
            out.write(text if isinstance(text, str) else json.dumps(text))
        os.chmod(self.file, 0o644)
        return self.file

    def check(self, *arguments, port=None):
        usual = {"--state": self.state, "--user": self.pair.user, "--policies": self.policies,
                 "--port": str(port or free_port())}
        more = [word for flag, value in usual.items() if flag not in arguments for word in (flag, value)]
        return server("check", *more, *arguments)


@test("config prints every setting with its value, its default, and where it comes from", own=True)
def _(_):
    with Place() as place:
        path = place.write({"port": 443, "retention": {"snapshots": 7}, "proxy": ["10.0.0.0/8", "::1"]})
        code, out, why = server("config", "--config", path, "--port", "80", "--json")
        check.equal((code, why), (0, ""), "config --json")
        rows = {row["name"]: row for row in json.loads(out)["settings"]}
        seen = {name: (rows[name]["value"], rows[name]["default"], rows[name]["from"])
                for name in ("port", "retention.snapshots", "proxy", "queue", "tls.key")}
        check.equal(seen, {
            "port": ("80", "7070", "flag"),
            "retention.snapshots": ("7", "1000", "file"),
            "proxy": ("10.0.0.0/8, ::1", None, "file"),
            "queue": ("10000", "10000", "default"),
            "tls.key": (None, None, "default"),
        }, "settings")
        code, out, _ = server("config", "--config", path)
        check.equal(code, 0, "config")
        for name, row in rows.items():
            check.holds(out, "%s = " % name, "what is printed for people")
            check.holds(out, row["about"] + ".", "what is printed for people")
        code, out, _ = server("serve", "--help")
        for row in rows.values():
            if "flag" in row:
                check.holds(out, "--" + row["flag"], "the help of serve")


@test("the example file is what the table says, and check accepts it", own=True)
def _(_):
    code, out, why = server("config", "--example")
    check.equal((code, why), (0, ""), "config --example")
    with open(EXAMPLE) as file:
        check.equal(file.read(), out, "deploy/pinfold.json (config --example > deploy/pinfold.json)")
    with Place() as place:
        code, out, why = place.check("--config", EXAMPLE)
        check.equal((code, why), (0, ""), "check of the example: " + out)
        check.holds(out, "Nothing is wrong", "check")
        code, out, _ = server("config", "--json", "--config", EXAMPLE)
        for row in json.loads(out)["settings"]:
            check.equal(row["value"], row["default"] or row["value"], row["name"])


@test("a wrong file is one sentence with the file and a pointer, for serve, config and check",
      own=True)
def _(_):
    with Place() as place:
        for text, pointer in (
            ('{"prt": 1}', "/prt: there is no such setting"),
            ('{"port": 70000}', "/port: 70000 is not between 0 and 65535"),
            ('{"tls": {"cert": "x"}}', "/tls/cert: there is no such setting"),
            ('{"tls": {"key": 1}}', "/tls/key: a string is wanted"),
            ('{"proxy": ["10.0.0.0/8", "x"]}', "/proxy/1: it is neither an address nor a network"),
            ('{"proxy": "10.0.0.0/8"}', "/proxy: an array of strings is wanted"),
            ('{"port": 1,\n "port": 2}', "/port: it is there twice"),
            ('{"port": 1,,}', "line 1 is not JSON"),
            ("", "line 1 is not JSON"),
        ):  # fmt: skip
            path = place.write(text)
            wanted = "%s: %s" % (path, pointer)
            for command in ("serve", "config"):
                code, out, why = server(command, "--config", path)
                check.equal((code, out), (2, ""), command)
                check.holds(why, wanted, command)
                check.equal(why.count("\n"), 1, "lines")
            code, out, why = place.check("--config", path)
            check.equal((code, why), (1, ""), "check")
            check.holds(out, wanted, "check")
        check.equal(place.check("--config", "/nowhere")[0], 1, "a file that is not there")
        check.equal(place.check("--nonsense")[0], 2, "an unknown flag")


@test("serve takes its settings from the file, and flags override it", own=True)
def _(_):
    made = certs.Certificates()
    with Place() as place:
        port = free_port()
        path = place.write({"port": port, "listen": "127.0.0.1", "state": place.state, "verbose": True,
                            "tls": {"certificate": made.certificate, "key": made.key}})

        class FromFile(ServerOnly):
            def start_server(self):
                self.server = self.spawn(
                    [harness.program("pinfold-server"), "serve", "--config", path,
                     "--user", self.user] + self.server_args, "server.log",
                )  # fmt: skip

        pair = FromFile(tls=made, state=place.state, guard=place.pair.guard)
        pair.port = port
        with pair:
            check.holds(pair.log_bytes().decode(), 'port=%d scheme="https"' % port, "log")
            code, out, _ = place.check("--config", path)
            check.equal(code, 0, "check beside a running server: " + out)
            check.holds(out, "a server runs with", "check")


@test("check says in a plain sentence what would be wrong, and changes nothing", own=True, deadline=30)
def _(_):
    made = certs.Certificates()
    with Place() as place:

        def wrong(part, *arguments, port=None):
            code, out, why = place.check(*arguments, port=port)
            check.equal((code, why), (1, ""), "check: " + out)
            found = [line for line in out.splitlines() if line.startswith("wrong")]
            check.equal([part in line for line in found], [True], "findings %r have %r" % (found, part))

        def warned(part, *arguments):
            code, out, why = place.check(*arguments)
            check.equal((code, why), (0, ""), "check: " + out)
            check.true(any(part in line for line in out.splitlines() if line.startswith("warning")),
                       "no warning has %r: %s", part, out)

        check.equal(place.check()[0], 0, "check of what is right")
        with socket.create_server(("127.0.0.1", 0)) as sock:
            wrong("is in use by another program", port=sock.getsockname()[1])
        tls = ["--tls-certificate", made.certificate, "--tls-key", made.key]
        check.equal(place.check(*tls)[0], 0, "check of a certificate")
        wrong("HTTPS needs both", *tls[:2])
        wrong("cannot open /nowhere", "--tls-certificate", "/nowhere", *tls[2:])
        wrong("belongs to another certificate", *tls[:2], "--tls-key", certs.Certificates().key)
        os.chmod(made.key, 0o640)
        warned("SIGHUP cannot renew it", *tls)
        os.chmod(made.key, 0o644)
        warned("everybody may read", *tls)
        warned("tokens cross the network as they are", "--listen", "0.0.0.0")
        made.issue(start="20200101000000Z", end="20200102000000Z")
        wrong("has expired at 2020-01-02", *tls)
        # Policies.
        policy = os.path.join(place.policies, "default.json")
        text = open(policy).read()
        os.chmod(policy, 0o666)
        wrong("can be written by others")
        os.chmod(policy, 0o644)
        open(policy, "w").write(text[:-20])
        wrong("is not JSON")
        open(policy, "w").write(text)
        os.rename(policy, policy + "x.json")
        wrong("/name must be the file's name")
        os.rename(policy + "x.json", policy)
        wrong("cannot open the directory /nowhere", "--policies", "/nowhere")
        # The state directory.
        inner = os.path.join(place.state, "server")
        owner = os.stat(inner).st_uid
        os.chown(inner, 12345, 12345)
        wrong("belongs to user 12345")
        os.chown(inner, owner, -1)
        os.rename(os.path.join(place.state, "run"), os.path.join(place.state, "ran"))
        wrong("run is missing")
        os.rename(os.path.join(place.state, "ran"), os.path.join(place.state, "run"))
        os.chmod(place.state, 0o777)
        wrong("can be written by others")
        os.chmod(place.state, 0o755)
        check.equal(place.check()[0], 0, "check after all is repaired")
        database(place, inner, wrong)
        code, out, _ = place.check("--quiet")
        check.true(all(line.startswith("warning") for line in out.splitlines()), "quiet: %s", out)


def database(place, inner, wrong):
    """A newer one is refused; looking leaves nothing behind."""
    path = os.path.join(inner, "pinfold.db")
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version=9999")
    uid = os.stat(inner).st_uid
    os.chown(path, uid, -1)
    before = sorted(os.listdir(inner)), os.stat(path).st_mtime_ns
    wrong("a newer Pinfold wrote it")
    os.chown(path, 0, 0)
    os.chmod(path, 0o600)
    wrong("cannot be written")
    check.equal((sorted(os.listdir(inner)), os.stat(path).st_mtime_ns), before, "what is there")
    os.unlink(path)


@test("behind a proxy: what a trusted one says of the client is in log and audit, and nothing else",
      own=True)
def _(_):
    for trusted, said in ((["--proxy", "127.0.0.0/8", "--proxy", "10.1.2.3"], "203.0.113.9"),
                          (["--proxy", "10.0.0.0/8"], "127.0.0.1"), ([], "127.0.0.1")):  # fmt: skip
        with ServerOnly(server_args=["-v"] + trusted) as pair:
            for headers in ({"X-Forwarded-For": "1.1.1.1, 203.0.113.9, 10.1.2.3"},
                            {"Forwarded": 'for=1.1.1.1, for="203.0.113.9:99";proto=https'}):
                check.equal(pair.client.get("/v1/runs", headers=headers).status, 200, "status")
                headers["Authorization"] = "Bearer nonsense"
                check.equal(pair.client.get("/v1/runs", headers=headers).status, 401, "status")
            lines = [line for line in pair.log_bytes().decode().splitlines()
                     if "event=request" in line and 'route="/v1/runs"' in line]
            check.equal([re.search(r' client="([^"]*)"', line)[1] for line in lines], [said] * 2,
                        "clients in the log")
            code, out, why = server("audit", "show", "--state", pair.state, "--json", "--type", "denied")
            check.equal((code, why), (0, ""), "audit show")
            check.equal([json.loads(line)["client"] for line in out.splitlines()], [said] * 2,
                        "clients in the audit")


@test("behind a proxy that speaks HTTP/1.0: a stream comes at once, unbuffered, and ends", own=True)
def _(_):
    with harness.Pair(slots=2, warm=1) as pair:
        body = b'{"sh": "echo a; sleep 1; echo b", "stream": true}'
        with pair.client.socket(10) as sock:
            sock.sendall(b"POST /v1/runs HTTP/1.0\r\nContent-Length: %d\r\nAuthorization: Bearer %s\r\n\r\n"
                         % (len(body), pair.token.encode()) + body)
            start, got, first = time.monotonic(), b"", None
            while True:
                part = sock.recv(65536)
                if not part:
                    break
                got += part
                if first is None and b'"data":"a\\n"' in got:
                    first = time.monotonic() - start
            head, _, lines = got.partition(b"\r\n\r\n")
            check.within(0, first, 0.9, "seconds until the first output")
            check.holds(head.decode().lower(), "x-accel-buffering: no", "the head")
            check.lacks(head.decode().lower(), "transfer-encoding", "the head")
            events = [json.loads(line)["type"] for line in lines.splitlines()]
            check.equal(events[-2:], ["end", "done"], "the last events")

"""`pinfold agent` and `pinfold exec` against a server that lies about what has changed."""

import base64
import json
import os
import re
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import check
import ledger
from box import sha256
from model_server import ModelServer
from suite import test
from test_agent import outcome
from workspace import Workspace

EX = "ex_" + "a" * 20
RUN = {"calls": [("run", {"command": "true"})]}


class Liar:
    """A server that answers every request well, but for its list of changes, and what it asks for."""

    def __init__(self, lists, missing=(), contents=b"evil", receipt=None, key=None):
        self.lists = lists
        self.key = key  # of its receipts, as it shows it; None: it shows none
        self.receipt = receipt  # of the verifier; None: this server makes none
        self.missing = list(missing)
        self.contents = contents
        self.put = []
        self.made = self.told = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def send(self, body, status=200):
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                path = self.path.split("?")[0]
                if self.command == "PUT":
                    outer.put.append(body)
                if self.command == "GET" and "/files/" in path:
                    return self.send(outer.contents)
                # The workspace's sandbox is the first; that of the verifier tells no lies.
                if path == "/v1/sandboxes":
                    outer.made += 1
                answer = {"id": "sb_" + "abcdefgh"[outer.made] * 20, "state": "running"}
                if path.endswith("/receipt") and outer.receipt is None:
                    return self.send(b"{}", 404)
                if path == "/v1/receipt-key" and outer.key is None:
                    return self.send(b"{}", 404)
                if path == "/v1/receipt-key":
                    answer = {"algorithm": "ed25519", "key": outer.key.public.hex()}
                elif path.endswith("/receipt"):
                    answer = outer.receipt
                elif path.endswith("/sync"):
                    answer = {"applied": not outer.missing, "missing": outer.missing}
                elif path.endswith("/exec"):
                    answer = {"id": EX, "ok": True, "end": {"cause": "exit", "exit_code": 0},
                              "stdout": "", "usage": {"wall_ms": 1}}
                elif path.endswith("/changes"):
                    answer = {"entries": outer.next() if "bbbb" in path else []}
                return self.send(json.dumps(answer).encode())

            do_GET = do_POST = do_PUT = do_DELETE = do

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever,
                                       kwargs={"poll_interval": 0.02})

    def next(self):
        """-> the list for this time."""
        self.told += 1
        return self.lists[min(self.told, len(self.lists)) - 1]

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    @property
    def url(self):
        return "http://127.0.0.1:%d" % self.server.server_address[1]


def file(path, **more):
    return dict({"path": path, "change": "created", "type": "file", "mode": "0644"}, **more)


@test("no path, link or order of changes leads out of the workspace")
def _(pair):
    link = {"change": "created", "type": "symlink", "mode": "0777"}
    lists = [[file(path)] for path in (
        "../out", "/tmp/pinfold-out", "a/../../out", "a//b", "./a", "", ".", "..", "a/", "a/..",
        "x" * 5000, "y" * 300, "a\u0000b")]
    lists += [
        [file("a", path_base64=base64.b64encode(b"a\0b").decode()) | {"path": None}],
        [dict(link, path="d", target=".."), file("d/out")],
        [dict(link, path="d", target="/"), file("d/tmp/pinfold-out")],
        [dict(link, path="here", target="out-of-here/../x"), file("here/out")],
        [file("out-of-here/planted")],
        [{"path": "out-of-here/kept", "change": "deleted", "type": "file"}],
        [{"path": "a", "change": "deleted", "type": "directory"}],
        [file(".git/hooks/pre-commit"), file(".GIT/config"), file("sub/.git/HEAD"),
         file(".pinfold/permissions.rules")],
        [file("same"), file("same")],
        [file("fifo", type="fifo"), file("dev", type="device"), file("odd", type="\u001b[31m")],
        [{}], [[]], ["x"], [None], [file("m", mode="7777")], [file("m", mode="zzz")],
    ]
    runs = {"calls": [("run", {"command": "true %d" % i}) for i in range(len(lists))]}
    with Workspace(pair) as w, ModelServer([runs]) as model, Liar(lists) as liar:
        os.mkdir(os.path.join(w.top, "beside"))
        w.write("a/file", "mine")
        w.write("../beside/kept", "mine")
        os.symlink("../beside", os.path.join(w.path, "out-of-here"))
        before = sorted(os.listdir(w.top))
        done, events = w.agent(model, "t", "true", "--max-iters", "1", PINFOLD_URL=liar.url)
        outcome(done, events, 1, "not_verified")
        texts = [one["text"] for one in events if one["type"] == "result"]
        check.equal(len(texts), len(lists), "results")
        check.equal(liar.told, len(lists), "lists that were asked for")
        check.equal(sorted(os.listdir(w.top)), before, "beside the workspace")
        check.equal(os.listdir(os.path.join(w.top, "beside")), ["kept"], "behind the link")
        check.true(not os.path.exists("/tmp/pinfold-out"), "/tmp")
        tree = w.tree()
        check.equal(tree["a/file"][2], b"mine", "a/file")
        check.equal(tree["out-of-here"], ("link", 0, "../beside"), "the link")
        check.true(not any(".git" in name.lower() or ".pinfold" in name for name in tree), tree)
        check.true(all(one[1] & 0o7022 == 0 for one in tree.values()), tree)
        check.true("\x1b" not in done.stdout + done.stderr, "an escape sequence")
        check.true("m" in tree, "what is well came: %r" % texts)


@test("nothing is sent for the asking: only what the manifest names, each as often as it is there")
def _(pair):
    for missing in (["0" * 64], ["00"], ["x" * 64], [None], [1], ["a" * 100000],
                    ["2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"] * 100000):
        with Workspace(pair) as w, ModelServer([RUN]) as model, Liar([[]], missing) as liar:
            w.write("x", "x")  # its hash is the last one's
            w.write(".env", "secret")
            done, events = w.agent(model, "t", "true", "--max-iters", "1", PINFOLD_URL=liar.url)
            check.equal(events[-1]["type"], "end", "the last event of %.80r" % (missing,))
            check.true(b"secret" not in b"".join(liar.put), "a secret was sent")
            check.true(len(liar.put) < 10, "%d files were sent" % len(liar.put))


@test("a million changes, or a list of nothing but brackets, is work, not the end", deadline=60)
def _(pair):
    with Workspace(pair) as w, ModelServer([RUN]) as model, \
            Liar([[file("n%d" % i, type="fifo") for i in range(200000)]]) as liar:
        done, events = w.agent(model, "t", "true", "--max-iters", "1", PINFOLD_URL=liar.url)
        check.equal(events[-1]["type"], "end", "the last event (%s)" % done.stderr[-300:])
        check.true(any("cannot be brought" in one.get("text", "") for one in events), events[-3:])
    deep = json.loads("[" * 500 + "]" * 500)
    with Workspace(pair) as w, ModelServer([RUN]) as model, Liar([[deep]]) as liar:
        done, events = w.agent(model, "t", "true", "--max-iters", "1", PINFOLD_URL=liar.url)
        check.equal(events[-1]["type"], "end", "the last event (%s)" % done.stderr[-300:])


@test("a server that never answers does not outlast the bound of time")
def _(pair):
    with socket.socket() as listener, Workspace(pair) as w, ModelServer([RUN]) as model:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        w.write("a", "1")
        begun = time.monotonic()
        done, events = w.agent(model, "t", "true", "--wall", "1s",
                               PINFOLD_URL="http://127.0.0.1:%d" % listener.getsockname()[1])
        outcome(done, events, 4, "budget")
        check.true(time.monotonic() - begun < 6, "it took %d s" % (time.monotonic() - begun))


KEY = ledger.Key(1)
DONE = {"calls": [("done", {"summary": "s"})]}


def receipt(change=lambda body: None, key=KEY):
    """Of the verifier in Liar's sandbox: signed, whatever it says."""
    body = {"id": EX, "sandbox": "sb_" + "c" * 20,
            "files_in": {"sha256": ledger.root([]), "others": 0},
            "steps": [{"sh": "true", "end": {"cause": "exit", "exit_code": 0},
                       "stdout": {"sha256": sha256(b"")}}]}
    change(body)
    return key.receipt(body)


def verdict(w, one, code, word, key=KEY, **environment):
    """-> the last event of an agent that calls it done, against a server with this receipt, and
    what people were told."""
    with ModelServer([DONE]) as model, Liar([[]], receipt=one, key=key) as liar:
        environment.setdefault("PINFOLD_URL", liar.url)
        done, events = w.agent(model, "t", "true", "--max-iters", "1", **environment)
        last = outcome(done, events, code, word)
        told = [text for text in map(json.dumps, events) if "receipt does not" in text]
        check.equal(bool(told), code != 0, "it is said why: %s" % done.stderr)
        return last, done.stderr


@test("a receipt that does not bear out the answer is no verdict", deadline=60)
def _(pair):
    altered = receipt()
    altered["body"]["user"] = "another"
    lies = [
        {}, [], {"body": []}, altered,
        receipt(lambda b: b.update(id="ex_" + "b" * 20)),
        receipt(lambda b: b.update(sandbox="sb_" + "b" * 20)),
        receipt(lambda b: b.update(steps=[])),
        receipt(lambda b: b["steps"][0].update(sh="true;true")),
        receipt(lambda b: b["steps"][0]["end"].update(exit_code=1)),
        receipt(lambda b: b["steps"][0]["end"].update(cause="memory")),
        receipt(lambda b: b["steps"][0]["stdout"].update(sha256=sha256(b"x"))),
        receipt(lambda b: b["files_in"].update(sha256=sha256(b"x"))),
        receipt(lambda b: b["files_in"].update(others=1)),
        receipt(key=ledger.Key(2)),
        dict(receipt(), signature="0" * 128),
    ]
    for one, code, word in [(receipt(), 0, "verified")] + [
            (lie, 1, "not_verified") for lie in lies]:
        with Workspace(pair) as w:
            last, _ = verdict(w, one, code, word)
            check.equal(last["receipt"] is not None, code == 0, "the receipt of %s" % one)


@test("a server that makes no receipts, or gives no key, binds none, and that is said")
def _(pair):
    for one, key, why in (None, KEY, "makes no receipts"), (receipt(), None, "key"):
        with Workspace(pair) as w:
            last, _ = verdict(w, one, 0, "verified", key=key)
            check.equal((last["receipt"], last["receipt_key"]), (None, None), "what is bound")
            check.true(why in last["receipt_why"], "why: %s" % last["receipt_why"])


@test("the key that a server showed first counts from then on; one that was given counts alone")
def _(pair):
    other = ledger.Key(2)
    with Workspace(pair) as w, Liar([[]], receipt=receipt(), key=KEY) as liar:
        def again(one, key, code, word, **more):
            # The second sandbox that is made is the verifier's; the first is still there.
            liar.receipt, liar.key, liar.made = one, key, min(liar.made, 1)
            return verdict(w, None, code, word, PINFOLD_URL=liar.url, **more)

        last, said = again(receipt(), KEY, 0, "verified")
        check.equal((last["receipt_key"], last["receipt_key_from"]),
                    (KEY.id, "first"), "the key")
        last, _ = again(receipt(), KEY, 0, "verified")
        check.equal(last["receipt_key_from"], "known", "the second time")
        # Another key, by a server that signs with it and shows it.
        last, _ = again(receipt(key=other), other, 1, "not_verified")
        check.equal(last["receipt"], None, "the receipt with another key")
        # What a person has from elsewhere needs no word of the server's.
        last, _ = again(receipt(key=other), None, 0, "verified",
                        PINFOLD_RECEIPT_KEY=other.public.hex())
        check.equal(last["receipt_key_from"], "given", "the key that was given")
        again(receipt(key=other), other, 1, "not_verified", PINFOLD_RECEIPT_KEY=KEY.public.hex())
        # And changes nothing of what is known.
        again(receipt(), KEY, 0, "verified")


class Rude(BaseHTTPRequestHandler):
    """Whatever it is asked, each of its texts ends in what a terminal would obey."""

    protocol_version = "HTTP/1.1"
    EVIL = "x\x1b]0;y\x07\u009b2J\r\n\x7f"
    NAMES = ("id", "token", "state", "label", "user", "name", "policy", "image", "message", "command", "about",
             "created_at", "scopes", "cause", "why", "next", "description", "quota", "status", "how", "proof")

    def log_message(self, *_):
        pass

    def do(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        one = {name: self.EVIL for name in self.NAMES}
        lists = ("tokens", "runs", "sandboxes", "snapshots", "execs", "policies", "images", "spans", "limits", "layers")
        refused = self.path.split("?")[0].endswith("refused")
        answer = {"error": dict(one, code=self.EVIL, field=self.EVIL)} if refused else dict(
            one, **{name: [one, self.EVIL, dict(one, scopes=[self.EVIL])] for name in lists})
        body = json.dumps(answer).encode()
        self.send_response(400 if refused else 201 if self.command == "POST" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_DELETE = do


@test("no word of a server reaches the terminal as it is, nor the environment as a token", deadline=40)
def _(pair):
    commands = ("token child|token list|token revoke refused|me|runs|runs show refused|trace run_a|top|policies|"
                "policies refused|doctor|sandbox list|sandbox snapshots|sandbox create|sandbox ps sb_a|"
                "sandbox delete refused|run -- true|replay run_a|cp sb_a:/refused y")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Rude)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        with Workspace(pair) as w:
            for command in commands.split("|"):
                done = w.pinfold(*command.split(), PINFOLD_URL="http://127.0.0.1:%d" % server.server_address[1])
                said = done.stdout + done.stderr
                check.true(said, "%s says nothing", command)
                check.true(not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", said), "%s: %r", command, said)
                if command == "token child":
                    check.equal((done.returncode, done.stdout), (125, ""), "a token that is none")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

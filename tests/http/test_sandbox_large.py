"""Large files of a sandbox over HTTP."""

import hashlib
import http.client
import os

import check
from box import MIB, Box
from check import Stopwatch
from suite import test

OCTETS = {"Content-Type": "application/octet-stream"}


@test("200 MB go up and down whole, in bounded memory", case=191, deadline=60)
def _(pair):
    size = 200 * MIB
    with Box.make(pair.client, limits={"disk_bytes": 400 * MIB, "mem_bytes": 600 * MIB}) as box:
        before = pair.memory()
        piece = os.urandom(MIB)
        wanted = hashlib.sha256()
        for _ in range(size // MIB):
            wanted.update(piece)
        one = pair.client.connection(60)
        one.putrequest("PUT", box.file("/workspace/big"))
        for key, value in dict(pair.client.headers(), **OCTETS).items():
            one.putheader(key, value)
        one.putheader("Content-Length", str(size))
        one.endheaders()
        for _ in range(size // MIB):
            one.send(piece)
        answer = one.getresponse()
        answer.read()
        check.member(answer.status, (200, 201, 204), "status")
        check.equal(box.text("sha256sum big").split()[0], wanted.hexdigest(), "sha256 inside")
        one.request("GET", box.file("/workspace/big"), headers=pair.client.headers())
        answer = one.getresponse()
        seen, count = hashlib.sha256(), 0
        while True:
            part = answer.read(MIB)
            if not part:
                break
            seen.update(part)
            count += len(part)
        one.close()
        check.equal((count, seen.hexdigest()), (size, wanted.hexdigest()), "what came back")
        check.true(pair.memory() - before < 16 << 20, "the server grew by %d",
                   pair.memory() - before)


@test("of a large file its head, a part and all of it come, whole and framed", deadline=30)
def _(pair):
    data = os.urandom(9 * MIB + 17)
    with Box.make(pair.client) as box:
        box.put("/workspace/f", data)
        one = pair.client.connection(5)
        for method, part, want in (("GET", None, data), ("HEAD", None, b""),
                                   ("GET", "bytes=1000001-", data[1000001:]),
                                   ("GET", "bytes=7-5000006", data[7:5000007]),
                                   ("GET", "bytes=-1", data[-1:]), ("GET", None, data)):
            headers = pair.client.headers({"Range": part} if part else None)
            one.request(method, box.file("/workspace/f"), headers=headers)
            answer = one.getresponse()
            check.equal(answer.getheader("Content-Length"),
                        str(len(want) if method == "GET" else len(data)), "length of %s" % part)
            check.true(answer.read() == want, "%s %s: the bytes differ", method, part)
            # Small answers leave the connection as it was.
            check.true(not answer.will_close or len(want) > MIB, "the connection ends")
        one.close()
        raw = pair.client.socket()
        raw.sendall(("GET %s HTTP/1.0\r\nAuthorization: %s\r\n\r\n" % (
            box.file("/workspace/f"), pair.client.headers()["Authorization"])).encode())
        seen = b""
        while part := raw.recv(MIB):
            seen += part
        raw.close()
        check.true(seen.partition(b"\r\n\r\n")[2] == data, "HTTP/1.0: the bytes differ")


@test("who does not read a large file holds up nobody and is cut off with the sandbox",
      deadline=40)
def _(pair):
    with Box.make(pair.client) as box:
        box.sh("head -c 60000000 /dev/zero > f")
        one = pair.client.connection(15)
        one.request("GET", box.file("/workspace/f"), headers=pair.client.headers())
        answer = one.getresponse()
        check.equal(len(answer.read(1000)), 1000, "the beginning")
        watch = Stopwatch()
        for _ in range(5):
            check.equal(box.text("cat f | wc -c"), "60000000\n", "meanwhile")
        check.true(watch.seconds() < 15, "five executions took %.1f s", watch.seconds())
        box.delete()
        watch = Stopwatch()
        try:
            rest = len(answer.read())
        except http.client.IncompleteRead as cut:
            rest = len(cut.partial)
        except ConnectionError:
            rest = 0
        check.true(rest + 1000 < 60000000, "all of a file that is gone has come")
        check.true(watch.seconds() < 10, "it was cut off after %.1f s", watch.seconds())
        one.close()

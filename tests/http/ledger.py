"""The audit log and receipts as somebody sees them who has none of our code: the files, hashlib,
and Ed25519 as RFC 8032 describes it."""

import glob
import hashlib
import json
import os
import shutil
import subprocess

import harness

# Ed25519, slowly.

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P


def _recover(y, sign):
    x2 = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(x2, (P + 3) // 8, P)
    if (x * x - x2) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    if (x * x - x2) % P:
        raise ValueError("no point")
    return P - x if x % 2 != sign else x


def _point(data):
    y = int.from_bytes(data, "little")
    x = _recover(y % 2**255, y >> 255)
    y %= 2**255
    return x, y, 1, x * y % P


def _add(p, q):
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % P, (p[1] + p[0]) * (q[1] + q[0]) % P
    c, d = 2 * p[3] * q[3] * D % P, 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def _times(n, p):
    q = (0, 1, 1, 0)
    while n:
        if n & 1:
            q = _add(q, p)
        p = _add(p, p)
        n >>= 1
    return q


_BASE_Y = 4 * pow(5, P - 2, P) % P
_BASE = (_recover(_BASE_Y, 0), _BASE_Y, 1, _recover(_BASE_Y, 0) * _BASE_Y % P)


def signed(key, message, signature):
    """Did the holder of this public key sign it?"""
    point, s = _point(signature[:32]), int.from_bytes(signature[32:], "little")
    if s >= L:
        return False
    digest = hashlib.sha512(signature[:32] + key + message).digest()
    k = int.from_bytes(digest, "little") % L
    p, q = _times(s, _BASE), _add(point, _times(k, _point(key)))
    return (p[0] * q[2] - q[0] * p[2]) % P == 0 and (p[1] * q[2] - q[1] * p[2]) % P == 0


class Key:
    """A key pair to sign with, made of a number."""

    def __init__(self, number):
        digest = hashlib.sha512(number.to_bytes(32, "little")).digest()
        self.scalar = int.from_bytes(digest[:32], "little") % 2**254 & ~7 | 2**254
        self.prefix = digest[32:]
        self.public = self.encoded(self.scalar)

    @staticmethod
    def encoded(n):
        x, y, z, _ = _times(n, _BASE)
        inverse = pow(z, P - 2, P)
        x, y = x * inverse % P, y * inverse % P
        return (y | (x & 1) << 255).to_bytes(32, "little")

    def sign(self, message):
        r = int.from_bytes(hashlib.sha512(self.prefix + message).digest(), "little") % L
        point = self.encoded(r)
        k = int.from_bytes(hashlib.sha512(point + self.public + message).digest(), "little") % L
        return point + ((r + k * self.scalar) % L).to_bytes(32, "little")

    @property
    def id(self):
        return hashlib.sha256(self.public).hexdigest()[:16]

    def receipt(self, body):
        body = dict(body, receipt=1, key=self.id)
        return {"body": body, "signature": self.sign(receipt_message(body)).hex()}


# Receipts


def canonical(value):
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    ).encode()


def receipt_message(body):
    return b"pinfold receipt 1\n" + hashlib.sha512(canonical(body)).hexdigest().encode()


def receipt_holds(receipt, key):
    return signed(key, receipt_message(receipt["body"]), bytes.fromhex(receipt["signature"]))


def root(files):
    """The root digest of [(path, mode, bytes)]."""
    text = b""
    for path, mode, data in sorted(files):
        text += b"%04o %d %s %s\0" % (
            mode, len(data), hashlib.sha256(data).hexdigest().encode(), path.encode())
    return hashlib.sha256(text).hexdigest()


# The log


def tool(*words, state, key=None):
    """pinfold-server WORDS --state STATE -> (exit code, text)."""
    done = subprocess.run(
        [harness.program("pinfold-server"), *words, "--state", state],
        capture_output=True, timeout=20, stdin=subprocess.DEVNULL,
    )
    return done.returncode, (done.stdout + done.stderr).decode()


def segments(state, chain="log"):
    return sorted(glob.glob(os.path.join(state, "server", "audit", chain + "-*.jsonl")))


def text(state, chain="log"):
    return b"".join(open(path, "rb").read() for path in segments(state, chain))


def records(state, chain="log"):
    return [json.loads(line) for line in text(state, chain).splitlines()]


def sound(state, chain="log"):
    """The chain, computed anew from the description in audit_line.h -> number of records."""
    last, seq = hashlib.sha256(b"pinfold audit " + chain.encode()).hexdigest(), 0
    for line in text(state, chain).splitlines():
        record = json.loads(line)
        cut = line.rindex(b',"hash":"')
        if hashlib.sha256(line[:cut] + b"}").hexdigest() != record["hash"]:
            return -1
        if record["prev"] != last or record["seq"] != seq + 1:
            return -1
        last, seq = record["hash"], record["seq"]
    return seq


def copy(state, to):
    """A state directory that has only what the audit log needs."""
    server = os.path.join(to, "server")
    shutil.rmtree(to, ignore_errors=True)
    os.makedirs(server)
    for name in ("receipt.key", "audit.head", "audit.cmd.head"):
        path = os.path.join(state, "server", name)
        if os.path.exists(path):
            shutil.copy(path, server)
    shutil.copytree(os.path.join(state, "server", "audit"), os.path.join(server, "audit"))
    return to

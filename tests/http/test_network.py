"""A network namespace goes from jail to jail as long as nothing has happened in it. One is known by
its cookie, a number that the kernel gives to no other again."""

import os
import time

import check
import harness
from suite import Skip, test

COOKIE = """
import socket, struct, sys
AF, ANY = socket.AF_INET, ("127.0.0.1", 0)
def cookie():
    with socket.socket(socket.AF_UNIX) as one:
        return struct.unpack("Q", one.getsockopt(socket.SOL_SOCKET, 71, 8))[0]
def attempt(call, *arguments):
    try:
        return call(*arguments)
    except OSError as problem:
        print("# %s" % problem, file=sys.stderr)
print(cookie())
"""

# Connections that send nothing: the kernel waits for their first bytes, or refuses them at once.
WAITS = """
def waits(family, host):
    a = socket.socket(family)
    for option in 30, 34:  # TCP_FASTOPEN_CONNECT, TCP_FASTOPEN_NO_COOKIE
        a.setsockopt(6, option, 1)
    a.setsockopt(1, 13, struct.pack("ii", 1, 0))
    a.connect((host, 9))
def full(family, host):
    a, b = socket.socket(family), socket.socket(family)
    a.bind((host, 0))
    port = a.getsockname()[1]
    try:
        b.setsockopt(0, 51, struct.pack("I", port | port << 16))  # IP_LOCAL_PORT_RANGE
    except OSError:
        return waits(family, host)  # Linux before 6.3
    b.connect((host, 9))
"""

NOTHING = {
    "nothing": "",
    "sockets of its own host": "a, b = socket.socketpair(); a.send(b'x'); b.recv(1)",
    "a name that ends with it": "a = socket.socket(socket.AF_UNIX); a.bind('\\0here')",
    "TCP that was not used": "a = socket.socket(AF)",
}

# Each by itself; a socket for datagrams leaves nothing behind, and is not looked into.
SOMETHING = {
    "a connection that is refused": "attempt(socket.create_connection, ('127.0.0.1', 9))",
    "one over IPv6": "attempt(socket.create_connection, ('::1', 9))",
    "no route": "attempt(socket.create_connection, ('192.0.2.1', 9))",
    "a socket that listens": "a = socket.socket(AF); a.bind(ANY); a.listen()",
    "a connection that sends nothing": WAITS + "waits(AF, '127.0.0.1')",
    "the same over IPv6": WAITS + "waits(socket.AF_INET6, '::1')",
    "no port, but a route": WAITS + "attempt(full, socket.AF_INET6, '::1')",
    "the key of TCP's fast opening": "socket.socket(AF).setsockopt(6, 23, 5)",
    "a connection": "a = socket.create_server(ANY); socket.create_connection(a.getsockname())",
    "a socket for datagrams": "socket.socket(AF, socket.SOCK_DGRAM).bind(ANY)",
    "one of netlink": "attempt(socket.socket, socket.AF_NETLINK, socket.SOCK_RAW, 0)",
    "a group, joined by TCP": "attempt(socket.socket(AF).setsockopt, 0, 42, struct.pack("
                              "'I4xH2x4B120x', 1, 2, 239, 1, 2, 3))",
    "a group and a source, joined by TCP": "attempt(socket.socket(AF).setsockopt, 0, 39, "
                                           "bytes((239, 1, 2, 4, 127, 0, 0, 1, 127, 0, 0, 1)))",
}


def may_be_used_again():
    if os.environ.get("PINFOLD_TEST_ROOTLESS"):
        raise Skip("a rootless runner makes each jail a new one")
    if os.statvfs("/proc/sys").f_flag & os.ST_RDONLY:
        raise Skip("/proc/sys is read-only here, so each jail has a new one")


def of(answer):
    return int(check.text(check.ok(answer)).split()[0])


def again(client, script):
    """Runs it until two in a row had the same namespace: the first was taken down in time."""
    until, before = time.monotonic() + 10, None
    while time.monotonic() < until:
        now = of(client.python(COOKIE + script))
        if now == before:
            return True
        before = now
    return False


@test("a network namespace in which nothing happened is used again, and no other", own=True,
      deadline=90)
def _(_):
    may_be_used_again()
    with harness.Pair(slots=2, warm=0) as pair:
        other = pair.user_client("other")
        pair.warm_up([{"policy": "default"}])
        for name, script in NOTHING.items():
            check.true(again(pair.client, script), "after %s no namespace was used again", name)
        for name, script in SOMETHING.items():
            used = {of(pair.client.python(COOKIE + script))}
            for client in (pair.client, other, pair.client):
                now = of(client.python(COOKIE + script))
                check.true(now not in used, "after %s its namespace was used again", name)
                used.add(now)
        check.true(again(other, ""), "no namespace was used again in the end")
        other.close()
        pair.check_clean()


@test("in a network namespace that was used before all is as in a new one", own=True, deadline=60)
def _(_):
    may_be_used_again()
    look = COOKIE + """
def text(*names):
    try:
        return open("/proc/" + "/".join(names)).read().split()
    except FileNotFoundError:
        return None
seen = [sorted(text("net", name) or ()) for name in
        ("dev", "snmp", "snmp6", "netstat", "rt6_stats", "ipv6_route", "fib_triestat", "unix", "tcp",
         "udp", "if_inet6", "route")]
seen += [[line.split()[:3] for line in open("/proc/net/protocols")]]  # then the memory of the host's
seen += [text("sys/net", name) for name in
         ("core/somaxconn", "ipv4/tcp_max_tw_buckets", "ipv4/tcp_rmem", "ipv4/ip_local_port_range")]
print(seen)
"""
    with harness.Pair(slots=2, warm=0) as pair:
        pair.warm_up([{"policy": "default"}])
        pair.rest()
        until, seen = time.monotonic() + 15, {}
        while time.monotonic() < until and max([len(v) for v in seen.values()] + [0]) < 3:
            number, text = check.text(check.ok(pair.client.python(look))).split("\n", 1)
            seen.setdefault(number, []).append(text)
        most = max(seen.values(), key=len)
        check.true(len(most) >= 3, "no namespace was used three times: %s", {n: len(t) for n, t in seen.items()})
        check.equal(set(most), {most[0]}, "what a namespace shows from the first use on")


# What it leaves: a name and a port that are bound, each held in another way while its jail dies.
LEAVE = """
import os, socket, struct, sys, threading, time
def things():
    name, port = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM), socket.socket(socket.AF_INET)
    name.bind("\\0left")
    port.bind(("127.0.0.1", 7007))
    return [name, port]
def cycle(extra):
    a, b = socket.socketpair()
    fds = [one.fileno() for one in [a, b] + things()] + extra
    for one in a, b:
        socket.send_fds(one, [b"x"], fds)
def forks(kept):
    while True:
        try:
            os.fork()
        except OSError:
            pass
def calls(kind):
    while True:
        one = socket.socket(socket.AF_INET, kind)
        if kind == socket.SOCK_STREAM:
            one.listen()
        one.close()
"""

WAYS = {
    "a cycle of messages": "cycle([])",
    "the namespace in a cycle of messages": "cycle([os.open('/proc/self/' + name, os.O_RDONLY) for name"
                                            " in ('ns/net', 'net/unix', 'net/tcp')])",
    "a process of its own": "kept = things()\nif os.fork() == 0:\n    os.setsid()\n    os.close(1)\n"
                            "    os.close(2)\n    if os.fork() == 0:\n        time.sleep(60)",
    "ever more processes": "forks(things())",
    "calls that are asked about": "kept = things()\n"
                                  "for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM) * 4:\n"
                                  "    threading.Thread(target=calls, args=(kind,)).start()",
}

FOUND = COOKIE + """
import os
one, two = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM), socket.socket(AF)
print([line for table in ("unix", "tcp", "tcp6", "udp", "udp6", "raw")
       for line in open("/proc/net/" + table).readlines()[1:]
       if table != "unix" or int(line.split()[6]) != os.fstat(one.fileno()).st_ino])
one.bind("\\0left")
two.bind(("127.0.0.1", 7007))
print("free")
"""


@test("however a jail dies, nothing that it held is there for the next", own=True, deadline=120)
def _(_):
    with harness.Pair(slots=2, warm=0) as pair:
        other = pair.user_client("other")
        pair.warm_up([{"policy": "default"}])
        for name, way in WAYS.items():
            pair.client.python(LEAVE + way, limits={"wall_ms": 700})
            for client in (other, pair.client):
                lines = check.text(check.ok(client.python(FOUND))).split("\n")
                check.equal(lines[1:3], ["[]", "free"], "after %s there is" % name)
        other.close()
        pair.check_clean()

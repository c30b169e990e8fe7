"""Who holds which power: the server process, the state directory, the runner's sockets."""

import os
import re
import socket
import stat
import struct
import subprocess

import check
import clean
import harness
from box import Box
from suite import test


def status(pid):
    text = clean.read("/proc/%d/status" % pid).decode()
    return dict(re.findall(r"^(\w+):\s+(.*)$", text, re.M))


@test("the server has no power: another user, no capability, no new privileges, not dumpable")
def _(pair):
    seen = status(pair.server_pid)
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        check.equal(int(seen[name], 16), 0, name)
    check.equal(seen["NoNewPrivs"], "1", "NoNewPrivs")
    for name in ("Uid", "Gid"):
        ids = set(seen[name].split())
        check.true(len(ids) == 1 and "0" not in ids, "%s is %s", name, seen[name])
    check.lacks(seen.get("Groups", "").split(), "0", "supplementary groups")
    # What is not dumpable belongs to root in /proc.
    check.equal(os.stat("/proc/%d/environ" % pair.server_pid).st_uid, 0, "owner of its environ")
    check.equal(status(pair.runner_pid)["Uid"].split()[0], "0", "the runner's user")


@test("no process of a jail is root outside or has a capability")
def _(pair):
    run = pair.client.submit(argv=["sleep", "20"])
    pair.client.wait_state(run, ("running",))
    _, jailed = clean.family(pair.runner_pid)
    check.true(len(jailed) >= 2, "processes in jails: %d", len(jailed))
    for pid in jailed:
        seen = status(pid)
        if not seen:
            continue
        check.true(min(map(int, seen["Uid"].split())) >= 65536, "Uid of %d: %s", pid, seen["Uid"])
        check.equal(int(seen["CapEff"], 16), 0, "CapEff of %s" % seen["Name"])
    pair.client.delete("/v1/runs/" + run)
    pair.client.wait_done(run, 3)


@test("process 1 of a jail cannot be traced and is not the command's user")
def _(pair):
    run = pair.client.submit(argv=["sleep", "20"])
    check.eventually(lambda: clean.marked(pair.client.mark), 3, "the program runs")
    command = clean.marked(pair.client.mark)[0]
    first = clean.processes()[command][0]
    check.true(
        status(first)["Uid"].split()[0] != status(command)["Uid"].split()[0], "one user for both"
    )
    # What is not dumpable belongs to user 0 of its user namespace in /proc.
    owner = os.stat("/proc/%d/environ" % first).st_uid
    users = [int(status(pid)["Uid"].split()[0]) for pid in (first, command)]
    check.true(owner not in users, "process 1 is dumpable")
    pair.client.delete("/v1/runs/" + run)
    pair.client.wait_done(run, 3)


@test("the state directory keeps secrets from others")
def _(pair):
    def mode(path):
        return stat.S_IMODE(os.stat(os.path.join(pair.state, path)).st_mode)

    check.equal(mode("admin.token"), 0o600, "mode of admin.token")
    check.true(mode("run") & 0o007 == 0, "mode of run is %o", mode("run"))
    for at, _, plain in os.walk(pair.state):
        for name in plain:
            path = os.path.join(at, name)
            seen = os.lstat(path)
            if stat.S_ISREG(seen.st_mode):
                check.true(seen.st_mode & 0o022 == 0, "%s has mode %o", path, seen.st_mode)
                if path != os.path.join(pair.state, "admin.token"):
                    check.true(
                        pair.token.encode() not in clean.read(path), "the token is in %s", path
                    )


def sockets(pair):
    run = os.path.join(pair.state, "run")
    return [os.path.join(run, n) for n in os.listdir(run) if n.endswith(".sock")]


def packet(sock):
    try:
        return sock.recv(65536)
    except OSError:
        return b""


@test("the runner's socket answers nobody but the server's user", own=True, deadline=30)
def _(_):
    with harness.Pair(slots=2, warm=1) as pair:
        script = (
            "import os, socket, sys\nos.setgid(12345); os.setuid(12345)\n"
            "s = socket.socket(1, socket.SOCK_SEQPACKET)\n"
            "s.settimeout(2)\ntry:\n s.connect(sys.argv[1]); s.send(b'x' * 32); "
            "print(len(s.recv(9999)))\n"
            "except OSError as e: print(0)"
        )
        for mode in (0o750, 0o777):
            # Even where the directory lets somebody in.
            os.chmod(os.path.join(pair.state, "run"), mode)
            for path in sockets(pair):
                os.chmod(path, 0o777)
                done = subprocess.run(
                    ["/usr/bin/python3", "-c", script, path], capture_output=True, timeout=10
                )
                check.equal(done.stdout.strip(), b"0", "bytes of an answer")
        check.ok(pair.client.run(argv=["true"]))


@test("the runner does its work with the capabilities that its unit leaves it", own=True, deadline=30)
def _(_):
    with open(os.path.join(harness.repo(), "deploy/systemd/pinfold-runner.service")) as unit:
        names = re.search(r"^CapabilityBoundingSet=(.+)$", unit.read(), re.M)[1].lower().split()
    keep = ",".join("+" + name[len("cap_"):] for name in names)
    prefix = ["setpriv", "--bounding-set=-all," + keep, "--inh-caps=-all", "--no-new-privs"]
    with harness.Pair(slots=2, warm=1, runner_prefix=prefix) as pair:
        pair.warm_up()
        check.ok(pair.client.run(sh="sleep 100 & echo x > f", collect=["f"]))
        check.ended(pair.client.run(argv=["sleep", "100"], limits={"wall_ms": 300}), "wall_time")
        box = Box.make(pair.client)
        box.put("/workspace/f", b"kept")
        box.start(sh="sleep 100")
        snapshot = pair.client.post(box.path + "/snapshots", {"name": "s"})
        check.equal(snapshot.status, 201, "a snapshot")
        other = Box.make(pair.client, **{"from": snapshot.json()["id"]})
        check.equal(other.content("/workspace/f"), b"kept", "the file in another sandbox")
        for one in (box, other):
            one.delete()
        pair.client.delete("/v1/snapshots/" + snapshot.json()["id"])
        pair.check_clean(3)


with open(os.path.join(harness.repo(), "runner", "wire", "wire.h")) as header:
    VERSION = int(re.search(r"WIRE_VERSION (\d+)u", header.read())[1])

HOSTILE = [
    b"",
    b"x",
    b"\0" * 24,
    b"\xff" * 24,
    b"\0" * 60000,
    b"\xff" * 60000,
    struct.pack("<IIIIQ", VERSION, 1, 24, 0, 0),
    struct.pack("<IIIIQ", VERSION + 1, 1, 24, 0, 0),
    struct.pack("<IIIIQ", VERSION, 1, 24, 0, 0) + b"\0" * 8,
    struct.pack("<IIIIQ", VERSION, 2, 24, 0, 1),
    struct.pack("<IIIIQ", VERSION, 3, 24, 0, 1),
    struct.pack("<IIIIQ", VERSION, 4, 0xFFFFFFFF, 0, 1),
    struct.pack("<IIIIQ", VERSION, 5, 24, 0, 99),
    struct.pack("<IIIIQ", VERSION, 6, 32, 0, 1) + b"\0" * 8,
    struct.pack("<IIIIQ", VERSION, 8, 88, 0, 1) + b"snap_1".ljust(64, b"\0"),
    struct.pack("<IIIIQ", VERSION, 11, 88, 0, 1) + b"sb_1".ljust(64, b"\0"),
    struct.pack("<IIIIQ", VERSION, 64, 24, 0, 0),
]


@test("nonsense on the runner's socket harms nobody", own=True, deadline=40)
def _(_):
    with harness.Pair(slots=2, warm=1) as pair:
        pids = pair.shard_pids()
        for data in HOSTILE:
            for path in sockets(pair):
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
                    sock.settimeout(0.2)
                    try:
                        sock.connect(path)
                        sock.send(data)
                        packet(sock)
                    except OSError:
                        pass
        check.eventually(lambda: pair.probe("/readyz") == 200, 5, "ready")
        check.ok(pair.client.run(argv=["true"]))
        check.equal(pair.shard_pids(), pids, "shards")


@test("nonsense with descriptors on the runner's socket leaks none of them", own=True, deadline=40)
def _(_):
    with harness.Pair(slots=2, warm=1) as pair:
        pair.rest()
        for data in HOSTILE[1:]:
            for path in sockets(pair):
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
                    sock.settimeout(0.2)
                    try:
                        sock.connect(path)
                        socket.send_fds(sock, [data], [0, 1, 2, 0, 1, 2])
                        packet(sock)
                    except OSError:
                        pass
        check.eventually(lambda: pair.probe("/readyz") == 200, 5, "ready")
        pair.check_clean(3)


def lingering(address):
    """-> a TCP socket whose close() waits for half a minute, since nobody reads."""
    one = socket.create_connection(address)
    one.setblocking(False)
    try:
        while True:
            one.send(bytes(65536))
    except BlockingIOError:
        pass
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 30))
    return one


def give_lingering(path, address, packets, copies, busy):
    """Sends such a socket with the last packet, and ends: a process that exits waits for nothing."""
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return
    try:
        one = lingering(address)
        first = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if busy:
            first.connect(path)
        sock.connect(path)
        for data in packets[:-1]:
            sock.send(data)
        socket.send_fds(sock, packets[-1:], [one.fileno()] * copies)
    finally:
        os._exit(0)


@test("a descriptor that takes long to close does not hold the runner up", own=True, deadline=60)
def _(_):
    hello = struct.pack("<IIIIQ", VERSION, 1, 24, 0, 0)
    wrong = struct.pack("<IIIIQ", VERSION, 3, 24, 0, 1)
    with harness.Pair(slots=2, warm=1) as pair:
        os.kill(pair.server_pid, 9)
        pair.server.wait(5)
        path = sockets(pair)[0]
        # As what it is not; beside others, more than may come; unread behind what ends it all; to a
        # connection that is refused because there is one.
        for packets, copies, busy in (
            ([hello], 1, False),
            ([wrong], 60, False),
            ([hello, b"x", hello], 1, False),
            ([wrong], 1, True),
        ):
            with socket.create_server(("127.0.0.1", 0)) as listener:
                give_lingering(path, listener.getsockname(), packets, copies, busy)
                check.eventually(lambda: greeted(pair, hello), 5, "the runner answers")
        pair.start_server()
        pair.wait_ready()
        check.ok(pair.client.run(argv=["true"]))


@test("a server that holds all descriptors that there are does not hold the runner up", own=True, deadline=60)
def _(_):
    hello = struct.pack("<IIIIQ", VERSION, 1, 24, 0, 0)
    with harness.Pair(slots=2, warm=1, runner_prefix=["prlimit", "--nofile=700:700"]) as pair:
        os.kill(pair.server_pid, 9)
        pair.server.wait(5)
        path = sockets(pair)[0]
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.settimeout(5)
            sock.connect(path)
            sock.send(hello)
            preset = b""
            while (said := packet(sock)) and said[4:8] != struct.pack("<I", 67):
                if said[4:8] == struct.pack("<I", 65):
                    preset = said[24 + 64 + 32 + 88 :][:88]
            preset = preset[:56] + struct.pack("<Q", 256) + preset[64:]  # open_files
            name = [text.encode().ljust(64, b"\0") for text in ("default", "host", "box", "")]
            size = 24 + 128 + 88 + 16 + 128 + 32
            sock.send(struct.pack("<IIIIQ", VERSION, 2, size, 0, 1) + name[0] + name[1] + preset
                      + struct.pack("<IIII", 0, 1, 0, 0) + name[2] + name[3] + bytes(32))
            while (said := packet(sock)) and said[4:8] != struct.pack("<I", 72):
                pass  # until it is OPENED: what it holds stays when the connection ends
            spec = struct.pack("<IIII", 0x31534650, 2, 0, 0) + b"/\0sleep\x00100\0"
            reader, writer = os.pipe()
            memory = os.memfd_create("input")
            keep = 2 | 32 | 64 | 128 | 256
            try:
                for number in range(1, 129):
                    head = struct.pack("<IIIIQ", VERSION, 3, 152 + len(spec), number, 1)
                    rest = struct.pack("<QIIHHI", 0, 0, len(spec), 0, 0, 0)
                    socket.send_fds(sock, [head + struct.pack("<IIII", 0, keep, 0, 0) + preset + rest
                                           + spec], [writer, writer, reader, reader, memory])
                while packet(sock):
                    pass
            except OSError:
                pass  # it has ended the connection
            for fd in reader, writer, memory:
                os.close(fd)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            give_lingering(path, listener.getsockname(), [hello], 250, False)
            check.eventually(lambda: greeted(pair, hello), 5, "the runner answers")
        check.true("more descriptors than there is room for" in pair.logs(), "why it ended the connection")


def greeted(pair, hello):
    """Does the runner answer?"""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.settimeout(1)
        sock.connect(sockets(pair)[0])
        try:
            sock.send(hello)
        except OSError:
            return False
        return len(packet(sock)) >= 24


@test("a server that takes over the socket ends the jails of the one before", own=True, deadline=30)
def _(_):
    with harness.Pair(slots=4, warm=1) as pair:
        run = pair.client.submit(sh="sleep 100")
        pair.client.wait_state(run, ("running",))
        check.eventually(lambda: clean.marked(pair.client.mark), 3, "the program runs")
        marked = clean.identity(clean.marked(pair.client.mark))
        os.kill(pair.server_pid, 9)
        pair.server.wait(5)
        check.eventually(lambda: not clean.alive(marked), 1, "the program is dead")
        hello = struct.pack("<IIIIQ", VERSION, 1, 24, 0, 0)
        for path in sockets(pair):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
                sock.settimeout(2)
                sock.connect(path)
                sock.send(hello)
                check.true(len(packet(sock)) >= 24, "no answer to HELLO")
        pair.start_server()
        pair.wait_ready()
        check.ok(pair.client.run(argv=["true"]))

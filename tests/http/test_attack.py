"""Ways round the limits that were open once: each stays closed."""

import ctypes
import fcntl
import json
import mmap
import os
import pwd
import select
import shutil
import socket
import tempfile

import box
import check
import clean
import harness
from client import parallel
from suite import Skip, test
from test_users import new_user

MIB = 1 << 20

# Fills receive buffers over loopback and never reads; prints how much the kernel holds.
UDP = r"""
import json, resource, socket, struct
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
held = 0
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
keep = []
for i in range(400):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    s.bind(("127.0.0.1", 0))
    for _ in range(200):
        try:
            out.sendto(b"x" * 8000, s.getsockname())
        except OSError:
            break
    held += struct.unpack("9I", s.getsockopt(socket.SOL_SOCKET, 55, 36))[0]
    keep.append(s)
print(json.dumps(held))
"""


@test("buffers of sockets are under a limit too", case="31")
def _(pair):
    limit = 64 * MIB
    answer = pair.client.run(
        argv=["python3", "-c", UDP], limits={"mem_bytes": limit, "open_files": 1024}
    )
    cause = answer["steps"][0]["end"]["cause"]
    check.member(cause, ("exit", "memory"), "cause")
    if cause == "exit":
        check.ended(answer, "exit", exit_code=0)
        check.within(1, int(answer["steps"][0]["stdout"]), limit // 2, "bytes in socket buffers")


# Takes all there is of what the kernel counts for users, and holds it until its input ends.
TAKE = r"""
import ctypes, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
instances = 0
while instances < 10000 and libc.inotify_init1(0) >= 0:
    instances += 1
signal.pthread_sigmask(signal.SIG_BLOCK, range(34, 65))
signals = 0
while signals < 200000 and libc.sigqueue(os.getpid(), 40, ctypes.c_void_p(1)) == 0:
    signals += 1
print(instances, signals, flush=True)
sys.stdin.read()
"""


@test("what the kernel counts for a user is counted for a jail: one that takes all leaves the others theirs")
def _(pair):
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    with box.Box.make(pair.client) as taker:
        holding = taker.background(argv=["python3", "-c", TAKE], stdin_open=True)
        taker.wait_output(holding, b"\n")
        taken = [int(n) for n in taker.seen(holding).split()]
        other = pair.client.run(argv=["python3", "-c", TAKE], stdin="")
        fd = libc.inotify_init1(0)
        code = ctypes.get_errno()
    check.ended(other, "exit", exit_code=0)
    check.within(1, taken[0], 9999, "inotify instances of one jail")
    check.within(1, taken[1], 199999, "queued signals of one jail")
    got = [int(n) for n in other["steps"][0]["stdout"].split()]
    check.equal(got, taken, "what the next jail gets")
    check.true(fd >= 0, "the host's root gets no inotify instance: errno %d" % code)
    os.close(fd)


@test("a file of the host cannot be flushed or thrown out of its cache", case="100")
def _(pair):
    # Answered 0 by the filter, also for a descriptor that is none: the kernel was not asked.
    code = r"""
import ctypes, json, platform
libc = ctypes.CDLL(None, use_errno=True)
nr = {"x86_64": [74, 75, 277, 26, 221], "aarch64": [82, 83, 84, 227, 223]}[platform.machine()]
print(json.dumps([libc.syscall(n, 999, 0, 0, 4) for n in nr]))
"""
    answer = pair.client.run(argv=["python3", "-c", code])
    check.ended(answer, "exit", exit_code=0)
    check.equal(json.loads(answer["steps"][0]["stdout"]), [0] * 5, "results")


@test("a jail whose files fill its memory ends as memory, step after step, and never as internal")
def _(pair):
    fill = "dd if=/dev/zero of=/tmp/x bs=64k count=970; dd if=/dev/zero of=/tmp/y bs=1k count=4000"
    for _ in range(4):
        answer = pair.client.run(
            steps=[
                {"sh": fill + "; true", "continue_on_error": True},
                {"sh": "head -c 1000000 /dev/urandom | md5sum", "continue_on_error": True},
                {"sh": "true"},
            ],
            limits={"mem_bytes": 64 * MIB},
        )
        for index in range(3):
            end = answer["steps"][index]["end"]
            check.member(end["cause"], ("exit", "memory"), "cause of step %d" % index)


@test("a step cannot change how the process of the next one is scheduled")
def _(pair):
    meddle = r"""
import os
for pid in range(2, 200):
    for change in (lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)),
                   lambda: os.setpriority(os.PRIO_PROCESS, pid, 19),
                   lambda: os.sched_setaffinity(pid, {0})):
        try: change() if pid != os.getpid() else None
        except OSError: pass
"""
    look = "import os; print(os.sched_getscheduler(0), os.nice(0), len(os.sched_getaffinity(0)))"
    fresh = pair.client.run(argv=["python3", "-c", look])
    answer = pair.client.run(
        steps=[{"argv": ["python3", "-c", meddle]}, {"argv": ["python3", "-c", look]}]
    )
    check.ended(answer, "exit", index=1, exit_code=0)
    check.equal(answer["steps"][1]["stdout"], fresh["steps"][0]["stdout"], "scheduling")


@test("the process of the next step cannot be seen or killed by the one before", case="95")
def _(pair):
    answer = pair.client.run(
        steps=[
            {"sh": "ls -d /proc/[0-9]*; kill -9 -1", "continue_on_error": True},
            {"sh": "echo still here"},
        ]
    )
    check.ended(answer, "exit", index=1, exit_code=0)
    check.equal(answer["steps"][1]["stdout"], "still here\n", "stdout of step 1")


@test("signals to process 1 do not make it burn a processor", case="95")
def _(pair):
    code = "import os, time\nend = time.monotonic() + 2\nn = 0\nwhile time.monotonic() < end:\n"
    code += "    try: os.kill(1, 17)\n    except OSError: pass\n    n += 1\nprint(n)"
    before = ticks_of_children(pair)
    answer = pair.client.run(argv=["python3", "-c", code], limits={"cpus_milli": 500})
    check.ended(answer, "exit", exit_code=0)
    check.true(int(answer["steps"][0]["stdout"]) > 5000, "too few signals were sent")
    check.eventually(lambda: ticks_of_children(pair) > before, 2, "the jail is reaped")
    # Two seconds at half a processor are 100 ticks of the command; process 1 adds little to that.
    check.within(1, ticks_of_children(pair) - before, 150, "clock ticks of the jail")


# Makes the pipes that lead out as large as it may.
WIDEN = r"""
import fcntl, sys
for fd in (0, 1, 2):
    try: fcntl.fcntl(fd, 1031, 1 << 20)
    except OSError: pass
print(flush=True)
sys.stdin.read()
"""


def may_widen():
    """Whether the server's user may still make a pipe as large as it likes."""
    user = pwd.getpwnam(harness.server_user())
    pid = os.fork()
    if pid == 0:
        try:
            os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
            os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
            os._exit(fcntl.fcntl(os.pipe()[0], 1031, MIB) != MIB)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


@test("commands that make their pipes larger leave the server's share of memory for pipes alone")
def _(pair):
    with box.Box.make(pair.client) as taker:
        for _ in range(24):
            holding = taker.background(argv=["python3", "-c", WIDEN], stdin_open=True)
            taker.wait_output(holding, b"\n")
        check.true(may_widen(), "the server's share is used up")


# Has the runner asked, by many at once, whether one may listen.
LISTEN = r"""
import ctypes, threading, time
libc = ctypes.CDLL(None)
asked = [0] * 8
end = time.monotonic() + 2
def ask(i):
    while time.monotonic() < end:
        libc.listen(-1, 1)
        asked[i] += 1
threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
for t in threads: t.start()
for t in threads: t.join()
print(sum(asked))
"""


@test("jails that ask all the time whether they may listen have a small share of the runner")
def _(pair):
    for count in (1, 8):
        before = sum(clean.cpu_ticks(pid) for pid in pair.shard_pids())
        answers = parallel(count, lambda _: pair.client.run(argv=["python3", "-c", LISTEN]))
        spent = sum(clean.cpu_ticks(pid) for pid in pair.shard_pids()) - before
        for answer in answers:
            check.ended(answer, "exit", exit_code=0)
            check.true(int(answer["steps"][0]["stdout"]) > 10, "too few were asked")
        check.within(0, spent, 80, "clock ticks of the runner in two seconds, for %d jails" % count)


def ticks_of_children(pair):
    """CPU of the shards' children that have ended, process 1 of jails and what they reaped."""
    total = 0
    for pid in pair.shard_pids():
        with open("/proc/%d/stat" % pid) as file:
            fields = file.read().rsplit(")", 1)[1].split()
        total += int(fields[13]) + int(fields[14])
    return total


def cached(path):
    """How many pages of a file are in memory."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        at = libc.mmap(None, ctypes.c_size_t(size), mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), ctypes.c_long(0))
        vector = (ctypes.c_ubyte * (size // mmap.PAGESIZE))()
        check.equal(libc.mincore(ctypes.c_void_p(at), ctypes.c_size_t(size), vector), 0, "mincore")
        libc.munmap(ctypes.c_void_p(at), ctypes.c_size_t(size))
    return sum(one & 1 for one in vector)


def cats(pair):
    """The lines of /proc/PID/cgroup of the cats that wait in jails."""
    found = []
    for pid, _ in pair.jailed():
        try:
            with open("/proc/%d/cmdline" % pid, "rb") as words, open("/proc/%d/cgroup" % pid) as lines:
                if words.read() == b"cat\0-\0/dev/null/groups\0":
                    found.append(lines.readlines())
        except OSError:
            pass  # it has ended
    return found


@test("removed groups: beyond their bound, executions that leave a file each leave no group each", own=True)
def _(_):
    seen = set()
    with harness.Pair(slots=2, warm=1, runner_args=["--removed-groups", "1"]) as pair:
        with box.Box.make(pair.client) as one:
            for i in range(16):
                script = "echo > /tmp/f%d; echo; cat - /dev/null/groups" % i
                ex = one.background(argv=["sh", "-c", script], stdin_open=True)
                one.wait_output(ex, b"\n")
                check.eventually(lambda: cats(pair), 5, lambda: "no cat was seen")
                for lines in cats(pair):
                    seen |= {line.split(":", 2)[2] for line in lines if ":memory:" in line}
                one.stdin(ex, b"", close=True)
                one.wait_done(ex)
    # With one tree the group has all counts of an execution and is not used again: what they cost
    # is counted for the sandbox (unit_cgroup_keep).
    check.within(0, len(seen), 8, "memory groups that 16 executions had, one after the other")


# Reads a file that nobody has read yet: its pages are charged to the group of the run.
@test("removed groups: beyond their bound, what a run was the first to read goes with it", own=True)
def _(_):
    place = tempfile.mkdtemp(prefix="pinfold-test-groups-", dir="/usr/local/share")
    try:
        os.chmod(place, 0o755)
        left = {}
        for bound in (1, 1 << 20):
            with harness.Pair(slots=2, warm=1, runner_args=["--removed-groups", str(bound)]) as pair:
                path = os.path.join(place, str(bound))
                with open(path, "wb") as out:
                    out.write(os.urandom(1 << 20))
                    out.flush()
                    os.fsync(out.fileno())
                    os.posix_fadvise(out.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                check.equal(cached(path), 0, "pages of a new file")
                check.ok(pair.client.run(argv=["cksum", path]))
                check.ok(pair.client.run(argv=["true"]))
                if bound == 1:
                    check.eventually(lambda: cached(path) == 0, 5, lambda: "%d pages are left" % cached(path))
                left[bound] = cached(path)
        check.within(1, left[1 << 20], 256, "pages that stay below the bound")
    finally:
        shutil.rmtree(place)


def unread(one, path):
    """A connection whose answer has begun, and is not read -> (socket, status)."""
    conn = socket.socket()
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    conn.settimeout(20)
    conn.connect(("127.0.0.1", one.port))
    conn.sendall(b"GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n" % (
        path.encode(), one.token.encode()))
    return conn, int(conn.recv(12)[-3:])


def unsent(one, length, sent):
    """A connection that has sent `sent` of `length` bytes of a body -> (socket, status or None)."""
    conn = socket.create_connection(("127.0.0.1", one.port), 20)
    try:
        conn.sendall(b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"
                     b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (one.token.encode(), length))
        for _ in range(sent // MIB):
            conn.sendall(b" " * MIB)
    except (BrokenPipeError, ConnectionResetError):
        pass  # it was answered before
    answered = select.select([conn], [], [], 0.1)[0]
    return conn, int(conn.recv(12)[-3:]) if answered else None


@test("whoever does not read his answers, or sends large bodies slowly, holds a part of the server's memory and leaves"
      " others theirs", own=True, deadline=90)
def _(_):
    with harness.Pair(slots=4, warm=2) as pair:
        (_, one), (_, other) = new_user(pair), new_user(pair)
        limits = {"output_bytes": 8 * MIB, "wall_ms": 60000}
        body = dict(sh="head -c %d /dev/urandom; head -c %d /dev/urandom >&2; head -c 15000000 /dev/urandom >o"
                    % (8 * MIB, 8 * MIB), collect=["o"], limits=limits)
        for who in (one, other):
            who.large = "/v1/runs/" + check.ok(who.run(**body))["id"]
        for what, begin in (("answers", lambda: unread(one, one.large)),
                            ("bodies", lambda: unsent(one, 110 * MIB, 66 * MIB))):
            open_, statuses = [], []
            try:
                while 429 not in statuses and len(open_) < 24:
                    conn, status = begin()
                    open_.append(conn)
                    statuses.append(status)
                check.equal(statuses[-1], 429, "%s: status of the last of %d" % (what, len(open_)))
                check.true(len(open_) > 3, "%s: a few may be open: %r", what, statuses)
                check.ok(other.run(argv=["true"]))
                check.equal(other.get(other.large).status, 200, "another's large answer")
                check.ok(other.run(argv=["true"], stdin="x" * (60 * MIB), limits={"wall_ms": 60000}))
                check.error(one.get(one.large), 429, "memory")
            finally:
                for conn in open_:
                    conn.close()
            check.eventually(lambda: one.get(one.large).status == 200, 10, what + ": there is room again")


@test("bodies that are whole and wait to be decoded are counted, also when their clients are gone", own=True, deadline=60)
def _(_):
    with harness.Pair(slots=4, warm=2) as pair:
        _, one = new_user(pair)
        # A long number takes a second.
        body = b'{"limits":{"wall_ms":%s}}' % (b"1" * (100 * MIB))
        head = (b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n" % (one.token.encode(), len(body)))
        most = []

        def send(_):
            try:
                with socket.create_connection(("127.0.0.1", one.port), 20) as conn:
                    conn.sendall(head)
                    conn.sendall(body)
            except (BrokenPipeError, ConnectionResetError):
                pass  # refused
            most.append(pair.memory())

        parallel(3, lambda i: [send(i) for _ in range(4)], 50)
        check.true(max(most) < 900 * MIB, "the server had %d MiB", max(most) // MIB)
        check.eventually(lambda: one.send(argv=["true"]).status == 200, 20, "he has room again")


def output_share():
    """What the runs of one user may keep at once: a quarter of what the server may use, as it sees it."""
    with open("/proc/meminfo") as file:
        total = int(file.readline().split()[1]) * 1024
    guard = harness.Guard()
    guarded = any("memory" in key.split(",") for key in guard.dirs)
    guard.close()
    return max(512 * MIB, (min(total, harness.GUARD_MEM_BYTES) if guarded else total) // 4)


@test("the output that a run's steps keep together is bounded, and so is what a user's runs keep at once", own=True,
      deadline=60)
def _(_):
    fit = output_share() // (512 * MIB)
    if fit > 16:
        raise Skip("this host has so much memory that nobody's runs wait for it")
    with harness.Pair(slots=fit + 3, warm=2) as pair:
        _, one = new_user(pair)
        steps = [{"argv": ["true"]} for _ in range(64)]
        check.error(one.send(steps=steps, limits={"output_bytes": 64 * MIB}), 400, "too_large", "/limits/output_bytes")
        check.ok(one.run(steps=steps))
        # 512 MiB each, if they want.
        large = dict(steps=[{"sh": "sleep 25"}] + [{"argv": ["true"]}] * 3, limits={"output_bytes": 64 * MIB})
        ids = [one.submit(**large) for _ in range(fit + 1)]
        state = lambda run: one.get("/v1/runs/" + run).json()["state"]
        states = lambda: sorted(map(state, ids))
        check.eventually(lambda: states().count("running") == fit, 10, lambda: "states: %s" % states())
        check.equal(states().count("queued"), 1, "runs that wait: %s" % states())
        _, other = new_user(pair)
        check.ok(other.run(argv=["true"]))
        one.delete("/v1/runs/" + [run for run in ids if state(run) == "running"][0])
        check.eventually(lambda: "queued" not in states(), 10, lambda: "states: %s" % states())
        for run in ids:
            one.delete("/v1/runs/" + run)
        check.eventually(lambda: set(states()) == {"done"}, 10, lambda: "states: %s" % states())
        check.equal(one.get("/v1/me").json()["used"]["parallel_runs"], 0, "runs that run")

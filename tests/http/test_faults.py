"""A layer that cannot be had: the runner refuses to start, or the run is told as our fault;
nothing ever runs with a layer less. Each layer is broken from outside, one at a time, around
a runner of its own."""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile

import check
import clean
import harness
from box import Box
from check import Stopwatch
from client import Client, parallel
from suite import Skip, add, test

HERE = os.path.dirname(os.path.abspath(__file__))

# What a program must see inside whatever happened before: the proof that no layer is missing.
PROOF = """
import json, os, socket
lines = open('/proc/self/status').read().splitlines()
status = dict(l.split(':\\t', 1) for l in lines if ':\\t' in l)
bad = []
for key in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb'):
    if int(status[key], 16): bad.append(key)
if status['NoNewPrivs'] != '1': bad.append('no_new_privs')
if status['Seccomp'] != '2' or int(status['Seccomp_filters']) < %(filters)d: bad.append('seccomp')
if os.getuid() != 1000 or os.geteuid() != 1000 or os.getgid() != 1000: bad.append('ids')
if os.getgroups() not in ([], [1000]): bad.append('groups %%r' %% os.getgroups())
if len([p for p in os.listdir('/proc') if p.isdigit()]) > 4: bad.append('pid namespace')
if open('/proc/net/dev').read().count(':') != 1: bad.append('network namespace')
for p in (%(canary)r, '/proc/1/root' + %(canary)r):
    if os.path.exists(p): bad.append('mount namespace')
if os.uname().nodename == %(node)r: bad.append('uts namespace')
if open('/proc/self/uid_map').read().split()[1] == '0': bad.append('user namespace')
if len(open('/proc/sysvipc/shm').readlines()) > 1: bad.append('ipc namespace')
try:
    open('/usr/pinfold-probe', 'w'); bad.append('read-only root')
except OSError: pass
import resource
if max(resource.getrlimit(resource.RLIMIT_CORE)) > 1: bad.append('core limit')
if resource.getrlimit(resource.RLIMIT_NOFILE) != (1024, 1024): bad.append('open files')
print(json.dumps(bad))
"""

# Numbers of system calls on x86_64 and the errno (1 = EPERM, 11 = EAGAIN, 28 = ENOSPC).
CALLS = [
    ("pivot_root", 155, 1),
    ("mount", 165, 1),
    ("umount2", 166, 1),
    ("chroot", 161, 1),
    ("unshare", 272, 1),
    ("setns", 308, 1),
    ("sethostname", 170, 1),
    ("seccomp", 317, 22),
    ("capset", 126, 1),
    ("setresuid", 117, 1),
    ("setresgid", 119, 1),
    ("setgroups", 116, 1),
    ("setuid", 105, 1),
    ("clone3", 435, 28),
    ("clone", 56, 11),
    ("prlimit64", 302, 1),
    ("setrlimit", 160, 1),
    ("open_tree", 428, 1),
    ("move_mount", 429, 1),
    ("mount_setattr", 442, 1),
    ("fsopen", 430, 1),
    ("fsconfig", 431, 1),
    ("fsmount", 432, 1),
    ("mkdirat", 258, 28),
    ("memfd_create", 319, 24),
    ("execveat", 322, 13),
    ("pidfd_send_signal", 424, 1),
    ("pidfd_open", 434, 24),
    ("symlinkat", 266, 28),
    ("mknodat", 259, 1),
    ("socketpair", 53, 24),
    ("pipe2", 293, 24),
    ("keyctl", 250, 1),
]

# Options of prctl: PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP, PR_SET_DUMPABLE, PR_SET_SECCOMP.
PRCTLS = [
    ("no_new_privs", 38),
    ("the bounding set", 24),
    ("dumpable", 4),
    ("the filter by prctl", 22),
]


def broken(number, errno, option=None):
    """Starts a runner in which one system call (or one prctl) fails, and looks at what it does."""
    launcher = [sys.executable, os.path.join(HERE, "refuse.py"), str(number), str(errno)]
    launcher += [str(option)] if option is not None else ["-"]
    pair = harness.Pair(slots=2, warm=1, runner_prefix=launcher)
    try:
        pair.init()
        pair.start_runner()
        pair.start_server()
        pair.client = Client(pair.port, pair.token)
        outcome = check.eventually(
            lambda: ready_or_over(pair), 8, lambda: "ready, or ended\n" + pair.logs()
        )
        host = set()
        if outcome == "over":
            code = pair.runner.returncode
            check.true(code > 0, "the runner ended with %s", code)
            said = clean.read(os.path.join(pair.work, "runner.log")).strip()
            check.true(said, "the runner ended without a word")
            pair.runner = None
            pair.kill9_server()
            pair.server = None
        else:
            proof(pair)
            host = clean.identity(clean.descendants(pair.runner_pid))
            pair.stop()
        check.eventually(lambda: not clean.alive(host), 2, "no process is left")
        left = [d for base in pair.guard.dirs.values() for d in clean.tree(base)]
        check.equal(left, [], "cgroup directories left")
    finally:
        pair.discard()


def ready_or_over(pair):
    if pair.runner.poll() is not None:
        return "over"
    return "ready" if pair.probe("/readyz") == 200 else None


def proof(pair):
    """A run either shows all layers, or was not executed and is our fault."""
    node = os.uname().nodename
    script = PROOF % {"filters": 2, "canary": pair.work, "node": node}
    for _ in range(2):
        answer = pair.client.send(argv=["/usr/bin/python3", "-c", script], limits={"wall_ms": 5000})
        if answer.status == 503:
            return
        check.equal(answer.status, 200, "status")
        answer = answer.json()
        end = answer["steps"][0]["end"]
        if end["cause"] == "exit":
            check.equal(check.text(check.ok(answer)), "[]\n", "layers that are missing inside")
        else:
            check.member(end["cause"], ("internal", "interrupted", "start"), "cause")
            check.equal(check.text(answer), "", "stdout of what must not have run")
            check.true(
                end["cause"] != "internal" or end["evidence"].get("stage"), "no stage: %r", end
            )


for _name, _number, _errno in CALLS:
    add(
        "fails closed when %s fails" % _name,
        (lambda number, errno: lambda _: broken(number, errno))(_number, _errno),
        case="102, 153",
        own=True,
        deadline=30,
    )
for _name, _option in PRCTLS:
    add(
        "fails closed when prctl for %s fails" % _name,
        (lambda option: lambda _: broken(157, 22, option))(_option),
        case="102, 153",
        own=True,
        deadline=30,
    )


def without(controller):
    """A runner that sees no such controller must not start."""
    point = dict(
        (k, v[0]) for k, v in clean.mounts_of_cgroups().items() if controller in k.split(",")
    )
    if not point:
        raise Skip("no cgroup v1 hierarchy for %s on this host" % controller)
    hide = 'umount %s && exec "$@"' % list(point.values())[0]
    pair = harness.Pair(slots=2, warm=1, runner_prefix=["unshare", "-m", "sh", "-c", hide, "sh"])
    try:
        pair.init()
        watch = Stopwatch()
        pair.start_runner()
        check.true(pair.runner.wait(5) > 0, "exit code")
        watch.below(3, "the refusal")
        text = clean.read(os.path.join(pair.work, "runner.log")).decode()
        check.holds(text, controller, "what the runner says")
        check.within(1, len(text.strip().splitlines()), 3, "lines")
    finally:
        pair.discard()


for _name in ("memory", "pids", "cpu", "cpuacct"):
    add(
        "the runner does not start without the %s controller, and says so" % _name,
        (lambda controller: lambda _: without(controller))(_name),
        case="50, 164",
        own=True,
    )


@test(
    "a jail that cannot be made is our fault, and the next ones work",
    case="49, 140",
    own=True,
    deadline=40,
)
def _(_):
    with harness.Pair(slots=4, warm=0) as pair:
        pair.warm_up()
        path = next((d for k, d in pair.guard.dirs.items() if "pids" in k.split(",")), None)
        if path is None:
            raise Skip("no cgroup v1 hierarchy for pids on this host")
        used = clean.read(os.path.join(path, "pids.current")).decode().strip()
        with open(os.path.join(path, "pids.max"), "w") as out:
            out.write(used)
        try:
            watch = Stopwatch()
            answer = pair.client.send(argv=["true"])
            watch.below(5, "the answer")
            if answer.status == 200:
                end = check.ended(answer.json(), "internal", exit_code=None)
                check.true(
                    end["evidence"].get("stage") and end["evidence"].get("errno"),
                    "no stage: %r",
                    end,
                )
            else:
                check.error(answer, 503)
        finally:
            with open(os.path.join(path, "pids.max"), "w") as out:
                out.write(str(harness.GUARD_PIDS))
        pair.wait_ready(5)
        check.eventually(lambda: pair.client.run(argv=["true"])["ok"], 5, "a run works again")
        pair.check_clean(2)


def first_free(pid):
    taken = {int(n) for n in clean.names("/proc/%d/fd" % pid)}
    return next(n for n in range(len(taken) + 1) if n not in taken)


@test(
    "a runner without descriptors says so, blames nobody, and recovers",
    case="49, D3",
    own=True,
    deadline=30,
)
def _(_):
    with harness.Pair(slots=4, warm=0) as pair:
        pair.warm_up()
        pids = pair.shard_pids()
        before = [resource.prlimit(pid, resource.RLIMIT_NOFILE) for pid in pids]
        for pid, (_, hard) in zip(pids, before):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (first_free(pid), hard))
        try:
            watch = Stopwatch()
            answer = pair.client.send(argv=["touch", "x"], stdin="x")
            watch.below(5, "the answer")
            if answer.status == 200:
                end = answer.json()["steps"][0]["end"]
                check.member(end["cause"], ("internal", "interrupted"), "cause")
            else:
                check.error(answer, (429, 500, 503))
        finally:
            for pid, limits in zip(pids, before):
                if os.path.exists("/proc/%d" % pid):
                    resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
        check.eventually(lambda: pair.probe("/readyz") == 200, 5, "ready again")
        check.eventually(lambda: pair.client.run(argv=["true"])["ok"], 5, "a run works again")
        pair.check_clean(2)


@test("memory that the host lacks is not the run's own cap", own=True, deadline=40)
def _(_):
    guard = harness.Guard(mem_bytes=200 << 20)
    if not any("memory" in key.split(",") for key in guard.dirs):
        guard.close()
        raise Skip("no cgroup v1 hierarchy for memory on this host")
    with harness.Pair(slots=2, warm=1, guard=guard) as pair:
        answer = pair.client.python(
            "x = []\nwhile True: x.append(bytearray(1 << 20))", limits={"mem_bytes": 1 << 30}
        )
        end = check.ended(answer, "memory_host", exit_code=None)
        check.true(end["evidence"]["oom_kills"] >= 1, "no kill in the evidence: %r", end)
        answer = pair.client.python(
            "x = []\nwhile True: x.append(bytearray(1 << 20))", limits={"mem_bytes": 64 << 20}
        )
        check.ended(answer, "memory")


CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>
static long jump(void) { static long n; return (n++ / 3) % 2 ? 3600 : -3600; }
int clock_gettime(clockid_t id, struct timespec *t)
{
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int r = real(id, t);
    if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)
        t->tv_sec += jump();
    return r;
}
int gettimeofday(struct timeval *restrict t, void *restrict z)
{
    struct timespec s;
    (void)z;
    clock_gettime(CLOCK_REALTIME, &s);
    t->tv_sec = s.tv_sec;
    t->tv_usec = s.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *out)
{
    struct timespec s;
    clock_gettime(CLOCK_REALTIME, &s);
    if (out)
        *out = s.tv_sec;
    return s.tv_sec;
}
"""


@test(
    "a wall-time clock that jumps by hours changes no limit", case="37, D8", own=True, deadline=40
)
def _(_):
    pair = harness.Pair(slots=2, warm=1)
    try:
        source, shim = os.path.join(pair.work, "clock.c"), os.path.join(pair.work, "clock.so")
        with open(source, "w") as out:
            out.write(CLOCK)
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", source, "-o", shim, "-ldl"], check=True)
        pair.environment["LD_PRELOAD"] = shim
        pair.start()
        for _ in range(3):
            answer = check.ok(pair.client.run(argv=["sleep", "0.5"], limits={"wall_ms": 3000}))
            check.within(495, answer["steps"][0]["usage"]["wall_ms"], 1000, "wall_ms")
            for name in ("queue_ms", "setup_ms", "run_ms"):
                check.within(0, answer["timing"][name], 2000, "timing." + name)
        answer = pair.client.run(argv=["sleep", "5"], limits={"wall_ms": 400})
        check.ended(answer, "wall_time")
        check.within(400, answer["steps"][0]["usage"]["wall_ms"], 900, "wall_ms")
    finally:
        pair.discard()


@test("the runner works as process 1 of a container", case=162, own=True, deadline=30)
def _(_):
    with harness.Pair(
        slots=4,
        warm=1,
        runner_prefix=["unshare", "--pid", "--fork", "--mount-proc", "--kill-child=SIGKILL"],
    ) as pair:
        pair.warm_up()
        for _ in range(10):
            check.ok(pair.client.sh("sleep 100 & true"))
        pair.check_clean(2)


# Starts as many as it gets, and holds them until its input ends.
FORKS = """
import os, sys
n = 0
try:
    while n < 400:
        if os.fork() == 0:
            os.read(0, 1)
            os._exit(0)
        n += 1
except OSError:
    pass
print(n, flush=True)
os.read(0, 1)
"""


@test("all jails together leave numbers of processes to the host", own=True, deadline=40)
def _(_):
    few = 'echo 500 > /proc/sys/kernel/pid_max && exec "$@"'
    prefix = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child=SIGKILL"]
    prefix += ["sh", "-c", few, "sh"]
    before = clean.read("/proc/sys/kernel/pid_max")
    with harness.Pair(slots=4, warm=1, runner_prefix=prefix) as pair:
        if clean.read("/proc/sys/kernel/pid_max") != before:
            with open("/proc/sys/kernel/pid_max", "wb") as out:
                out.write(before)
            raise Skip("this kernel has one pid_max for all pid namespaces")
        with contextlib.ExitStack() as stack:
            started = 0
            for _ in range(3):
                one = stack.enter_context(Box.make(pair.client, limits={"pids": 450}))
                ex = one.background(argv=["python3", "-c", FORKS], stdin_open=True)
                one.wait_output(ex, b"\n", seconds=10)
                started += int(one.seen(ex))
            check.within(100, started, 375, "processes of all jails")
            check.ok(pair.client.run(argv=["true"]))


@test("numbers of processes that are used again hit nobody else", case=159, own=True, deadline=40)
def _(_):
    few = 'echo 500 > /proc/sys/kernel/pid_max && exec "$@"'
    prefix = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child=SIGKILL"]
    prefix += ["sh", "-c", few, "sh"]
    before = clean.read("/proc/sys/kernel/pid_max")
    with harness.Pair(slots=8, warm=2, runner_prefix=prefix) as pair:
        if clean.read("/proc/sys/kernel/pid_max") != before:
            with open("/proc/sys/kernel/pid_max", "wb") as out:
                out.write(before)
            raise Skip("this kernel has one pid_max for all pid namespaces")
        bystander = pair.client.submit(sh="for i in {1..400}; do sleep 0.05; done; echo whole")
        pair.client.wait_state(bystander, ("running",))

        def one(index):
            for turn in range(40):
                if turn % 4 == 0:
                    run = pair.client.submit(sh="sleep 30")
                    pair.client.delete("/v1/runs/" + run)
                    check.ended(pair.client.wait_done(run, 5), "cancelled")
                elif turn % 4 == 1:
                    answer = pair.client.sh("sleep 5", limits={"wall_ms": 20})
                    check.ended(answer, "wall_time")
                else:
                    answer = pair.client.sh("(sleep 9 &); /bin/true; /bin/true; exit 7")
                    check.ended(answer, "exit", exit_code=7)

        parallel(4, one, 25)
        check.equal(pair.client.fetch(bystander)["state"], "running", "state of the bystander")
        pair.client.delete("/v1/runs/" + bystander)
        check.ended(pair.client.wait_done(bystander, 3), "cancelled")


@test("a host whose mounts are shared sees none of ours", case=97, own=True, deadline=30)
def _(_):
    holder = subprocess.Popen(
        ["unshare", "-m", "sh", "-c", "mount --make-rshared / && echo on && exec sleep 100"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    try:
        holder.stdout.readline()
        before = clean.mount_lines(holder.pid)
        with harness.Pair(
            slots=4, warm=2, runner_prefix=["nsenter", "--mount=/proc/%d/ns/mnt" % holder.pid]
        ) as pair:
            for _ in range(20):
                check.ok(pair.client.run(argv=["true"]))
            points = [
                line.split()[2]
                for line in clean.mount_lines(holder.pid)
                if "favordynmods" not in line
            ]
            check.equal(
                points,
                [line.split()[2] for line in before if "favordynmods" not in line],
                "mounts of the shared namespace",
            )
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()


@test(
    "a stopped clock: after SIGSTOP of the runner a run past its limit ends by it",
    case="D8",
    own=True,
    deadline=30,
)
def _(_):
    with harness.Pair(slots=2, warm=1) as pair:
        run = pair.client.submit(argv=["sleep", "60"], limits={"wall_ms": 1500})
        pair.client.wait_state(run, ("running",))
        host, _ = clean.family(pair.runner_pid)
        for pid in host:
            os.kill(pid, signal.SIGSTOP)
        start = Stopwatch()
        check.eventually(lambda: start.seconds() > 2, 3, "two seconds", pause=0.1)
        check.equal(pair.probe("/healthz"), 200, "/healthz meanwhile")
        for pid in host:
            os.kill(pid, signal.SIGCONT)
        check.ended(pair.client.wait_done(run, 2), "wall_time")
        check.ok(pair.client.run(argv=["true"]))


@test("the server outlives a state directory without room", case="D2", own=True, deadline=30)
def _(_):
    state = tempfile.mkdtemp(prefix=clean.TEST_MOUNT)
    try:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=32m,mode=755", "none", state], check=True
        )
        pair = harness.Pair(slots=2, warm=1, state=os.path.join(state, "state"))
        try:
            pair.start()
            pair.warm_up()
            running = pair.client.submit(sh="sleep 1.5; echo full")
            with open(os.path.join(state, "filler"), "wb", 0) as out:
                try:
                    while True:
                        out.write(bytes(65536))
                except OSError:
                    pass
            check.eventually(lambda: pair.client.send(argv=["true"]).status == 507, 3, "a refusal")
            for _ in range(5):
                answer = pair.client.send(argv=["true"])
                check.error(answer, 507, "no_space")
            check.equal(pair.probe("/healthz"), 200, "/healthz")
            check.equal(pair.probe("/readyz"), 503, "/readyz")
            answer = check.ok(pair.client.wait_done(running))
            check.equal(check.text(answer), "full\n", "stdout of what ran already")
            os.unlink(os.path.join(state, "filler"))
            check.eventually(lambda: pair.client.send(argv=["true"]).status == 200, 5, "new runs")
            log = pair.log_bytes()
            began, over = log.count(b"event=store_sick"), log.count(b"event=store_well")
            # (a few bytes may have become free in between)
            check.true(began == over and 1 <= began <= 3, "lines about its beginning and its end: "
                       "%d and %d", began, over)
            pair.client.close()
            pair.kill9_server()
            pair.start_server()
            pair.wait_ready()
            check.equal(pair.client.fetch(running), answer, "what ended while it was full")
            pair.check_clean(2, ("threads of the server", "descriptors of the server"))
        finally:
            pair.discard()
    finally:
        subprocess.run(["umount", state], check=False)
        os.rmdir(state)


@test("what the proof looks at is there in a run without any fault", case=102)
def _(pair):
    script = PROOF % {"filters": 1, "canary": pair.work, "node": os.uname().nodename}
    answer = check.ok(pair.client.run(argv=["/usr/bin/python3", "-c", script]))
    check.equal(json.loads(check.text(answer)), [], "layers that are missing inside")


UNMOUNT = "import ctypes, sys; sys.exit(ctypes.CDLL(None).umount2(b'/workspace', 2))"


def whole(pair, **request):
    """A run in a jail whose groups were not taken away while it was made: of those that were, and
    may have waited warm, it is said."""
    for _ in range(8):
        answer = pair.client.run(**request)
        end = answer["steps"][0]["end"]
        if end["cause"] != "internal" or not end["evidence"]["stage"].startswith("cgroup"):
            return answer
    check.fail("every jail lacks a group: %r", end)


@test("something outside breaks underneath: empty cgroups are removed, a workspace is unmounted; limits "
      "hold, calls end in time, others go on", case="D9", own=True, deadline=40)
def _(_):
    with harness.Pair(slots=4, warm=2) as pair:
        pair.rest()
        box, other = Box.make(pair.client), Box.make(pair.client)
        ex, beside = box.start(sh="echo up; sleep 60"), other.start(sh="sleep 2; echo untouched")
        box.wait_output(ex, b"up")
        bases = set(pair.guard.dirs.values())
        for _ in range(3):
            for path in [one for base in bases for one in reversed(clean.tree(base))]:
                try:
                    os.rmdir(path)
                except OSError:
                    pass
            check.ended(whole(pair, argv=["python3", "-c", "x = bytearray(200 << 20)"],
                              limits={"mem_bytes": 32 << 20}), "memory")
            check.ok(whole(pair, argv=["true"]))
        inside = check.eventually(
            lambda: [pid for pid, _ in pair.jailed()
                     if clean.read("/proc/%d/cmdline" % pid) == b"sleep\x0060\x00"], 5, "it sleeps")
        subprocess.run(["nsenter", "-t", str(inside[0]), "-m", "-r", "-w", "/usr/bin/python3", "-S",
                        "-c", UNMOUNT], check=True)
        watch = Stopwatch()
        seen = box.run(sh="echo more >/workspace/f; echo more >/workspace/home/f; "
                          "head -c 900M /dev/zero >/tmp/f; echo $?",
                       limits={"wall_ms": 20000, "mem_bytes": 64 << 20})
        check.true(seen["steps"][0]["end"]["cause"] == "memory" or check.text(seen) == "1\n",
                   "what came of 900 MB: %r", seen)
        check.error(box.write("/workspace/f", b"x"), (403, 404, 409, 500, 507))
        watch.below(15, "all that")
        check.equal(check.text(check.ok(other.wait_done(beside, 5))), "untouched\n", "the other")
        check.equal(pair.probe("/readyz"), 200, "/readyz")
        for one in (box, other):
            one.delete()
        check.ok(pair.client.run(argv=["true"]))
        pair.check_clean(3, ("descriptors of the server",))

"""One server and runner pair: start, wait until ready, stop, kill, and the check that nothing is
left.

Everything is by pid and bounded: start-up, stopping, and the guard cgroup in which both programs
(and so all jails) live, so that a bomb that the product does not stop is stopped here."""

import atexit
import errno
import hashlib
import http.client
import itertools
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import box
import clean
from check import eventually, fail
from client import Client, free_port, parallel, repo

BUILD = os.environ.get("PINFOLD_BUILD", os.path.join(repo(), "build"))
POLICIES = os.path.join(repo(), "policies")
GUARD_MEM_BYTES = 8 << 30
GUARD_PIDS = 6000
LEFT_SECONDS = 5  # POOL_LEFT_IDLE_NS, and what a busy machine adds
CLEAN_SECONDS = float(os.environ.get("PINFOLD_TEST_CLEAN_SECONDS", "1"))

_numbers = itertools.count()
_pairs = []
_guardian = []
_owner = os.getpid()


_replaced = {}


def program(name):
    return _replaced.get(name) or os.path.join(BUILD, name)


def use_sanitized():
    """From now on the server is the one that was built with sanitizers."""
    _replaced["pinfold-server"] = os.path.join(BUILD, "san", "pinfold-server")
    # Leaks are looked for by tracing oneself, which a process that is not dumpable cannot; the
    # unit tests look for them.
    os.environ["ASAN_OPTIONS"] = "detect_leaks=0:detect_stack_use_after_return=1"
    os.environ["UBSAN_OPTIONS"] = "print_stacktrace=1:halt_on_error=1"


def use_tls():
    """From now on every pair speaks HTTPS."""
    import certs

    _replaced["tls"] = certs.Certificates()


def sanitized():
    return bool(_replaced)


def server_user():
    """The unprivileged user of the server: pinfold where it exists."""
    for name in (os.environ.get("PINFOLD_TEST_USER", "pinfold"), "nobody"):
        try:
            pwd.getpwnam(name)
            return name
        except KeyError:
            continue
    return "nobody"


class Guardian:
    """A process that outlives a killed test run by a moment: when the pipe to the run breaks, it
    ends the servers and runners that are still there, by pid and start time."""

    def __init__(self):
        reader, self.writer = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(reader)
            return
        os.setsid()
        os.close(self.writer)
        null = os.open("/dev/null", os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)
        text = b""
        while True:
            part = os.read(reader, 4096)
            if not part:
                break
            text += part
        known = {tuple(map(int, line.split())) for line in text.splitlines()}
        for pid, _ in clean.alive(known):
            os.kill(pid, signal.SIGKILL)
        os._exit(0)

    def watch(self, pid):
        for one, start in clean.identity([pid]):
            os.write(self.writer, b"%d %d\n" % (one, start))

    def close(self):
        os.close(self.writer)
        os.waitpid(self.pid, 0)


def watch(pid):
    if not _guardian:
        _guardian.append(Guardian())
    _guardian[0].watch(pid)


class Guard:
    """A cgroup of its own around one server and runner, in every hierarchy, with a cap on memory
    and processes: what a test leaves behind can be counted there, and a bomb stays inside.
    On cgroup2 with controllers, where a group with processes may have no children, it is for the
    runner alone, as a unit's is, and without a cap; with an owner it is delegated to that user."""

    def __init__(self, mem_bytes=GUARD_MEM_BYTES, pids=GUARD_PIDS, owner=None):
        self.dirs = {}
        self.for_runner = set()
        mounts = clean.mounts_of_cgroups()
        own = clean.cgroup_dirs(os.getpid(), mounts)
        caps = {"memory": ("memory.limit_in_bytes", mem_bytes), "pids": ("pids.max", pids)}
        for key, at in own.items():
            names = key.split(",")
            if key == "" and owner is not None:
                self.for_runner.add(key)
            if key == "" and clean.read(os.path.join(mounts[key][0], "cgroup.controllers")).strip():
                # What the whole host has: systemd gives its services no more than they ask for.
                at = mounts[key][0]
                if not self.hand_on(at):
                    continue  # a container's, with others in it
                self.for_runner.add(key)
            if not set(names) & {"memory", "pids", "cpu", "cpuacct", ""}:
                continue
            path = os.path.join(at, "pinfold-test-%d-%d" % (os.getpid(), next(_numbers)))
            os.mkdir(path)
            self.dirs[key] = path
            if key == "" and owner is not None:
                for name in ("", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"):
                    os.chown(os.path.join(path, name), owner.pw_uid, owner.pw_gid)
            for name in names:
                if name in caps:
                    with open(os.path.join(path, caps[name][0]), "w") as out:
                        out.write(str(caps[name][1]))

    def hand_on(self, at):
        offered = clean.read(os.path.join(at, "cgroup.controllers")).decode().split()
        try:
            for one in {"cpu", "memory", "pids"} & set(offered):
                with open(os.path.join(at, "cgroup.subtree_control"), "w") as out:
                    out.write("+" + one)
        except OSError:
            return False
        return True

    def enter(self, runner=True):
        """For a child before exec."""
        for key, path in self.dirs.items():
            if key in self.for_runner and not runner:
                continue
            try:
                with open(os.path.join(path, "cgroup.procs"), "w") as out:
                    out.write("0")
            except OSError as problem:
                # A runner that was killed left it divided, with the leaf that it had stepped into.
                if key not in self.for_runner or problem.errno != errno.EBUSY:
                    raise
                with open(os.path.join(path, "pinfold-runner", "cgroup.procs"), "w") as out:
                    out.write("0")

    def close(self):
        """Removes it. What was killed a moment ago may still hold it."""
        end = time.monotonic() + 3
        left = list(self.dirs.values())
        while left and time.monotonic() < end:
            for path in left:
                for one in sorted(clean.tree(path), key=len, reverse=True) + [path]:
                    try:
                        os.rmdir(one)
                    except OSError:
                        pass
            left = [path for path in left if os.path.isdir(path)]
            if left:
                time.sleep(0.02)
        for path in left:
            print("# left behind: %s" % path)


class Pair:
    """A server and a runner on a state directory of their own."""

    def __init__(
        self,
        shards=1,
        slots=16,
        warm=4,
        runner_args=(),
        server_args=(),
        environment=None,
        runner_prefix=(),
        server_prefix=(),
        policies=None,
        state=None,
        guard=None,
        nofile=None,
        tls=None,
        rootless=os.environ.get("PINFOLD_TEST_ROOTLESS"),
    ):
        self.work = tempfile.mkdtemp(prefix="pinfold-http-")
        os.chmod(self.work, 0o755)
        self.state = state or os.path.join(self.work, "state")
        self.shards, self.slots, self.warm = shards, slots, warm
        self.runner_args, self.server_args = list(runner_args), list(server_args)
        self.runner_prefix, self.server_prefix = list(runner_prefix), list(server_prefix)
        self.environment = dict(os.environ, **(environment or {}))
        self.policies = policies or POLICIES
        # The name of the user that server and runner are, in rootless mode.
        self.owner = pwd.getpwnam(rootless) if rootless else None
        self.guard = guard or Guard(owner=self.owner)
        self.nofile = nofile
        self.tls = tls if tls is not None else _replaced.get("tls")
        self.user = rootless or server_user()
        if self.owner:
            os.chown(self.work, self.owner.pw_uid, self.owner.pw_gid)
            self.runner_args += ["--rootless"]
            allowed = os.environ.get("PINFOLD_TEST_ALLOW_MISSING")
            if allowed and "--allow-missing" not in self.runner_args:
                self.runner_args += ["--allow-missing", allowed]
        self.port = free_port()
        self.server = self.runner = None
        self.token = ""
        self.client = None
        self.bases, self.base = {}, None
        _pairs.append(self)

    # Set-up

    def init(self):
        done = subprocess.run(
            [program("pinfold-server"), "init", "--state", self.state, "--user", self.user],
            env=self.environment,
            preexec_fn=self.become,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,  # it waits for the disk, which may be a busy one
        )
        if done.returncode != 0:
            fail("pinfold-server init failed (%d): %s", done.returncode, done.stderr.decode())
        with open(os.path.join(self.state, "admin.token")) as file:
            self.token = file.read().strip()

    def become(self):
        if self.owner:
            os.setgroups([])
            os.setgid(self.owner.pw_gid)
            os.setuid(self.owner.pw_uid)

    def spawn(self, arguments, log, prefix=(), runner=False):
        def prepare():
            os.umask(0o077)
            self.guard.enter(runner)
            if self.nofile:
                import resource

                resource.setrlimit(resource.RLIMIT_NOFILE, (self.nofile, self.nofile))
            self.become()

        with open(os.path.join(self.work, log), "ab") as out:
            child = subprocess.Popen(
                list(prefix) + arguments,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                preexec_fn=prepare,
                cwd="/",
            )
        watch(child.pid)
        return child

    def start_runner(self):
        self.runner = self.spawn(
            [
                program("pinfold-runner"),
                "--state",
                self.state,
                "--policies",
                self.policies,
                "--shards",
                str(self.shards),
                "--slots",
                str(self.slots),
                "--warm",
                str(self.warm),
                "--server-user",
                self.user,
            ]
            + self.runner_args,
            "runner.log",
            self.runner_prefix,
            runner=True,
        )

    def start_server(self):
        self.server = self.spawn(
            [
                program("pinfold-server"),
                "serve",
                "--state",
                self.state,
                "--listen",
                "127.0.0.1",
                "--port",
                str(self.port),
                "--user",
                self.user,
            ]
            + (self.tls.arguments() if self.tls else [])
            + self.server_args,
            "server.log",
            self.server_prefix,
        )

    def start(self, seconds=15):
        if not os.path.exists(os.path.join(self.state, "admin.token")):
            self.init()
        self.start_runner()
        self.start_server()
        self.client = Client(self.port, self.token, context=self.context)
        self.wait_ready(seconds)
        return self

    def user_client(self, name):
        """A client with a token of its own, of a user who is no administrator."""
        letters = "abcdefghijklmnopqrstuvwxyz234567"
        token = "pf_" + "".join(secrets.choice(letters) for _ in range(52))
        line = "%s %s user\n" % (hashlib.sha256(token.encode()).hexdigest(), name)
        with open(os.path.join(self.state, "server", "tokens"), "a") as out:
            out.write(line)
        return Client(self.port, token, context=self.context)

    @property
    def context(self):
        return self.tls.context() if self.tls else None

    def probe(self, path, timeout=2):
        """-> status of a GET without a token on a connection of its own, 0 when there is none."""
        try:
            one = Client(self.port, self.token, context=self.context).connection(timeout)
            one.request("GET", path)
            answer = one.getresponse()
            answer.read()
            one.close()
            return answer.status
        except (OSError, http.client.HTTPException):
            return 0

    def wait_ready(self, seconds=15, wanted=200):
        end = time.monotonic() + seconds
        while True:
            if wanted == 200:
                self.check_alive()
            if self.probe("/readyz") == wanted:
                return
            if time.monotonic() > end:
                fail("/readyz did not answer %d within %s s\n%s", wanted, seconds, self.logs())
            time.sleep(0.02)

    def check_alive(self):
        for name, child in (("server", self.server), ("runner", self.runner)):
            if child is not None and child.poll() is not None:
                fail("the %s ended with %d at start\n%s", name, child.returncode, self.logs())

    def logs(self, most=2500):
        text = ""
        for name in ("runner.log", "server.log"):
            data = clean.read(os.path.join(self.work, name)).decode("utf-8", "replace")
            text += "--- %s\n%s\n" % (name, data[-most:])
        return text

    def log_bytes(self):
        """All that the two programs have logged, wherever they log to."""
        found = b""
        for name in ("runner.log", "server.log"):
            found += clean.read(os.path.join(self.work, name))
        for at, _, plain in os.walk(os.path.join(self.state, "log")):
            found += b"".join(clean.read(os.path.join(at, one)) for one in plain)
        return found

    @property
    def server_pid(self):
        return self.inner(self.server, self.server_prefix)

    @property
    def runner_pid(self):
        return self.inner(self.runner, self.runner_prefix)

    def inner(self, child, prefix):
        """The program's own pid: with a prefix that forks (unshare --fork) it is the child's."""
        if child is None:
            return 0
        pid = child.pid
        if prefix and os.path.basename(prefix[0]) == "unshare" and "--fork" in prefix:
            below = clean.descendants(pid)
            return below[0] if below else pid
        return pid

    def memory(self, which="server"):
        """Resident bytes of the server (or of the runner with its shards); 0 with sanitizers,
        which keep freed memory on purpose."""
        if sanitized():
            return 0
        pids = [self.server_pid] if which == "server" else clean.family(self.runner_pid)[0]
        total = 0
        for pid in pids:
            for line in clean.read("/proc/%d/status" % pid).decode().splitlines():
                if line.startswith("VmRSS:"):
                    total += int(line.split()[1]) * 1024
        return total

    # The post-condition

    def warm_up(self, runs=None):
        """Brings everything that is made once and kept (pools, worker threads) into being, then
        takes the state at rest."""
        for request in (
            runs if runs is not None else ({"policy": name} for name in ("default", "ci", "judge"))
        ):
            self.client.run(argv=["/bin/true"], **request)
        # Several large ones at once: all workers that decode and encode.
        parallel(8, lambda _: self.client.run(argv=["cat"], stdin="x" * 900000))
        # The files of a sandbox leave after the answer, on a busy machine some time after it.
        at = os.path.join(self.state, "server", "sandboxes")
        before = set(os.listdir(at))
        box.warm_up(self.client)
        eventually(lambda: set(os.listdir(at)) <= before, 10, "the files of sandboxes do not go")
        self.rest()

    def rest(self):
        self.client.close()
        self.bases = self.guard.dirs or clean.cgroup_bases(self.runner_pid)
        last = time.monotonic() + LEFT_SECONDS
        while clean.left_groups(self.bases) and time.monotonic() < last:
            time.sleep(0.1)
        self.base = clean.settle(self.snapshot)
        self.base["marked processes"] = []

    def rounds(self, count):
        """How often to repeat what must never fail: as often as takes the same time everywhere."""
        return count

    def snapshot(self):
        return clean.snapshot(self, self.bases, [self.client.mark])

    def check_clean(self, seconds=None, skip=()):
        """Nothing of any run is left within a second, and the server answers. What begins with one
        of `skip` is not looked at: a new server has other threads."""
        if self.base is None:
            return
        self.client.close()
        seconds = CLEAN_SECONDS if seconds is None else seconds
        end, last = time.monotonic() + seconds, time.monotonic() + seconds + LEFT_SECONDS
        while True:
            left = clean.differences(self.base, self.snapshot())
            left = [one for one in left if not one.startswith(tuple(skip))]
            if not left:
                break
            if time.monotonic() < last and clean.left_groups(self.bases):
                end = max(end, time.monotonic() + 1)
            elif time.monotonic() > end:
                if os.environ.get("PINFOLD_TEST_FDS"):
                    for pid in [self.server_pid, self.runner_pid] + self.shard_pids():
                        print("# %d: %s" % (pid, clean.descriptors(pid)))
                # The next test must not be blamed for this one's leftovers.
                self.rest()
                fail("not clean %s s after the answer: %s", seconds, "; ".join(left))
            time.sleep(0.02)
        status = self.probe("/healthz")
        if status != 200:
            fail("/healthz answers %d after the test", status)

    def jailed(self):
        """{(pid, start time)} of all processes in jails."""
        return clean.identity(clean.family(self.runner_pid)[1])

    def shard_pids(self):
        """Pids of the shard processes: the runner's children in its own pid namespace."""
        table = clean.processes()
        host, _ = clean.family(self.runner_pid, table)
        return [pid for pid in host if pid in table and table[pid][0] == self.runner_pid]

    # The end

    def end(self, child, number, seconds=10, pid=None):
        """Signals a child by pid and waits -> its exit code."""
        if child is None:
            return None
        if child.poll() is None:
            os.kill(pid or child.pid, number)
        try:
            return child.wait(seconds)
        except subprocess.TimeoutExpired:
            os.kill(child.pid, signal.SIGKILL)
            child.wait(5)
            fail(
                "pid %d did not end within %s s of signal %d\n%s",
                child.pid,
                seconds,
                number,
                self.logs(),
            )

    def kill9_server(self):
        os.kill(self.server_pid, signal.SIGKILL)
        self.server.wait(5)

    def kill9_runner(self):
        os.kill(self.runner_pid, signal.SIGKILL)
        self.runner.wait(5)

    def stop(self):
        """Server first, then the runner; both must end by themselves, with exit code 0."""
        if self.client:
            self.client.close()
        problem = None
        for child, pid in ((self.server, self.server_pid), (self.runner, self.runner_pid)):
            try:
                code = self.end(child, signal.SIGTERM, pid=pid)
                if code not in (0, None):
                    fail("%s ended with %d\n%s", child.args[0], code, self.logs())
            except AssertionError as late:
                problem = problem or late
        self.server = self.runner = None
        if problem:
            raise problem

    def discard(self):
        """Stops by force if need be and removes the files. Never raises."""
        try:
            self.stop()
        except (AssertionError, OSError):
            pass
        if self in _pairs:
            _pairs.remove(self)
        self.guard.close()
        if not any(self.work in line for line in clean.mount_lines()):
            shutil.rmtree(self.work, ignore_errors=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.discard()


def why_no_docker():
    """A sentence when there can be no Docker engine here, else None."""
    import engine

    return engine.why_not()


def DockerPair(**more):
    """A pair whose jails are containers (engine.py)."""
    import engine

    return engine.DockerPair(**more)


@atexit.register
def discard_all():
    if os.getpid() != _owner:
        return
    for one in list(_pairs):
        one.discard()
    if _guardian:
        _guardian.pop().close()


def wait_port(port, seconds=5):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return True
        except OSError:
            time.sleep(0.02)
    return False

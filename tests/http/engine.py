"""A Docker engine of the tests' own, and pairs whose jails are its containers.

The engine is Debian's docker.io with its own data root, socket and pid file, without a bridge and
without iptables. It is started once, at the first need, and ended with the test run. Images are
made here: busybox, or what the tests need of the host's own programs."""

import atexit
import glob
import http.client
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import time

import clean
import harness
from check import fail

IMAGE = "pinfold-test:host"
BUSYBOX = "pinfold-test:busybox"
CLEAN_SECONDS = 15

_engines = []


def why_not():
    """A sentence when no engine can be had here, else None."""
    if os.geteuid() != 0:
        return "only root can start a Docker engine"
    if not shutil.which("dockerd"):
        return "there is no dockerd (Debian's docker.io)"
    if not os.path.exists(harness.program("pinfold-runner-docker")):
        return "pinfold-runner-docker is not built"
    return None


class Connection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("engine", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Engine:
    def __init__(self):
        self.work = tempfile.mkdtemp(prefix="pinfold-engine-")
        self.socket = os.path.join(self.work, "docker.sock")
        self.child = None
        self.keeps = False  # what runs, when it starts again
        self.owner = os.getpid()
        _engines.append(self)

    def start(self, times=3):
        """On a busy machine its containerd may not be there in the ten seconds that dockerd gives it."""
        for one in range(times):
            try:
                return self._start()
            except AssertionError:
                if one == times - 1:
                    raise
                self.stop(signal.SIGKILL)

    def _start(self, seconds=40):
        # Its mounts come and go; tests beside this one look at those of the host.
        command = ["unshare", "--mount", "--propagation", "slave"] + self.command()
        with open(self.work + "/log", "ab") as out:
            self.child = subprocess.Popen(
                command, cwd=self.work, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                start_new_session=True
            )  # Podman's conmon leaves a file where it runs
        harness.watch(self.child.pid)
        end = time.monotonic() + seconds
        while True:
            try:
                if self.ask("GET", "/_ping")[0] == 200:
                    return self
            except OSError:
                pass
            if self.child.poll() is not None or time.monotonic() > end:
                fail("%s did not start\n%s", self.command()[0], clean.read(self.work + "/log")[-2000:].decode())
            time.sleep(0.05)

    def command(self):
        command = ["dockerd", "--data-root", self.work + "/data", "--exec-root", self.work + "/exec"]
        command += ["-H", "unix://" + self.socket, "--pidfile", self.work + "/pid"]
        command += ["--bridge=none", "--iptables=false", "--ip6tables=false"]
        return command + ["--live-restore"] * self.keeps

    def ask(self, method, path, body=None, kind="application/json", timeout=60):
        one = Connection(self.socket, timeout)
        try:
            one.request(method, path, body, {"Content-Type": kind})
            answer = one.getresponse()
            return answer.status, answer.read()
        finally:
            one.close()

    def json(self, path):
        status, text = self.ask("GET", "/v1.41" + path)
        if status != 200:
            fail("the engine answers %d to %s: %s", status, path, text)
        return json.loads(text)

    def containers(self):
        return self.json("/containers/json?all=1")

    def load(self, name, data):
        path = "/v1.41/images/create?fromSrc=-&repo=" + name
        status, text = self.ask("POST", path, data, "application/x-tar", 300)
        if status != 200 or b'"error"' in text:
            fail("the engine did not take an image: %d %s", status, text)

    def has(self, name):
        return self.ask("GET", "/v1.41/images/%s/json" % name)[0] == 200

    def knows(self, container):
        return self.ask("GET", "/v1.41/containers/%s/json" % container)[0] == 200

    def stop(self, number=signal.SIGTERM):
        if self.child is None:
            return
        if number == signal.SIGKILL:
            # Its containerd would hold the place of the next one; what runs in containers goes on.
            below = [pid for pid in clean.descendants(self.child.pid) if _is_containerd(pid)]
            for pid, _ in clean.identity(below):
                os.kill(pid, number)
        if self.child.poll() is None:
            self.child.send_signal(number)
        try:
            self.child.wait(30)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait(5)
        self.child = None

    def _shims(self):
        """One whose engine was killed while it made a container belongs to nobody any more."""
        address = (self.work + "/exec/containerd/containerd.sock").encode()
        return [int(pid) for pid in os.listdir("/proc") if pid.isdigit()
                and b"containerd-shim" in clean.read("/proc/%s/comm" % pid)
                and address in clean.read("/proc/%s/cmdline" % pid)]

    def discard(self):
        """containerd and its shims end with dockerd, and with them its mount namespace."""
        if self.child is not None and self.child.poll() is None:
            self.child.send_signal(signal.SIGCONT)
        self.stop()
        for shim in self._shims():
            for pid, _ in clean.identity([shim, *clean.descendants(shim)]):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.work, ignore_errors=True)
        if self in _engines:
            _engines.remove(self)


class Remapped(Engine):
    """dockerd whose containers have ids of their own outside: those of a user of the tests'."""

    def command(self):
        os.chmod(self.work, 0o711)  # the user that is root inside goes through it
        return super().command() + ["--userns-remap=" + _remap_user()]


def _remap_user():
    """A user with a range of ids in /etc/subuid and /etc/subgid, both."""
    names = []
    for path in ("/etc/subuid", "/etc/subgid"):
        lines = [line.split(":") for line in clean.read(path).decode().split()]
        names.append([one[0] for one in lines if int(one[2]) >= 65536])
    both = [name for name in names[0] if name in names[1]]
    return both[0] if both else "default"  # which dockerd makes itself


class Podman(Engine):
    """Podman's service that speaks the API of Docker. Its default runtime refuses hosts with both
    kinds of control groups; runc takes all."""

    def command(self):
        command = ["podman", "--root", self.work + "/data", "--runroot", self.work + "/run"]
        command += ["--tmpdir", self.work + "/tmp", "--cgroup-manager=cgroupfs", "--events-backend=none"]
        if shutil.which("runc"):
            command.append("--runtime=runc")
        return command + ["system", "service", "--time=0", "unix://" + self.socket]

    def stop(self, number=signal.SIGTERM):
        """What it starts outlives it."""
        try:
            for one in self.containers():
                self.ask("DELETE", "/v1.41/containers/%s?force=1" % one["Id"])
        except (OSError, AssertionError):
            pass
        super().stop(number)


KINDS = {"docker": Engine, "remapped": Remapped, "podman": Podman}
kind = "docker"  # of the shared one


@atexit.register
def discard_all():
    for one in list(_engines):
        if one.owner == os.getpid():
            one.discard()



def _is_containerd(pid):
    return clean.read("/proc/%d/comm" % pid).strip() == b"containerd"


def busybox():
    """A tar of a root file system that has nothing but busybox."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.add("/bin/busybox", "bin/busybox")
        names = subprocess.run(["/bin/busybox", "--list"], capture_output=True, check=True).stdout
        for name in names.decode().split():
            if name != "busybox":
                link = tarfile.TarInfo("bin/" + name)
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(link)
    return out.getvalue()


# What tests call inside; the libraries that these need are found by ldd.
PROGRAMS = """bash sh dash python3 perl awk mawk gawk sed grep find xargs tar gzip env id ps stty script strace
setpriv unshare nsenter mount umount setsid timeout flock ip ss git less vi tmux kill killall pgrep getent
locale diff cmp file make gcc cc as ld""".split()


def host():
    """A tar with the part of the host's programs that the tests call in a jail."""
    paths = set()
    for directory in ("/usr/bin", "/usr/sbin"):
        for name in os.listdir(directory):
            path = os.path.join(directory, name)
            small = os.path.getsize(path) < 4 << 20 if os.path.exists(path) else False
            if small or name in PROGRAMS or name.startswith("python3"):
                paths.add(path)
    library = "/usr/lib/x86_64-linux-gnu"
    if not os.path.isdir(library):
        library = "/usr/lib/aarch64-linux-gnu"
    for path in glob.glob(library + "/*.so*"):
        if os.path.getsize(os.path.realpath(path)) < 8 << 20:
            paths.add(path)
            paths.add(os.path.realpath(path))
    for path in glob.glob("/usr/lib/ld-*") + glob.glob("/usr/lib64/*"):
        paths.add(path)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for link, target in (("bin", "usr/bin"), ("sbin", "usr/sbin"), ("lib", "usr/lib"), ("lib64", "usr/lib64")):
            one = tarfile.TarInfo(link)
            one.type, one.linkname = tarfile.SYMTYPE, target
            tar.addfile(one)
        for path in sorted(paths):
            tar.add(path, path[1:], recursive=False)
        for tree in glob.glob("/usr/lib/python3*") + ["/usr/share/terminfo", "/lib/terminfo", library + "/perl-base"]:
            if os.path.isdir(tree):
                tar.add(os.path.realpath(tree), os.path.realpath(tree)[1:], filter=_slim)
        for name in ("passwd", "group"):
            text = {"passwd": "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/bash\n",
                    "group": "root:x:0:\nuser:x:1000:\n"}[name].encode()
            one = tarfile.TarInfo("etc/" + name)
            one.size, one.mode = len(text), 0o644
            tar.addfile(one, io.BytesIO(text))
        for path in glob.glob("/etc/alternatives/*") + ["/etc/ld.so.cache", "/etc/nsswitch.conf", "/etc/ld.so.conf"]:
            if os.path.lexists(path):
                tar.add(path, path[1:], recursive=False)
    return out.getvalue()


def _slim(entry):
    unwanted = ("/test/", "dist-packages", "ensurepip", "idlelib", "lib2to3", "tkinter")
    return None if any(part in entry.name + "/" for part in unwanted) else entry


def shared():
    """The engine of this test run, with the images."""
    if not _engines:
        KINDS[kind]()
    one = _engines[0]
    if one.child is None or one.child.poll() is not None:
        one.start()
    # Whoever started it may have had images of his own only.
    if one.ask("GET", "/v1.41/images/%s/json" % IMAGE)[0] != 200:
        one.load(BUSYBOX, busybox())
        one.load(IMAGE, host())
    return one


class DockerPair(harness.Pair):
    """A server and pinfold-runner-docker. With `native`, a pinfold-runner beside it; without,
    requests that name no back end get a container."""

    def __init__(self, native=False, engine=None, image=IMAGE, docker_args=(), **more):
        super().__init__(**more)
        self.engine = engine or shared()
        self.native, self.image, self.docker_args = native, image, list(docker_args)
        self.docker = None
        if not native and more.get("policies") is None:
            self.policies = self.docker_first()

    def docker_first(self):
        """The policies, with containers as what a request gets that names no back end."""
        out = os.path.join(self.work, "policies")
        os.mkdir(out, 0o755)
        for path in glob.glob(os.path.join(harness.POLICIES, "*.json")):
            with open(path) as file:
                policy = json.load(file)
            policy["backends"] = {"allow": ["docker", "native"], "why": "The tests want containers."}
            with open(os.path.join(out, os.path.basename(path)), "w") as file:
                json.dump(policy, file)
        return out

    def start_docker(self):
        arguments = [harness.program("pinfold-runner-docker"), "--state", self.state]
        arguments += ["--policies", self.policies, "--engine", self.engine.socket]
        arguments += ["--slots", str(self.slots), "--warm", str(self.warm)]
        arguments += ["--server-user", self.user, "--host-image", self.image] + self.docker_args
        self.docker = self.spawn(arguments, "docker.log")

    def start_runner(self):
        if self.native:
            super().start_runner()
        self.start_docker()
        if not self.native:
            self.runner = self.docker

    def start(self, seconds=150):
        super().start(seconds)
        if self.native:
            self.wait_docker(seconds)
        return self

    def wait_docker(self, seconds=150):
        """Until the server knows both."""
        end = time.monotonic() + seconds
        while True:
            answer = self.client.get("/v1/capabilities").json()
            if {"native", "docker"} <= {one["name"] for one in answer["backends"]}:
                return
            if self.docker.poll() is not None or time.monotonic() > end:
                fail("pinfold-runner-docker did not come\n%s", self.logs())
            time.sleep(0.05)

    def rounds(self, count):
        return max(2, count // 10)

    def snapshot(self):
        """What is counted on the host comes and goes with the engine's containers, which have other
        names each time. At rest there are as many warm ones as there are kinds in use, and for each
        of them, and for the connections to the engine, the runner has some descriptors."""
        seen = super().snapshot()
        del seen["mounts of the host"], seen["processes in jails"], seen["network namespaces"]
        count = len(self.engine.containers())
        most = 64 + 21 * count
        seen["descriptors of the runner"] = max(0, seen["descriptors of the runner"] - most) // 16
        seen["containers"] = count % max(1, self.warm)
        return seen

    def rest(self):
        self.client.close()
        self.bases = self.guard.dirs or clean.cgroup_bases(self.runner_pid)
        self.base = clean.settle(self.snapshot, seconds=60, still=3)
        self.base["marked processes"] = []

    def warm_up(self, runs=None):
        super().warm_up(runs if runs is not None else ({"policy": "default"},))

    def check_clean(self, seconds=None, skip=()):
        # The next warm container is there when the engine has made it.
        super().check_clean(max(seconds or 0, CLEAN_SECONDS), skip)

    def logs(self, most=2500):
        data = clean.read(os.path.join(self.work, "docker.log")).decode("utf-8", "replace")
        return super().logs(most) + "--- docker.log\n" + data[-most:]

    def stop(self):
        problem = None
        try:
            super().stop()
        except AssertionError as late:
            problem = late
        if self.native and self.docker is not None:
            code = self.end(self.docker, signal.SIGTERM)
            if code not in (0, None) and problem is None:
                problem = AssertionError("pinfold-runner-docker ended with %d\n%s" % (code, self.logs()))
        self.docker = None
        if problem:
            raise problem

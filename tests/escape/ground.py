"""What must be as it was after an attempt: things on the host that no jail may touch, and a
neighbour that lives in a jail of its own."""

import hashlib
import os
import random
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))

import box
import canary
import check
import clean
import harness
from canary import Canaries

# What changes by itself, or whenever anything else runs on the machine.
RESTLESS = (
    "/proc/sys/kernel/random", "/proc/sys/fs/file-nr", "/proc/sys/fs/inode-", "/proc/sys/fs/dentry-state",
    "/proc/sys/fs/aio-nr", "/proc/sys/kernel/ns_last_pid", "/proc/sys/kernel/pty/nr", "/proc/sys/net",
    "/proc/sys/kernel/tainted", "/proc/sys/fs/quota", "/proc/sys/fs/binfmt_misc", "/proc/sys/kernel/seccomp",
    "/proc/sys/kernel/sched_domain", "/proc/sys/vm/stat_refresh", "/proc/sys/vm/compact_memory",
)
NET = ("ipv4/ip_unprivileged_port_start", "ipv4/ping_group_range", "core/somaxconn", "core/bpf_jit_enable")
LIMITS = (
    "memory.limit_in_bytes", "memory.max", "pids.max", "cpu.cfs_quota_us", "cpu.max", "notify_on_release",
    "release_agent", "cgroup.subtree_control", "devices.list",
)


def sysctls():
    """{path: text}"""
    found = {}
    for at, _, names in os.walk("/proc/sys"):
        for name in names:
            path = os.path.join(at, name)
            if not path.startswith(RESTLESS):
                found[path] = clean.read(path)
    for name in NET:
        found["/proc/sys/net/" + name] = clean.read("/proc/sys/net/" + name)
    return found


def cgroup_values(pair):
    """{path: text}: bounds of the groups above the jails, up to the root."""
    found = {}
    for at in list(pair.guard.dirs.values()) or list(pair.bases.values()):
        while len(at) > 1 and os.path.isdir(at) and at != "/sys/fs":
            for name in LIMITS:
                if os.path.exists(os.path.join(at, name)):
                    found[os.path.join(at, name)] = clean.read(os.path.join(at, name))
            at = os.path.dirname(at)
    return found


def programs():
    found = {}
    for name in ("pinfold-init", "pinfold-runner", "pinfold-server"):
        found[name] = hashlib.sha256(clean.read(harness.program(name))).hexdigest()
    for path in ("/usr/bin/ls", "/bin/sh", "/etc/passwd", "/etc/shadow", "/etc/hosts", "/etc/ld.so.preload"):
        found[path] = hashlib.sha256(clean.read(path)).hexdigest()
    return found


class Bystander:
    """A process of nobody on the host."""

    def __init__(self):
        self.process = subprocess.Popen(
            ["sleep", "3600"], user=65534, group=65534, extra_groups=[], cwd="/",
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        harness.watch(self.process.pid)
        check.eventually(lambda: clean.read("/proc/%d/comm" % self.process.pid) == b"sleep\n", 3, "sleep")
        self.before = self.look()

    def look(self):
        at = "/proc/%d/" % self.process.pid
        status = clean.read(at + "status").decode()
        seen = {line.split(":")[0]: line.split(":")[1].strip() for line in status.splitlines()}
        wanted = ("Name", "Umask", "TracerPid", "Uid", "Gid", "SigQ", "SigPnd", "ShdPnd", "Cpus_allowed", "Seccomp")
        found = {key: seen.get(key) for key in wanted}
        found["State"] = seen.get("State", "").split(" ")[0] in ("S", "R")
        found["nice"] = clean.read(at + "stat").rpartition(b")")[2].split()[16:17]
        for name in ("limits", "oom_score_adj", "cgroup", "uid_map", "timerslack_ns"):
            found[name] = clean.read(at + name)
        return found

    def close(self):
        self.process.kill()
        self.process.wait()


class Neighbour:
    """A sandbox that holds everything which another jail could reach by a name."""

    def __init__(self, client, binary):
        self.mark = str(random.randrange(20000, 32000))
        self.client = client
        self.box = box.Box.make(client)
        self.box.put("/workspace/escape", binary, mode="0755")
        self.ex = self.box.background(
            argv=["/workspace/escape", "neighbour", self.mark], limits={"wall_ms": 3600000, "cpu_ms": 600000})
        self.box.wait_output(self.ex, b"READY")
        self.seen = 0

    def problems(self):
        """-> [sentence]; waits until it has looked once more."""
        end = time.monotonic() + 5
        while True:
            text = self.box.seen(self.ex).decode("utf-8", "replace")
            lines = [line for line in text.splitlines() if line.startswith("TOUCHED ")]
            if len(lines) >= self.seen + 2:
                self.seen = len(lines)
                return [] if lines[-1] == "TOUCHED 0" else ["the neighbour was touched: " + lines[-1]]
            if self.box.fetch(self.ex)["state"] == "done":
                return ["the neighbour's process has ended: %s" % check.step(self.box.fetch(self.ex))]
            if time.monotonic() > end:
                return ["the neighbour stands still"]
            time.sleep(0.05)

    def close(self):
        self.box.delete()


class Ground:
    """Taken before the attempts; problems() says what has changed since."""

    def __init__(self, pair, binary):
        self.pair = pair
        self.bystander = Bystander()
        self.neighbour = Neighbour(pair.client, binary)
        # What somebody works with below /tmp is not the machine's.
        self.mounts = [one for one in clean.mount_points() if "pinfold" not in one[0] and not one[0].startswith("/tmp/")]
        self.sysctls = sysctls()
        self.cgroups = cgroup_values(pair)
        self.programs = programs()
        self.name = os.uname().nodename

    def environment(self):
        paths = [Canaries.root_only, Canaries.open_file, Canaries.directory, Canaries.shm_file,
                 Canaries.unix_socket, Canaries.run_socket, self.pair.state, self.pair.work]
        return {
            "ESCAPE_NEIGHBOUR": self.neighbour.mark,
            "ESCAPE_ABSTRACT": canary.ABSTRACT,
            "ESCAPE_PORT": str(self.pair.port),
            "ESCAPE_PATHS": ":".join(paths),
        }

    def problems(self):
        """The quick part: after each class."""
        found = canary.problems()
        now = self.bystander.look()
        found += ["the bystander's %s is %r, was %r" % (key, now[key], wanted)
                  for key, wanted in self.bystander.before.items() if now[key] != wanted]
        for child, what in ((self.pair.server, "server"), (self.pair.runner, "runner")):
            if child.poll() is not None:
                found.append("the %s has ended with %d" % (what, child.returncode))
        return found + self.changed(self.cgroups, cgroup_values(self.pair))

    def changed(self, before, now):
        return ["%s is %r, was %r" % (key, now.get(key), wanted)
                for key, wanted in before.items() if now.get(key) != wanted]

    def all_problems(self):
        found = self.problems() + self.neighbour.problems()
        found += self.changed(self.sysctls, sysctls()) + self.changed(self.programs, programs())
        gone = set(self.mounts) - set(clean.mount_points())
        found += ["%s is no longer mounted" % one[0] for one in sorted(gone) if os.path.isdir(one[0])]
        if os.uname().nodename != self.name:
            found.append("the host is called %s" % os.uname().nodename)
        return found

    def close(self):
        self.bystander.close()
        self.neighbour.close()

"""What is left behind: a snapshot of everything that a run could leave on the host, and the
comparison of two of them. Nothing here asks the server; it looks at /proc and the file
system."""

import os
import re
import time

from client import MARK


# The name of what tests themselves mount on the host.
TEST_MOUNT = "pinfold-test-full-"


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def link(path):
    try:
        return os.readlink(path)
    except OSError:
        return ""


def names(path):
    try:
        return os.listdir(path)
    except OSError:
        return []


def processes():
    """-> {pid: (parent, start time, state)} of all processes that can be seen."""
    found = {}
    for name in names("/proc"):
        if name.isdigit():
            # The command may hold spaces and brackets: fields are counted from the last bracket.
            fields = read("/proc/%s/stat" % name).rpartition(b")")[2].split()
            if len(fields) > 19:
                found[int(name)] = (int(fields[1]), int(fields[19]), fields[0].decode())
    return found


def descendants(root, table=None):
    """-> [pid] of all descendants of `root`."""
    table = table or processes()
    children = {}
    for pid, (parent, _, _) in table.items():
        children.setdefault(parent, []).append(pid)
    found, queue = [], [root]
    while queue:
        for pid in children.get(queue.pop(), ()):
            found.append(pid)
            queue.append(pid)
    return found


def family(runner, table=None):
    """-> (host, jailed): the runner with its shards and helpers, and the processes in other pid
    namespaces, as lists of pids."""
    table = table or processes()
    ours = link("/proc/self/ns/pid") if not runner else link("/proc/%d/ns/pid" % runner)
    host, jailed = [runner], []
    for pid in descendants(runner, table):
        space = link("/proc/%d/ns/pid" % pid)
        if space == ours:
            host.append(pid)
        elif space:
            jailed.append(pid)
    return host, jailed


def identity(pids, table=None):
    """-> {(pid, start time)}: names that survive the reuse of a pid."""
    table = table or processes()
    return {(pid, table[pid][1]) for pid in pids if pid in table}


def alive(identities):
    """The ones of `identities` that still run (a zombie does not)."""
    table = processes()
    return {
        (pid, start)
        for pid, start in identities
        if pid in table and table[pid][1] == start and table[pid][2] not in "ZX"
    }


def marked(mark):
    """Pids of processes that carry the mark in environment or arguments."""
    needle, plain = ("%s=%s" % (MARK, mark)).encode(), mark.encode()
    return [
        int(name)
        for name in names("/proc")
        if name.isdigit()
        and (needle in read("/proc/%s/environ" % name) or plain in read("/proc/%s/cmdline" % name))
        and int(name) != os.getpid()
    ]


def mounts_of_cgroups():
    """-> {key: (mount point, root)}; the key is the controllers of a v1 hierarchy or "" for v2."""
    found = {}
    for line in read("/proc/self/mountinfo").decode("utf-8", "replace").splitlines():
        left, _, right = line.partition(" - ")
        left, right = left.split(), right.split()
        if len(left) < 5 or len(right) < 3:
            continue
        if right[0] == "cgroup2":
            found[""] = (left[4], left[3])
        elif right[0] == "cgroup":
            skip = ("rw", "ro", "relatime", "xattr", "noprefix", "clone_children")
            found[",".join(o for o in right[2].split(",") if o not in skip)] = (left[4], left[3])
    return found


def cgroup_dirs(pid, mounts):
    """-> {hierarchy: directory} of a process."""
    found = {}
    for line in read("/proc/%d/cgroup" % pid).decode().splitlines():
        _, key, path = line.split(":", 2)
        if key not in mounts:
            continue
        point, root = mounts[key]
        if root != "/" and path.startswith(root):
            path = path[len(root) :]
        found[key] = os.path.normpath(point + "/" + path)
    return found


def jail_dir(path):
    """The directory of a jail, of that of one of its steps (x/x.s1), which may be in none."""
    at, step = os.path.split(path)
    return at if step.startswith(os.path.basename(at) + ".s") else path


def cgroup_bases(runner):
    """-> {hierarchy: directory} under which the runner keeps the cgroups of its jails: the deepest
    directory that all of them have in common, or their parents when there is only one."""
    mounts = mounts_of_cgroups()
    _, jailed = family(runner)
    own = cgroup_dirs(runner, mounts)
    places = {}
    for pid in jailed:
        for key, path in cgroup_dirs(pid, mounts).items():
            if path != own.get(key) and path != mounts[key][0]:
                places.setdefault(key, set()).add(jail_dir(path))
    bases = {}
    for key, paths in places.items():
        base = os.path.commonpath(paths)
        if base in paths:
            base = os.path.dirname(base)
        if base != mounts[key][0]:
            bases[key] = base
    return bases


def tree(path):
    """All directories at and below `path`."""
    found = []
    for at, dirs, _ in os.walk(path):
        found.extend(os.path.join(at, one) for one in dirs)
    return found


def namespaces(pids, kind):
    """Names of the namespaces of a kind that `pids` are in or hold open by a descriptor."""
    found = set()
    for pid in pids:
        found.add(link("/proc/%d/ns/%s" % (pid, kind)))
        for fd in names("/proc/%d/fd" % pid):
            target = link("/proc/%d/fd/%s" % (pid, fd))
            if target.startswith(kind + ":["):
                found.add(target)
    found.discard("")
    return found


def descriptors(pid):
    """What a process has open, for people."""
    found = {}
    for number in names("/proc/%d/fd" % pid):
        found.setdefault(link("/proc/%d/fd/%s" % (pid, number)), []).append(number)
    return " ".join("%s=%s" % ("+".join(n), target) for target, n in sorted(found.items()))


def files(state):
    """Paths of everything in the state directory; the contents of images and logs are not run's,
    and what is made in advance is nobody's."""
    found = []
    for at, dirs, plain in os.walk(state):
        dirs[:] = [d for d in dirs if d not in ("rootfs", "log", "spare", "results", "audit")]
        if os.path.basename(at) == "blobs":
            # Contents are kept for the next sync; what is half there is not.
            dirs[:] = [d for d in dirs if d == "tmp"]
        # What administrators' commands did is written down for good.
        plain = [one for one in plain if not one.startswith("audit.cmd.")]
        found.extend(os.path.join(at, one) for one in dirs + plain)
    return sorted(found)


def loops(state):
    """Loop devices whose file lies in the state directory, removed ones too."""
    return sorted(
        name
        for name in names("/sys/block")
        if name.startswith("loop")
        and state.encode() in read("/sys/block/%s/loop/backing_file" % name)
    )


def ipc():
    """Objects on the host; those with the keys of canary.py belong to test runs."""
    found = []
    for kind in ("shm", "sem", "msg"):
        found.extend(
            line.split()[:2]
            for line in read("/proc/sysvipc/" + kind).decode().splitlines()[1:]
            if int(line.split()[0]) >> 20 != 0x500
        )
    return found


def mount_lines(pid="self"):
    # The first field is the id of the mount; the rest says what it is.
    return sorted(
        line.split(" ", 2)[2]
        for line in read("/proc/%s/mountinfo" % pid).decode("utf-8", "replace").splitlines()
        if TEST_MOUNT not in line
    )


def mount_points(pid="self"):
    """-> [(mount point, type)], without options: of the host, or as this process sees them."""
    found = []
    for line in read("/proc/%s/mountinfo" % pid).decode("utf-8", "replace").splitlines():
        left, _, right = line.partition(" - ")
        if TEST_MOUNT not in line:
            found.append((left.split()[4], right.split()[0]))
    return sorted(found)


def mounts_by_name(pid):
    """Unlike mount_lines() the same for the next runner, and each of several in one place counts."""
    points = mount_points(pid)
    return ["%s (%s), %d" % (*one, points[:at].count(one)) for at, one in enumerate(points)]


def descriptors_of_server(pid, table):
    """Without the socket to the helper for archives: that one is started when there is an archive,
    and ends when there was none for some minutes."""
    helper = any(
        read("/proc/%d/cmdline" % child).split(b"\0")[1:2] == [b"archives"]
        for child, (parent, _, _) in table.items()
        if parent == pid
    )
    return len(names("/proc/%d/fd" % pid)) - helper


def snapshot(pair, bases, marks):
    """Counts and lists that are the same before and after a run, in words as keys."""
    table = processes()
    host, jailed = family(pair.runner_pid, table)
    zombies = [
        pid
        for pid in descendants(pair.server_pid, table) + host + jailed
        if pid in table and table[pid][2] == "Z"
    ]
    seen = {
        "processes in jails": len(jailed),
        "processes of the runner": len(host),
        "zombies": len(zombies),
        "marked processes": sorted(pid for mark in marks for pid in marked(mark)),
        "mounts of the host": mount_lines(),
        "mounts of the runner": mounts_by_name(pair.runner_pid),
        "network namespaces": len(namespaces(host + jailed, "net")),
        "SysV IPC objects": ipc(),
        "loop devices": loops(pair.state),
        "files in the state directory": files(pair.state),
        "descriptors of the server": descriptors_of_server(pair.server_pid, table),
        "threads of the server": len(threads(pair.server_pid)),
        "descriptors of the runner": sum(len(names("/proc/%d/fd" % pid)) for pid in host),
        "threads of the runner": sum(len(names("/proc/%d/task" % pid)) for pid in host),
    }
    for key, base in bases.items():
        seen["cgroup directories (%s)" % (key or "v2")] = len(tree(base))
    return seen


def cpu_ticks(pid):
    with open("/proc/%d/stat" % pid) as file:
        fields = file.read().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def threads(pid):
    """Without the workers: a few of them are made when there is something to do, and stay."""
    at = "/proc/%d/task" % pid
    return [one for one in names(at) if read("%s/%s/comm" % (at, one)).strip() != b"worker"]


def differences(base, now):
    """-> [sentence]"""
    found = []
    for key, wanted in base.items():
        seen = now.get(key)
        if seen == wanted:
            continue
        if isinstance(wanted, list):
            more = [one for one in seen if one not in wanted]
            less = [one for one in wanted if one not in seen]
            if more or less:
                found.append("%s: new %s, gone %s" % (key, more[:5], less[:5]))
        else:
            found.append("%s: %s, at rest %s" % (key, seen, wanted))
    return found


def left_groups(bases):
    """-> the groups for jails that get what others leave. Some are kept ready for a moment, and the
    group with them, once who gives way has no more of them."""
    return [at for base in set(bases.values()) for at in tree(base)
            if os.path.basename(at) == "left" and os.path.exists(os.path.join(at, "cpu.idle"))]


def settle(take, seconds=10, still=0.15):
    """Takes snapshots until nothing changes for `still` seconds -> the last one."""
    end = time.monotonic() + seconds
    last, since = take(), time.monotonic()
    while time.monotonic() < end:
        time.sleep(0.03)
        now = take()
        if differences(last, now):
            last, since = now, time.monotonic()
        elif time.monotonic() - since >= still:
            return now
    return last

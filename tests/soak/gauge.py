"""What a soak measures of server and runner, and the rule by which it is called flat.

Two rules:
- Memory (Pss of the server, and of the runner with its shards) is judged while the load runs, in the
  long life without kills, its first third left out as warm-up: the Theil-Sen slope times the time it
  was watched may be at most SLACK (5 %) of the median, or 2 MiB where that is more.
- Everything that is counted is compared at quiet points, when no client asks for anything: after the
  warm-up, after the long life, and at the end. It must be what it was, or less.
"""

import statistics
import time

import clean

SLACK, LEAST = 0.05, 2 << 20

# In the order of the table. Of the last life, threads and descriptors are those of new processes.
COUNTED = (
    "descriptors of the server", "descriptors of the runner", "threads of the server",
    "threads of the runner", "processes in jails", "processes of the runner", "zombies",
    "network namespaces", "mount namespaces", "mounts of the host", "mounts of the runner",
    "loop devices", "SysV IPC objects", "cgroup directories",
)


def pss(pids):
    total = 0
    for pid in pids:
        for line in clean.read("/proc/%d/smaps_rollup" % pid).splitlines():
            if line.startswith(b"Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def count(pair, bases):
    """-> {what: number} of everything that can be counted, quickly."""
    table = clean.processes()
    host, jailed = clean.family(pair.runner_pid, table)
    server = pair.server_pid
    zombies = [p for p in clean.descendants(server, table) + host + jailed
               if p in table and table[p][2] == "Z"]
    return {
        "descriptors of the server": len(clean.names("/proc/%d/fd" % server)),
        "descriptors of the runner": sum(len(clean.names("/proc/%d/fd" % p)) for p in host),
        "threads of the server": len(clean.threads(server)),
        "threads of the runner": sum(len(clean.names("/proc/%d/task" % p)) for p in host),
        "processes in jails": len(jailed),
        "processes of the runner": len(host),
        "zombies": len(zombies),
        "network namespaces": len(clean.namespaces(host + jailed, "net")),
        "mount namespaces": len({clean.link("/proc/%d/ns/mnt" % p) for p in host + jailed}),
        "mounts of the host": len(clean.mount_lines()),
        "mounts of the runner": len(clean.mount_lines(pair.runner_pid)),
        "loop devices": len(clean.loops(pair.state)),
        "SysV IPC objects": len(clean.ipc()),
        "cgroup directories": sum(len(clean.tree(path)) for path in bases.values()),
    }


def sample(pair, bases, start):
    host, _ = clean.family(pair.runner_pid)
    return dict(count(pair, bases), at=time.time() - start,
                **{"server": pss([pair.server_pid]), "runner": pss(host)})


def quiet(pair, bases, seconds=20):
    """The state at rest: what stays the same for a second."""
    last, since, end = None, 0, time.monotonic() + seconds
    while time.monotonic() < end:
        now = count(pair, bases)
        if now != last:
            last, since = now, time.monotonic()
        elif time.monotonic() - since > 1:
            break
        time.sleep(0.1)
    return last


def slope(points):
    """Theil-Sen: the median of the slopes between all pairs of points."""
    step = max(1, len(points) // 200)
    points = points[::step]
    found = [(y2 - y1) / (x2 - x1) for i, (x1, y1) in enumerate(points)
             for x2, y2 in points[i + 1:] if x2 > x1]
    return statistics.median(found) if found else 0.0


def memory(samples, who, begun, ended):
    """-> {median, growth, allowed, flat} of the long life."""
    begun += (ended - begun) / 3
    points = [(s["at"], s[who]) for s in samples if begun <= s["at"] <= ended and s[who]]
    if len(points) < 5:
        return {"median": 0, "growth": 0, "allowed": 0, "flat": False, "seconds": 0}
    level = statistics.median(y for _, y in points)
    growth = slope(points) * (points[-1][0] - points[0][0])
    allowed = max(SLACK * level, LEAST)
    return {"median": level, "growth": growth, "allowed": allowed, "flat": growth <= allowed,
            "seconds": points[-1][0] - points[0][0]}


def more(first, now):
    """-> [sentence] of what has grown between two quiet points."""
    return ["%s: %d, was %d" % (key, now[key], first[key]) for key in COUNTED
            if now[key] > first[key]]


def percentile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * part))] if values else 0

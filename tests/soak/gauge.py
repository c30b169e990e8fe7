"""What a soak measures of server and runner, and the rule by which it is called flat.

What may not grow is looked at when no client asks for anything (quiet points): after the warm-up,
in the middle of the long life without kills, at its end, and in the end, after the kills.

- Everything that is counted must at each of them be what it was at the first, or less.
- Memory (Pss of the server, and of the runner with its shards): at the end of the long life it may
  be SLACK (5 %) more than in the middle of it, or LEAST (2 MiB) where that is more. Before that, caches
  and the results that are kept in memory fill up.

Under load memory follows the load: every upload that waits is held.
"""

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
    return dict(count(pair, bases), at=time.time() - start, **memory(pair))


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


def memory(pair):
    """-> {who: bytes}"""
    host, _ = clean.family(pair.runner_pid)
    return {"server": pss([pair.server_pid]), "runner": pss(host)}


def growth(middle, end, who):
    """-> (bytes that it has grown by, bytes that are allowed)"""
    return end[who] - middle[who], max(SLACK * middle[who], LEAST)


def more(first, now):
    """-> [sentence] of what has grown between two quiet points."""
    return ["%s: %d, was %d" % (key, now[key], first[key]) for key in COUNTED
            if now[key] > first[key]]


def percentile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * part))] if values else 0

"""What the kernel was told of how processors are divided."""

import os

import clean

USUAL = {"cpu.shares": 1024, "cpu.weight": 100}


def weights(runner, mark):
    """-> the weights of the jails of all processes with this mark, each as a part of a usual one's."""
    mounts, found = clean.mounts_of_cgroups(), {}
    bases = set(clean.cgroup_bases(runner).values())
    for pid in clean.marked(mark):
        for at in clean.cgroup_dirs(pid, mounts).values():
            while at not in bases and os.path.dirname(at) not in bases and len(at) > 1:
                at = os.path.dirname(at)
            for name, usual in USUAL.items():
                text = clean.read(os.path.join(at, name)).strip()
                if text:
                    found[at] = int(text) / usual
    return sorted(found.values())


def about(seen, wanted):
    # cpu.weight is a whole number of hundredths.
    return len(seen) == len(wanted) and all(abs(a - b) < 0.011 for a, b in zip(seen, wanted))

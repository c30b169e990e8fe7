"""What the kernel was told of how processors are divided."""

import glob
import os

import clean

USUAL = {"cpu.shares": 1024, "cpu.weight": 100}


def weight_of(at):
    """-> {at: its weight, as a part of a usual one's}, or nothing."""
    texts = [(clean.read(os.path.join(at, name)).strip(), usual) for name, usual in USUAL.items()]
    return {at: int(text) / usual for text, usual in texts if text}


def idle_of(at):
    """-> {at: does it only get what others leave?}, or nothing: Linux before 5.15."""
    text = clean.read(os.path.join(at, "cpu.idle")).strip()
    return {at: int(text) == 1} if text else {}


def weights(runner, mark):
    """-> the weights of the jails of all processes with this mark."""
    return sorted(of_jails(runner, mark, weight_of).values())


def idles(runner, mark):
    """-> the same, with idle_of()."""
    return sorted(of_jails(runner, mark, idle_of).values())


def left_groups(runner):
    """-> the groups for jails that get what others leave: {at: (idle, weight)}."""
    found = {}
    for base in clean.cgroup_bases(runner).values():
        for at in glob.glob(os.path.join(base, "left")) + glob.glob(os.path.join(base, "*", "left")):
            if idle_of(at):
                found[at] = (idle_of(at)[at], weight_of(at)[at])
    return found


def in_left_group(runner, mark):
    """-> for each jail of processes with this mark: is it in there?"""
    return sorted(os.path.basename(os.path.dirname(at)) == "left"
                  for at in of_jails(runner, mark, idle_of))


def of_jails(runner, mark, what):
    mounts, found = clean.mounts_of_cgroups(), {}
    bases = set(clean.cgroup_bases(runner).values())
    bases |= {os.path.join(base, "left") for base in bases}
    for pid in clean.marked(mark):
        for at in clean.cgroup_dirs(pid, mounts).values():
            while at not in bases and os.path.dirname(at) not in bases and len(at) > 1:
                at = os.path.dirname(at)
            found.update(what(at))
    return found


def about(seen, wanted):
    # cpu.weight is a whole number of hundredths.
    return len(seen) == len(wanted) and all(abs(a - b) < 0.011 for a, b in zip(seen, wanted))

"""Drives tests/fault/inject.c: which system call of which part of a runner fails, and what was
called."""

import mmap
import os
import signal
import struct
import subprocess
import time

import clean

HERE = os.path.dirname(os.path.abspath(__file__))
ROLES = ("supervisor", "shard", "birth", "init", "child", "layers", "worker")
HEAD = struct.Struct("=IIIIiIIII")
CALL = struct.Struct("=IIII")
LOG = 65536
GENERATION, ROLE, RECORD, HIT, TRACED, CALLS = 0, 4, 20, 24, 28, 32


def names():
    """-> {number: name} of this machine's system calls"""
    import seccomp

    found = {}
    for number in range(512):
        try:
            name = seccomp.resolve_syscall(seccomp.Arch(), number)
        except ValueError:  # none has this number
            continue
        found[number] = name.decode() if isinstance(name, bytes) else name
    return found


def build(directory):
    program = os.path.join(directory, "inject")
    source = os.path.join(HERE, "inject.c")
    flags = ["-std=gnu17", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["gcc"] + flags + ["-o", program, source], check=True)
    return program


class Injector:
    """Follows a runner and all that it starts until it is closed, or the runner ends."""

    def __init__(self, directory, runner, program=None):
        self.path = os.path.join(directory, "plan-%d" % runner)
        with open(self.path, "wb") as out:
            out.truncate(HEAD.size + CALL.size * LOG)
        self.file = open(self.path, "r+b")
        self.plan = mmap.mmap(self.file.fileno(), 0)
        self.process = subprocess.Popen(
            [program or build(directory), self.path, str(runner)], stdin=subprocess.DEVNULL
        )
        end = time.monotonic() + 10
        while not self.word(TRACED):
            if self.process.poll() is not None or time.monotonic() > end:
                self.close()
                raise AssertionError("the runner cannot be followed")
            time.sleep(0.01)

    def word(self, at):
        return struct.unpack_from("=I", self.plan, at)[0]

    def set(self, role, number, nth, error, record):
        struct.pack_into("=IIIiII", self.plan, ROLE, role, number, nth, error, record, 0)
        struct.pack_into("=I", self.plan, CALLS, 0)
        struct.pack_into("=I", self.plan, GENERATION, self.word(GENERATION) + 1)

    def record(self):
        """From now on every call is written down."""
        self.set(0, 0, 0, 0, 1)

    def arm(self, role, number, nth, error):
        """The nth such call from now on fails with this errno; 0 kills the process instead."""
        self.set(role, number, nth, error, 0)

    def disarm(self):
        """-> did it happen?"""
        hit = self.word(HIT)
        self.set(0, 0, 0, 0, 0)
        return hit

    def log(self):
        """-> [(role, number, nth, site)] since record()"""
        return [
            CALL.unpack_from(self.plan, HEAD.size + i * CALL.size) for i in range(self.word(CALLS))
        ]

    def close(self):
        """Lets go of everything: the kernel does when the injector ends."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.plan.close()
        self.file.close()


def is_followed(pid):
    return b"\nTracerPid:\t0\n" not in clean.read("/proc/%d/status" % pid)

"""How long /healthz takes, asked from a process of its own.

A machine that others keep busy says nothing about the server, so beside each answer stand two more
times: the same without what the server's thread and the probe itself waited for a processor, and
what a process took at the same moment that does nothing but echo. How many others wanted a
processor is counted before it begins."""

import os
import socket
import time

import clean
from apart import Apart
from check import true


def percentile(values, part):
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def waited(pid):
    """Seconds that the main thread of a process has waited for a processor, so far."""
    fields = clean.read("/proc/%d/task/%d/schedstat" % (pid, pid)).split()
    return int(fields[1]) / 1e9 if len(fields) > 1 else 0.0


def others(samples=25):
    """How many processes wanted a processor beside this one, on average, in a quarter of a second."""
    running = 0
    for _ in range(samples):
        running += max(0, int(clean.read("/proc/loadavg").split()[3].partition(b"/")[0]) - 1)
        time.sleep(0.01)
    return running / samples


def echo():
    """-> a socket at whose other end a process sends back what it gets, until it is closed."""
    near, far = socket.socketpair()
    if os.fork() == 0:
        near.close()
        while True:
            data = far.recv(16)
            if not data:
                os._exit(0)
            far.sendall(data)
    far.close()
    return near


class Probe:
    """Asks again and again on one connection, until end()."""

    def __init__(self, client, server_pid):
        self.client, self.server_pid = client, server_pid
        self.whole, self.own, self.bare = [], [], []
        self.others = others()
        self.apart = Apart(self.ask)

    def ask(self, over):
        near, times, me = echo(), [[], [], []], os.getpid()
        while not over(0.002):
            begun = time.monotonic()
            near.sendall(b"well?")
            near.recv(16)
            bare = time.monotonic() - begun
            before = waited(self.server_pid) + waited(me)
            begun = time.monotonic()
            status = self.client.get("/healthz").status
            took = time.monotonic() - begun
            true(status == 200, "/healthz answered %d", status)
            own = max(0.0, took - max(0.0, waited(self.server_pid) + waited(me) - before))
            for one, value in zip(times, (took, own, bare)):
                one.append(value)
        near.close()
        return times

    def end(self):
        self.whole, self.own, self.bare = self.apart.end()
        return self

    def said(self):
        names = ("healthz", "without the wait for a processor", "bare")
        return ", ".join("%s p95 %.1f, p99 %.1f, most %.1f ms" % (
            name, 1000 * percentile(one, 0.95), 1000 * percentile(one, 0.99), 1000 * max(one))
            for name, one in zip(names, (self.whole, self.own, self.bare))
        ) + ", %.1f others" % self.others

    def below(self, part, seconds, asked):
        """Fails unless it was asked so often and that part of the answers came within so many
        seconds. A jail that keeps the server from its turn is the server's fault, a busy machine is
        not: each of the others may take as much again, and what the echo took is granted. Without
        the wait for a processor nothing is."""
        true(len(self.whole) >= asked, "healthz answered only %d times", len(self.whole))
        granted = seconds * self.others + 2 * percentile(self.bare, part)
        true(percentile(self.own, part) < seconds and
             percentile(self.whole, part) < seconds + granted, self.said())

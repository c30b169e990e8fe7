"""The two programs as their systemd units start them: with the capabilities, system calls, address
families and writable files that the units leave them, and no others."""

import os
import re

import check
import clean
import confine
import harness
from box import Box, status
from suite import test

UNITS = os.path.join(os.path.dirname(harness.POLICIES), "deploy", "systemd")
RUNNER = os.path.join(UNITS, "pinfold-runner.service")
SERVER = os.path.join(UNITS, "pinfold-server.service")


def prefix(unit, pair):
    here = os.path.dirname(os.path.abspath(__file__))
    return ["/usr/bin/python3", os.path.join(here, "confine.py"), unit, pair.work]


def confined():
    """A pair whose programs are confined by their units."""
    pair = harness.Pair(slots=4, warm=1)
    pair.runner_prefix = prefix(RUNNER, pair)
    pair.server_prefix = prefix(SERVER, pair)
    return pair


def capabilities(pid, which):
    text = clean.read("/proc/%d/status" % pid).decode()
    mask = int(re.search(r"^%s:\s+(\w+)$" % which, text, re.M)[1], 16)
    return {name for bit, name in enumerate(confine.CAPABILITIES) if mask >> bit & 1}


def use_runs(client):
    check.ok(client.run(sh="echo $((6 * 7)); cat /proc/self/status >/dev/null"))
    check.ended(client.run(argv=["sleep", "9"], limits={"wall_ms": 100}), "wall_time")
    check.ended(
        client.run(
            argv=["python3", "-c", "x = bytearray(10**9)"], limits={"mem_bytes": 64 << 20}
        ),
        "memory",
    )
    # What a filter of the runner's unit could take from programs in jails.
    check.ok(
        client.run(
            sh="mkdir d && chmod 2775 d && test -g d && setarch -R true && "
            "python3 -c 'import socket, mmap; socket.create_server((\"::1\", 0), family=socket.AF_INET6); "
            "mmap.mmap(-1, 4096, prot=7)'"
        )
    )


def use_sandbox(client, disk):
    """Snapshots with a command running and without one, a restore, a start from one, a terminal."""
    made = []
    fill = "mkdir s && chmod 2775 s && echo one >s/f && chmod 600 s/f"
    look = "stat -c %a s; cat s/f"
    with Box.make(client, disk=disk) as first:
        check.ok(first.sh(fill))
        made.append(first.snapshot())
        # What has changed while something runs is copied, file by file.
        first.background(sh="sleep 60")
        check.ok(first.sh("mkdir u && chmod 2775 u && echo x >u/x && chmod 2755 u/x"))
        made.append(first.snapshot())
        check.ok(first.sh("rm -r s"))
        status(first.restore(made[0]["id"]), 200, 204)
        check.equal(first.text(look), "2775\none\n", "restored")
        with Box.make(client, disk=disk, **{"from": made[1]["id"]}) as second:
            check.equal(second.text(look), "2775\none\n", "in the sandbox made from it")
            check.equal(second.text("stat -c %a u u/x"), "2775\n2755\n", "modes of what was copied")
            check.holds(check.text(second.sh("tty", pty={"rows": 24, "cols": 80})), "/dev/pts/", "its terminal")
            second.put("/workspace/t", b"two")
            check.equal(second.content("/workspace/t"), b"two", "a file")
    for one in made:
        status(client.delete("/v1/snapshots/" + one["id"]), 204)


@test("the runner and the server work with what their units leave them", own=True, deadline=40)
def _(_):
    with confined() as pair:
        unit = confine.settings(RUNNER)
        wanted = {name.lower()[4:] for name in unit["CapabilityBoundingSet"][-1].split()}
        for pid in [pair.runner_pid] + pair.shard_pids():
            check.equal(capabilities(pid, "CapEff"), wanted, "capabilities of the runner")
        check.equal(capabilities(pair.server_pid, "CapBnd"), set(), "bounding set of the server")
        use_runs(pair.client)
        for disk in ("memory", "file"):
            use_sandbox(pair.client, disk)
        pair.stop()

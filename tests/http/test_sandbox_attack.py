"""What a hostile program or client tries on sandboxes, and what must not come of it."""

import check
from box import MIB, Box, forget, status
from check import Stopwatch
from suite import test

DEEP = "import os\nfor i in range(%d):\n    os.mkdir('d')\n    os.chdir('d')\n"


@test("a tree of 6,000 levels can be removed in little memory", deadline=60)
def _(pair):
    with Box.make(pair.client, limits={"mem_bytes": 32 * MIB}) as box:
        check.ok(box.python(DEEP % 6000))
        status(box.remove("workspace/d", recursive=True), 204)
        check.equal(box.text("ls -A"), "", "what is left")


@test("a snapshot that stands on a deleted one counts for what it holds")
def _(pair):
    box = Box.make(pair.client)
    # Directories count where they are blocks of a disk.
    least = 0 if box.get()["disk"] == "memory" else 64 * 1024
    try:
        check.ok(box.sh("head -c 8M /dev/zero > big"))
        first = box.snapshot("first")
        second = box.snapshot("second")
    finally:
        box.delete()
    try:
        check.within(8 * MIB, first["added_bytes"], 9 * MIB, "what the first has added")
        check.within(0, second["added_bytes"], least, "what the second has added")
        forget(pair.client, first)
        left = status(pair.client.get("/v1/snapshots/" + second["id"]), 200).json()
        check.within(8 * MIB, left["added_bytes"], 9 * MIB, "what is left on its account")
    finally:
        forget(pair.client, second)


TRACER = """
import ctypes, os, time
libc = ctypes.CDLL(None)
while True:
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/comm" % name) as file:
                if file.read() == "sleep\\n" and libc.ptrace(0x4206, int(name), 0, 0) == 0:
                    print("seized", flush=True)
        except OSError:
            pass
    time.sleep(0.002)
"""


@test("whoever traces a command of another execution does not keep it from ending", deadline=40)
def _(pair):
    with Box.make(pair.client) as box:
        tracer = box.background(argv=["/usr/bin/python3", "-c", TRACER], limits={"wall_ms": 30000})
        try:
            watch = Stopwatch()
            check.ok(box.run(argv=["sleep", "2"]))
            check.within(2, watch.seconds(), 12, "seconds until its end was told")
            check.true("seized" in box.seen(tracer).decode(), "it was traced")
            check.equal(box.text("echo on"), "on\n", "what comes next")
        finally:
            box.cancel(tracer)

"""Nothing survives its run, and nothing piles up. (After every test the pair must be clean
anyway.)"""

import time

import check
import clean
from check import Stopwatch
from client import parallel
from suite import test

MIB = 1 << 20

DAEMON = """
import os, sys, time
if os.fork(): sys.exit(0) if len(sys.argv) < 2 else time.sleep(60)
os.setsid()
if os.fork(): os._exit(0)
for fd in range(3): os.close(fd)
while True:
    open('/tmp/beat', 'w').write(str(time.time()))
    time.sleep(0.02)
"""


@test("a daemon ends with its run", case=149)
def _(pair):
    answer = pair.client.run(argv=["python3", "-c", DAEMON])
    check.ended(answer, "exit")
    check.eventually(lambda: not clean.marked(pair.client.mark), 1, "no heartbeat after the answer")
    check.true(
        answer["steps"][0]["usage"]["stragglers_killed"] >= 1,
        "no straggler counted: %s",
        check.step(answer),
    )


@test("a daemon ends with a run that times out", case=149)
def _(pair):
    answer = pair.client.run(argv=["python3", "-c", DAEMON, "stay"], limits={"wall_ms": 600})
    check.ended(answer, "wall_time")
    check.eventually(lambda: not clean.marked(pair.client.mark), 1, "no heartbeat after the answer")


@test("ignored signals do not keep a program alive", case=150)
def _(pair):
    answer = pair.client.sh(
        "trap '' TERM INT HUP QUIT; while :; do sleep 1; done", limits={"wall_ms": 700}
    )
    check.ended(answer, "wall_time")
    check.within(700, answer["steps"][0]["usage"]["wall_ms"], 1200, "wall_ms")


FORKER = r"""
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    char name[16];
    (void)argc;
    for (unsigned i = 0;; i++) {
        setsid();
        snprintf(name, sizeof(name), "p%u", i);
        prctl(PR_SET_NAME, name);
        memset(argv[0], 'a' + i % 26, strlen(argv[0]));
        int a = fork(), b = a == 0 ? 0 : fork();
        if (a > 0 && b > 0)
            _exit(0);
        if (a < 0)
            sched_yield();
    }
}
"""


@test("a forker that changes its name and session is caught whole", case=151, deadline=25)
def _(pair):
    answer = pair.client.run(
        files=[{"path": "f.c", "content": FORKER}],
        policy="ci",
        limits={"pids": 200, "wall_ms": 1200},
        steps=[
            {"argv": ["gcc", "-O1", "-w", "f.c", "-o", "f"], "limits": {"wall_ms": 10000}},
            {"sh": "./f & ./f & ./f & ./f & sleep 100"},
        ],
    )
    check.ended(answer, "wall_time", 1)
    pair.check_clean(1)


KINDS = [
    {"argv": ["/bin/true"]},
    {"sh": "exit 3"},
    {"argv": ["/no/such"]},
    {"sh": "kill -9 $$"},
    {"sh": "sleep 9", "limits": {"wall_ms": 30}},
    {"sh": "while :; do :; done", "limits": {"cpu_ms": 30}},
    {"argv": ["head", "-c", "20000000", "/dev/zero"], "limits": {"output_bytes": 100}},
    {"argv": ["tail", "/dev/zero"], "limits": {"mem_bytes": 12 * MIB}},
    {"sh": "sleep 100 & exit 0"},
    {"steps": [{"sh": "true"}, {"sh": "false"}, {"sh": "true"}]},
    {"argv": ["cat"], "stdin": "x" * 300000},
    {"sh": "echo x > f", "collect": ["f", "g"]},
    {"argv": ["true"], "policy": "judge"},
    {"argv": ["true"], "cwd": "/no/such"},
]


@test("600 runs of mixed kinds leave nothing", case="152, 158", deadline=60)
def _(pair):
    before, runner = pair.memory(), pair.memory("runner")

    def one(index):
        for turn in range(75):
            kind = KINDS[(index + turn) % len(KINDS)]
            answer = pair.client.run(
                **dict(kind, limits=dict({"wall_ms": 30000}, **kind.get("limits", {})))
            )
            check.equal(answer["state"], "done", "state")
            check.true(
                answer["steps"][0]["end"]["cause"] not in ("internal", "interrupted"),
                "%s",
                check.step(answer),
            )

    parallel(8, one, 55)
    pair.check_clean(1)
    check.true(
        pair.memory("runner") - runner < 5 << 20,
        "the runner grew by %d bytes",
        pair.memory("runner") - runner,
    )
    # Results of the last 1,000 runs stay in memory on purpose.
    check.true(
        pair.memory() - before < 60 << 20, "the server grew by %d bytes", pair.memory() - before
    )


@test("short runs do not get slower, and no zombie or thread stays", case="158, 160", alone=True, deadline=60)
def _(pair):
    def burst(count):
        times = []

        def one(_):
            mine = []
            for _ in range(count // 16):
                watch = Stopwatch()
                check.ok(pair.client.run(argv=["/bin/true"], limits={"wall_ms": 300000}))
                mine.append(watch.seconds())
            times.extend(mine)

        parallel(16, one, 50)
        return sorted(times)

    first = burst(160)
    for _ in range(5):
        last = burst(160)
    check.true(
        last[len(last) // 2] < 3 * first[len(first) // 2] + 0.02,
        "median %.4f s, then %.4f s",
        first[len(first) // 2],
        last[len(last) // 2],
    )
    check.within(0, last[int(len(last) * 0.99)], 1.5, "p99 in seconds")
    zombies = [
        pid
        for pid, row in clean.processes().items()
        if row[2] == "Z" and row[0] in (pair.server_pid, pair.runner_pid)
    ]
    check.equal(zombies, [], "zombies")


@test("a warm jail is used once", case=100)
def _(pair):
    seen = set()
    for _ in range(40):
        answer = check.ok(
            pair.client.sh(
                "ls -A /workspace /tmp /home/user | grep -c left; touch /workspace/left "
                "/tmp/left /home/user/left; readlink /proc/self/ns/pid; "
                "stat -c %.Z /var/tmp"
            )
        )
        count, space, made = check.lines(answer)
        check.equal(count, "0", "files of an earlier run")
        seen.add((space, made))  # the number of one that is gone is given out again
    check.true(len(seen) >= 38, "few jails: %d of 40", len(seen))


@test("nothing is carried over in the network namespace", case=160)
def _(pair):
    left = (
        "import socket\nfor f, a in ((2, '127.0.0.1'), (10, '::1')):\n"
        " s = socket.socket(f); s.bind((a, 8080)); s.listen(); c = socket.create_connection((a, "
        "8080))\n"
        " t, _ = s.accept(); c.close(); t.close()\n"
        "try: open('/proc/sys/net/ipv4/ip_default_ttl', 'w').write('9')\nexcept OSError: pass\n"
        "try: open('/proc/sys/net/ipv4/ip_unprivileged_port_start', 'w').write('1')\n"
        "except OSError: pass\n"
        "print('left')"
    )
    look = (
        "import socket\nprint(sum(len(open('/proc/net/' + n).readlines()) - 1 for n in ('tcp', "
        "'tcp6', 'udp', 'udp6')))\n"
        "print(open('/proc/sys/net/ipv4/ip_default_ttl').read().strip())\n"
        "s = socket.socket(); s.bind(('127.0.0.1', 8080)); print('bound')"
    )
    for _ in range(20):
        check.ok(pair.client.python(left))
        check.equal(
            check.lines(check.ok(pair.client.python(look))),
            ["0", "64", "bound"],
            "sockets, ttl, bind in a later run",
        )


@test("no zombies pile up in a long step", case=157)
def _(pair):
    answer = check.ok(
        pair.client.sh(
            "for i in {1..300}; do (sleep 0.01 &); done; sleep 0.3; "
            "for p in /proc/[0-9]*/stat; do read -r x < $p && [[ $x == *') Z '* ]] && echo "
            "zombie; done 2>/dev/null; "
            "echo end",
            limits={"pids": 64},
        )
    )
    check.equal(check.text(answer), "end\n", "stdout")


@test("the host's mount table is the same while jails are running", case=97)
def _(pair):
    before = clean.mount_lines()
    runs = [pair.client.submit(sh="sleep 20") for _ in range(5)]
    for run in runs:
        pair.client.wait_state(run, ("running",))
    check.equal(clean.mount_lines(), before, "mounts of the host during the runs")
    for run in runs:
        pair.client.delete("/v1/runs/" + run)
    for run in runs:
        pair.client.wait_done(run, 3)


@test("a hundred cancels in the middle of everything leave nothing", deadline=30)
def _(pair):
    def one(index):
        for turn in range(12):
            run = pair.client.submit(
                sh="sleep 100 & head -c 100000 /dev/zero; sleep 100",
                files=[{"path": "f", "content": "x" * 1000}],
                collect=["**"],
            )
            end = time.monotonic() + (index * 12 + turn) % 10 * 0.002
            while time.monotonic() < end:
                pass
            pair.client.delete("/v1/runs/" + run)
            answer = pair.client.wait_done(run, 5)
            causes = {s["end"]["cause"] for s in answer["steps"] if s.get("end")}
            check.true(causes <= {"cancelled"}, "causes: %s", causes)

    parallel(8, one)

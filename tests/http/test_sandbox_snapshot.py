"""Snapshots, restore, forks, the history of a run's steps; layers that go when nobody needs them."""

import check
import clean
import harness
from box import MIB, SANDBOXES, Box, create, forget, rows, status
from check import Stopwatch
from client import nonce, parallel
from suite import Skip, table, test

SNAPSHOTS = "/v1/snapshots"


def start_from(pair, snapshot, **more):
    return Box.make(pair.client, **dict(more, **{"from": snapshot["id"]}))


def shmem_kb():
    with open("/proc/meminfo") as file:
        return {line.split(":")[0]: int(line.split()[1]) for line in file}["Shmem"]


def only_in_memory(pair):
    """Where the kernel can only keep what is in files there is no memory to look at, and a file
    system is made for each sandbox."""
    with Box.make(pair.client) as box:
        if box.get()["disk"] != "memory":
            raise Skip("snapshots are in disk files here: this kernel cannot map the ids of a tmpfs")


def tree(box):
    """What is writable and kept, as text: types, modes, targets, sizes, sums."""
    return box.text(
        "cd /; for d in workspace home/user var/tmp; do find $d -mindepth 1 -printf "
        "'%p %y %m %l %n\\n' | sort; find $d -type f -readable -exec sha256sum {} + | sort; done"
    )


FILL = ("echo one > f; mkdir -p d/e; echo two > d/e/g; ln -s ../f d/l; ln f d/hard; chmod 750 d/e; "
        "chmod 600 f; mkfifo d/p; touch -d 2001-02-03 d/old; printf '\\377' > \"d/$(printf '\\351')\"; "
        "echo home > ~/h; echo var > /var/tmp/v; echo tmp > /tmp/t; echo shm > /dev/shm/s; "
        "mkdir empty; truncate -s 100M sparse")


@test("a snapshot holds everything writable but /tmp and /dev/shm, and starts another sandbox")
def _(pair):
    with Box.make(pair.client) as box:
        check.ok(box.sh(FILL))
        wanted = tree(box)
        made = box.snapshot("first")
        try:
            check.true(made["files"] >= 10, "files: %r", made)
            check.within(1, made["bytes"], 8 * MIB, "bytes (100 MB of holes are none)")
            listed = rows(status(pair.client.get(SNAPSHOTS), 200).json())
            one = [s for s in listed if s["id"] == made["id"]]
            check.equal([s.get("name") for s in one], ["first"], "name in the list")
            check.equal(tree(box), wanted, "the sandbox itself")
            check.equal(box.text("cat /tmp/t /dev/shm/s"), "tmp\nshm\n", "what is not kept")
            with start_from(pair, made) as copy:
                check.equal(tree(copy), wanted, "a sandbox made of it")
                check.equal(copy.text("ls -A /tmp /dev/shm | grep -v : | wc -w"), "0\n",
                            "/tmp and /dev/shm")
                check.equal(copy.text("echo x >> f; rm -r d; ls; cat f"),
                            "empty\nf\nsparse\none\nx\n", "it can be written")
                check.equal(copy.text("stat -c %U:%G f; rm f; touch new; stat -c %U new"),
                            "user:user\nuser\n", "owners")
            check.equal(tree(box), wanted, "the first is as it was")
        finally:
            forget(pair.client, made)


@test("restore brings back what was, in place: contents, deletions, modes, links")
def _(pair):
    with Box.make(pair.client) as box:
        check.ok(box.sh(FILL))
        wanted = tree(box)
        made = box.snapshot()
        check.ok(box.sh("echo changed > f; rm -r d; chmod 777 empty; rmdir empty; echo more > new; "
                        "rm ~/h; mkdir d; echo other > d/e; rm sparse; ln -s nowhere sparse"))
        status(box.restore(made["id"]), 200, 204)
        check.equal(tree(box), wanted, "after the restore")
        check.ok(box.sh("rm -rf /workspace/* ~/h"))
        status(box.restore(made["id"]), 200, 204)
        check.equal(tree(box), wanted, "after another")
        check.equal(box.content("/workspace/d/e/g"), b"two\n", "a file by HTTP")
        forget(pair.client, made)


@test("restore ends what runs as cancelled, and the next command works")
def _(pair):
    with Box.make(pair.client) as box:
        box.put("/workspace/f", b"old")
        made = box.snapshot()
        ex = box.start(sh="exec 3>>f; echo up; while :; do echo new >&3; sleep 0.02; done")
        box.wait_output(ex, b"up")
        status(box.restore(made["id"]), 200, 204)
        check.ended(box.wait_done(ex, 2), "cancelled")
        check.equal(box.text("cat f; pwd; ls"), "old/workspace\nf\n", "afterwards")
        forget(pair.client, made)


@test("restore to each of several snapshots, forwards and backwards")
def _(pair):
    with Box.make(pair.client) as box:
        made = []
        for i in range(5):
            check.ok(box.sh("echo %d > n; touch only%d; rm -f only%d" % (i, i, i - 1)))
            made.append(box.snapshot("s%d" % i))
        for i in (4, 0, 3, 1, 2, 2):
            status(box.restore(made[i]["id"]), 200, 204)
            check.equal(box.text("cat n; ls only*"), "%d\nonly%d\n" % (i, i), "snapshot %d" % i)
        forget(pair.client, *made)


@test("a snapshot while processes write is of one moment, and they go on", deadline=30)
def _(pair):
    # Two files are written in turn: at no moment is the second ahead of the first.
    script = ("i=0; echo up; while :; do i=$((i+1)); echo $i > a.new; mv a.new a; echo $i > b.new; "
              "mv b.new b; done")
    with Box.make(pair.client) as box:
        ex = box.start(sh=script, limits={"wall_ms": 60000, "cpu_ms": 60000})
        box.wait_output(ex, b"up")
        check.eventually(lambda: box.read("/workspace/b").status == 200, 3, "both files")
        made = [box.snapshot() for _ in range(5)]
        first = box.content("/workspace/b")
        check.eventually(lambda: box.content("/workspace/b") != first, 3, "it goes on")
        check.equal(box.fetch(ex)["state"], "running", "state")
        last = 0
        for one in made:
            with start_from(pair, one) as copy:
                a, b = map(int, copy.text("cat a b").split())
                check.true(b <= a <= b + 1, "a is %d, b is %d", a, b)
                check.true(a >= last, "an older state: %d after %d", a, last)
                last = a
        box.cancel(ex)
        forget(pair.client, *made)


@test("an open file that is written through a snapshot stays the program's own", deadline=20)
def _(pair):
    script = ("import time, os\nf = open('log', 'a')\nos.unlink('log') if os.path.exists('gone') "
              "else None\nprint('up', flush=True)\nfor i in range(200):\n f.write('%d\\n' % i); "
              "f.flush(); time.sleep(0.02)")
    with Box.make(pair.client) as box:
        ex = box.start(argv=["python3", "-c", script])
        box.wait_output(ex, b"up")
        made = [box.snapshot() for _ in range(3)]
        check.ok(box.wait_done(ex, 12))
        check.equal(box.text("wc -l < log; tail -1 log"), "200\n199\n", "the log")
        forget(pair.client, *made)


@test("a fork is as many sandboxes as asked for, each with the files and nothing else in common",
      deadline=30)
def _(pair):
    with Box.make(pair.client, metadata={"a": "b"}, limits={"pids": 30}) as box:
        check.ok(box.sh(FILL))
        wanted = tree(box)
        running = box.start(sh="sleep 60")
        made = box.fork(4)
        try:
            check.equal(len({one.id for one in made} | {box.id}), 5, "ids")
            for i, one in enumerate(made):
                check.equal(tree(one), wanted, "files of fork %d" % i)
                check.equal(one.get()["limits"]["pids"]["value"], 30, "limits.pids")
                check.equal(one.text("ls /proc | grep -c '^[0-9]'").strip() < "9", True, "processes")
                check.ok(one.sh("echo %d > mine; echo %d > f" % (i, i)))
            for i, one in enumerate(made):
                check.equal(one.text("cat mine f"), "%d\n%d\n" % (i, i), "own files")
            check.equal(tree(box), wanted, "the first")
            check.equal(box.fetch(running)["state"], "running", "what ran in the first")
            deeper = made[0].fork(2)
            for one in deeper:
                check.equal(one.text("cat mine"), "0\n", "a fork of a fork")
                one.delete()
        finally:
            for one in made:
                one.delete()
        check.equal(tree(box), wanted, "the first, when the forks are gone")
        box.cancel(running)


@test("a fork outlives what it was made of", deadline=20)
def _(pair):
    box = Box.make(pair.client)
    check.ok(box.sh(FILL))
    wanted = tree(box)
    made = box.fork(2)
    box.delete()
    for one in made:
        check.equal(tree(one), wanted, "files")
        check.ok(one.sh("echo x >> f; rm -r d"))
        one.delete()
    pair.check_clean(2)


BAD_FORKS = [("count of 0", {"count": 0}), ("a negative count", {"count": -1}),
             ("a count as text", {"count": "2"}), ("a million", {"count": 1000000}),
             ("no body", {"x": 1})]


def bad_fork(pair, body):
    with Box.make(pair.client) as box:
        check.error(pair.client.post(box.path + "/fork", body), (400, 403, 429))
        check.equal(len([o for o in rows(pair.client.get(SANDBOXES).json())
                         if o["state"] != "gone"]), 1, "sandboxes")


table([("no fork: %s" % name, 127, body) for name, body in BAD_FORKS], bad_fork)


BAD_SNAPSHOTS = [("a name as a number", {"name": 1}, "/name"),
                 ("a name of 1,000 letters", {"name": "x" * 1000}, "/name"),
                 ("a name with a line end", {"name": "a\nb"}, "/name"),
                 ("an unknown field", {"nam": "x"}, "/nam")]


def bad_snapshot(pair, body, field):
    with Box.make(pair.client) as box:
        check.error(pair.client.post(box.path + "/snapshots", body), 400, field=field)


table([("no snapshot with %s" % row[0], "128, 148") + row[1:] for row in BAD_SNAPSHOTS],
      bad_snapshot)


@test("a snapshot that is deleted is gone for new uses, and what stands on it goes on")
def _(pair):
    with Box.make(pair.client) as box:
        check.ok(box.sh(FILL))
        wanted = tree(box)
        made = box.snapshot()
        with start_from(pair, made) as copy:
            forget(pair.client, made)
            check.error(pair.client.delete(SNAPSHOTS + "/" + made["id"]), 404)
            check.error(create(pair.client, **{"from": made["id"]}), 404, field="/from")
            check.error(box.restore(made["id"]), 404)
            check.equal(tree(copy), wanted, "the copy")
            check.equal(tree(box), wanted, "the first")
            check.ok(copy.sh("echo more > more; rm f"))
        check.equal(tree(box), wanted, "the first")
    check.lacks(pair.client.get(SNAPSHOTS).body.decode(), made["id"], "the list")
    pair.check_clean(2)


@test("many snapshots are merged before the kernel's limit, and all stay usable", deadline=60)
def _(pair):
    count = 45
    with Box.make(pair.client) as box:
        made = []
        for i in range(count):
            check.ok(box.sh("echo %d > n; echo %d > f%d; rm -f f%d" % (i, i, i, i - 3)))
            made.append(box.snapshot())
        check.equal(box.text("cat n; ls f*; grep -c overlay /proc/self/mountinfo"
                             " >/dev/null; echo"),
                    "%d\n%s\n\n" % (count - 1, "\n".join(sorted("f%d" % i for i in
                                                                 range(count - 3, count)))),
                    "the live files")
        for i in (0, 1, 31, 32, 33, count - 1):
            with start_from(pair, made[i]) as copy:
                wanted = sorted("f%d" % k for k in range(max(0, i - 2), i + 1))
                check.equal(copy.text("cat n; ls f*").split(), [str(i)] + wanted, "snapshot %d" % i)
                check.ok(copy.sh("rm f*; echo x > n"))
        for one in made[::2]:
            forget(pair.client, one)
        status(box.restore(made[33]["id"]), 200, 204)
        check.equal(box.text("cat n"), "33\n", "restored")
        forget(pair.client, *made[1::2])
    pair.check_clean(3)


def disk_cap(pair, disk):
    """What a snapshot holds counts for whoever stands on it, in each fork anew."""
    with Box.make(pair.client, disk=disk, limits={"disk_bytes": 64 * MIB, "mem_bytes": 256 * MIB}) as box:
        check.ok(box.sh("head -c 40000000 /dev/urandom > big"))
        made = box.fork(2)
        try:
            for one in made + [box]:
                answer = one.sh("head -c 40000000 /dev/zero > more; echo rc=$?; "
                                "stat -c %s more")
                code, size = check.lines(answer)
                check.equal(code, "rc=1", "exit code of writing 80 MB under 64 MiB")
                check.within(10000000, int(size), 28000000, "bytes that fitted")
                check.ok(one.sh("rm more; head -c 20000000 /dev/zero > less"))
        finally:
            for one in made:
                one.delete()


table([("disk limits hold across forks, disk %s" % disk, "20, 21", disk)
       for disk in ("memory", "file")], disk_cap, deadline=30)


@test("inode limits hold across snapshots", case=22, deadline=30)
def _(pair):
    script = ("import os\nn = 0\ntry:\n for n in range(100000): os.close(os.open('%s%%d' %% n, 65))\n"
              "except OSError as e: print(n, e.errno)")
    with Box.make(pair.client, limits={"inodes": 3000}) as box:
        check.ok(box.sh("for i in {1..1500}; do : > k$i; done"))
        made = box.snapshot()
        answer = check.ok(box.python(script % "x"))
        count, code = map(int, check.text(answer).split())
        check.equal(code, 28, "errno")
        # ext4 fills the last block of each of its tables.
        most = 1550 if box.get()["disk"] == "memory" else 1650
        check.within(1000, count, most, "files beyond 1,500 of 3,000")
        forget(pair.client, made)


# The host's memory is measured: nobody else may use it meanwhile.
@test("memory of layers comes back when the last user is gone", case=11, deadline=40, alone=True)
def _(pair):
    only_in_memory(pair)
    before = shmem_kb()
    with Box.make(pair.client, limits={"disk_bytes": 400 * MIB, "mem_bytes": 600 * MIB}) as box:
        made = []
        for i in range(3):
            check.ok(box.sh("head -c 40000000 /dev/urandom > big"))
            made.append(box.snapshot())
        check.true(shmem_kb() - before > 110000, "three states of 40 MB are %d kB",
                   shmem_kb() - before)
        # The older ones stand below the newest; nothing stands on the newest but itself.
        forget(pair.client, *made[1:])
        status(box.restore(made[0]["id"]), 200, 204)
        check.eventually(lambda: shmem_kb() - before < 50000, 5,
                         lambda: "layers that nobody needs are gone: %d kB" % (shmem_kb() - before))
        copies = box.fork(3)
        check.true(shmem_kb() - before < 60000, "three forks of 40 MB took %d kB",
                   shmem_kb() - before)
        for one in copies:
            one.delete()
        forget(pair.client, made[0])
    check.eventually(lambda: shmem_kb() - before < 8000, 3,
                     lambda: "all is back: %d kB are not" % (shmem_kb() - before))


def cost(box, made):
    watch = Stopwatch()
    made.append(box.snapshot())
    return watch.seconds()


@test("a snapshot costs what changed, not what is there", deadline=60)
def _(pair):
    with Box.make(pair.client, limits={"disk_bytes": 600 * MIB, "mem_bytes": 900 * MIB}) as box:
        made, small, large = [], [], []
        check.ok(box.sh("head -c 1000000 /dev/urandom > f"))
        for _ in range(5):
            check.ok(box.sh("head -c 1000000 /dev/urandom > f"))
            small.append(cost(box, made))
        check.ok(box.sh("for i in {1..30}; do head -c 10000000 /dev/zero > g$i; done; mkdir m; "
                        "cd m; for i in {1..5000}; do : > n$i; done", limits={"wall_ms": 60000}))
        cost(box, made)
        for _ in range(5):
            check.ok(box.sh("head -c 1000000 /dev/urandom > f"))
            large.append(cost(box, made))
        check.true(min(large) < 3 * min(small) + 0.02, "%.4f s with 1 MB, %.4f s with 300 MB",
                   min(small), min(large))
        forget(pair.client, *made)


# Step history


STEPS = [{"sh": "echo 0 > n; echo zero > s0"}, {"sh": "echo 1 > n; rm s0"},
         {"sh": "echo 2 > n; exit 1", "continue_on_error": True}, {"sh": "echo 3 > n; exit 3"},
         {"sh": "echo 4 > n"}]


@test("a run that keeps its steps can be entered before each of them", deadline=40, own=True)
def _(_):
    with harness.Pair(slots=8, warm=2) as pair:
        entered(pair)


def entered(pair):
    run = pair.client.run(steps=STEPS, keep_steps=True,
                          files=[{"path": "given", "content": "file"}])
    check.equal(run["failed_step"], 2 if run["failed_step"] == 2 else 3, "failed_step")
    for step, wanted in ((0, "given\n"), (1, "0\ngiven\nn\ns0\n"), (2, "1\ngiven\nn\n"),
                         (3, "2\ngiven\nn\n")):
        with Box.make(pair.client, **{"from": "%s@%d" % (run["id"], step)}) as box:
            check.equal(box.text("cat n 2>/dev/null; ls"), wanted, "the state before step %d" % step)
            check.ok(box.sh("echo mine > n"))
    for step in ("4", "5", "99", "-1", "x", ""):
        check.error(create(pair.client, **{"from": "%s@%s" % (run["id"], step)}), (400, 404),
                    field="/from")
    other = pair.user_client("mallory")
    check.error(create(other, **{"from": run["id"] + "@1"}), 404, field="/from")
    other.close()
    pair.client.delete("/v1/runs/" + run["id"])
    check.error(create(pair.client, **{"from": run["id"] + "@1"}), 404, field="/from")


@test("what a run has kept of its steps ends with the server, and its answer says so", own=True)
def _(_):
    with harness.Pair(slots=2, warm=1) as pair:
        run = check.ok(pair.client.run(steps=[{"sh": "true"}] * 2, keep_steps=True))
        check.equal(run["kept_steps"], [0, 1], "kept_steps")
        pair.client.close()
        pair.kill9_server()
        pair.start_server()
        pair.wait_ready()
        check.equal(pair.client.fetch(run["id"])["kept_steps"], [], "kept_steps at the next server")
        check.error(create(pair.client, **{"from": run["id"] + "@1"}), 404, field="/from")


@test("a run without keep_steps keeps none")
def _(pair):
    run = pair.client.run(steps=STEPS)
    check.error(create(pair.client, **{"from": run["id"] + "@1"}), 404, field="/from")


@test("what a run keeps goes with the run", deadline=40, own=True, alone=True)
def _(_):
    with harness.Pair(slots=8, warm=2, server_args=["--results", "2", "--keep-runs", "4"]) as pair:
        only_in_memory(pair)
        pair.warm_up()
        steps = [{"sh": "head -c 20000000 /dev/zero > f$RANDOM"}] * 3
        check.ok(pair.client.run(argv=["true"]))
        before = shmem_kb()
        run = check.ok(pair.client.run(steps=steps, keep_steps=True))
        check.true(shmem_kb() - before > 30000, "nothing is kept: %d kB", shmem_kb() - before)
        with Box.make(pair.client, **{"from": run["id"] + "@2"}) as box:
            check.equal(box.text("ls f* | wc -l"), "2\n", "files before the last step")
        for _ in range(3):
            check.ok(pair.client.run(argv=["true"]))
        # It is in the store only, and what it kept is there still.
        with Box.make(pair.client, **{"from": run["id"] + "@2"}) as box:
            check.equal(box.text("ls f* | wc -l"), "2\n", "files before the last step")
        for _ in range(3):
            check.ok(pair.client.run(argv=["true"]))
        # Older ones of warm_up() had large bodies, which rest for five seconds, and it is their turn.
        check.eventually(lambda: pair.client.get("/v1/runs/" + run["id"]).status == 404, 9, "it goes")
        check.error(create(pair.client, **{"from": run["id"] + "@2"}), 404, field="/from")
        check.eventually(lambda: shmem_kb() - before < 8000, 3,
                         lambda: "memory is back: %d kB are not" % (shmem_kb() - before))
        pair.check_clean(2)


@test("keeping steps is cheap", deadline=40, own=True)
def _(_):
    with harness.Pair(slots=8, warm=2) as pair:
        keeping(pair)


def keeping(pair):
    only_in_memory(pair)
    steps = [{"sh": "head -c 1000000 /dev/zero > f"}] * 12

    def best(keep):
        times = []
        for _ in range(4):
            watch = Stopwatch()
            run = check.ok(pair.client.run(steps=steps, keep_steps=keep))
            times.append(watch.seconds())
            pair.client.delete("/v1/runs/" + run["id"])
        return min(times)

    plain, kept = best(False), best(True)
    check.true(kept < 2 * plain + 0.1, "%.3f s, with kept steps %.3f s", plain, kept)


# Disk-backed


@test("a workspace in a file holds more than its memory, and its cap is ENOSPC", case="10, 24",
      deadline=40)
def _(pair):
    with Box.make(pair.client, disk="file",
                  limits={"disk_bytes": 200 * MIB, "mem_bytes": 64 * MIB}) as box:
        check.equal(box.get()["disk"], "file", "disk")
        answer = check.ok(box.sh("head -c 120000000 /dev/zero > f; stat -c %s f; "
                                 "head -c 120000000 /dev/zero > g; echo rc=$?",
                                 limits={"wall_ms": 30000}))
        check.equal(check.lines(answer), ["120000000", "rc=1"], "stdout")
        check.equal(answer["steps"][0]["usage"]["oom_kills"], 0, "oom_kills")
        check.ok(box.sh("rm g; " + FILL))
        wanted = tree(box)
        made = box.snapshot()
        check.ok(box.sh("rm f; echo x > x"))
        with start_from(pair, made) as copy:
            check.equal(tree(copy), wanted, "a sandbox of the snapshot")
        status(box.restore(made["id"]), 200, 204)
        check.equal(tree(box), wanted, "restored")
        forget(pair.client, made)


@test("a file-backed sandbox leaves no loop device, mount or image file", case="109, 119",
      deadline=30)
def _(pair):
    for _ in range(3):
        with Box.make(pair.client, disk="file", limits={"disk_bytes": 64 * MIB}) as box:
            check.ok(box.sh("echo x > f"))
            made = box.snapshot()
            box.start(sh="cd /workspace; exec 3>f; sleep 60")
        forget(pair.client, made)
    check.eventually(lambda: not clean.loops(pair.state), 1,
                     lambda: "loop devices: %s" % clean.loops(pair.state))
    pair.check_clean(1)


@test("the workspace of a file-backed sandbox is nosuid, nodev and the user's own", case="90, 92")
def _(pair):
    with Box.make(pair.client, disk="file") as box:
        text = box.text("grep -E ' (/workspace|/home/user|/var/tmp|/tmp) ' /proc/self/mountinfo; "
                        "stat -c '%U %a' /workspace /tmp; ls -A /workspace; "
                        "cp /usr/bin/id i; chmod 4755 i; ./i -u; mknod b b 8 0 2>/dev/null || echo no")
        for line in text.splitlines():
            if " - " in line:
                check.true("nosuid" in line and "nodev" in line, "options: %s", line)
                check.lacks(line, pair.state, "a line of mountinfo")
        check.holds(text, "user 755", "owner and mode of /workspace")
        check.true(text.rstrip().endswith("1000\nno"), "id and mknod: %s", text)


@test("one snapshot per attempt: eight forks at once answer their first command", deadline=40)
def _(pair):
    with Box.make(pair.client) as box:
        word = nonce()
        check.ok(box.sh("echo %s > f" % word))
        made = box.fork(8)
        try:
            seen = parallel(8, lambda i: made[i].text("cat f; echo %d > f; cat f" % i))
            check.equal(seen, ["%s\n%d\n" % (word, i) for i in range(8)], "answers")
        finally:
            parallel(8, lambda i: made[i].delete())


@test("hostile names and links in the workspace do not stop a snapshot", case="94, 109, 119",
      deadline=40)
def _(pair):
    script = ("import os\nos.symlink('/etc', 'etc'); os.symlink('.', 'loop'); os.mkdir(b'\\xff\\n')\n"
              "open('a' * 255, 'w').close()\nfor i in range(400):\n os.mkdir('d' * 100); "
              "os.chdir('d' * 100)\nopen('deep', 'w').write('x')\n"
              "os.chdir('/workspace'); os.mkdir('z'); open('z/f', 'w').close(); os.chmod('z', 0)\n"
              "os.mkfifo('p'); import socket; socket.socket(1).bind('s')\n"
              "try: os.setxattr('p', b'user.a', b'b', follow_symlinks=False)\nexcept OSError: pass")
    with Box.make(pair.client) as box:
        check.ok(box.python(script))
        made = box.snapshot()
        with start_from(pair, made) as copy:
            check.equal(copy.text("ls -A | wc -l; readlink etc; stat -c '%a %U' z; test -p p && "
                                  "echo fifo"), "9\n/etc\n0 user\nfifo\n", "the copy")
            check.ok(copy.sh("chmod 700 z; rm -rf /workspace/*"))
        busy = box.start(sh="echo up; sleep 30")
        box.wait_output(busy, b"up")
        second = box.snapshot()
        box.cancel(busy)
        with start_from(pair, second) as copy:
            check.equal(copy.text("ls -A | wc -l; stat -c '%a %U' z"), "9\n0 user\n", "the second")
        forget(pair.client, made, second)
    pair.check_clean(5)


@test("overlay's own marks made by a program do no harm", case=94)
def _(pair):
    """A character device 0/0 and trusted.* cannot be made inside; user.* may be and must mean
    nothing."""
    script = ("import os\nos.mkdir('d'); open('d/f', 'w').write('x')\n"
              "for n in (b'user.overlay.opaque', b'user.overlay.whiteout', b'user.overlay.redirect',"
              " b'trusted.overlay.opaque'):\n"
              " for p in ('d', 'd/f'):\n"
              "  try: os.setxattr(p, n, b'y'); print(n.decode())\n"
              "  except OSError: pass\n"
              "try: os.mknod('w', 0o20666, 0); print('mknod')\nexcept OSError: pass\n"
              "open('.wh.gone', 'w').close()")
    with Box.make(pair.client) as box:
        seen = check.text(check.ok(box.python(script)))
        check.lacks(seen, "trusted", "attributes that could be set")
        check.lacks(seen, "mknod", "devices")
        made = box.snapshot()
        with start_from(pair, made) as copy:
            check.equal(copy.text("cat d/f; ls -A"), "x.wh.gone\nd\n", "the copy")
        forget(pair.client, made)


@test("snapshots are counted against their user, and named ones are listed newest first")
def _(pair):
    with Box.make(pair.client) as box:
        made = [box.snapshot("n%d" % i) for i in range(4)]
        listed = [s["id"] for s in rows(status(pair.client.get(SNAPSHOTS), 200).json())]
        check.equal([one for one in listed if one in {m["id"] for m in made}],
                    [m["id"] for m in made[::-1]], "order")
        for m in made:
            for key in ("id", "bytes", "files"):
                check.true(key in m, "a snapshot lacks %s: %r", key, m)
        forget(pair.client, *made)
        answer = pair.client.get("/v1/me")
        check.equal(status(answer, 200).status, 200, "/v1/me")

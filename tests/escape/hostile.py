"""Attempts that need somebody outside: a client that asks for a file operation while the path is
being swapped, archives, images, and steps or runs that come after a hostile one."""

import base64
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))

import box
import canary
import check
import test_image
import test_sandbox_archive
from box import Box, file_entry, make_tar, status
from canary import Canaries

INNER = b"inner"
SECONDS = float(os.environ.get("PINFOLD_RACE_SECONDS", "0.4"))
RACES = "races"

# What a path is swapped for while an operation goes through it. A directory of the host that is not
# in the jail; the process that does the operation, whose /proc/self is not that of the command; and
# the root of the jail.
TARGETS = (
    ("the host's directory", lambda: Canaries.directory),
    ("/proc/self", lambda: "/proc/self"),
    ("/etc", lambda: "/etc"),
)


class Race:
    """A sandbox in which `x` is a directory with one file at one moment and a link at the next."""

    def __init__(self, suite, target):
        self.suite = suite
        self.target = target
        self.box = Box.make(suite.caller, limits={"wall_ms": 20000})
        self.real = {"open": INNER, "root": INNER}

    def __enter__(self):
        self.box.put("/workspace/escape", base64.b64decode(self.suite.program["content"]), mode="0755")
        self.box.text("mkdir one two && for d in one two; do printf inner >$d/open; printf inner >$d/root; done && "
                      "ln -s %s link && mv one x && printf inner >f" % self.target)
        self.flips = self.box.background(
            argv=["/workspace/escape", "flip", "/workspace/x", "/workspace/link", "30"], limits={"wall_ms": 20000})
        self.box.wait_output(self.flips, b"FLIPS")
        return self

    def __exit__(self, *_):
        self.suite.caller.delete(self.box.path)

    def count(self):
        words = self.box.seen(self.flips).decode().split()
        return int(words[-1]) if words else 0

    def untouched(self, answer):
        """Nothing of the host that lies behind the link is in an answer: neither the contents of
        the canaries (one is in /etc) nor their names. What the jail has at the same path may be."""
        for word in (canary.SECRET, os.path.basename(Canaries.etc_file)):
            check.true(word.encode() not in answer.body, "the answer holds %s of the host", word)


def op_get(race):
    answer = race.box.client.get(race.box.file("/workspace/x/open"))
    if answer.status == 200:
        check.equal(answer.body, INNER, "contents")
    return answer


def op_head(race):
    answer = race.box.client.request("HEAD", race.box.file("/workspace/x/root"))
    if answer.status == 200:
        check.equal(answer.headers.get("content-length"), str(len(INNER)), "Content-Length")
    return answer


def op_put(race):
    return race.box.write("/workspace/x/evil", b"evil")


def op_put_deep(race):
    return race.box.write("/workspace/x/a/b/evil", b"evil")


def op_delete(race):
    return race.box.remove("workspace/x/evil")


def op_delete_tree(race):
    answer = race.box.remove("workspace/x", recursive=True)
    race.box.sh("mkdir -p two/q; cp -r two x 2>/dev/null; ln -sfn %s link 2>/dev/null; true" % race.target)
    return answer


def op_list(race):
    answer = race.box.listing("/workspace/x")
    if answer.status == 200:
        names = {os.path.basename(one["path"]) for one in box.rows(answer.json())}
        known = {"open", "root", "evil", "a", "q", "two"}
        # A link within the sandbox is followed, as far as the jail itself could.
        check.true(names <= known or race.target != Canaries.directory, "names: %r", sorted(names)[:8])
    return answer


def op_list_deep(race):
    answer = race.box.listing("/workspace", depth=3)
    if answer.status == 200:
        names = {os.path.basename(one["path"]) for one in box.rows(answer.json())}
        check.true("passwd" not in names and "fd" not in names, "names: %r", sorted(names)[:8])
    return answer


def op_download(race):
    return race.box.download("/workspace")


def op_download_through(race):
    return race.box.download("/workspace/x")


def op_upload(race):
    return race.box.upload("/workspace/x", make_tar(("evil", b"evil"), ("d/evil", b"evil")))


def op_upload_above(race):
    return race.box.upload("/workspace", make_tar(("x/evil", b"evil")))


def op_sync(race):
    entries = [file_entry("x/evil", b"evil"), file_entry("f", INNER)]
    race.suite.caller.request("PUT", "/v1/blobs/" + box.sha256(b"evil"), b"evil")
    race.suite.caller.request("PUT", "/v1/blobs/" + box.sha256(INNER), INNER)
    return race.box.sync(entries)


def op_changes(race):
    return race.suite.caller.get(race.box.path + "/changes?root=/workspace")


def op_changes_root(race):
    return race.suite.caller.get(race.box.path + "/changes?root=/workspace/x")


def op_snapshot(race):
    answer = race.suite.caller.post(race.box.path + "/snapshots", {})
    if answer.status == 201:
        made = answer.json()
        race.suite.caller.delete("/v1/snapshots/" + made["id"])
    return answer


def op_cwd(race):
    answer = race.box.send(argv=["/bin/pwd"], cwd="/workspace/x")
    if answer.status == 200 and answer.json().get("ok"):
        seen = answer.json()["stdout"].strip()
        check.true(Canaries.directory not in seen and "unreachable" not in seen, "cwd: %r", seen)
    return answer


def op_program(race):
    return race.box.send(argv=["/workspace/x/open"])


OPERATIONS = (
    ("reading a file", op_get), ("asking for a file's size", op_head), ("writing a file", op_put),
    ("writing a file below new directories", op_put_deep), ("removing a file", op_delete),
    ("removing a tree", op_delete_tree), ("listing", op_list), ("listing from above", op_list_deep),
    ("an archive from above", op_download), ("an archive of it", op_download_through),
    ("unpacking into it", op_upload), ("unpacking from above", op_upload_above), ("a sync", op_sync),
    ("what has changed", op_changes), ("what has changed below it", op_changes_root),
    ("a snapshot", op_snapshot), ("a command's directory", op_cwd), ("a command's program", op_program),
)


def raced(operation, target):
    def run(suite, outcome):
        with Race(suite, target()) as race:
            before, asked, seen = race.count(), 0, set()
            end = time.monotonic() + SECONDS
            # At least eight, however slow the machine is; and longer where the program that swaps
            # has not had its turn yet: one processor is enough for that.
            while time.monotonic() < end or asked < 8 or (
                race.count() - before <= asked and time.monotonic() < end + 10
            ):
                answer = operation(race)
                race.untouched(answer)
                check.true(answer.status < 500 or answer.status in (503, 507), "status %d: %s", answer.status,
                           check.brief(answer.body))
                seen.add(answer.status)
                asked += 1
            check.equal(canary.problems(), [], "canaries")
            flips = race.count() - before
            check.true(flips > asked, "%d operations, and the path was swapped %d times", asked, flips)
        return outcome("%d operations, %d swaps, %s" % (asked, flips, sorted(seen)), "REFUSED")

    return run


class Shim:
    """What the tests of archives want of a pair."""

    def __init__(self, suite):
        self.client = suite.caller
        self.state, self.work = suite.pair.state, suite.pair.work


def unpacked(build):
    def run(suite, outcome):
        test_sandbox_archive.escape(Shim(suite), build)
        return outcome("PUT of the archive", "REFUSED")

    return run


def imported(function, *arguments):
    def run(_, outcome):
        function(*arguments)
        return outcome("pinfold-server image import", "REFUSED")

    return run


def collected(suite, outcome):
    """Files that a run hands back are what they seem: no link is followed."""
    script = "ln -s %s/open a; ln -s /proc/1/environ b; ln -s /etc/passwd c; mkfifo d; ln -s . e; echo x >ok" % (
        Canaries.directory)
    answer = suite.caller.run(sh=script, collect=["*", "e/e/e/*"], limits=suite.limits)
    for one in answer["files"]:
        check.true(os.path.basename(one["path"]) in ("ok",) or "content" not in one, "collected: %s", one)
    check.true(any(one["path"] == "ok" for one in answer["files"]), "the honest file is missing")
    check.lacks(str(answer["files"]), canary.SECRET, "the files")
    return outcome("collect of links", "REFUSED")


# Waits until the step is over, then goes for what comes next. /tmp/attacks tells that it did.
LEFT = r"""
setsid bash -c 'trap "" TERM INT HUP; while kill -0 '$$'; do :; done; echo >>/tmp/attacks
  while :; do for p in /proc/[0-9]*; do n=${p#/proc/}; [ $n = $$ ] && continue
    kill -%s $n; echo x >$p/mem; echo x >$p/cwd/left; done; done' >/dev/null 2>&1 &
echo left >/tmp/left
exit 3
"""
NEXT = "sleep 0.3; cat /tmp/attacks 2>/dev/null | wc -l; echo whole"


def next_step(number):
    """What a step leaves running neither hurts nor sees the next one."""

    def run(suite, outcome):
        steps = [{"sh": LEFT % number, "continue_on_error": True}, {"sh": NEXT}]
        answer = suite.caller.run(steps=steps, limits=suite.limits)
        check.ended(answer, "exit", index=0, exit_code=3)
        check.ended(answer, "exit", index=1, exit_code=0)
        attacks, whole = check.lines(answer, 1)
        check.equal(whole, "whole", "what the next step says")
        killed = answer["steps"][0]["usage"]["stragglers_killed"]
        check.true(attacks != "0" or killed, "nothing was left running")
        return outcome("left running: %s attacked, %d ended with its step" % (attacks, killed), "REFUSED")

    return run


BESIDE = """
trap '' TERM INT HUP; echo attacking
while :; do for p in /proc/[0-9]*; do n=${p#/proc/}; [ $n = $$ ] && continue
  kill -%s $n 2>/dev/null; (echo x >$p/mem; echo x >$p/cwd/left) 2>/dev/null; done; done
"""


def other_execution(number):
    """In a sandbox commands of one user share a world and may end each other; file operations and
    the sandbox itself are out of their reach."""

    def run(suite, outcome):
        with Box.make(suite.caller) as one:
            hostile = one.background(sh=BESIDE % number, limits={"wall_ms": 15000, "cpu_ms": 9000})
            one.wait_output(hostile, b"attacking")
            for turn in range(5):
                text = b"%d" % turn
                status(one.write("/workspace/f", text), 200, 201, 204)
                check.equal(status(one.client.get(one.file("/workspace/f")), 200).body, text, "the file")
                status(one.download("/workspace"), 200)
            answer = one.send(argv=["true"], limits={"wall_ms": 1000})
            end = status(answer, 200).json()["end"]
            check.member(end["cause"], ("exit", "signal", "wall_time"), "cause of a command beside it")
            check.equal(one.fetch(hostile)["state"], "running", "the hostile one")
            one.delete()
        return outcome("kill -%s beside 15 file operations" % number, "REFUSED")

    return run


def next_run(suite, outcome):
    """Jails are used once: nothing of a hostile run is in those that were made ready meanwhile."""
    suite.caller.run(sh=LEFT % "STOP", limits=suite.limits)
    for _ in range(6):
        script = "ls -A /tmp /workspace; [ -w /home/user ] && ls -A /home/user; ls -d /proc/[0-9]* | wc -l; echo whole"
        answer = suite.caller.run(sh=script, limits=suite.limits)
        check.lacks(check.text(answer), "left", "a fresh jail")
        check.holds(check.text(answer), "whole", "a fresh jail")
    return outcome("six jails after a hostile one", "REFUSED")


def named(field, value):
    def run(suite, outcome):
        answer = suite.caller.send(**{"argv": ["true"], field: value})
        check.error(answer, (400, 403, 404, 422))
        return outcome("POST /v1/runs with %s" % field, "REFUSED")

    return run


NAMES = (
    ("policy", "../default"), ("policy", "/etc/passwd"), ("policy", "--privileged"), ("image", "../../etc"),
    ("image", "/"), ("image", "host;id"), ("image", "-v/:/h"), ("policy", "judge\0x"), ("image", "."),
    ("cwd", "/workspace/\0/etc"), ("files", [{"path": "../../up", "content": "x"}]),
    ("files", [{"path": "/etc/x", "content": "x"}]), ("files", [{"path": "a/../../b", "content": "x"}]),
    ("files", [{"path": "f", "content": "x", "mode": "u+s"}]), ("collect", ["../../etc/passwd"]),
    ("env", {"A=B": "x"}), ("env", {"LD_PRELOAD\0": "x"}), ("argv", ["a\0b"]),
    ("limits", {"mem_bytes": 1 << 50}), ("limits", {"pids": -1}), ("network", "host"),
)


def table(attempt, outcome):
    """-> [Attempt]. `attempt` and `outcome` are run.py's."""
    rows = []

    def add(kind, name, run, once=False, again=False, backends=None):
        one = attempt(kind, name, "http", "REFUSED", lambda suite: run(suite, outcome))
        one.once, one.again = once, again
        if backends:
            one.backends = backends
        rows.append(one)

    for what, operation in OPERATIONS:
        for where, target in TARGETS:
            add(RACES, "%s while the path turns into %s" % (what, where), raced(operation, target))
    for what, build in test_sandbox_archive.ESCAPES:
        add("hostile archives", what, unpacked(build), again=True)
    for what, make, word in test_image.REFUSED:
        add("hostile images", what, imported(test_image.refused, make, word), once=True, again=True,
            backends=("native",))
    for what, where, target in test_image.TRAPS:
        add("hostile images", what, imported(test_image.trap, where, target), once=True, again=True,
            backends=("native",))
    add(RACES, "files of a run that are links", collected)
    for number in ("KILL", "STOP", "TERM"):
        add("warm pool", "what a step leaves running sends SIG%s to the next one" % number, next_step(number))
        add("warm pool", "what an execution leaves running sends SIG%s to the next one" % number, other_execution(number))
    add("warm pool", "what a run leaves behind is in no other jail", next_run)
    for field, value in NAMES:
        add("requests", "%s %r" % (field, value), named(field, value))
    return rows

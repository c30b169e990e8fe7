"""What is done while one system call fails: a run, and each thing that a sandbox is asked for. A
scene has a `prepare`, at rest, an `act`, during which the fault happens, and a `finish`. What `act`
sees is either right, or an honest end, or an honest refusal; anything else is raised."""

import http.client
import io
import json
import os
import sys
import tarfile
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "http"))

import box
import canary
import check

# Refusals that blame the service or the moment, and not the request.
OURS = (409, 410, 429, 500, 502, 503, 504, 507)
WALLS = """
import os, sys
lines = open('/proc/self/status').read().splitlines()
status = dict(l.split(':\\t', 1) for l in lines if ':\\t' in l)
bad = [k for k in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb') if int(status[k], 16)]
bad += [k for k in ('NoNewPrivs',) if status[k] != '1']
bad += ['filters'] if status['Seccomp'] != '2' or int(status['Seccomp_filters']) < 1 else []
bad += ['ids'] if (os.getuid(), os.geteuid(), os.getgid()) != (1000, 1000, 1000) else []
bad += ['groups'] if os.getgroups() not in ([], [1000]) else []
bad += ['pids'] if len([p for p in os.listdir('/proc') if p.isdigit()]) > 4 else []
bad += ['net'] if open('/proc/net/dev').read().count(':') != 1 else []
bad += ['uts'] if os.uname().nodename != 'pinfold' else []
bad += ['root'] if os.path.exists('%(canary)s') or os.path.exists('/root/.bashrc') else []
bad += ['cgroup'] if 'pinfold' in open('/proc/self/cgroup').read() else []
bad += [p for p in ('/proc/keys', '/proc/modules', '/proc/cmdline', '/proc/interrupts')
        if os.path.exists(p) and open(p).read()]
import resource
bad += ['core'] if max(resource.getrlimit(resource.RLIMIT_CORE)) > 1 else []
bad += ['fds'] if set(os.listdir('/proc/self/fd')) - {'0', '1', '2', '3'} else []
try:
    open('/usr/pinfold-probe', 'w'); bad.append('read-only root')
except OSError:
    pass
print(bad)
"""


def directory():
    return tempfile.TemporaryDirectory(prefix="pinfold-fault-")


def walls():
    return ["/usr/bin/python3", "-c", WALLS % {"canary": canary.Canaries.directory or "/no"}]


def remove(client, path):
    """What may have lost its runner a moment ago is removed when there is one again."""
    check.eventually(
        lambda: client.delete(path).status in (204, 404, 410), 20, path + " is removed"
    )


def refused(answer):
    """A refusal that is honest: ours, with a sentence."""
    check.error(answer, OURS)


def honest(step):
    """The end of a step that did not go well."""
    end = step.get("end") or {}
    cause = end.get("cause")
    if cause == "interrupted":
        return
    check.member(cause, ("internal", "start", "signal"), "cause of %s" % json.dumps(step)[:700])
    if cause == "signal":
        # A process that was about to become the command was killed from outside.
        check.equal(end["signal"], 9, "signal")
        return
    evidence = end.get("evidence") or {}
    check.true(evidence.get("stage"), "no stage: %s", json.dumps(end))
    check.true(evidence.get("errno"), "no errno: %s", json.dumps(end))
    check.true(end.get("message"), "no sentence: %s", json.dumps(end))


def judge(answer, wanted):
    """An answer with steps: each is right (`wanted` has its stdout) or honest. -> is all right?"""
    if answer.status != 200:
        refused(answer)
        return False
    body = answer.json()
    rows = body["steps"] if "steps" in body else [body]
    for step, text in zip(rows, wanted):
        if step["state"] == "skipped":
            return False
        check.equal(step["state"], "done", "state")
        if step["end"]["cause"] != "exit":
            honest(step)
            return False
        check.equal((step["end"]["exit_code"], step["stdout"]), (0, text), "exit code and output")
        check.equal(step["ok"], True, "ok")
    return True


class Scene:
    """One thing that is done."""

    def __init__(self, pair):
        self.pair = pair
        self.client = pair.client

    def prepare(self):
        pass

    def finish(self):
        pass


class Run(Scene):
    """Set-up, two commands with what belongs to them, and removal."""

    def act(self):
        answer = self.client.send(
            files=[{"path": "in", "content": "from a file\n"}],
            steps=[
                {"argv": walls()},
                {"sh": "cat; cat in; echo made > out", "stdin": "from stdin\n"},
            ],
            collect=["out"],
        )
        wanted = ("[]\n", "from stdin\nfrom a file\n")
        if judge(answer, wanted):
            file = answer.json()["files"][0]
            if "error" not in file:
                check.equal(file["content"], "made\n", "content of the collected file")


class Streamed(Scene):
    """The same events, or an end of the stream that nobody takes for a whole one."""

    def act(self):
        stream = self.client.stream(sh="echo one; echo two >&2; exit 3")
        if stream.status != 200:
            with stream:
                check.member(stream.status, OURS, "status")
            return
        events = stream.all()
        if events and events[-1]["type"] == "done":
            ends = [e["end"] for e in events if e["type"] == "end"]
            if ends[0]["cause"] != "exit":
                honest({"end": ends[0]})
                return
            check.equal(ends[0]["exit_code"], 3, "exit code")
            check.equal(box.joined(events), b"one\n", "stdout")
            check.equal(box.joined(events, "stderr"), b"two\n", "stderr")


class WithBox(Scene):
    """In a sandbox that is there already."""

    def prepare(self):
        self.box = box.Box.make(self.client)
        self.made = []
        self.kept = []
        self.box.put("/workspace/f", b"before\n")

    def finish(self):
        for one in self.made + [self.box]:
            remove(self.client, one.path)
        for one in self.kept:
            remove(self.client, "/v1/snapshots/" + one)

    def lives(self):
        return self.client.get(self.box.path + "/exec").status == 200

    def content(self, one, *wanted):
        """A file is one of these, or is refused, or is cut, and whoever reads can tell."""
        try:
            seen = one.read("/workspace/f")
        except http.client.IncompleteRead:
            return
        if seen.status != 200:
            refused(seen)
        else:
            check.member(seen.body, wanted, "content of the file")


class Create(WithBox):
    def prepare(self):
        self.made = []
        self.kept = []

    def act(self):
        answer = box.create(self.client)
        if answer.status != 201:
            refused(answer)
            return
        self.made = [box.Box(self.client, answer.json())]
        self.box = self.made[0]
        judge(self.box.send(argv=walls()), ("[]\n",))

    def finish(self):
        for one in self.made:
            remove(self.client, one.path)


class Execute(WithBox):
    def act(self):
        judge(self.box.send(sh="cat; cat f", stdin="x\n"), ("x\nbefore\n",))
        judge(self.box.send(argv=walls()), ("[]\n",))


class Files(WithBox):
    """What is written is there, or was refused and the old is still there."""

    def act(self):
        answer = self.box.write("/workspace/f", b"after\n")
        if answer.status // 100 != 2:
            refused(answer)
        if answer.status // 100 == 2:
            self.content(self.box, b"after\n")
        else:
            self.content(self.box, b"before\n", b"after\n")


class Upload(WithBox):
    """A tar and a sync: all of each, or nothing."""

    def act(self):
        tar = box.make_tar(("t/one", b"1" * 5000), ("t/two", b"2"))
        put = self.box.upload("/workspace", tar)
        if put.status // 100 != 2:
            refused(put)
        entry = box.file_entry("s", b"synced\n")
        sent = box.blob(self.client, b"synced\n")
        if sent.status // 100 != 2:
            refused(sent)
        synced = self.box.sync([entry])
        if synced.status != 200:
            refused(synced)
        whole = synced.status == 200 and not synced.json()["missing"]
        seen = self.box.send(sh="ls; cat t/one t/two s 2>/dev/null | wc -c")
        if seen.status != 200 or seen.json()["end"]["cause"] != "exit":
            judge(seen, ("",))
            return
        names = seen.json()["stdout"].split()
        size = 5001 * (put.status // 100 == 2) + 7 * whole
        if put.status // 100 == 2 and (whole or synced.status == 200):
            check.equal(int(names[-1]), size, "bytes of what was sent")
        check.true(not whole or "s" in names, "the synced file is missing: %r", names)


class Download(WithBox):
    """All of it, or nothing that could be taken for it."""

    def act(self):
        try:
            seen = self.box.download("/workspace")
        except http.client.IncompleteRead:
            return
        if seen.status != 200:
            refused(seen)
            return
        with tarfile.open(fileobj=io.BytesIO(seen.body)) as tar:
            check.equal(tar.getnames(), ["f"], "names in the archive")
            check.equal(tar.extractfile("f").read(), b"before\n", "content of the file")


class Snapshot(WithBox):
    def act(self):
        answer = self.client.post(self.box.path + "/snapshots", {})
        if answer.status == 201:
            self.kept.append(answer.json()["id"])
        else:
            refused(answer)
        if not self.lives():
            return
        self.content(self.box, b"before\n")
        if self.kept:
            made = box.create(self.client, **{"from": self.kept[0]})
            if made.status != 201:
                refused(made)
                return
            self.made.append(box.Box(self.client, made.json()))
            self.content(self.made[0], b"before\n")


class Restore(WithBox):
    """All of it or nothing."""

    def prepare(self):
        super().prepare()
        self.kept.append(self.box.snapshot()["id"])
        self.box.text("echo changed > f; echo more > g")

    def act(self):
        answer = self.box.restore(self.kept[0])
        if answer.status // 100 != 2:
            refused(answer)
        seen = self.box.send(sh="cat f; ls")
        if seen.status != 200 or seen.json()["end"]["cause"] != "exit":
            judge(seen, ("",))
            return
        old, new = "before\nf\n", "changed\nf\ng\n"
        wanted = (old,) if answer.status // 100 == 2 else (old, new)
        check.member(seen.json()["stdout"], wanted, "files after the restore")


class Fork(WithBox):
    def act(self):
        answer = self.client.post(self.box.path + "/fork", {"count": 1})
        if answer.status != 201:
            refused(answer)
            return
        self.made = [box.Box(self.client, one) for one in box.rows(answer.json())]
        for one in self.made:
            judge(one.send(argv=["cat", "f"]), ("before\n",))


class Delete(WithBox):
    """It is gone, or that was refused."""

    def act(self):
        answer = self.client.delete(self.box.path)
        if answer.status != 204:
            refused(answer)
            return
        check.eventually(
            lambda: self.client.get(self.box.path + "/exec").status in (404, 410), 5, "it is gone"
        )


SCENES = {
    "run": Run,
    "stream": Streamed,
    "create": Create,
    "execute": Execute,
    "files": Files,
    "upload": Upload,
    "download": Download,
    "snapshot": Snapshot,
    "restore": Restore,
    "fork": Fork,
    "delete": Delete,
}

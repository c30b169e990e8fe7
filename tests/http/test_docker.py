"""Containers beside native jails: what the engine is told, which back end a request gets, ends with
the kernel's evidence, sandboxes, and an engine that hangs, dies or comes back.

One engine and one pair with both back ends serve all of it. The image that stands for "host" is
busybox with everything in its configuration that an image could want to weaken a container with."""

import base64
import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
import time

import check
import clean
import engine
import harness
import processors
from box import Box
from client import nonce
from suite import Skip, test

HOSTILE = {
    "User": "0:0",
    "Entrypoint": ["/bin/false"],
    "Cmd": ["--evil"],
    "Env": ["LD_PRELOAD=/evil.so", "EVIL=1"],
    "Volumes": {"/data": {}, "/etc/evil": {}, "/dev/pts": {}},
    "ExposedPorts": {"80/tcp": {}},
    "Healthcheck": {"Test": ["CMD", "/bin/false"], "Interval": 1000000000},
    "WorkingDir": "/evil",
    "StopSignal": "SIGUSR1",
}

_pair = []


def hostile(one):
    """busybox with that configuration, as an image of the engine."""
    one.load(engine.BUSYBOX, engine.busybox())
    body = json.dumps({"Image": engine.BUSYBOX, "Entrypoint": ["/bin/true"]})
    status, text = one.ask("POST", "/v1.41/containers/create?name=hostile", body)
    check.equal(status, 201, "making a container: %s" % text)
    status, text = one.ask(
        "POST", "/v1.41/commit?container=hostile&repo=pinfold-test&tag=hostile", json.dumps(HOSTILE)
    )
    check.equal(status, 201, "making an image: %s" % text)
    one.ask("DELETE", "/v1.41/containers/hostile?force=1")
    return "pinfold-test:hostile"


def pair():
    """The one for all of these tests."""
    if harness.why_no_docker():
        raise Skip(harness.why_no_docker())
    if not _pair:
        one = engine.Engine().start()
        made = engine.DockerPair(native=True, engine=one, image=hostile(one), warm=2, shards=1)
        try:
            made.start()
        except BaseException:
            made.discard()
            raise
        _pair.append(made)
    return _pair[0]


def run(backend="docker", **request):
    return pair().client.run(backend=backend, **request)


def ours(one):
    """Containers of this runner. When it is killed an engine may go on listing one that it does not know
    itself any more: that is none."""
    found = [c for c in one.engine.containers() if "dev.pinfold.owner" in c["Labels"]]
    found = [c for c in found if c["Names"] or one.engine.knows(c["Id"])]
    return [c for c in found if c["Labels"]["dev.pinfold.owner"] != "0" * 32]


def owner():
    """What labels and names all that this runner made, and nobody can guess."""
    names = {c["Labels"]["dev.pinfold.owner"] for c in ours(pair())}
    check.equal(len(names), 1, "owners of the containers: %r" % names)
    check.equal(len(next(iter(names))), 32, "digits")
    return next(iter(names))


def tags():
    return {t for i in pair().engine.json("/images/json") for t in i["RepoTags"] or []}


def until(what, seconds, condition):
    end = time.monotonic() + seconds
    while True:
        seen = condition()
        if seen:
            return seen
        if time.monotonic() > end:
            check.fail("%s: not within %s s\n%s", what, seconds, pair().logs())
        time.sleep(0.05)


def only_warm():
    """Nothing runs: is there a container that does not wait to be given away?"""
    listed = {b["name"]: b for b in pair().client.get("/v1/capabilities").json()["backends"]}
    return len(ours(pair())) <= listed["docker"]["warm"]


def reasons():
    answer = pair().client.get("/readyz")
    return {one["layer"]: one["message"] for one in answer.json().get("reasons", [])}


def docker(name, **options):
    return test(name, own=True, **{"deadline": 180, **options})


@docker("one server serves both back ends, and says which it was")
def _(_):
    for backend in ("docker", "native"):
        answer = check.ok(run(backend, argv=["echo", backend]))
        check.equal(answer["backend"], backend, "backend")
        check.equal(answer["steps"][0]["stdout"], backend + "\n", "stdout")
    answer = check.ok(pair().client.run(argv=["true"]))
    check.equal(answer["backend"], "native", "the policy's own")
    listed = pair().client.get("/v1/capabilities").json()["backends"]
    check.equal([one["name"] for one in listed], ["native", "docker"], "back ends")
    names = {one["name"] for one in listed[0]["capabilities"]}
    check.equal({one["name"] for one in listed[1]["capabilities"]}, names, "what is proved")
    weak = [c["name"] for c in listed[1]["capabilities"] if c["status"] != "enforced" and c["required"]]
    check.equal(weak, [], "what is not enforced")


@docker("a back end that the policy does not allow, or that nobody knows, is refused by field")
def _(_):
    answer = pair().client.post("/v1/runs", {"argv": ["true"], "backend": "podman"})
    check.equal((answer.status, answer.json()["error"]["field"]), (400, "/backend"), "unknown")
    answer = pair().client.post("/v1/runs", {"argv": ["true"], "backend": "docker", "image": "nope"})
    check.equal((answer.status, answer.json()["error"]["field"]), (400, "/image"), "image")


@docker("whatever the image says, the engine is told of no privilege, mount, device or network")
def _(_):
    with Box.make(pair().client, backend="docker") as box:
        check.equal(box.text("id -u; id -g; pwd").split(), ["1000", "1000", "/workspace"], "user")
        asked = [pair().engine.ask("GET", "/v1.41/containers/%s/json" % c["Id"]) for c in ours(pair())]
        seen = [json.loads(text) for status, text in asked if status == 200]  # one may just have gone
        check.true(seen, "no container is there")
        for one in seen:
            host, config = one["HostConfig"], one["Config"]
            check.equal(host["NetworkMode"], "none", "network")
            check.equal(host["ReadonlyRootfs"], True, "root")
            check.equal(host["CapDrop"], ["ALL"], "capabilities dropped")
            check.equal(host["CapAdd"] or [], [], "capabilities added")
            check.equal(host["Privileged"], False, "privileged")
            check.equal((host["Binds"] or [], host.get("Mounts") or []), ([], []), "mounts asked for")
            check.equal(host["Devices"] or [], [], "devices")
            check.equal((host["PidMode"], host["IpcMode"], host["UTSMode"]), ("", "none", ""), "name spaces")
            check.equal(host["UsernsMode"], "", "user name space")
            check.equal(host["Memory"], host["MemorySwap"], "memory without swap")
            check.true(host["Memory"] > 0 and host["PidsLimit"] > 0 and host["CpuQuota"] > 0, "limits")
            check.true({"core", "nofile", "fsize"} <= {u["Name"] for u in host["Ulimits"]}, "ulimits")
            check.equal(list(host["Tmpfs"]), ["/workspace"], "what can be written")
            check.true("no-new-privileges" in host["SecurityOpt"], "no-new-privileges")
            profile = [o for o in host["SecurityOpt"] if o.startswith("seccomp=")]
            check.equal(json.loads(profile[0][8:])["defaultAction"], "SCMP_ACT_ERRNO", "seccomp")
            check.equal(config["User"], "1000:1000", "user")
            check.equal(config["Entrypoint"], ["/.pinfold-init", "contained"], "process 1")
            check.true(config["Labels"]["dev.pinfold.jail"] in one["Name"], "label")


@docker("nothing of the host or of the engine is mounted inside, volumes of the image neither")
def _(_):
    text = check.text(check.ok(run(sh="cat /proc/self/mountinfo; env; ls /sys; cat /etc/resolv.conf; ls /data")))
    points = {line.split()[4] for line in text.splitlines() if " - " in line}
    wanted = {"/", "/proc", "/dev", "/dev/pts", "/workspace", "/home/user", "/tmp", "/var/tmp", "/dev/shm"}
    wanted |= {"/etc/hosts", "/etc/hostname"}
    check.equal({p for p in points if not p.startswith("/proc/")}, wanted, "mounts")
    kinds = {line.split()[4]: line.split(" - ")[1].split()[0] for line in text.splitlines() if " - " in line}
    check.equal(kinds["/dev/pts"], "devpts", "what is mounted on /dev/pts")
    check.true("EVIL" not in text and "LD_PRELOAD" not in text, "environment of the image")
    check.true("nameserver" not in text, "resolv.conf of the host")
    text = check.text(check.ok(run(sh="cat /etc/hostname /etc/hosts")))
    check.equal(text.split()[:3], ["pinfold", "127.0.0.1", "localhost"], "names without the engine's files")
    covered = ["/proc/" + name for name in ("acpi", "asound", "bus", "driver", "fs", "irq", "scsi")]
    text = check.text(check.ok(run(sh="ls %s 2>/dev/null; true" % " ".join(covered))))
    check.equal([line for line in text.splitlines() if line and line[:-1] not in covered], [], "names of disks and devices")
    text = check.text(check.ok(run(sh="cat /proc/self/cgroup")))
    names = {line.split(":", 2)[2] for line in text.splitlines()}
    check.equal([n for n in names if ".." in n or "pinfold" in n or "docker" in n], [], "groups")


@docker("containers have the limits of the policy, without a doubt about who was killed")
def _(_):
    answer = run(sh="x=a; while :; do x=$x$x; done", limits={"mem_bytes": 32 << 20})
    check.equal(answer["steps"][0]["end"]["cause"], "memory", "cause")
    check.true(answer["steps"][0]["end"]["evidence"]["oom_kills"] >= 1, "the kernel's counter")
    end = run(sh="kill -9 $$")["steps"][0]["end"]
    check.equal((end["cause"], end["signal"]), ("signal", 9), "a SIGKILL of its own")
    end = run(sh="exit 137")["steps"][0]["end"]
    check.equal((end["cause"], end["exit_code"]), ("exit", 137), "an exit code")
    end = run(argv=["sleep", "60"], limits={"wall_ms": 300})["steps"][0]["end"]
    check.equal(end["cause"], "wall_time", "cause")
    end = run(sh="while :; do :; done", limits={"cpu_ms": 200})["steps"][0]["end"]
    check.equal(end["cause"], "cpu_time", "cause")
    end = run(argv=["/nope"])["steps"][0]["end"]
    check.equal((end["cause"], end["evidence"].get("path")), ("start", "/nope"), "start")


# Fills the memory with a file, and is smaller than process 1 while it does.
TINY = """
static char block[4096];
static long call(long n, long a, long b, long c) {
    long r;
    __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return r;
}
void _start(void) {
    long fd = call(2, (long)"/workspace/f", 0101, 0600);
    while (call(1, fd, (long)block, sizeof block) > 0)
        ;
    call(60, 1, 0, 0);
}
"""


@docker("memory that is full ends the command, not process 1, however small the command is")
def _(_):
    if os.uname().machine != "x86_64" or not shutil.which("gcc"):
        raise Skip("no gcc for x86_64")
    path = os.path.join(pair().work, "tiny")
    command = ["gcc", "-static", "-nostdlib", "-fno-stack-protector", "-O1", "-xc", "-o", path, "-"]
    subprocess.run(command, input=TINY.encode(), check=True)
    with open(path, "rb") as file:
        content = base64.b64encode(file.read()).decode()
    files = [{"path": "tiny", "content": content, "encoding": "base64", "mode": "0755"}]
    limits = {"mem_bytes": 32 << 20, "disk_bytes": 256 << 20}
    end = run(argv=["./tiny"], files=files, limits=limits)["steps"][0]["end"]
    check.equal(end["cause"], "memory", "cause of %r" % end)


@docker("steps have limits and ends of their own, and files go in and out")
def _(_):
    answer = run(
        steps=[
            {"sh": "cat in > out; echo one"},
            {"sh": "sleep 9", "limits": {"wall_ms": 200}, "continue_on_error": True},
            {"sh": "echo three; cat out"},
        ],
        files=[{"path": "in", "content": "hello\n"}],
        collect=["out"],
    )
    causes = [one["end"]["cause"] for one in answer["steps"]]
    check.equal(causes, ["exit", "wall_time", "exit"], "causes")
    check.equal(answer["steps"][2]["stdout"], "three\nhello\n", "stdout")
    check.equal([one["content"] for one in answer["files"]], ["hello\n"], "files")


@docker("an imported image runs on both back ends, by one digest, and is made of the engine once")
def _(_):
    one = pair()
    tar = os.path.join(one.work, "bb.tar")
    with open(tar, "wb") as out:
        out.write(engine.busybox())
    command = [harness.program("pinfold-server"), "image", "import", "bb", tar]
    done = subprocess.run(
        command + ["--state", one.state], capture_output=True, timeout=60, check=False
    )
    check.equal(done.returncode, 0, "import: %s" % done.stderr)
    digests = set()
    for backend in ("native", "docker", "docker"):
        answer = check.ok(run(backend, image="bb", sh="echo $0; ls /bin/busybox"))
        check.equal(answer["backend"], backend, "backend")
        digests.add(answer["image_digest"])
    check.equal(len(digests), 1, "digests")
    check.equal(len([t for t in tags() if t.startswith("pinfold-image:")]), 1, "images of the engine")


def put_image(one, word):
    """Image "turn" with that word in /marker -> its digest, as hex."""
    tar = os.path.join(one.work, "turn.tar")
    with open(tar, "wb") as out:
        out.write(engine.busybox())
    with tarfile.open(tar, "a") as out:
        entry = tarfile.TarInfo("marker")
        entry.size = len(word)
        out.addfile(entry, io.BytesIO(word))
    image(one, "import", "turn", tar)
    with open(os.path.join(one.state, "images", "turn", "manifest.json")) as file:
        return json.load(file)["sha256"]


def image(one, *words):
    command = [harness.program("pinfold-server"), "image", *words, "--state", one.state]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    check.equal(done.returncode, 0, "image %s: %s" % (words[0], done.stderr))


@docker("an image that is replaced on its way to the engine does not get there under the old digest")
def _(_):
    one = pair()
    old = put_image(one, b"old")
    until("warm containers", 30, lambda: len(ours(one)) >= 2)
    with hung():
        # What it was made of was looked at; then the engine is asked whether it has that.
        number = one.client.submit(backend="docker", image="turn", argv=["cat", "/marker"])
        one.client.wait_state(number, ("starting", "running"))
        image(one, "remove", "turn")
        new = put_image(one, b"new")
    answer = one.client.wait_done(number, 40)
    name = "pinfold-image:%s-%s" % (owner(), old)
    check.true(not one.engine.has(name), "the engine has the new files by the old digest")
    if answer["ok"]:
        check.fail("it ran: %s", answer["steps"][0]["stdout"])
    answer = check.ok(run(image="turn", argv=["cat", "/marker"]))
    check.equal((check.text(answer), answer["image_digest"]), ("new", "sha256:" + new), "the next run")
    image(one, "remove", "turn")


@docker("images that were made of one that is removed or replaced go, and nobody else's")
def _(_):
    one = pair()
    check.equal(one.engine.ask("POST", "/v1.41/images/%s/tag?repo=pinfold-jail&tag=%s-a-b" % (
        engine.BUSYBOX, "0" * 32))[0], 201, "another owner's image")
    old = "pinfold-image:%s-%s" % (owner(), put_image(one, b"first"))
    before = tags()
    check.equal(check.text(check.ok(run(image="turn", argv=["cat", "/marker"]))), "first", "marker")
    made = tags() - before
    check.true(old in made and len(made) == 2, "what was made of it: %r" % made)
    image(one, "remove", "turn")
    new = "pinfold-image:%s-%s" % (owner(), put_image(one, b"second"))
    until("both to go", 60, lambda: not made & tags())
    check.equal(check.text(check.ok(run(image="turn", argv=["cat", "/marker"]))), "second", "marker")
    check.true(new in tags(), "the new one")
    image(one, "remove", "turn")
    until("the new one to go", 60, lambda: new not in tags())
    kept = {t for t in before if owner() not in t}  # of earlier tests, ours may go any time
    check.equal(kept - tags(), set(), "what was there before")
    check.ok(run(argv=["true"]))
    check.ok(run(image="bb", argv=["true"]))


def host_id():
    """What the name behind --host-image means to the engine now."""
    return pair().engine.json("/images/%s/json" % pair().image)["Id"]


@contextlib.contextmanager
def moved():
    """The name leads to another image, with a file /marker, for a while."""
    one, before = pair(), host_id()
    # By another name it stays, or it would go with the last that was made of it.
    one.engine.ask("POST", "/v1.41/images/%s/tag?repo=pinfold-test&tag=before" % before)
    data = io.BytesIO(engine.busybox())
    with tarfile.open(fileobj=data, mode="a") as out:
        entry = tarfile.TarInfo("marker")
        entry.size = 5
        out.addfile(entry, io.BytesIO(b"moved"))
    try:
        one.engine.load(one.image, data.getvalue())
        check.true(host_id() != before, "the name did not move")
        yield
    finally:
        at = before + "/tag?repo=%s&tag=%s" % tuple(one.image.split(":"))
        check.equal(one.engine.ask("POST", "/v1.41/images/" + at)[0], 201, "moving it back")


@docker("image host of the engine is pinned: answers, sandboxes and receipts say which it was, and others are refused")
def _(_):
    one, digest = pair(), host_id()
    for asked in ({}, {"image_digest": digest}):
        answer = check.ok(run(argv=["true"], **asked))
        check.equal(answer["image_digest"], digest, "answer")
        check.equal(answer["receipt"]["body"]["image"], {"name": "host", "sha256": digest[7:]}, "receipt")
    with Box.make(one.client, backend="docker") as box:
        seen = one.client.get("/v1/sandboxes/" + box.id).json()
        check.equal(seen["image_digest"], digest, "sandbox")
        done = box.run(argv=["true"])
        body = box.client.get("%s/receipt" % box.at(done["id"])).json()["body"]
        check.equal(body["image"], {"name": "host", "sha256": digest[7:]}, "receipt of an execution")
        for fork in box.fork(1):
            seen = one.client.get("/v1/sandboxes/" + fork.id).json()
            check.equal(seen["image_digest"], digest, "fork")
            fork.delete()
    listed = {i["name"]: i for i in one.client.get("/v1/images").json()["images"]}
    check.equal(listed["host"]["docker_sha256"], digest[7:], "the list")
    check.true("image_digest" not in check.ok(run("native", argv=["true"])), "the machine's own programs have a digest")
    for backend, asked, status in (("docker", "sha256:" + "7" * 64, 409), ("native", digest, 400)):
        for route, body in (("/v1/runs", {"argv": ["true"]}), ("/v1/sandboxes", {})):
            answer = one.client.post(route, dict(body, backend=backend, image_digest=asked))
            told = answer.json()["error"]["field"]
            check.equal((answer.status, told), (status, "/image_digest"), "%s: %s" % (backend, asked))


@docker("when the name behind image host leads elsewhere, containers are still made of the pinned one")
def _(_):
    digest = host_id()
    with moved():
        for _ in range(4):  # warm ones are two
            answer = check.ok(run(sh="cat /marker 2>/dev/null || echo none"))
            check.equal((check.text(answer), answer["image_digest"]), ("none\n", digest), "run")


@docker("a runner whose image host the engine does not have says so and does not start")
def _(_):
    state = os.path.join(pair().work, "another-state")
    server = harness.program("pinfold-server")
    subprocess.run([server, "init", "--state", state, "--user", pair().user], capture_output=True, timeout=30, check=True)
    command = [harness.program("pinfold-runner-docker"), "--state", state, "--check"]
    command += ["--policies", pair().policies, "--engine", pair().engine.socket]
    command += ["--server-user", pair().user, "--host-image"]
    for image_name, word in (("pinfold-test:nope", "docker pull"), ("x/../../info?", "must name")):
        done = subprocess.run(command + [image_name], capture_output=True, timeout=60, check=False)
        check.equal(done.returncode, 1, "exit code: %s" % done.stderr)
        check.holds(done.stderr.decode(), word, "stderr")


@docker("receipts say that it was a container")
def _(_):
    for backend, told in (("docker", "docker"), ("native", None)):
        body = check.ok(run(backend, argv=["true"]))["receipt"]["body"]
        check.equal(body.get("backend"), told, "receipt of a run")
        with Box.make(pair().client, backend=backend) as box:
            done = box.run(argv=["true"])
            body = box.client.get("%s/receipt" % box.at(done["id"])).json()["body"]
            check.equal(body.get("backend"), told, "receipt of an execution")


@docker("the containers of one user weigh together what another's one weighs")
def _(_):
    one, other = pair().client, pair().user_client("other")
    mark = {who: nonce() for who in (one, other)}

    def submit(who):
        return who.submit(sh="#%s\nwhile :; do :; done" % mark[who], backend="docker", limits={"cpu_ms": 60000})

    def weights(who):
        """Of each container's own group: its name is in the path."""
        ids, found = [c["Id"] for c in ours(pair())], {}
        for pid in clean.marked(mark[who]):
            for at in clean.cgroup_dirs(pid, clean.mounts_of_cgroups()).values():
                while len(at) > 1 and not any(name in os.path.basename(at) for name in ids):
                    at = os.path.dirname(at)
                found.update(processors.weight_of(at))
        return sorted(found.values())

    runs = [(who, submit(who)) for who in (one, one, other)]
    until("the weights", 30, lambda: processors.about(weights(one), [.5, .5]) and processors.about(weights(other), [1]))
    for who, run_id in runs:
        who.delete("/v1/runs/" + run_id)


@docker("a warm container is used once")
def _(_):
    names = set()
    for _ in range(3):
        # Both: one that is made only now could be used and gone before it was seen.
        until("warm containers", 30, lambda: len(ours(pair())) >= 2)
        before = {one["Id"] for one in ours(pair())}
        check.equal(check.text(check.ok(run(sh="ls /tmp; touch /tmp/seen"))), "", "/tmp")
        gone = until("the used one to go", 30, lambda: before - {c["Id"] for c in ours(pair())})
        check.true(not names & gone, "a container was used twice")
        names |= gone


@docker("sandboxes: commands, stdin, a terminal, files, pause, snapshot, restore and forks")
def _(_):
    with Box.make(pair().client, backend="docker") as box:
        check.equal(box.text("echo x > f; cat f"), "x\n", "stdout")
        box.put("/workspace/g", b"hello")
        check.equal(box.text("cat g"), "hello", "a file that was put there")
        told = box.stream(sh="tty; stty size", pty={"rows": 9, "cols": 17}).all()
        check.true("9 17" in "".join(e.get("data", "") for e in told), "no terminal")
        check.equal(box.text("kill -STOP -1; echo stopped"), "stopped\n", "whoever stops all others")
        check.equal(box.text("trap 'echo touched' CONT; echo goes on"), "goes on\n", "the next command")
        snapshot = box.snapshot()["id"]
        box.text("echo y > f; rm g")
        answer = pair().client.post("/v1/sandboxes/%s/restore" % box.id, {"snapshot": snapshot})
        check.equal(answer.status, 200, "restore")
        check.equal(box.text("cat f g"), "x\nhello", "after restore")
        for word in ("pause", "resume"):
            answer = pair().client.post("/v1/sandboxes/%s/%s" % (box.id, word), {})
            check.equal(answer.status, 200, word)
        forks = box.fork(2)
        for number, one in enumerate(forks):
            check.equal(one.text("echo %d > h; cat f g h" % number), "x\nhello%d\n" % number, "fork")
        for one in forks:
            one.delete()
        check.equal(box.text("ls"), "f\ng\n", "the first is as it was")


@contextlib.contextmanager
def hung():
    """The engine takes connections and does not answer."""
    pids = [pair().engine.child.pid]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@docker("an engine that hangs: red by layer, runs end as internal in bounded time, native ones go on")
def _(_):
    with hung():
        text = until("readiness turns red", 20, lambda: reasons().get("docker"))
        check.true("Docker engine" in text, "the reason is %r" % text)
        begun = time.monotonic()
        seen = []
        for _ in range(4):  # warm ones first: they need no engine
            answer = pair().client.post("/v1/runs", {"argv": ["true"], "backend": "docker"})
            seen.append(answer.json())
        end = [one["steps"][0]["end"] for one in seen if "steps" in one][-1]
        check.equal(end["cause"], "internal", "cause")
        check.equal(end["evidence"]["stage"], "engine", "the layer")
        check.true(time.monotonic() - begun < 30, "it took too long")
        check.ok(run("native", argv=["true"]))
    until("readiness turns green", 30, lambda: pair().probe("/readyz") == 200)
    check.ok(run(argv=["true"]))


@docker("an engine that is killed and comes back: its containers are gone, others are made")
def _(_):
    one = pair().engine
    box = Box.make(pair().client, backend="docker")
    one.stop(signal.SIGKILL)
    until("readiness turns red", 20, lambda: reasons().get("docker"))
    check.ok(run("native", argv=["true"]))
    one.start()
    until("readiness turns green", 40, lambda: pair().probe("/readyz") == 200)
    check.ok(run(argv=["true"]))
    with contextlib.suppress(AssertionError):
        box.delete()
    until("only warm containers are left", 30, only_warm)


@docker("an engine that keeps what runs comes back, and sandboxes are as they were")
def _(_):
    one = pair().engine
    one.stop()
    one.keeps = True
    try:
        one.start()
        until("readiness turns green", 40, lambda: pair().probe("/readyz") == 200)
        with Box.make(pair().client, backend="docker") as box:
            box.text("echo kept > f")
            one.stop(signal.SIGKILL)
            until("readiness turns red", 20, lambda: reasons().get("docker"))
            check.equal(box.text("cat f"), "kept\n", "without an engine")
            one.start()
            until("readiness turns green", 40, lambda: pair().probe("/readyz") == 200)
            check.ok(run(argv=["true"]))
            check.equal(box.text("cat f; id -u"), "kept\n1000\n", "with it again")
        until("only warm containers are left", 30, only_warm)
    finally:
        one.keeps = False


@docker("a runner that is killed: its containers end, and the next one finds the place clean")
def _(_):
    one = pair()
    before = {c["Id"] for c in ours(one)}
    check.true(before, "no container is there")
    # One that process 1 does not take with it: of an earlier life, not running. And another runner's.
    for name, label in (("left", owner()), ("another", "0" * 32)):
        body = {"Image": engine.BUSYBOX, "Cmd": ["/bin/true"], "Labels": {"dev.pinfold.owner": label}}
        status, _ = one.engine.ask("POST", "/v1.41/containers/create?name=" + name, json.dumps(body))
        check.equal(status, 201, name)
    with moved():  # the next life is one of what the name means then
        os.kill(one.docker.pid, signal.SIGKILL)
        one.docker.wait(5)
        check.ok(run("native", argv=["true"]))
        one.start_docker()
        one.wait_docker()
        until("readiness turns green", 30, lambda: one.probe("/readyz") == 200)
        answer = check.ok(run(argv=["cat", "/marker"]))
        check.equal((check.text(answer), answer["image_digest"]), ("moved", host_id()), "image host")
    left = {c["Id"] for c in ours(one)} & before
    check.equal(left, set(), "containers of the life before")
    names = [name for c in one.engine.containers() for name in c["Names"]]
    check.true("/left" not in names, "a container that did not run")
    check.true("/another" in names, "another runner's container")
    one.engine.ask("DELETE", "/v1.41/containers/another")
    check.ok(run(argv=["true"]))


@docker("when the runner ends, no container of it is left")
def _(_):
    one = pair()
    one.stop()
    check.equal(ours(one), [], "containers")
    _pair.clear()
    one.discard()
    one.engine.discard()

"""Imported images: a small root file system that is made here, and archives that are refused."""

import io
import os
import re
import subprocess
import tarfile

import canary
import check
import clean
import harness
from suite import add, test

PROGRAMS = (
    "sh",
    "cat",
    "ls",
    "id",
    "mkdir",
    "rm",
    "touch",
    "ln",
    "env",
    "true",
    "sleep",
    "grep",
    "readlink",
)
ARCHIVE = {}


def libraries(path):
    text = subprocess.run(["ldd", path], capture_output=True, text=True).stdout
    return re.findall(r"(/\S+)", text)


def entry(name, kind=tarfile.REGTYPE, mode=0o644, link="", size=0):
    one = tarfile.TarInfo(name)
    one.type, one.mode, one.linkname, one.size = kind, mode, link, size
    return one


def put(tar, name, data=b"", mode=0o644):
    one = entry(name, mode=mode, size=len(data))
    tar.addfile(one, io.BytesIO(data))


def put_base(tar, skip=()):
    """A shell with a few programs and what they load."""
    for name in (
        "bin",
        "etc",
        "proc",
        "dev",
        "tmp",
        "usr",
        "usr/bin",
        "var",
        "home",
        "workspace",
        "lib",
        "lib64",
        "usr/lib",
    ):
        if name not in skip:
            tar.addfile(entry(name, tarfile.DIRTYPE, 0o755))
    done = set()
    for name in PROGRAMS:
        path = os.path.realpath("/bin/" + name)
        put(tar, "bin/" + name, clean.read(path), 0o755)
        for library in libraries(path):
            if library not in done:
                done.add(library)
                put(tar, library.lstrip("/"), clean.read(library), 0o755)
    put(tar, "etc/marker", b"this is the image\n")
    put(
        tar,
        "etc/passwd",
        b"root:x:0:0:root:/root:/bin/sh\nimageuser:x:1000:1000::/home/user:/bin/sh\n",
    )


def archive(pair, make, name="a.tar", mode="w"):
    path = os.path.join(pair.work, name)
    with tarfile.open(path, mode, format=tarfile.PAX_FORMAT) as tar:
        make(tar)
    return path


def imported(pair, name, path, seconds=20):
    return subprocess.run(
        [harness.program("pinfold-server"), "image", "import", name, path, "--state", pair.state],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=seconds,
    )


def small(pair, name="small"):
    done = imported(pair, name, archive(pair, put_base, name + ".tar"))
    check.equal(done.returncode, 0, "exit code of the import: %s" % done.stderr.decode())


def image_tree(pair, name):
    """A listing of the image's files with sizes and modes."""
    found = []
    for at, dirs, plain in os.walk(os.path.join(pair.state, "images", name)):
        for one in dirs + plain:
            seen = os.lstat(os.path.join(at, one))
            found.append(
                (os.path.join(at, one), seen.st_mode, seen.st_size, seen.st_uid, seen.st_mtime_ns)
            )
    return sorted(found)


@test("an imported image is what a run sees, and stays as it is", own=True, deadline=40)
def _(_):
    with harness.Pair(slots=4, warm=1) as pair:
        small(pair)
        run = pair.client.run
        check.ok(run(image="small", argv=["true"]))
        answer = check.ok(
            run(
                image="small",
                sh="cat /etc/marker; echo $0; id -u; ls /; pwd",
                files=[{"path": "f", "content": "x"}],
                collect=["f"],
            )
        )
        text = check.text(answer)
        check.holds(text, "this is the image\n", "stdout")
        check.holds(text, "\n1000\n", "stdout")
        check.holds(text, "\n/workspace\n", "stdout")
        check.equal(answer["files"][0].get("content"), "x", "collected file")
        check.ended(run(image="small", argv=["python3"]), "start")
        check.ended(run(image="small", argv=["/usr/bin/gcc"]), "start")
        pair.rest()
        before = image_tree(pair, "small")
        answer = run(
            image="small",
            sh="echo evil > /etc/marker; rm -rf /bin/ls /etc/passwd; touch /x /etc/x /usr/x; "
            "mkdir /y; echo w > /workspace/w; echo t > /tmp/t; cat /workspace/w /tmp/t",
        )
        check.equal(check.text(answer), "w\nt\n", "the writable places")
        check.equal(image_tree(pair, "small"), before, "files of the image")
        answer = check.ok(run(image="small", sh="cat /etc/marker; ls /bin/ls /workspace /tmp"))
        check.holds(check.text(answer), "this is the image\n/bin/ls\n", "the next run")
        names = [row["name"] for row in pair.client.get("/v1/images").json()["images"]]
        check.equal(sorted(names), ["host", "small"], "images")
        check.ended(run(image="small", sh="sleep 9", limits={"wall_ms": 200}), "wall_time")
        check.ended(run(argv=["cat", "/etc/marker"]), "exit", exit_code=1)
        pair.check_clean(1)


@test("an image is as closed as the host's", own=True, deadline=40)
def _(_):
    with harness.Pair(slots=4, warm=1) as pair:
        small(pair)
        answer = check.ok(
            pair.client.run(
                image="small",
                sh="grep -E '^(Cap|NoNew|Seccomp:)' /proc/self/status; ls /proc/1/root 2>&1; ls "
                   "/dev; "
                "ls /sys 2>&1; readlink /proc/self/fd/0; cat %s 2>&1; env"
                % canary.Canaries.root_only,
            )
        )
        text = check.text(answer)
        for line in (
            "CapEff:\t" + "0" * 16,
            "CapBnd:\t" + "0" * 16,
            "NoNewPrivs:\t1",
            "Seccomp:\t2",
        ):
            check.holds(text, line, "status")
        check.lacks(text, canary.SECRET, "stdout")
        check.lacks(text, "sda", "the devices")
        check.equal(canary.problems(), [], "canaries")


REFUSED = [
    ("a path that leads out", lambda t: put(t, "../x", b"x"), ".."),
    ("a path that leads out in the middle", lambda t: put(t, "etc/../../x", b"x"), ".."),
    ("an absolute path", lambda t: put(t, "/etc/pinfold-evil", b"x"), ""),
    (
        "a file below a link",
        lambda t: (
            t.addfile(entry("l", tarfile.SYMTYPE, link="/tmp")),
            put(t, "l/pinfold-evil", b"x"),
        ),
        "l/pinfold-evil",
    ),
    (
        "a file below a relative link",
        lambda t: (
            t.addfile(entry("l", tarfile.SYMTYPE, link="../../../../tmp")),
            put(t, "l/pinfold-evil", b"x"),
        ),
        "l/pinfold-evil",
    ),
    (
        "a hard link to a file outside",
        lambda t: t.addfile(entry("h", tarfile.LNKTYPE, link="/etc/shadow")),
        "h",
    ),
    (
        "a hard link that climbs",
        lambda t: t.addfile(entry("h", tarfile.LNKTYPE, link="../../etc/shadow")),
        "h",
    ),
    (
        "a hard link through a link",
        lambda t: (
            t.addfile(entry("l", tarfile.SYMTYPE, link="/etc")),
            t.addfile(entry("h", tarfile.LNKTYPE, link="l/shadow")),
        ),
        "h",
    ),
    ("a block device", lambda t: t.addfile(entry("etc/sda", tarfile.BLKTYPE)), "etc/sda"),
    ("a FIFO", lambda t: t.addfile(entry("etc/p", tarfile.FIFOTYPE)), "etc/p"),
    ("a name of 300 bytes", lambda t: put(t, "a" * 300, b"x"), ""),
    ("2,040 levels", lambda t: put(t, "/".join(["d"] * 2040) + "/f", b"x"), ""),
    ("no files", lambda t: None, ""),
]


def refused(make, word):
    pair = harness.Pair()
    try:
        pair.init()
        before = clean.files(pair.state)
        done = imported(pair, "bad", archive(pair, make))
        check.true(done.returncode > 0, "exit code %s", done.returncode)
        text = done.stderr.decode()
        check.equal(len(text.strip().splitlines()), 1, "lines of the message %r" % text)
        check.holds(text, word, "message")
        left = [f for f in clean.files(pair.state) if f not in before and not f.endswith(".images")]
        check.equal(
            [f for f in left if "lock" not in os.path.basename(f)],
            [],
            "files left in the state directory",
        )
        for path in ("/tmp/pinfold-evil", "/etc/pinfold-evil", os.path.join(pair.state, "x")):
            check.true(not os.path.lexists(path), "%s was written", path)
    finally:
        pair.discard()


for _name, _make, _word in REFUSED:
    add(
        "an archive is refused: " + _name,
        (lambda make, word: lambda _: refused(make, word))(_make, _word),
        own=True,
    )


@test(
    "an archive that is none, cut short, or larger than allowed is refused", own=True, deadline=30
)
def _(_):
    pair = harness.Pair()
    try:
        pair.init()
        whole = clean.read(archive(pair, put_base))
        for name, data in (
            ("none", b"this is no archive" * 1000),
            ("empty", b""),
            ("cut", whole[:200000]),
        ):
            path = os.path.join(pair.work, name)
            with open(path, "wb") as out:
                out.write(data)
            done = imported(pair, "bad", path)
            check.true(done.returncode > 0, "%s: exit code %s", name, done.returncode)
        check.true(
            imported(pair, "bad", "/no/such.tar").returncode > 0, "a missing archive was imported"
        )
        check.equal(
            [n for n in os.listdir(os.path.join(pair.state, "images")) if not n.startswith(".")],
            [],
            "images",
        )
    finally:
        pair.discard()


@test(
    "names of images are checked, and none is taken twice or stands for the host", case=99, own=True
)
def _(_):
    pair = harness.Pair()
    try:
        pair.init()
        path = archive(pair, put_base)
        for name in ("../x", "", ".", "..", "a/b", "-x", "a" * 65, "a b", "host", "x\n"):
            check.true(imported(pair, name, path).returncode > 0, "the name %r was taken", name)
        check.equal(imported(pair, "good-1.0_x", path).returncode, 0, "exit code")
        check.true(imported(pair, "good-1.0_x", path).returncode > 0, "a name was taken twice")
    finally:
        pair.discard()


# Root file systems whose mount points are traps (case 94): the trap, and what it must not change.
TRAPS = [
    ("/proc is a link to /etc", "proc", "/etc"),
    ("/dev is a link to /proc", "dev", "/proc"),
    ("/tmp is a link to /", "tmp", "/"),
    ("/workspace is a link to /etc", "workspace", "/etc"),
    ("/home is a link to /proc/sys/kernel", "home", "/proc/sys/kernel"),
    ("/etc is a link to /proc/sys/kernel", "etc", "/proc/sys/kernel"),
    ("/var is a link that climbs", "var", "../../../../../tmp"),
]


def host_files():
    """Names and times of what an escaped extraction would touch, but for the files that other test
    programs put into the host's /etc meanwhile."""
    found = {"/": sorted(os.listdir("/"))}
    for name in sorted(os.listdir("/etc")):
        path = "/etc/" + name
        if not name.startswith("pinfold-canary-"):
            found[path] = os.lstat(path).st_mtime_ns
    return found


def trap(where, target):
    def make(tar):
        tar.addfile(entry(where, tarfile.SYMTYPE, link=target))
        put_base(Filter(tar, where), skip=(where,))

    with harness.Pair(slots=2, warm=0) as pair:
        knobs = [
            clean.read("/proc/sys/kernel/" + n) for n in ("core_pattern", "hostname", "modprobe")
        ]
        before = host_files()
        done = imported(pair, "trap", archive(pair, make))
        if done.returncode == 0:
            answer = pair.client.run(
                image="trap",
                argv=["/bin/sh", "-c", "ls /proc/self/status && echo x > /tmp/x && echo in"],
                limits={"wall_ms": 5000},
            )
            end = answer["steps"][0]["end"]
            check.member(end["cause"], ("exit", "start", "internal"), "cause")
            if end["cause"] == "exit" and answer["ok"]:
                check.holds(check.text(answer), "in\n", "stdout")
        check.equal(
            [clean.read("/proc/sys/kernel/" + n) for n in ("core_pattern", "hostname", "modprobe")],
            knobs,
            "knobs of the host",
        )
        check.equal(host_files(), before, "the host's files")
        check.ok(pair.client.run(argv=["true"]))
        pair.rest()
        pair.check_clean(1)


class Filter:
    """A tar that leaves out what lies below one directory."""

    def __init__(self, tar, without):
        self.tar, self.without = tar, without

    def addfile(self, one, data=None):
        if one.name != self.without and not one.name.startswith(self.without + "/"):
            self.tar.addfile(one, data)


for _name, _where, _target in TRAPS:
    add(
        "a trap in an image harms nobody: " + _name,
        (lambda where, target: lambda _: trap(where, target))(_where, _target),
        case=94,
        own=True,
        deadline=30,
    )


@test("set-uid bits of an image are lost or without effect", case=90, own=True, deadline=30)
def _(_):
    def make(tar):
        put_base(tar)
        put(tar, "bin/suid", clean.read(os.path.realpath("/bin/id")), 0o4755)

    with harness.Pair(slots=2, warm=1) as pair:
        done = imported(pair, "suid", archive(pair, make))
        if done.returncode == 0:
            answer = check.ok(pair.client.run(image="suid", argv=["/bin/suid", "-u"]))
            check.equal(check.text(answer), "1000\n", "effective uid")

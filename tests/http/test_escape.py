"""Each thing that must fail, tried from inside a jail; and canaries on the host, looked at
afterwards."""

import hashlib
import json
import os
import re

import canary
import check
import clean
import escape
import harness
from canary import Canaries
from check import Stopwatch
from suite import add, table, test

PATIENCE = float(os.environ.get("PINFOLD_TEST_PATIENCE", "1"))
_results = {}


def results(pair):
    """{key: outcome} of all C probes; they run once per pair."""
    if _results.get("pair") is not pair:
        answer = pair.client.run(
            files=[{"path": "probe.c", "content": escape.source(canary.ABSTRACT)}],
            steps=[
                {
                    "name": "build",
                    "argv": ["gcc", "-w", "-O1", "-pthread", "probe.c", "-o", "probe"],
                },
                {"name": "probe", "argv": ["./probe"]},
            ],
            limits={"wall_ms": int(25000 * PATIENCE)},
        )
        check.ok(answer)
        _results.update(pair=pair, seen=dict(line.split() for line in check.lines(answer, 1)))
    return _results["seen"]


def probe(pair, key, right):
    seen = results(pair).get(key, "nothing")
    check.member(seen, right.split(), "the outcome")


for _key, _what, _case, _body, _right in escape.PROBES:
    _word = "works: " if _right == "OK" else "is refused: "
    add(
        _word + _what,
        (lambda key, right: lambda pair: probe(pair, key, right))(_key, _right),
        case=_case,
        deadline=40,
    )


def untouched():
    check.equal(canary.problems(), [], "what happened to the canaries")


def inside(pair, script, *arguments, **more):
    """Runs python inside that prints one JSON value -> the value."""
    answer = check.ok(pair.client.python("import json, os, sys\n" + script, *arguments, **more))
    return json.loads(check.text(answer))


OPEN = """
out = {}
for p in json.loads(sys.argv[1]):
    try:
        fd = os.open(p, os.O_WRONLY | (os.O_CREAT if '/proc' not in p else 0), 0o644)
        os.write(fd, b'0')
        out[p] = 'written'
    except OSError as e:
        out[p] = e.errno
print(json.dumps(out))
"""


@test("no knob of the kernel and no file of the system can be written", case="93, 100")
def _(pair):
    seen = inside(pair, OPEN, json.dumps(escape.KNOBS))
    bad = {path: code for path, code in seen.items() if code not in (1, 2, 13, 20, 30)}
    check.equal(bad, {}, "written, or refused for another reason")


@test(
    "a jail goes before the server when the host is short of memory, and cannot change that",
    case="93, D5",
)
def _(pair):
    seen = inside(
        pair,
        "a = int(open('/proc/self/oom_score_adj').read())\n"
        "try: open('/proc/self/oom_score_adj', 'w').write('-1'); r = 'written'\n"
        "except OSError as e: r = e.errno\nprint(json.dumps([a, r]))",
    )
    server = int(clean.read("/proc/%d/oom_score_adj" % pair.server_pid))
    check.true(seen[0] > server, "oom_score_adj is %r inside, %r of the server", seen[0], server)
    check.member(seen[1], (1, 13, 30), "errno")


@test("nothing that names the host's state can be read", case="93, 101")
def _(pair):
    seen = inside(
        pair,
        """
out = {}
for p in json.loads(sys.argv[1]):
    try:
        if os.path.isdir(p):
            out[p] = os.listdir(p)
        else:
            fd = os.open(p, os.O_RDONLY | os.O_NONBLOCK)
            out[p] = os.read(fd, 64).decode('latin-1')
    except OSError as e:
        out[p] = None
print(json.dumps(out))
""",
        json.dumps(escape.SECRETS),
    )
    # Empty stand-ins (an empty directory, a masked file) tell nothing.
    bad = {path: text for path, text in seen.items() if text}
    bad = {
        path: text
        for path, text in bad.items()
        if not (path == "/proc/kallsyms" and text.startswith("0000000000000000"))
    }
    check.equal(bad, {}, "readable")


@test("/dev holds the minimum", case=92)
def _(pair):
    seen = set(inside(pair, "print(json.dumps(os.listdir('/dev')))"))
    check.equal(seen - escape.DEVICES, set(), "more in /dev")
    check.equal(
        {"null", "zero", "urandom", "ptmx", "pts", "shm", "fd", "stdout"} - seen, set(), "missing"
    )
    answer = check.ok(
        pair.client.sh(
            "echo x > /dev/null; head -c 3 /dev/zero | wc -c; "
            "head -c 3 /dev/urandom | wc -c; echo x > /dev/full; echo $?"
        )
    )
    check.equal(check.text(answer), "3\n3\n1\n", "zero, urandom, full")


@test("the canaries of the host are out of reach")
def _(pair):
    paths = [
        Canaries.root_only,
        Canaries.open_file,
        Canaries.directory,
        Canaries.shm_file,
        Canaries.unix_socket,
        Canaries.run_socket,
        pair.state,
        pair.work,
        harness.BUILD,
    ]
    seen = inside(
        pair, "print(json.dumps([p for p in sys.argv[1:] if os.path.lexists(p)]))", *paths
    )
    check.equal(seen, [], "paths of the host that exist inside")
    seen = inside(
        pair,
        "print(json.dumps([p for p in sys.argv[1:] if os.path.lexists('/proc/1/root' + p) or "
        "os.path.lexists('/proc/self/root/..' + p)]))",
        *paths
    )
    check.equal(seen, [], "paths of the host by way of /proc")
    untouched()


@test("no socket of the host is visible", case=86)
def _(pair):
    answer = pair.client.sh(
        "find / -xdev -type s 2>/dev/null; find / -type s -not -path '/proc/*' "
        "2>/dev/null; ls -A /run /var/run 2>/dev/null | head",
        limits={"wall_ms": 20000},
    )
    sockets = [
        line for line in check.lines(answer) if line.startswith("/") and not line.endswith(":")
    ]
    check.equal(sockets, [], "sockets")
    untouched()


@test("the host's abstract socket and System V segment are out of reach", case="85, 33")
def _(pair):
    seen = inside(
        pair,
        """
import ctypes, socket
s = socket.socket(socket.AF_UNIX)
try:
    s.connect('\\0' + sys.argv[1]); a = 'connected'
except OSError as e: a = e.errno
r = ctypes.CDLL(None, use_errno=True).shmget(int(sys.argv[2]), 1, 0)
print(json.dumps([a, r]))
""",
        canary.ABSTRACT,
        str(Canaries.shm_key),
    )
    check.member(seen[0], (1, 13, 111), "errno of connect")
    check.equal(seen[1], -1, "shmget")
    untouched()


CONNECT = """
import socket, time
out = []
for family, kind, host, port in json.loads(sys.argv[1]):
    t = time.monotonic()
    try:
        s = socket.socket(family, kind)
        s.settimeout(5)
        s.connect((host, port))
        if kind == socket.SOCK_DGRAM:
            s.send(b'x')
            s.recv(1)
        r = 'connected'
    except socket.timeout: r = 'timeout'
    except OSError as e: r = e.errno
    out.append([r, time.monotonic() - t])
print(json.dumps(out))
"""


def host_address():
    """An address of the host that is not loopback, or None."""
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("192.0.2.1", 9))
            return sock.getsockname()[0]
        except OSError:
            return None


def reach(pair, family, kind, host, port):
    port = port(pair) if callable(port) else port
    host = host() if callable(host) else host
    if host is None:
        return
    ((seen, seconds),) = inside(pair, CONNECT, json.dumps([[family, kind, host, port]]))
    check.member(seen, (1, 13, 22, 99, 101, 111, 113), "errno of %s port %s" % (host, port))
    check.within(0, seconds, 0.1, "seconds")
    untouched()


REACH = [
    ("the server on 127.0.0.1", 2, 1, "127.0.0.1", lambda pair: pair.port),
    ("a listener on the host's 127.0.0.1", 2, 1, "127.0.0.1", lambda _: Canaries.tcp_port),
    ("a listener on the host's ::1", 10, 1, "::1", lambda _: Canaries.tcp6_port or 9),
    ("the server by the host's own address", 2, 1, host_address, lambda pair: pair.port),
    ("0.0.0.0", 2, 1, "0.0.0.0", lambda pair: pair.port),
    ("the metadata service", 2, 1, "169.254.169.254", 80),
    ("a public address", 2, 1, "192.0.2.1", 443),
    ("a name server by UDP", 2, 2, "192.0.2.53", 53),
    ("a public IPv6 address", 10, 1, "2001:db8::1", 443),
]
table([("the network is off: %s cannot be reached" % row[0], 87) + row[1:] for row in REACH], reach)


@test("the only interface is lo", case=87)
def _(pair):
    answer = check.ok(
        pair.client.sh(
            "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; "
            "tail -n +2 /proc/net/route | wc -l"
        )
    )
    check.equal(check.text(answer), "lo\n0\n", "interfaces and routes")


@test("nothing of the server's environment is inside", case="88, 195")
def _(pair):
    answer = check.ok(
        pair.client.sh(
            "env -0 | tr '\\0' '\\n'; cat /proc/1/environ /proc/$PPID/environ /proc/*/environ "
            "2>/dev/null | tr '\\0' '\\n'"
        )
    )
    text = check.text(answer)
    check.lacks(text, canary.SECRET, "the environment")
    check.lacks(text, pair.token, "the environment")
    allowed = {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "LANG",
        "TZ",
        "TMPDIR",
        "TERM",
        "CI",
        "PAGER",
        "GIT_PAGER",
        "GIT_EDITOR",
        "EDITOR",
        "DEBIAN_FRONTEND",
        "PYTHONUNBUFFERED",
        "PIP_NO_INPUT",
        "GIT_TERMINAL_PROMPT",
        "TRACEPARENT",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "JDK_JAVA_OPTIONS",
        "PINFOLD_TEST_MARK",
        "PWD",
        "SHLVL",
        "_",
        "OLDPWD",
    }
    names = {line.split("=")[0] for line in text.splitlines() if re.match(r"^[A-Za-z_]+=", line)}
    check.equal(names - allowed, set(), "further variables")


@test("only own processes are visible", case=89)
def _(pair):
    seen = inside(
        pair,
        """
out = {}
for p in os.listdir('/proc'):
    if p.isdigit():
        try: out[p] = open('/proc/%s/cmdline' % p).read()
        except OSError as e: out[p] = e.errno
print(json.dumps(out))
""",
    )
    # Process 1 may be hidden: it is another user's.
    check.within(1, len(seen), 3, "processes")
    text = json.dumps(seen)
    for word in ("pinfold-server", "pinfold-runner", pair.state, "run.py"):
        check.lacks(text, word, "the command lines")


@test("only 0, 1 and 2 are open", case=77)
def _(pair):
    answer = check.ok(
        pair.client.run(
            argv=["python3", "-c", "import os\nprint(sorted(os.listdir('/proc/self/fd'))[:9])"]
        )
    )
    check.equal(check.text(answer), "['0', '1', '2', '3']\n", "descriptors; 3 is the listing's own")


CWDS = [
    "/proc/self/fd/7",
    "/proc/self/fd/8/../..",
    "/proc/1/cwd",
    "/proc/1/root",
    "/proc/self/fd/3",
    "link",
    "../../../../../../root",
]


def cwd(pair, wish):
    steps = [{"sh": "ln -s /proc/self/fd/7 link || true"}, {"sh": "pwd -P; ls -A | head -50"}]
    answer = pair.client.send(
        steps=steps, cwd=wish if wish.startswith("/") else "/workspace/" + wish
    )
    if answer.status == 400:
        return
    check.equal(answer.status, 200, "status")
    for step in answer.json()["steps"]:
        if step.get("end") and step["end"]["cause"] != "start":
            check.lacks(step["stdout"], "unreachable", "getcwd")
            check.lacks(step["stdout"], os.path.basename(pair.state), "the listing")


table([("cwd %s leads nowhere outside" % wish, 77, wish) for wish in CWDS], cwd)


@test("the launcher cannot be overwritten", case=76)
def _(pair):
    def digest():
        out = {}
        for name in ("pinfold-init", "pinfold-runner", "pinfold-server"):
            out[name] = hashlib.sha256(clean.read(harness.program(name))).hexdigest()
        return out

    before = digest()
    pair.client.run(
        files=[
            {"path": "s", "content": "#!/proc/self/exe\n", "mode": "0755"},
            {"path": "t", "content": "#!/proc/1/exe\n", "mode": "0755"},
        ],
        steps=[
            {"argv": ["./s"], "continue_on_error": True, "limits": {"wall_ms": 1000}},
            {"argv": ["./t"], "continue_on_error": True, "limits": {"wall_ms": 1000}},
            {
                "sh": "for i in {1..2000}; do for p in /proc/[0-9]*/exe; do : >> $p; done; done "
                      "2>/dev/null; true",
                "limits": {"wall_ms": 2000},
            },
        ],
    )
    check.equal(digest(), before, "sha256 of the programs")


@test("set-uid files change nothing", case=90)
def _(pair):
    answer = check.ok(
        pair.client.sh(
            "cp /usr/bin/python3 p; chmod 4755 p; ./p -c 'import os; print(os.geteuid(), "
            "os.getuid())'; "
            "for f in $(find /usr -xdev -perm -4000 -type f 2>/dev/null | head -20); do "
            "timeout 2 $f </dev/null >/dev/null 2>&1; done; "
            "grep -E '^(Cap|NoNew|Seccomp:|Uid|Gid)' /proc/self/status",
            limits={"wall_ms": 25000},
        )
    )
    lines = check.lines(answer)
    check.equal(lines[0], "1000 1000", "ids of a set-uid copy")
    seen = dict(line.split(":\t") for line in lines[1:])
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        check.equal(seen[name], "0" * 16, name)
    check.equal((seen["NoNewPrivs"], seen["Seccomp"]), ("1", "2"), "NoNewPrivs, Seccomp")
    check.equal(seen["Uid"], "1000\t1000\t1000\t1000", "Uid")
    check.equal(seen["Gid"], "1000\t1000\t1000\t1000", "Gid")


@test("every mount is nosuid, every writable one nodev", case=90)
def _(pair):
    answer = check.ok(pair.client.run(argv=["cat", "/proc/self/mountinfo"]))
    for line in check.lines(answer):
        point, options = line.split()[4], line.split()[5].split(",")
        check.true("nosuid" in options, "%s is not nosuid: %s", point, options)
        if "rw" in options and point.startswith(
            ("/workspace", "/home", "/tmp", "/var", "/dev/shm")
        ):
            check.true("nodev" in options, "%s is not nodev", point)


@test("no name of the host leaks", case=101)
def _(pair):
    answer = check.ok(
        pair.client.sh(
            "cat /proc/self/cgroup /proc/self/mountinfo /etc/hostname /etc/passwd /etc/group "
            "/etc/hosts "
            "/proc/self/mounts /proc/sys/kernel/hostname 2>/dev/null; uname -n; cat "
            "/etc/machine-id 2>/dev/null; true"
        )
    )
    text = check.text(answer)
    own = clean.cgroup_dirs(pair.runner_pid, clean.mounts_of_cgroups())
    words = {pair.state, os.path.basename(pair.work), canary.SECRET}
    words |= {
        part
        for path in own.values()
        for part in path.split("/")
        if len(part) > 8 and part not in ("cgroup", "process_api")
    }
    machine = clean.read("/etc/machine-id").decode().strip()
    if machine:
        words.add(machine)
    for word in words:
        check.lacks(text, word, "what a program can read")
    users = set(re.findall(r"^([a-z_][a-z0-9_-]*):x?:\d+:", text, re.M))
    host = {
        line.split(":")[0]
        for line in clean.read("/etc/passwd").decode().splitlines()
        if int(line.split(":")[2]) >= 1000 and line.split(":")[0] != "nobody"
    }
    check.equal(users & host - {"user"}, set(), "people of the host")
    if os.uname().nodename not in ("pinfold", "localhost", "sandbox"):
        check.true(
            not re.search(r"^%s$" % re.escape(os.uname().nodename), text, re.M), "the host's name"
        )
    for line in text.splitlines():
        if re.match(r"^\d+:[a-z0-9_,=]*:/", line):
            check.true(line.count("/") <= 2, "the path of a cgroup is %s", line)


@test("killing everything kills only own processes", case=95, deadline=30)
def _(pair):
    for script in (
        "kill -9 -1; echo after",
        "kill -9 1; echo after",
        "kill -STOP $PPID; kill -STOP 1; echo after",
        "for i in {1..3000}; do kill -9 $i 2>/dev/null; done; echo after",
    ):
        watch = Stopwatch()
        answer = pair.client.sh(script, limits={"wall_ms": 5000})
        watch.below(5, script)
        check.member(answer["steps"][0]["end"]["cause"], ("exit", "signal"), "cause of " + script)
    check.ok(pair.client.run(argv=["true"]))


@test(
    "a program that kills everything hurts neither the steps after it nor the collecting",
    case=95,
    deadline=30,
)
def _(pair):
    for _ in range(15):
        answer = pair.client.run(
            steps=[
                {"sh": "echo x > f; kill -9 -1; exit 3", "continue_on_error": True},
                {"sh": "echo two"},
            ],
            collect=["f"],
        )
        check.member(answer["steps"][0]["end"]["cause"], ("exit", "signal"), "cause of step 0")
        check.equal(check.text(answer, 1), "two\n", "stdout of step 1")
        check.equal(answer["files"][0].get("content"), "x\n", "the collected file")


@test("the next run sees nothing of the damage of the one before", case=100)
def _(pair):
    before = hashlib.sha256(clean.read("/usr/bin/ls")).hexdigest()
    pair.client.sh(
        "echo evil > /bin/ls; rm -rf /usr/lib/* /etc/* /workspace/* 2>/dev/null; touch /etc/x; "
        "mount -o remount,rw /; echo evil > /tmp/left; echo evil > /workspace/left; "
        "echo evil > /home/user/left; echo evil > /dev/shm/left; echo evil > /var/tmp/left"
    )
    answer = check.ok(pair.client.sh("ls /tmp /workspace /home/user /dev/shm /var/tmp"))
    check.lacks(check.text(answer), "left", "the writable places")
    check.equal(
        hashlib.sha256(clean.read("/usr/bin/ls")).hexdigest(), before, "sha256 of /usr/bin/ls"
    )
    check.true(not os.path.exists("/etc/x"), "/etc/x exists on the host")


@test("ids outside are the jail's own, and not root's", case=129)
def _(pair):
    def outside(run):
        pids = check.eventually(lambda: clean.marked(pair.client.mark + run), 3, "the run")
        status = clean.read("/proc/%d/status" % pids[0]).decode()
        return [
            int(n)
            for key in ("Uid", "Gid")
            for n in re.search(key + r":\s+(.*)", status).group(1).split()
        ]

    runs, seen = [], []
    for one in ("A", "B"):
        request = {
            "argv": ["sleep", "20"],
            "wait": False,
            "env": {clean.MARK: pair.client.mark + one},
        }
        runs.append(pair.client.post("/v1/runs", request).json()["id"])
        seen.append(outside(one))
    for ids in seen:
        check.true(min(ids) >= 65536, "an id outside is %r", ids)
    check.true(not set(seen[0]) & set(seen[1]), "two jails share ids: %r", seen)
    for run in runs:
        pair.client.delete("/v1/runs/" + run)
        pair.client.wait_done(run, 3)


INJECTIONS = [
    ("policy", "--privileged"),
    ("image", "-v/:/h"),
    ("policy", "../default"),
    ("image", "../../etc"),
    ("policy", "a" * 65),
    ("image", ""),
    ("policy", "a b"),
    ("policy", "default\n"),
    ("image", "host;id"),
    ("image", "."),
    ("policy", ".."),
]


def injection(pair, field, value):
    check.error(pair.client.send(argv=["true"], **{field: value}), 400, field="/" + field)


table(
    [("%s %r is refused" % (field, value), 99, field, value) for field, value in INJECTIONS],
    injection,
)


@test("arguments are passed as they are", case=99)
def _(pair):
    wild = [
        "x\ncat /etc/shadow",
        "-wrapper sh,-c,id",
        "@/etc/passwd",
        "$(id)",
        "`id`",
        "'; id; '",
        "",
        "*",
    ]
    seen = inside(pair, "print(json.dumps(sys.argv[1:]))", *wild)
    check.equal(seen, wild, "argv")


@test("the canaries are as they were")
def _(pair):
    untouched()

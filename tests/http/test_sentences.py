"""GET /v1/policies/NAME says in plain sentences what a program can read, write and reach. Each
sentence has a proof here, made from inside a jail of that policy; a sentence without one is a
failure."""

import json
import os
import re

import canary
import check
from canary import Canaries
from suite import add

MIB = 1 << 20
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

# What holds the settings, users and secrets of a host.
SETTINGS = [
    "shadow",
    "gshadow",
    "sudoers",
    "fstab",
    "ssh",
    "pam.d",
    "systemd",
    "cron.d",
    "crontab",
    "network",
    "environment",
    "gitconfig",
    "npmrc",
    "pip.conf",
    "apt",
    "wgetrc",
    "curlrc",
    "ssl/private",
    "docker",
    "kubernetes",
    "subuid",
    "login.defs",
    "hosts.allow",
    "sysctl.conf",
    "modprobe.d",
    "udev",
    "default",
]


def inside(pair, policy, script, *arguments, **more):
    answer = check.ok(
        pair.client.python("import json, os, sys\n" + script, *arguments, policy=policy, **more)
    )
    return json.loads(check.text(answer))


def programs(pair, policy, _):
    answer = check.ok(
        pair.client.sh(
            "for f in /usr/bin/env /bin/sh /usr/bin/python3; do test -x $f && head -c4 $f | tail "
            "-c3; done; "
            "ls /lib /sbin >/dev/null && cat /usr/lib/os-release | head -1 | wc -l",
            policy=policy,
        )
    )
    check.equal(check.text(answer), "ELFELFELF1\n", "heads of programs")


def made_up_etc(pair, policy, _):
    script = (
        "print(json.dumps([[n for n in sys.argv[1:] if os.path.lexists('/etc/' + n)], "
        "open('/etc/passwd').read(), open('/etc/hosts').read()]))"
    )
    seen = inside(pair, policy, script, os.path.basename(Canaries.etc_file), *SETTINGS)
    check.equal(seen[0], [], "settings of the host in /etc")
    users = [line.split(":")[0] for line in seen[1].splitlines()]
    check.equal(users, ["root", "user", "nobody"], "users")
    check.holds(seen[1], "user:x:1000:1000:", "passwd")
    check.holds(seen[2], "localhost", "hosts")
    answer = check.ok(
        pair.client.sh(
            "date +%Z; ls /etc/ssl/certs | grep -c .; getent passwd user | wc -l", policy=policy
        )
    )
    zone, certificates, users = check.lines(answer)
    check.true(
        zone == "UTC" and int(certificates) > 0 and users == "1",
        "time zone, certificates, users: %r",
        zone,
    )


def request_files(pair, policy, _):
    answer = check.ok(
        pair.client.run(
            argv=["cat", "d/f"], files=[{"path": "d/f", "content": "came"}], policy=policy
        )
    )
    check.equal(check.text(answer), "came", "the file")


def own_processes(pair, policy, _):
    run = pair.client.submit(argv=["sleep", "20"], policy=policy)
    pair.client.wait_state(run, ("running",))
    answer = check.ok(
        pair.client.sh(
            "sleep 5 & ls -d /proc/[0-9]* | wc -l; cat /proc/*/cmdline | tr '\\0' ' '",
            policy=policy,
        )
    )
    text = check.text(answer)
    check.within(2, int(text.split()[0]), 6, "processes")
    check.holds(text, "sleep 5", "the own child")
    for word in ("sleep 20", "pinfold-server", "pinfold-runner"):
        check.lacks(text, word, "the command lines")
    pair.client.delete("/v1/runs/" + run)
    pair.client.wait_done(run, 3)


LISTED = """
out = []
for p in sys.argv[1:]:
    try: names = os.listdir(p)
    except OSError: continue
    own = {'/home': ['user'], '/var': ['tmp', 'run', 'lock']}.get(p, [])
    out += [p + '/' + n for n in names if n not in own]
print(json.dumps(out))
"""


def host_directories(pair, policy, match):
    paths = re.findall(r"/[a-z]+", match.group(0))
    check.true(len(paths) >= 6, "paths of the sentence: %s", paths)
    seen = inside(
        pair,
        policy,
        LISTED,
        *paths
    )
    check.equal(seen, [], "what is there")


def no_secrets(pair, policy, _):
    answer = check.ok(
        pair.client.sh(
            "env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'; ls -l /proc/self/fd; cat "
            "/proc/keys 2>/dev/null; true",
            policy=policy,
        )
    )
    text = check.text(answer)
    for secret in (canary.SECRET, pair.token, pair.state, "API_TOKEN"):
        check.lacks(text, secret, "what can be read")
    names = re.findall(r" (\d+) -> (\S+)", text)
    check.equal(
        sorted(int(n) for n, _ in names), [0, 1, 2, 3], "descriptors; 3 is the listing's own"
    )


PLACES = ["/workspace", "/home/user", "/tmp", "/var/tmp", "/dev/shm"]
NODES = {
    "/dev/" + n for n in ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts/ptmx")
}


def places(pair, policy, match):
    named = match.group(1).split(", ")
    for place in named:
        check.equal(writes(pair, policy, place), 0, "errno in " + place)
    answer = pair.client.sh(
        "find / -path /proc -prune -o ! -type l -writable -print 2>/dev/null; true",
        policy=policy,
        limits={"wall_ms": 20000, "cpu_ms": 10000},
    )
    check.ended(answer, "exit")
    others = [
        p
        for p in check.lines(answer)
        if p not in NODES and not any(p == place or p.startswith(place + "/") for place in named)
    ]
    check.equal(others, [], "what else can be written")


def writes(pair, policy, place):
    return inside(
        pair,
        policy,
        "try:\n open(sys.argv[1] + '/probe', 'w').write('x'); print(0)\n"
        "except OSError as e: print(e.errno)",
        place,
    )


def not_places(pair, policy, match):
    for place in match.group(1).split(", "):
        check.member(writes(pair, policy, place), (1, 2, 13, 30), "errno in " + place)


FILL = """
def full(path, step):
    n = 0
    try:
        with open(path, 'ab', 0) as f:
            while True: n += f.write(bytes(step))
    except OSError as e: assert e.errno in (27, 28), e
    return n
total = sum(full(p + '/f', s) for s in (1 << 20, 4096) for p in sys.argv[2:])
for p in sys.argv[2:]: os.unlink(p + '/f')
count = 0
try:
    while True:
        os.close(os.open(sys.argv[2] + '/n%d' % count, os.O_CREAT | os.O_WRONLY)); count += 1
except OSError as e: assert e.errno == 28, e
print(json.dumps([total, count]))
"""


def holds_at_most(pair, policy, match):
    size = int(float(match.group(1)) * UNITS[match.group(2)])
    entries = int(match.group(3))
    most = pair.client.get("/v1/policies/" + policy).json()["limits"]
    check.equal(
        (most["disk_bytes"]["default"], most["inodes"]["default"]), (size, entries), "the defaults"
    )
    if size > 1 << 30:
        # As much as the default of a large policy need not be written to see that a limit holds.
        size = 64 * MIB
    allowed = [
        row["path"]
        for row in pair.client.get("/v1/policies/" + policy).json()["writable"].values()
        if row["allow"]
    ]
    limits = {
        "mem_bytes": min(size + 300 * MIB, most["mem_bytes"]["ceiling"]),
        "disk_bytes": size,
        "file_bytes": min(size, most["file_bytes"]["ceiling"]),
        "cpu_ms": min(20000, most["cpu_ms"]["ceiling"]),
        "inodes": min(entries, 65536),
    }
    total, count = inside(pair, policy, FILL, "-", *allowed, limits=limits)
    check.within(0.95 * size, total, size, "bytes in all places together")
    check.within(0.95 * limits["inodes"], count, limits["inodes"], "files")


def in_memory(pair, policy, *_):
    answer = pair.client.run(
        policy=policy,
        argv=["dd", "if=/dev/zero", "of=/workspace/f", "bs=1M", "count=48"],
        limits={"mem_bytes": 24 << 20},
    )
    check.ended(answer, "memory")


def gone(pair, policy, _):
    name = "left-" + canary.SECRET[-8:]
    answer = check.ok(
        pair.client.sh(
            "for d in /workspace /tmp $HOME; do echo x > $d/%s; done" % name,
            policy=policy,
            collect=[name],
        )
    )
    check.equal(answer["files"][0].get("content"), "x\n", "the collected file")
    answer = check.ok(pair.client.sh("ls -R /workspace /tmp $HOME", policy=policy))
    check.lacks(check.text(answer), name, "the next run")


OUTSIDE = """
import socket, time
out = []
def tried(f):
    t = time.monotonic()
    try: f(); r = 0
    except OSError: r = 1
    out.append([r, time.monotonic() - t])
for a in (('192.0.2.1', 80), ('169.254.169.254', 80), ('127.0.0.1', int(sys.argv[1])),
          ('127.0.0.1', int(sys.argv[2]))):
    tried(lambda: socket.create_connection(a, 5))
tried(lambda: socket.socket(10).connect(('2001:db8::1', 80)))
tried(lambda: socket.getaddrinfo('example.org', 80))
out.append(sorted(l.split(':')[0].strip() for l in open('/proc/net/dev').readlines()[2:]))
print(json.dumps(out))
"""


def no_network(pair, policy, _):
    seen = inside(
        pair,
        policy,
        OUTSIDE,
        str(Canaries.tcp_port),
        str(pair.port),
    )
    check.equal(seen[-1], ["lo"], "interfaces")
    for refused, seconds in seen[:-1]:
        check.true(refused and seconds < 0.5, "reached, or slow: %r", seen)
    check.equal(canary.problems(), [], "canaries")


def loopback(pair, policy, _):
    seen = inside(
        pair,
        policy,
        """
import socket
out = []
for family, address in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1')):
    s = socket.socket(family); s.bind((address, 0)); s.listen()
    c = socket.create_connection((address, s.getsockname()[1]), 2); c.send(b'hi')
    out.append(s.accept()[0].recv(2).decode())
print(json.dumps(out))
""",
    )
    check.equal(seen, ["hi", "hi"], "what was sent")


def no_loopback(pair, policy, _):
    seen = inside(
        pair,
        policy,
        "import socket\ntry: socket.socket(socket.AF_INET); print(0)\n"
        "except OSError as e: print(e.errno)",
    )
    check.member(seen, (1, 97), "errno of a socket")


LISTENER = """
import ctypes, os, socket, sys, time
s = socket.socket(socket.AF_UNIX); s.bind('\\0' + sys.argv[1]); s.listen()
t = socket.socket(socket.AF_UNIX); t.bind('/tmp/' + sys.argv[1]); t.listen()
open('/tmp/file-' + sys.argv[1], 'w').write('x')
print('on', flush=True)
time.sleep(20)
"""


SEEKER = """
import ctypes, socket
def tried(f):
    try: f(); return 'reached'
    except OSError as e: return e.errno
def connect(a):
    socket.socket(socket.AF_UNIX).connect(a)
name, abstract, path, key = sys.argv[1:]
out = [tried(lambda: connect(a)) for a in ('\\0' + name, '/tmp/' + name, '\\0' + abstract, path)]
out.append(tried(lambda: open('/tmp/file-' + name)))
out.append(ctypes.CDLL(None).shmget(int(key), 1, 0))
out.append([p for p in range(2, 40)
            if p != os.getpid() and tried(lambda: os.kill(p, 0)) == 'reached'])
print(json.dumps(out))
"""


def others(pair, policy, _):
    name = "other-" + canary.SECRET[-8:]
    with pair.client.stream(argv=["python3", "-c", LISTENER, name], policy=policy) as stream:
        _, accepted = stream.next("accepted")
        stream.next("stdout")
        seen = inside(
            pair,
            policy,
            SEEKER,
            name,
            canary.ABSTRACT,
            Canaries.unix_socket,
            str(Canaries.shm_key),
        )
        pair.client.delete("/v1/runs/" + accepted["id"])
        stream.next("done")
    check.true("reached" not in seen[:5], "something was reached: %r", seen)
    check.equal(seen[5], -1, "shmget")
    check.equal(seen[6], [], "processes that can be signalled")
    check.equal(canary.problems(), [], "canaries")


def no_privileges(pair, policy, _):
    answer = check.ok(
        pair.client.sh(
            "cp /usr/bin/python3 p; chmod 4755 p; ./p -c 'import os; print(os.geteuid())'; "
            "grep -E '^(CapEff|CapPrm|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | tr -d "
            "'\\t\\n'; echo; "
            "su -c id root </dev/null >/dev/null 2>&1; echo $?; mount -t tmpfs x /tmp "
            "2>/dev/null; echo $?",
            policy=policy,
        )
    )
    lines = check.lines(answer)
    zero = "0" * 16
    check.equal(
        lines[:2],
        ["1000", "CapPrm:%sCapEff:%sCapBnd:%sNoNewPrivs:1Seccomp:2" % (zero, zero, zero)],
        "power",
    )
    check.true(lines[2] != "0" and lines[3] != "0", "su or mount worked: %r", lines)


# Section, what the sentence must match, its proof.
PROOFS = [
    ("read", r"^It can read the programs and libraries of its image", programs),
    ("read", r"^It can read an /etc that is made up for it", made_up_etc),
    ("read", r"^It can read the files that came with the request, in /workspace", request_files),
    ("read", r"^It can see its own processes in /proc, and no others", own_processes),
    ("read", r"^It cannot read the host's (/.*)$", host_directories),
    ("read", r"^It cannot read environment variables, keys or open files", no_secrets),
    ("write", r"^It can write to (/[a-z_/, ]+), and nowhere else\.$", places),
    ("write", r"^It cannot write to (/[a-z_/, ]+)\.$", not_places),
    (
        "write",
        r"^All of that together holds at most ([0-9.]+) ([KMG]iB) in (\d+) files",
        holds_at_most,
    ),
    ("write", r"^These files are in memory and count against mem_bytes", in_memory),
    ("write", r"^What it writes is gone when the run is over", gone),
    ("reach", r"^It cannot reach any network", no_network),
    ("reach", r"^It can talk to itself over loopback, with IPv4 and IPv6", loopback),
    ("reach", r"^It cannot (open|make) .*sockets?", no_loopback),
    ("reach", r"^It cannot reach other sandboxes", others),
    ("reach", r"^It cannot gain privileges", no_privileges),
]


def section(pair, policy, name):
    sentences = pair.client.get("/v1/policies/" + policy).json()["sentences"]
    check.equal(set(sentences), {"read", "write", "reach"}, "sections")
    check.true(len(sentences[name]) >= 3, "few sentences: %r", sentences[name])
    wrong = []
    for sentence in sentences[name]:
        found = [
            (proof, m)
            for part, pattern, proof in PROOFS
            for m in [re.search(pattern, sentence)]
            if part == name and m
        ]
        if not found:
            wrong.append("no proof for: " + sentence)
        for proof, match in found:
            try:
                proof(pair, policy, match)
            except AssertionError as problem:
                wrong.append("%r is not true: %s" % (sentence, problem))
    check.true(not wrong, "%s", "\n".join(wrong))


for _policy in ("default", "judge", "ci"):
    for _section in ("read", "write", "reach"):
        add(
            "what %s says about what a program can %s is true" % (_policy, _section),
            (lambda p, s: lambda pair: section(pair, p, s))(_policy, _section),
            deadline=60,
        )

"""Policies: what GET /v1/policies says, proven from inside a jail; judge and ci; files that are
wrong."""

import json
import os
import resource
import shutil
import subprocess
import tempfile

import check
import clean
import harness
from check import Stopwatch
from suite import add, table, test

MIB = 1 << 20


def policy(pair, name):
    answer = pair.client.get("/v1/policies/" + name)
    check.equal(answer.status, 200, "status")
    return answer.json()


@test("the three policies are listed with ceilings, defaults and reasons")
def _(pair):
    listed = pair.client.get("/v1/policies").json()["policies"]
    check.equal(sorted(one["name"] for one in listed), ["ci", "default", "judge"], "names")
    for name in ("ci", "default", "judge"):
        with open(os.path.join(harness.POLICIES, name + ".json")) as file:
            wanted = json.load(file)
        seen = policy(pair, name)
        check.equal(seen["name"], name, "name")
        # A process cannot have more open files than the host lets root have.
        files = wanted["limits"]["open_files"]
        files["ceiling"] = min(files["ceiling"], resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        for limit, one in wanted["limits"].items():
            for key in ("default", "ceiling", "why"):
                check.equal(seen["limits"][limit][key], one[key], "%s: %s.%s" % (name, limit, key))
        run = check.ok(pair.client.run(argv=["true"], policy=name))
        check.equal(run["policy"], {"name": name, "sha256": seen["sha256"]}, "policy of a run")
        for limit, one in wanted["limits"].items():
            check.equal(
                run["limits"][limit],
                {"value": one["default"], "from": "default"},
                "limits." + limit,
            )


def written(pair, path, name):
    """Can a file be made in `path`? -> errno, or 0."""
    script = (
        "import os, sys\ntry:\n fd = os.open(sys.argv[1] + '/probe', os.O_CREAT | os.O_RDWR)\n"
        " os.write(fd, b'x'); print(0)\nexcept OSError as e: print(e.errno)"
    )
    return int(check.text(check.ok(pair.client.python(script, path, policy=name))))


PLACES = ["/workspace", "/home/user", "/tmp", "/var/tmp", "/dev/shm"]
CLOSED = [
    "/",
    "/usr",
    "/usr/bin",
    "/etc",
    "/var",
    "/home",
    "/dev",
    "/lib",
    "/proc",
    "/run",
    "/root",
    "/opt",
    "/srv",
    "/mnt",
    "/sys",
]
WRITABLE = {"default": PLACES, "ci": PLACES, "judge": ["/workspace", "/tmp"]}


def writable(pair, name):
    for path in PLACES:
        seen = written(pair, path, name)
        if path in WRITABLE[name]:
            check.equal(seen, 0, "errno of writing to " + path)
        else:
            check.member(seen, (1, 2, 13, 30), "errno of writing to " + path)
    for path in CLOSED:
        check.member(written(pair, path, name), (1, 2, 13, 20, 30), "errno of writing to " + path)


table(
    [
        ("what %s lets be written, and nothing else, can be written" % name, None, name)
        for name in WRITABLE
    ],
    writable,
)


@test("judge: the home is the workspace", case=176)
def _(pair):
    answer = check.ok(pair.client.sh("echo $HOME; touch ~/x && echo $TMPDIR", policy="judge"))
    check.equal(check.text(answer), "/workspace\n/tmp\n", "stdout")


STRICT = """
import ctypes, os, socket
def errno(f):
    try: f(); return 0
    except OSError as e: return e.errno
libc = ctypes.CDLL(None, use_errno=True)
def call(*a):
    if libc.syscall(*a) < 0: raise OSError(ctypes.get_errno(), '')
print(errno(lambda: socket.socket(socket.AF_INET)), errno(lambda: socket.socket(socket.AF_INET6)),
      errno(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)),
      errno(lambda: socket.socket(socket.AF_UNIX)),
      errno(lambda: call(101, 0, 0, 0, 0)), errno(lambda: call(29, 0, 4096, 0o1600)))
"""


@test("judge: no sockets but local ones, no tracing, no shared memory by key")
def _(pair):
    seen = check.text(check.ok(pair.client.python(STRICT, policy="judge"))).split()
    for index, wanted in enumerate(
        (("97", "1"), ("97", "1"), ("97", "1"), ("0",), ("1", "38"), ("1", "38"))
    ):
        check.member(seen[index], wanted, "errno %d" % index)
    check.equal(
        check.text(check.ok(pair.client.python(STRICT))),
        "0 0 0 0 0 0\n",
        "the same with the default policy",
    )


@test("judge: output over the cap ends the run by default")
def _(pair):
    answer = pair.client.sh("yes", policy="judge")
    check.ended(answer, "output", exit_code=None)
    answer = pair.client.sh("yes | head -c 100000; exit 0", policy="judge", end_on=[])
    check.ended(answer, "exit", exit_code=0)


VERDICTS = [
    ("right", 'int main(){int a,b;scanf("%d%d",&a,&b);printf("%d\\n",a+b);return 0;}', "exit", 0),
    ("a wrong exit code", "int main(){return 3;}", "exit", 3),
    ("an endless loop", "int main(){for(;;);}", "cpu_time", None),
    ("waiting for ever", "#include <unistd.h>\nint main(){for(;;)pause();}", "wall_time", None),
    (
        "much memory",
        "#include <string.h>\nint main(){for(;;){char*p=malloc(1<<20);memset(p,1,1<<20);}}",
        "memory",
        None,
    ),
    ("endless output", 'int main(){for(;;)puts("x");}', "output", None),
    ("a null pointer", "int main(){return *(volatile int*)0;}", "signal", None),
    ("a division by zero", "int main(int c,char**v){return c/(c-1);}", "signal", None),
    (
        "endless recursion",
        "int f(int n){volatile char a[999];a[0]=n;return f(n+1)+a[0];}int main(){return f(0);}",
        "signal",
        None,
    ),
    ("a fork bomb", "#include <unistd.h>\nint main(){for(;;)fork();}", "cpu_time", None),
    ("a reader without input", 'int main(){int a;while(scanf("%d",&a)!=EOF);return 4;}', "exit", 4),
    ("/etc/shadow", 'int main(){return fopen("/etc/shadow","r")?0:5;}', "exit", 5),
]


def verdict(pair, source, cause, code):
    for _ in range(3):
        answer = pair.client.run(
            policy="judge",
            files=[
                {"path": "m.c", "content": "#include <stdio.h>\n#include <stdlib.h>\n" + source}
            ],
            steps=[
                {"name": "compile", "argv": ["gcc", "-w", "-O0", "-o", "m", "m.c"]},
                {
                    "name": "run",
                    "argv": ["./m"],
                    "stdin": "" if "reader" in source or code == 4 else "1 2\n",
                    # On a busy machine 400 ms of a processor take a while.
                    "limits": {"wall_ms": 1200 if cause == "wall_time" else 6000, "cpu_ms": 400, "mem_bytes": 128 * MIB},
                },
            ],
        )
        check.ended(answer, "exit", 0, exit_code=0)
        if cause == "cpu_time" and "fork" in source:
            check.member(answer["steps"][1]["end"]["cause"], ("cpu_time", "wall_time"), "cause")
        else:
            check.ended(answer, cause, 1, exit_code=code)


table(
    [("judge: %s gets the same verdict each time" % row[0], "D4") + row[1:] for row in VERDICTS],
    verdict,
    deadline=25,
)


@test("ci: more memory, processes and processors than the default")
def _(pair):
    # The processes first: each would copy the tables of all that memory.
    script = (
        "import os, signal\nn = 0\nfor i in range(200):\n if not os.fork(): signal.pause()\n n += 1\n"
        "x = bytearray(600 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\nprint(n)"
    )
    check.equal(check.text(check.ok(pair.client.python(script, policy="ci"))), "200\n", "stdout")


# Policy files of an administrator (each with a pair of its own).


def directory(change):
    """A copy of policies/ in a temporary directory, after change(path, {name: object})."""
    path = tempfile.mkdtemp(prefix="pinfold-policies-")
    os.chmod(path, 0o755)
    texts = {}
    for name in os.listdir(harness.POLICIES):
        if name.endswith(".json"):
            with open(os.path.join(harness.POLICIES, name)) as file:
                texts[name] = json.load(file)
    change(path, texts)
    for name, one in texts.items():
        target = os.path.join(path, name)
        if not os.path.exists(target):
            with open(target, "w") as out:
                out.write(one if isinstance(one, str) else json.dumps(one))
            os.chmod(target, 0o644)
    return path


def narrow(path, texts):
    mine = json.loads(json.dumps(texts["default.json"]))
    mine["name"] = "tiny"
    mine["limits"]["wall_ms"] = {"default": 300, "ceiling": 1000, "why": "a test"}
    mine["limits"]["pids"] = {"default": 5, "ceiling": 10, "why": "a test"}
    mine["end_on"] = {"causes": ["pids", "output"], "why": "a test"}
    mine["writable"]["tmp"] = {"allow": False, "why": "a test"}
    mine["steps"] = {"max": 2, "why": "a test"}
    texts["tiny.json"] = mine


@test("an administrator's policy is in force", own=True, deadline=30)
def _(_):
    path = directory(narrow)
    try:
        with harness.Pair(slots=2, warm=1, policies=path) as pair:
            check.ended(pair.client.run(argv=["sleep", "5"], policy="tiny"), "wall_time", limit=300)
            check.error(
                pair.client.send(argv=["true"], policy="tiny", limits={"wall_ms": 1001}),
                403,
                "policy_limit",
                "/limits/wall_ms",
            )
            answer = pair.client.sh(
                "for i in 1 2 3 4 5 6 7 8; do sleep 5 & done; wait",
                policy="tiny",
                limits={"wall_ms": 900},
            )
            check.ended(answer, "pids")
            check.equal(
                pair.client.sh("touch /tmp/x", policy="tiny")["ok"], False, "a write to /tmp"
            )
            check.error(pair.client.send(steps=[{"sh": "true"}] * 3, policy="tiny"), (400, 403))
            check.ok(pair.client.run(argv=["sleep", "0.5"]))
    finally:
        shutil.rmtree(path)


def world_writable(path, texts):
    target = os.path.join(path, "default.json")
    with open(target, "w") as out:
        json.dump(texts["default.json"], out)
    os.chmod(target, 0o666)


def foreign_owner(path, texts):
    world_writable(path, texts)
    os.chmod(os.path.join(path, "default.json"), 0o644)
    os.chown(os.path.join(path, "default.json"), 12345, 12345)


def linked(path, texts):
    other = os.path.join(path, "elsewhere")
    with open(other, "w") as out:
        json.dump(texts["default.json"], out)
    os.chmod(other, 0o666)
    os.symlink(other, os.path.join(path, "default.json"))


def edit(function):
    def change(_path, texts):
        function(texts)

    return change


def drop_limit(texts):
    del texts["default.json"]["limits"]["pids"]


def unknown_key(texts):
    texts["default.json"]["limits"]["pidz"] = texts["default.json"]["limits"]["pids"]


def default_over_ceiling(texts):
    texts["ci.json"]["limits"]["pids"]["default"] = 5000


def duplicate(texts):
    texts["judge.json"] = '{"name": "judge", ' + json.dumps(texts["judge.json"])[1:]


def no_reason(texts):
    texts["judge.json"]["network"]["why"] = ""


WRONG = [
    ("it can be written by anybody", world_writable, "default.json"),
    ("it belongs to somebody else", foreign_owner, "default.json"),
    ("it is a link to what anybody can write", linked, "default.json"),
    ("a limit is missing", edit(drop_limit), "pids"),
    ("there is an unknown key", edit(unknown_key), "pidz"),
    ("a default is over its ceiling", edit(default_over_ceiling), "ci.json"),
    ("a key is there twice", edit(duplicate), "judge.json"),
    ("a reason is empty", edit(no_reason), "judge.json"),
    ("it is no JSON", edit(lambda t: t.update({"ci.json": "{"})), "ci.json"),
    ("the name is not the file's", edit(lambda t: t["ci.json"].update(name="other")), "ci.json"),
    ("there is no default", edit(lambda t: t.pop("default.json")), "default"),
    (
        "the network is one that does not exist",
        edit(lambda t: t["ci.json"]["network"].update(mode="host")),
        "ci.json",
    ),
]


def wrong(change, word):
    path = directory(change)
    pair = harness.Pair(slots=2, warm=1, policies=path)
    try:
        pair.init()
        watch = Stopwatch()
        pair.start_runner()
        try:
            code = pair.runner.wait(5)
        except subprocess.TimeoutExpired:
            check.fail("the runner started")
        check.true(code > 0, "exit code %s", code)
        watch.below(3, "the refusal")
        text = clean.read(os.path.join(pair.work, "runner.log")).decode()
        check.holds(text, word, "what the runner says")
        check.equal(len(text.strip().splitlines()), 1, "lines of %r" % text)
    finally:
        pair.discard()
        shutil.rmtree(path)


for _name, _change, _word in WRONG:
    add(
        "a policy file is refused: " + _name,
        (lambda c, w: lambda _: wrong(c, w))(_change, _word),
        own=True,
    )

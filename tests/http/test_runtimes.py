"""Languages and tools of the image "host" with the default policy, where they are installed."""

import os
import shutil
import tempfile

import check
from check import Stopwatch
from suite import Skip, table, test

MIB = 1 << 20


def needs(*names):
    """The tests install python3, node, java, gcc and make; what else is missing is skipped by
    name."""
    for name in names:
        if shutil.which(name, path="/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin") is None:
            if name in ("python3", "node", "java", "javac", "gcc", "make", "bash"):
                check.fail("%s is not installed", name)
            raise Skip("%s is not installed" % name)


# name, case, the program that it needs, a shell script, the whole stdout (or None: any)
SCRIPTS = [
    (
        "python: threads",
        170,
        "python3",
        "python3 -c 'import threading; t = threading.Thread(target=print, args=(1,)); t.start(); "
        "t.join()'",
        "1\n",
    ),
    (
        "python: multiprocessing",
        172,
        "python3",
        "python3 -c 'import multiprocessing as m; m.Lock(); print(m.Pool(2).map(abs, [-1, -2]))'",
        "[1, 2]\n",
    ),
    (
        "python: shared memory",
        172,
        "python3",
        "python3 -c 'from multiprocessing import shared_memory as s; a = "
        "s.SharedMemory(create=True, size=99); "
        "print(a.size); a.close(); a.unlink()'",
        "99\n",
    ),
    (
        "python: asyncio subprocess",
        185,
        "python3",
        'python3 -c \'\nimport asyncio\nasync def main():\n'
        ' p = await asyncio.create_subprocess_exec("echo", "sub", '
        'stdout=-1)\n print((await p.communicate())[0].decode(), end="")\nasyncio.run(main())\'',
        "sub\n",
    ),
    (
        "python: a pseudo-terminal",
        180,
        "python3",
        'python3 -c \'import pty; pty.spawn(["echo", "x"])\' </dev/null',
        "x\r\n",
    ),
    ("python: text beyond ASCII", 178, "python3", "python3 -c 'print(\"\\u00e9\\u6f22\")'", "é漢\n"),
    (
        "python: a map of 64 GB that nobody touches",
        169,
        "python3",
        'python3 -c \'import mmap\ntry: mmap.mmap(-1, 1 << 36); print("ok")\n'
        'except OSError: print("ok")\'',
        "ok\n",
    ),
    (
        "python: sqlite with its locks",
        None,
        "python3",
        'python3 -c \'import sqlite3; c = sqlite3.connect("a.db"); c.execute("pragma '
        'journal_mode=wal"); '
        'c.execute("create table t(x)"); c.commit(); print(c.execute("select count(*) from '
        't").fetchone()[0])\'',
        "0\n",
    ),
    (
        "node: hello, memory, threads",
        "167, 173",
        "node",
        "node -e 'process.memoryUsage(); console.log(require(\"os\").tmpdir())'",
        "/tmp\n",
    ),
    (
        "node: a child process with a channel",
        185,
        "node",
        "echo 'process.send(\"hi\"); process.disconnect()' > c.js; node -e '"
        'require("child_process").fork("./c.js").on("message", m => console.log(m))\'',
        "hi\n",
    ),
    (
        "node: workers and WebAssembly",
        167,
        "node",
        'node -e \'const {Worker} = require("worker_threads"); new '
        'Worker("require(\\"worker_threads\\")'
        '.parentPort.postMessage(new WebAssembly.Module(new Uint8Array([0,97,115,109,1,0,0,0])) '
        '? 7 : 0)", '
        '{eval: true}).on("message", m => console.log(m))\'',
        "7\n",
    ),
    (
        "node: a server on loopback",
        174,
        "node",
        'node -e \'const s = require("http").createServer((q, r) => r.end("web")).listen(0, '
        '"localhost", () => '
        'require("http").get("http://localhost:" + s.address().port, r => r.on("data", d => {'
        "console.log(String(d)); s.close()})))'",
        "web\n",
    ),
    ("npm: its cache is in the home", 176, "npm", "npm config get cache", "/home/user/.npm\n"),
    ("bash: process substitution", 68, "bash", "diff <(echo a) <(echo b) | grep -c '[<>]'", "2\n"),
    (
        "bash: here documents and coprocesses",
        None,
        "bash",
        "cat <<X\nhere\nX\ncoproc cat; echo co >&${COPROC[1]}; read x <&${COPROC[0]}; echo $x",
        "here\nco\n",
    ),
    ("perl: no locale warning", 178, "perl", "perl -e 'print \"p\\n\"' 2>&1", "p\n"),
    (
        "git: commit, branch, clone",
        176,
        "git",
        "git config --global user.name a && git config --global user.email a@b && git init -q r "
        "&& cd r && "
        "echo x > f && git add f && git commit -qm one && git checkout -qb b && git clone -q . "
        "../c && ls ../c",
        "f\n",
    ),
    (
        "make: parallel jobs",
        None,
        "make",
        "printf 'all: a b c d\\na b c d:\\n\\t@echo $@ > $@\\n' > Makefile; make -s -j4 && cat a "
        "b c d",
        "a\nb\nc\nd\n",
    ),
    (
        "curl: a local file by its thread for names",
        170,
        "curl",
        "curl -s file:///etc/passwd | grep -c ^user:",
        "1\n",
    ),
    (
        "tar: unpacking files of other owners",
        183,
        "tar",
        "tar cf a.tar --owner=0 --group=0 -C /etc passwd && tar xf a.tar && stat -c %u passwd",
        "1000\n",
    ),
    (
        "fake root: chown is refused plainly",
        183,
        "chown",
        "touch f; chown 0:0 f 2>/dev/null; echo $?; chown $(id -u):$(id -g) f; echo $?",
        "1\n0\n",
    ),
    (
        "a script in /tmp can be executed",
        179,
        "bash",
        "printf '#!/bin/sh\\necho ok\\n' > /tmp/a; chmod +x /tmp/a; /tmp/a; stat -c %a /tmp "
        "/var/tmp",
        "ok\n1777\n1777\n",
    ),
    (
        "a terminal for programs that want one",
        180,
        "script",
        "script -qec 'test -t 0 && echo tty' /dev/null </dev/null",
        "tty\r\n",
    ),
    (
        "tmux starts",
        180,
        "tmux",
        "tmux -V >/dev/null && tmux -f /dev/null new-session -d 'sleep 1' && echo on; tmux "
        "kill-server",
        "on\n",
    ),
    (
        "strace follows children",
        182,
        "strace",
        "strace -f -o /tmp/t sh -c '/bin/true; :' && grep -c 'execve(\"/bin/true\"' /tmp/t",
        "1\n",
    ),
    (
        "gdb runs a program",
        182,
        "gdb",
        "gdb -batch -ex run /bin/true 2>&1 | grep -c 'exited normally'",
        "1\n",
    ),
    (
        "the environment of a user",
        176,
        "bash",
        "echo $HOME $USER $(whoami) $(id -un) $TMPDIR $LANG $TZ $CI; touch ~/.x && cd && pwd",
        "/home/user user user user /tmp C.UTF-8 UTC 1\n/home/user\n",
    ),
    ("time is UTC", 178, "date", "date +%Z; TZ=Europe/Berlin date -d @0 +%H", "UTC\n01\n"),
    ("file names beyond ASCII", 178, "ls", "touch é; ls", "é\n"),
    (
        "/proc is there and own",
        173,
        "free",
        "nproc >/dev/null && free -m >/dev/null && cat /proc/self/comm",
        "cat\n",
    ),
    (
        "dd, sort and find",
        None,
        "sort",
        "seq 100000 | sort -R --parallel=2 | sort -n | tail -1; find / -maxdepth 1 -name usr",
        "100000\n/usr\n",
    ),
    (
        "pip says that it is there",
        176,
        "python3",
        "python3 -m pip --version 2>/dev/null | cut -c1-3; true",
        None,
    ),
    (
        "a venv without pip",
        None,
        "python3",
        "python3 -m venv --without-pip v && v/bin/python -c 'import sys; print(sys.prefix)'",
        "/workspace/v\n",
    ),
]


def script(pair, program, text, wanted):
    needs(program)
    answer = check.ok(pair.client.sh(text))
    if wanted is not None:
        check.equal(check.text(answer), wanted, "stdout")
    if wanted is not None and program in ("perl", "python3", "node"):
        check.equal(check.text(answer, stream="stderr"), "", "stderr")


table(SCRIPTS, script, deadline=35)


@test("python: a venv with pip, and a local package", case=183, deadline=60, slow=True)
def _(pair):
    if os.system("/usr/bin/python3 -c 'import ensurepip, venv' 2>/dev/null"):
        raise Skip("python3-venv is not installed")
    setup = "from setuptools import setup\nsetup(name='p', version='1', py_modules=['p'])\n"
    answer = check.ok(
        pair.client.run(
            files=[
                {"path": "p/p.py", "content": "x = 42\n"},
                {"path": "p/setup.py", "content": setup},
            ],
            limits={"wall_ms": 50000, "cpu_ms": 50000},
            sh="python3 -m venv v && v/bin/pip --version | cut -c1-3 && "
            "(v/bin/pip install -q --no-index --no-build-isolation ./p || cp p/p.py "
            "v/lib/python3*/site-packages/) "
            "2>/dev/null; v/bin/python -c 'import p; print(p.x)'",
        )
    )
    check.equal(check.text(answer), "pip\n42\n", "stdout")


HELLO = """
public class Hello {
    public static void main(String[] a) throws Exception {
        Thread t = new Thread(() -> System.out.println("thread"));
        t.start();
        t.join();
        System.out.println(Runtime.getRuntime().maxMemory() >> 20);
        System.out.println(java.nio.charset.Charset.defaultCharset());
        System.out.println("\\u00e9");
    }
}
"""


def java(pair, limits):
    return pair.client.run(
        files=[{"path": "Hello.java", "content": HELLO}],
        limits=dict({"wall_ms": 40000}, **limits),
        steps=[
            {"name": "compile", "argv": ["javac", "Hello.java"]},
            {"name": "run", "argv": ["java", "Hello"]},
        ],
    )


@test(
    "java: compile and run with the defaults; the heap fits the cap",
    case="18, 168, 178",
    deadline=60,
)
def _(pair):
    needs("java", "javac")
    answer = check.ok(java(pair, {}))
    lines = check.lines(answer, 1)
    check.equal(lines[0], "thread", "stdout")
    check.within(32, int(lines[1]), 255, "MiB of heap under 256 MiB")
    check.equal(lines[2:], ["UTF-8", "é"], "charset")


@test("java: too few processes fail visibly", case=18, deadline=60)
def _(pair):
    needs("java", "javac")
    answer = pair.client.run(argv=["java", "-version"], limits={"pids": 8, "wall_ms": 10000})
    check.equal(answer["ok"], False, "ok")
    text = check.text(answer, stream="stderr") + check.text(answer)
    check.holds(text.lower(), "thread", "what java says")
    check.within(
        1, answer["steps"][0]["usage"].get("pids_refused", 0), 10**6, "usage.pids_refused"
    )


@test("node works with 128 MiB", case=167, deadline=20)
def _(pair):
    needs("node")
    answer = check.ok(
        pair.client.run(argv=["node", "-e", "console.log(1)"], limits={"mem_bytes": 128 * MIB})
    )
    check.equal(check.text(answer), "1\n", "stdout")


ASAN = "#include <stdlib.h>\nint main(void) { volatile char *p = malloc(8); return p[8]; }\n"


@test("gcc: the address sanitizer finds its error", case=169, deadline=30)
def _(pair):
    needs("gcc")
    answer = pair.client.run(
        files=[{"path": "a.c", "content": ASAN}],
        steps=[{"argv": ["gcc", "-fsanitize=address", "-g", "a.c"]}, {"argv": ["./a.out"]}],
    )
    check.ended(answer, "exit", 0, exit_code=0)
    check.ended(answer, "exit", 1, exit_code=1)
    check.holds(check.text(answer, 1, "stderr"), "heap-buffer-overflow", "stderr")


LEAK = (
    "#include <stdlib.h>\nint main(void) { volatile char *p = malloc(8); p = 0; return p != 0; }\n"
)


@test("gcc: the leak sanitizer works at exit", case=182, deadline=30)
def _(pair):
    needs("gcc")
    answer = pair.client.run(
        files=[{"path": "a.c", "content": LEAK}],
        steps=[{"argv": ["gcc", "-fsanitize=address", "-g", "a.c"]}, {"argv": ["./a.out"]}],
    )
    check.lacks(
        check.text(answer, 1, "stderr"), "LeakSanitizer has encountered a fatal error", "stderr"
    )


@test("gcc and make build a program of several files", deadline=30)
def _(pair):
    needs("gcc", "make")
    answer = check.ok(
        pair.client.run(
            files=[
                {
                    "path": "a.c",
                    "content": "int b(void);\n#include <stdio.h>\n"
                    'int main(void){printf("%d\\n", b());}',
                },
                {"path": "b.c", "content": "int b(void){return 42;}"},
                {"path": "Makefile", "content": "prog: a.o b.o\n\t$(CC) -o $@ $^\n"},
            ],
            steps=[
                {"name": "build", "argv": ["make", "-j2"]},
                {"name": "test", "argv": ["./prog"]},
            ],
        )
    )
    check.equal(check.text(answer, 1), "42\n", "stdout")


LOOPBACK = """
import socket
for family, address in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1')):
    server = socket.socket(family)
    server.bind((address, 0))
    server.listen()
    socket.create_connection(('localhost', server.getsockname()[1]), 2).send(b'hi')
    print(server.accept()[0].recv(2))
"""


@test("loopback is up in both families and localhost is both", case=174)
def _(pair):
    answer = check.ok(pair.client.python(LOOPBACK))
    check.equal(check.text(answer), "b'hi'\nb'hi'\n", "stdout")


LOOKUPS = [
    ("getent", "getent hosts example.org"),
    ("python", "python3 -c 'import socket; socket.getaddrinfo(\"example.org\", 80)'"),
    ("curl", "curl -sS https://example.org/"),
    ("git", "git clone -q https://example.org/x.git"),
    ("pip", "python3 -m pip download -q --retries 0 x"),
]


def lookup(pair, text):
    needs(text.split()[0])
    watch = Stopwatch()
    answer = pair.client.sh(text, limits={"wall_ms": 8000})
    check.ended(answer, "exit")
    check.true(answer["steps"][0]["end"]["exit_code"] != 0, "it worked")
    watch.below(4 if "pip" in text else 1.5, text)


table([("a name look-up fails at once: %s" % name, 175, text) for name, text in LOOKUPS], lookup)

UNIX = """
import os, socket
for n in (107, 108):
    path = '/workspace/' + 'a' * (n - len('/workspace/'))
    try:
        s = socket.socket(socket.AF_UNIX); s.bind(path); s.listen()
        c = socket.socket(socket.AF_UNIX); c.connect(path); print(n, 'ok')
    except OSError as e: print(n, e)
a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))
"""


@test("unix sockets in the workspace and socket pairs work", case=185)
def _(pair):
    answer = check.ok(pair.client.python(UNIX))
    check.equal(check.text(answer), "107 ok\n108 AF_UNIX path too long\nb'x'\n", "stdout")


@test("renames work between all directories of the workspace", case=126)
def _(pair):
    answer = check.ok(
        pair.client.sh(
            "mkdir a b; echo x > a/f; mv a/f b/g; mv a c; ln b/g h; mv h b/h; ls b c; stat -c %h "
            "b/g"
        )
    )
    check.equal(check.text(answer), "b:\ng\nh\n\nc:\n2\n", "stdout")


@test("the umask given to the server does not reach inside", case=117)
def _(pair):
    answer = check.ok(pair.client.sh("umask; touch f; stat -c %a f"))
    check.equal(check.text(answer), "0022\n644\n", "umask and mode")


@test("what a program needs of /etc is there and synthetic", case=101)
def _(pair):
    answer = check.ok(
        pair.client.sh(
            "getent passwd user root; getent group user; getent hosts localhost | head -1; "
            "ls /etc/ssl/certs | head -1 | wc -l; test -r /etc/nsswitch.conf; echo $?; hostname"
        )
    )
    lines = check.lines(answer)
    check.holds(lines[0], "user:x:1000:1000:", "passwd")
    check.matches(lines[0], r":/home/user:/bin/(ba)?sh$", "passwd")
    check.holds(lines[1], "root:x:0:0:", "passwd")
    check.holds(lines[3], "localhost", "hosts")
    check.equal(lines[4:6], ["1", "0"], "certificates, nsswitch")


@test("a temporary directory of the tests is not inside")
def _(pair):
    with tempfile.NamedTemporaryFile(prefix="pinfold-visible-") as file:
        answer = pair.client.run(argv=["ls", file.name])
        check.ended(answer, "exit", exit_code=2)

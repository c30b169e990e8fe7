"""Bytes and files on disk, one-file size, stack, core: caps that the program feels as an errno."""

import check
from check import Stopwatch
from suite import table, test

MIB = 1 << 20


def huge(pair, size, code, words):
    watch = Stopwatch()
    answer = check.ok(
        pair.client.sh(
            "fallocate -l %s big; echo rc=$?; stat -c %%b big" % size,
            limits={"disk_bytes": 64 * MIB},
        )
    )
    watch.below(1.5, "the run")
    seen, blocks = check.lines(answer)
    check.equal(seen, "rc=%d" % code, "exit code of fallocate")
    check.within(0, int(blocks) * 512, 64 * MIB, "bytes of the file")
    check.matches(check.text(answer, stream="stderr"), words, "stderr")


# Over file_bytes the kernel sends SIGXFSZ, as for every RLIMIT_FSIZE; below it the disk is full.
table(
    [
        (
            "a fallocate of 200 MiB fails at once and the program goes on",
            20,
            "200M",
            1,
            "No space left",
        ),
        ("a fallocate over the size of one file is SIGXFSZ", 20, "10G", 153, "File size limit"),
    ],
    huge,
)


@test("many small files meet the same cap as one big one", case=21)
def _(pair):
    script = (
        "import os\nn = 0\ntry:\n for i in range(45):\n"
        "  with open('f%d' % i, 'wb', 0) as f: n += f.write(bytes(1 << 20))\n"
        "except OSError as e: print(n >> 20, e.errno)"
    )
    answer = check.ok(
        pair.client.python(script, limits={"disk_bytes": 32 * MIB, "file_bytes": 2 * MIB})
    )
    written, code = check.text(answer).split()
    check.within(29, int(written), 32, "MiB written under 32 MiB")
    check.equal(code, "28", "errno")
    check.ok(pair.client.run(argv=["true"], limits={"disk_bytes": 32 * MIB}))


WRITABLE = ("/workspace", "/home/user", "/tmp", "/var/tmp", "/dev/shm")


@test("all writable places share one cap", case=179)
def _(pair):
    script = (
        "import os, sys\nout = []\nfor d in %r:\n n = 0\n try:\n"
        "  with open(d + '/f', 'wb', 0) as f:\n   while n < 12: f.write(bytes(1 << 20)); n += 1\n"
        " except OSError as e: n = -n\n out.append(n)\nprint(sum(map(abs, out)), out)" % (WRITABLE,)
    )
    answer = check.ok(pair.client.python(script, limits={"disk_bytes": 32 * MIB}))
    check.within(29, int(check.text(answer).split()[0]), 33, "MiB in five places")


INODES = """
import os, sys
n, kind = 0, sys.argv[1]
try:
    for n in range(1000000):
        if kind == 'file':
            os.close(os.open('f%d' % n, os.O_CREAT | os.O_WRONLY))
        elif kind == 'link':
            os.symlink('x' * 100, 'f%d' % n)
        else:
            os.mkdir('f%d' % n)
except OSError as e:
    print(n, e.errno)
"""


def inodes(pair, kind):
    answer = check.ok(pair.client.python(INODES, kind, limits={"inodes": 2000}))
    made, code = map(int, check.text(answer).split())
    check.within(1900, made, 2000, "entries made")
    check.equal(code, 28, "errno")


table(
    [("the number of %ss is capped" % kind, 22, kind) for kind in ("file", "link", "directory")],
    inodes,
)


@test("the default number of files can be made and is gone soon after", case=22, deadline=30)
def _(pair):
    answer = check.ok(pair.client.python(INODES, "file"))
    made, code = map(int, check.text(answer).split())
    check.true(code == 28 and made >= 10000, "%d files, errno %d", made, code)


@test("a deleted but open file counts", case=24)
def _(pair):
    script = (
        "import os\nfd = os.open('f', os.O_CREAT | os.O_WRONLY)\nos.unlink('f')\nn = 0\ntry:\n"
        " while True: n += os.write(fd, bytes(1 << 20))\n"
        "except OSError as e: print(n >> 20, e.errno)"
    )
    answer = check.ok(pair.client.python(script, limits={"disk_bytes": 64 * MIB}))
    written, code = map(int, check.text(answer).split())
    check.within(60, written, 64, "MiB written under 64 MiB")
    check.equal(code, 28, "errno")


@test("ENOSPC ends the run only when it is asked for")
def _(pair):
    script = "head -c 40000000 /dev/zero > f; sleep 5"
    limits = {"disk_bytes": 16 * MIB, "wall_ms": 1000}
    check.ended(pair.client.sh(script, limits=limits, end_on=["disk"]), "disk", exit_code=None)
    check.ended(pair.client.sh(script, limits=limits), "wall_time")


@test("one file is capped by file_bytes")
def _(pair):
    script = (
        "import os, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "fd = os.open('f', os.O_CREAT | os.O_WRONLY)\nn = 0\ntry:\n"
        " while True: n += os.write(fd, bytes(65536))\nexcept OSError as e: print(n, e.errno)"
    )
    answer = check.ok(pair.client.python(script, limits={"file_bytes": MIB}))
    check.equal(check.text(answer), "%d 27\n" % MIB, "bytes written and errno")


@test("a crash leaves no core file", case=51)
def _(pair):
    crash = (
        "import ctypes\nx = bytearray(120 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\n"
        "ctypes.string_at(0)"
    )
    answer = pair.client.run(
        limits={"mem_bytes": 256 * MIB},
        steps=[
            {"argv": ["python3", "-c", crash], "continue_on_error": True},
            {"sh": "find /workspace /tmp /home/user -type f | wc -l; ulimit -c; ulimit -Hc"},
        ],
    )
    check.ended(answer, "signal", signal=11)
    check.within(0, answer["steps"][0]["usage"]["wall_ms"], 2500, "wall_ms")
    check.equal(check.text(answer, 1), "0\n0\n0\n", "files, soft and hard core limit in blocks")


@test("the usage says what is on disk")
def _(pair):
    answer = check.ok(pair.client.sh("head -c 3000000 /dev/zero > f; mkdir d; touch d/1 d/2 d/3"))
    usage = answer["steps"][0]["usage"]
    check.within(3000000, usage["disk_bytes"], 3200000, "usage.disk_bytes")
    check.within(5, usage["inodes"], 40, "usage.inodes")


@test("descriptors inside have one fixed limit", case=32)
def _(pair):
    answer = check.ok(pair.client.sh("ulimit -n; ulimit -Hn"))
    soft, hard = check.lines(answer)
    check.within(256, int(soft), 65536, "soft limit")
    check.equal(hard, soft, "hard limit")
    check.equal(int(soft), answer["limits"]["open_files"]["value"], "limits.open_files")
    script = (
        "import os, time\nt = time.time()\nos.closerange(3, os.sysconf('SC_OPEN_MAX'))\n"
        "print(time.time() - t < 0.2)"
    )
    check.equal(
        check.text(check.ok(pair.client.python(script))), "True\n", "closing all numbers is quick"
    )


STACK = r"""
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
__attribute__((noinline)) static long deep(long n)
{
    volatile char room[4096];
    room[0] = (char)n;
    return n == 0 ? room[0] : deep(n - 1) + room[0];
}
int main(int argc, char **argv)
{
    (void)argc;
    printf("%d\n", deep(atol(argv[1])) != 12345);
    return 0;
}
"""


@test("the stack is 8 MiB, may be wished larger, and an overflow is SIGSEGV", case=184, deadline=20)
def _(pair):
    files = [{"path": "deep.c", "content": STACK}]
    build = {"sh": "gcc -O0 -o deep deep.c && ulimit -s"}
    answer = pair.client.run(
        files=files, steps=[build, {"argv": ["./deep", "24000"]}], limits={"mem_bytes": 256 * MIB}
    )
    check.ended(answer, "exit", 0, exit_code=0)
    check.equal(check.text(answer), "8192\n", "ulimit -s")
    check.ended(answer, "signal", 1, signal=11)
    answer = pair.client.run(
        files=files,
        steps=[build, {"argv": ["./deep", "24000"]}],
        limits={"mem_bytes": 256 * MIB, "stack_bytes": 200 * MIB},
    )
    check.ok(answer)


COMPILER = [
    ("an endless include", 'int main(void){return 0;}\n#include "/dev/zero"\n', "x.c"),
    (
        "a four gigabyte initialiser",
        "static char x[4000000000]={1};int main(void){return x[0];}",
        "x.c",
    ),
    (
        "a template blow-up",
        "template<int N> struct A { A<N-1> a; A<N-2> b; };"
        "template<> struct A<0> {}; template<> struct A<1> {};\n"
        "template<int N,int M> struct B { B<N-1,2*M> a; B<N-1,2*M+1> b; };"
        "template<int M> struct B<0,M> {}; B<40,0> b; int main(){}",
        "x.cc",
    ),
    ("a host file that is secret", '#include "/etc/shadow"\nint main(void){return 0;}', "x.c"),
]


def compiler(pair, source, name):
    watch = Stopwatch()
    answer = pair.client.run(
        files=[{"path": name, "content": source}],
        steps=[
            {"name": "compile", "argv": ["g++" if name.endswith("cc") else "gcc", name]},
            {"name": "run", "argv": ["./a.out"]},
        ],
        limits={"mem_bytes": 128 * MIB, "wall_ms": 4000, "disk_bytes": 64 * MIB},
    )
    watch.below(6, "the run")
    check.equal(answer["ok"], False, "ok")
    check.equal((answer["failed_step"], answer["steps"][0]["name"]), (0, "compile"), "failed step")
    check.equal(answer["steps"][1]["state"], "skipped", "state of the second step")
    check.lacks(check.text(answer, stream="stderr"), "root:", "stderr")


table(
    [("the compiler is limited: %s" % name, 35, source, file) for name, source, file in COMPILER],
    compiler,
)


@test("a build script's daemon does not outlive a failed build", case=35)
def _(pair):
    answer = pair.client.run(
        steps=[
            {"name": "build", "sh": "setsid sleep 1000 >/dev/null 2>&1 & exit 1"},
            {"name": "run", "sh": "true"},
        ]
    )
    check.ended(answer, "exit", exit_code=1)
    check.equal(answer["steps"][0]["usage"]["stragglers_killed"], 1, "stragglers_killed")

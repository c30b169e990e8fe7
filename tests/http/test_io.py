"""Bytes in, bytes out: exact up to the cap, counted beyond it, never a hang."""

import base64
import hashlib

import check
from check import Stopwatch
from client import nonce, parallel
from suite import table, test

MIB = 1 << 20


def cap(pair, size, policy="ci"):
    """Limits with an output cap, which the policy must allow."""
    return {"limits": {"output_bytes": size}, "policy": policy}


# The cap


@test(
    "endless output keeps head and tail, counts the rest, and the server does not grow",
    case=25,
    deadline=20,
)
def _(pair):
    limits = {"output_bytes": 65536, "wall_ms": 1000}
    pair.client.sh("yes", limits=dict(limits, wall_ms=300))
    before = pair.memory()
    answer = pair.client.sh("yes", limits=limits)
    grown = pair.memory() - before
    check.ended(answer, "wall_time")
    head, tail = check.cut(answer, 65536)
    check.equal((len(head), len(tail)), (32768, 32768), "bytes of head and tail")
    check.equal(head, b"y\n" * 16384, "head")
    check.true(tail.strip(b"y\n") == b"", "the tail is not the end of the output")
    check.true(
        answer["steps"][0]["stdout_bytes"] > 10 * MIB,
        "hardly anything came: %s",
        check.step(answer),
    )
    check.true(grown < 1 * MIB, "the server grew by %d bytes", grown)


@test("one big write across the cap keeps exactly the cap", case=26)
def _(pair):
    answer = check.ok(
        pair.client.sh("head -c 5000 /dev/zero | tr '\\0' h", limits={"output_bytes": 1024})
    )
    head, tail = check.cut(answer, 1024)
    check.equal((head, tail), (b"h" * 512, b"h" * 512), "head and tail")
    check.equal(answer["steps"][0]["stdout_omitted"], 5000 - 1024, "stdout_omitted")


@test("a flood on stderr leaves stdout whole", case=27)
def _(pair):
    answer = pair.client.sh("echo ok; yes >&2", limits={"output_bytes": 4096, "wall_ms": 500})
    check.equal(check.text(answer), "ok\n", "stdout")
    check.equal(answer["steps"][0]["stdout_omitted"], 0, "stdout_omitted")
    check.cut(answer, 4096, stream="stderr")


@test("cap + 1 bytes and an exit give one consistent answer", case=28, deadline=40)
def _(pair):
    def one(index):
        for _ in range(pair.rounds(60)):
            answer = check.ok(
                pair.client.run(
                    argv=["head", "-c", "1025", "/dev/zero"], limits={"output_bytes": 1024}
                )
            )
            step = answer["steps"][0]
            check.equal((step["stdout_bytes"], step["stdout_omitted"]), (1025, 1), "bytes")

    parallel(8, one)


@test("exactly the cap is kept whole")
def _(pair):
    answer = check.ok(
        pair.client.sh("head -c 1024 /dev/zero | tr '\\0' h", limits={"output_bytes": 1024})
    )
    check.equal(check.text(answer), "h" * 1024, "stdout")
    check.equal(answer["steps"][0]["stdout_omitted"], 0, "stdout_omitted")


@test("a character at the cap is not cut in half", case=59)
def _(pair):
    answer = check.ok(
        pair.client.python("print('\u00e9' * 10000, end='')", limits={"output_bytes": 1001})
    )
    check.equal(answer["steps"][0]["stdout_encoding"], "utf-8", "stdout_encoding")
    head, tail = check.cut(answer, 1001)
    check.equal(
        (head.decode().strip("\u00e9"), tail.decode().strip("\u00e9")), ("", ""), "other characters"
    )
    check.within(998, len(head) + len(tail), 1001, "bytes kept")


@test("one line of 50 MB is quick and does not grow the server", case=72, deadline=20)
def _(pair):
    script = "head -c %d /dev/zero | tr '\\0' x"
    limits = {"output_bytes": MIB}
    check.ok(pair.client.sh(script % 5000000, limits=limits))
    before, watch = pair.memory(), Stopwatch()
    answer = check.ok(pair.client.sh(script % 50000000, limits=limits))
    watch.below(3, "50 MB")
    grown = pair.memory() - before
    check.equal(answer["steps"][0]["stdout_bytes"], 50000000, "stdout_bytes")
    check.cut(answer, MIB)
    check.true(grown < 3 * MIB, "the server grew by %d bytes", grown)


# Bytes

BYTES = [
    ("bytes that are not UTF-8 come as base64, exactly", 56, b"\xff\xfe\x80ok", "base64"),
    ("NUL bytes and blank lines are kept", 57, b"a\0b\n\n\0\n", "utf-8"),
    ("all byte values are kept", 56, bytes(range(256)) * 16, "base64"),
    ("UTF-8 of all lengths is text", 59, "aé漢😀\u0007\u001b[31m".encode(), "utf-8"),
    ("a surrogate in UTF-8 is not UTF-8", 56, b"\xed\xa0\x80", "base64"),
    ("an overlong NUL is not UTF-8", 56, b"\xc0\x80", "base64"),
    ("a character cut by the exit is not UTF-8", 59, b"abc\xe6\xbc", "base64"),
    ("beyond U+10FFFF is not UTF-8", 56, b"\xf4\x90\x80\x80", "base64"),
    ("carriage returns and escape codes are raw", 188, b"1\r2\r\x1b[0m\x07", "utf-8"),
]


def exact(pair, data, encoding):
    sent = base64.b64encode(data).decode()
    for stream, redirect in (("stdout", ""), ("stderr", " >&2")):
        answer = check.ok(pair.client.sh("cat" + redirect, stdin=sent, stdin_encoding="base64"))
        check.equal(answer["steps"][0][stream + "_encoding"], encoding, stream + "_encoding")
        check.equal(check.output(answer, stream=stream), data, stream)
        check.equal(answer["steps"][0][stream + "_bytes"], len(data), stream + "_bytes")


table(BYTES, exact)


@test("separate streams stay apart, in order", case=73)
def _(pair):
    script = "for i in {1..1000}; do echo o$i; echo e$i >&2; done"
    answer = check.ok(pair.client.sh(script))
    check.equal(check.text(answer), "".join("o%d\n" % i for i in range(1, 1001)), "stdout")
    check.equal(
        check.text(answer, stream="stderr"), "".join("e%d\n" % i for i in range(1, 1001)), "stderr"
    )


@test("merged streams keep the order of writing", case=73)
def _(pair):
    script = "for i in {1..1000}; do echo o$i; echo e$i >&2; done"
    for request in (
        {"sh": script, "merge_stderr": True},
        {"steps": [{"sh": script, "merge_stderr": True}]},
    ):
        answer = check.ok(pair.client.run(**request))
        check.equal(
            check.text(answer), "".join("o%d\ne%d\n" % (i, i) for i in range(1, 1001)), "stdout"
        )
        check.equal(check.text(answer, stream="stderr"), "", "stderr")


# stdin


@test("no stdin is end of file at once", case=60)
def _(pair):
    watch = Stopwatch()
    answer = check.ok(pair.client.sh("cat; echo rc=$?; read x; echo read=$?"))
    watch.below(1, "the answer")
    check.equal(check.text(answer), "rc=0\nread=1\n", "stdout")
    check.within(0, answer["steps"][0]["usage"]["wall_ms"], 200, "wall_ms")
    answer = pair.client.python("input()")
    check.ended(answer, "exit", exit_code=1)
    check.holds(check.text(answer, stream="stderr"), "EOFError", "stderr")


@test("an empty stdin is end of file too", case=60)
def _(pair):
    check.equal(check.text(check.ok(pair.client.sh("wc -c", stdin=""))), "0\n", "stdout")


PROMPTS = [
    ("a package manager", "apt-get install -y nosuchpackage-x"),
    ("a python prompt", "python3 -i"),
    ("git commit", "git init -q . && git -c user.name=a -c user.email=a@b commit --allow-empty"),
    ("ssh", "ssh -o ConnectTimeout=2 x@127.0.0.1"),
    ("read", "read x"),
    ("a pager", "git -c core.pager=less log; seq 1000 | ${PAGER:-less}"),
]


def prompt(pair, script):
    answer = pair.client.sh(script, limits={"wall_ms": 5000})
    check.ended(answer, "exit")


table(
    [("%s does not wait for somebody to type" % name, 190, script) for name, script in PROMPTS],
    prompt,
)


@test("there is no controlling terminal", case=61)
def _(pair):
    watch = Stopwatch()
    answer = pair.client.sh("exec 3</dev/tty")
    check.ended(answer, "exit", exit_code=1)
    watch.below(1, "the answer")
    seen = check.text(
        check.ok(
            pair.client.python(
                "import os\ntry: os.open('/dev/tty', os.O_RDWR)\n"
                "except OSError as e: print(e.errno)"
            )
        )
    ).strip()
    check.member(seen, ("2", "6"), "errno of opening /dev/tty")
    check.equal(
        check.text(pair.client.sh("ps -o tty= -p $$; tty")).split()[0], "?", "terminal of the shell"
    )


@test("10 MB through cat come back the same", case=62, deadline=30)
def _(pair):
    data = (nonce() * 500000)[:10000000]
    watch = Stopwatch()
    answer = check.ok(pair.client.sh("cat", stdin=data, **cap(pair, 16 * MIB)))
    watch.below(4, "10 MB")
    check.true(check.output(answer) == data.encode(), "the bytes differ")


@test("10 MB against a child that writes to both streams", case=62, deadline=30)
def _(pair):
    data = (nonce() * 500000)[:10000000]
    answer = check.ok(pair.client.sh("tee /dev/stderr", stdin=data, **cap(pair, 16 * MIB)))
    for stream in ("stdout", "stderr"):
        check.true(check.output(answer, stream=stream) == data.encode(), "%s differs", stream)


@test("stdin that nobody reads is no error", case=63, deadline=40)
def _(pair):
    big = "x" * 10000000
    check.ok(pair.client.run(argv=["true"], stdin=big))
    check.equal(
        check.text(check.ok(pair.client.run(argv=["head", "-c1"], stdin=big))), "x", "stdout"
    )
    small = "x" * 200000

    def one(index):
        for _ in range(25):
            check.ended(pair.client.run(argv=["true"], stdin=small), "exit", exit_code=0)

    parallel(8, one)


@test("stdin is exact for all byte values", case=74)
def _(pair):
    data = bytes(range(256)) * 4096
    answer = check.ok(
        pair.client.sh("sha256sum", stdin=base64.b64encode(data).decode(), stdin_encoding="base64")
    )
    check.equal(check.text(answer).split()[0], hashlib.sha256(data).hexdigest(), "sha256")


@test("a step's stdin is its own")
def _(pair):
    answer = check.ok(
        pair.client.run(
            steps=[
                {"argv": ["cat"], "stdin": "one"},
                {"argv": ["cat"]},
                {"argv": ["cat"], "stdin": "dHdv", "stdin_encoding": "base64"},
            ]
        )
    )
    check.equal(
        [check.text(answer, i) for i in range(3)], ["one", "", "two"], "stdout of the steps"
    )


@test("64 MiB of stdin arrive, one byte more is refused", deadline=40, slow=True)
def _(pair):
    answer = check.ok(pair.client.run(argv=["wc", "-c"], stdin="x" * (64 * MIB)))
    check.equal(check.text(answer), "%d\n" % (64 * MIB), "bytes counted")
    check.error(pair.client.send(argv=["wc", "-c"], stdin="x" * (64 * MIB + 1)), (400, 413))


# Pipes and processes


@test("SIGPIPE has its default action", case=64)
def _(pair):
    answer = check.ok(pair.client.sh("yes | head -1; echo ${PIPESTATUS[*]}"))
    check.equal(check.text(answer), "y\n141 0\n", "stdout")
    check.equal(check.text(answer, stream="stderr"), "", "stderr")


@test("no signal is ignored or blocked at start", case=64)
def _(pair):
    answer = check.ok(pair.client.sh("exec grep -E '^Sig(Blk|Ign)' /proc/self/status"))
    check.equal([line.split()[1] for line in check.lines(answer)], ["0" * 16] * 2, "SigBlk, SigIgn")


@test("closing stdout is not the end of the program", case=66)
def _(pair):
    answer = pair.client.sh("exec >&- 2>&-; sleep 30", limits={"wall_ms": 700})
    check.ended(answer, "wall_time")
    check.within(700, answer["steps"][0]["usage"]["wall_ms"], 1200, "wall_ms")


@test("a grandchild that holds the pipe does not delay the answer", case=67)
def _(pair):
    watch = Stopwatch()
    answer = check.ok(pair.client.sh("(sleep 60 &); echo done; exit 0", limits={"wall_ms": 5000}))
    watch.below(1, "the answer")
    check.equal(check.text(answer), "done\n", "stdout")


@test("process substitution gets its output out", case=68)
def _(pair):
    for _ in range(10):
        watch = Stopwatch()
        answer = check.ok(pair.client.sh("exec > >(tee log) 2>&1; echo hi", collect=["log"]))
        watch.below(1.5, "the answer")
        check.equal(check.text(answer), "hi\n", "stdout")
        check.equal(answer["files"][0].get("content"), "hi\n", "the log")
    check.equal(check.text(check.ok(pair.client.sh("cat <(echo x)"))), "x\n", "stdout")


@test("/dev/stdout and /dev/stderr can be opened again", case=69)
def _(pair):
    answer = check.ok(
        pair.client.sh(
            "echo a > /dev/stdout; echo b >> /dev/stderr; cat /dev/fd/0 </dev/null; echo c > "
            "/proc/self/fd/1"
        )
    )
    check.equal(check.text(answer), "a\nc\n", "stdout")
    check.equal(check.text(answer, stream="stderr"), "b\n", "stderr")


@test("/dev/stdin can be opened again")
def _(pair):
    answer = check.ok(pair.client.sh("cat /dev/stdin; cat /proc/self/fd/0", stdin="again"))
    check.equal(check.text(answer), "againagain", "stdout")


@test("both streams are pipes and no file of the server")
def _(pair):
    answer = check.ok(pair.client.sh("readlink /proc/self/fd/1 /proc/self/fd/2"))
    for line in check.lines(answer):
        check.true(line.startswith("pipe:["), "a stream is %s", line)

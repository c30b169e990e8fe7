"""Files in and files out: names, links, odd types, modes, sizes."""

import base64
import os
import tempfile

import canary
import check
from canary import Canaries
from check import Stopwatch
from suite import table, test

MIB = 1 << 20


def collected(answer):
    return {one["path"]: one for one in answer["files"]}


def content(one):
    if "content" not in one:
        check.fail("no content: %r", one)
    return (
        base64.b64decode(one["content"]) if one["encoding"] == "base64" else one["content"].encode()
    )


ESCAPING = [
    "../x",
    "a/../../x",
    "/etc/x",
    "..",
    ".",
    "",
    "a/..",
    "a/../..",
    "/",
    "//etc/x",
    "./..",
    "a/./../..",
    "a\0b",
    "x/" + "b" * 256,
    "/".join(["d"] * 3000),
]


def escaping(pair, path):
    answer = pair.client.send(argv=["true"], files=[{"path": path, "content": "x"}])
    check.error(answer, 400, field="/files/0/path")


table([("an upload to %r is refused" % path[:30], 103, path) for path in ESCAPING], escaping)

NORMAL = [
    ("a//b", "a/b"),
    ("./x", "x"),
    ("a/./b", "a/b"),
    ("..%2fx", "..%2fx"),
    ("%2e%2e/x", "%2e%2e/x"),
    ("a\\..\\b", "a\\..\\b"),
    ("...", "..."),
    ("..a/b..", "..a/b.."),
    ("a b/c", "a b/c"),
]


def normal(pair, path, lands):
    answer = check.ok(
        pair.client.run(argv=["cat", lands], files=[{"path": path, "content": "here"}])
    )
    check.equal(check.text(answer), "here", "content")


table([("an upload to %r lands at %r" % row, 103) + row for row in NORMAL], normal)

NAMES = [
    "new\nline",
    "tab\tx",
    "-rf",
    "quo'te\"s",
    "a" * 255,
    "emoji😀",
    "e\u0301",
    "\u00e9",
    "sp ace ",
    "*",
    "[x]",
    "a?b",
    "\x1b[31m",
    "{a,b}",
    "#",
    "~",
    "CON",
]


def odd_name(pair, name):
    answer = check.ok(
        pair.client.run(
            argv=[
                "python3",
                "-c",
                "import os, sys\nassert sys.argv[1] in os.listdir('d'), os.listdir('d')",
                name,
            ],
            files=[{"path": "d/" + name, "content": name}],
            collect=["d/*"],
        )
    )
    seen = collected(answer)
    check.equal(list(seen), ["d/" + name], "collected")
    check.equal(content(seen["d/" + name]), name.encode(), "content")


table([("the name %r goes in and comes out" % name[:20], 118, name) for name in NAMES], odd_name)


@test("a name of 256 bytes is refused", case=118)
def _(pair):
    check.error(
        pair.client.send(argv=["true"], files=[{"path": "a" * 256, "content": ""}]),
        400,
        field="/files/0/path",
    )


@test("a name that is not UTF-8 is told without breaking the answer", case=118)
def _(pair):
    answer = check.ok(
        pair.client.python(
            "open(b'd\\xff', 'w').write('x'); open('e', 'w').write('y')", collect=["*"]
        )
    )
    seen = collected(answer)
    check.equal(content(seen["e"]), b"y", "the other file")
    check.equal(len(seen), 2, "entries: %s" % list(seen))


MODES = [
    ("no mode", {}, 0o644),
    ("0755", {"mode": "0755"}, 0o755),
    ("0600", {"mode": "0600"}, 0o600),
    ("0400", {"mode": "0400"}, 0o400),
    ("0000", {"mode": "0000"}, 0),
    ("0777", {"mode": "0777"}, 0o777),
    ("set-uid, which is dropped", {"mode": "4755"}, 0o755),
]


def mode(pair, more, wanted):
    answer = check.ok(
        pair.client.run(
            argv=["stat", "-c", "%a %U %u", "f"],
            files=[dict({"path": "f", "content": "x"}, **more)],
        )
    )
    check.equal(check.text(answer), "%o user 1000\n" % wanted, "mode and owner")


table([("mode of an upload: %s" % name, 117, more, wanted) for name, more, wanted in MODES], mode)


@test("uploads can be run, changed and removed, with the server's umask 077", case=117)
def _(pair):
    answer = check.ok(
        pair.client.run(
            sh="./script && echo x >> data && cat data && rm data script && touch sub/new && ls "
               "sub",
            files=[
                {"path": "script", "content": "#!/bin/sh\necho ran\n", "mode": "0755"},
                {"path": "data", "content": "d"},
                {"path": "sub/a", "content": ""},
            ],
        )
    )
    check.equal(check.text(answer), "ran\ndx\na\nnew\n", "stdout")
    answer = check.ok(
        pair.client.run(argv=["stat", "-c", "%a", "sub"], files=[{"path": "sub/a", "content": ""}])
    )
    check.equal(check.text(answer), "755\n", "mode of a made directory")


@test("modes come back")
def _(pair):
    answer = check.ok(
        pair.client.sh("echo x > f; chmod 750 f; echo y > g; chmod 4755 g", collect=["f", "g"])
    )
    seen = collected(answer)
    check.equal((seen["f"]["mode"], seen["g"]["mode"]), ("0750", "0755"), "modes")


@test("all bytes go in and come out")
def _(pair):
    data = bytes(range(256)) * 1000
    answer = check.ok(
        pair.client.run(
            argv=["cp", "in", "out"],
            collect=["out"],
            files=[
                {"path": "in", "content": base64.b64encode(data).decode(), "encoding": "base64"}
            ],
        )
    )
    one = collected(answer)["out"]
    check.equal((one["encoding"], one["size"]), ("base64", len(data)), "encoding and size")
    check.true(content(one) == data, "the bytes differ")


@test("a later upload of the same path is refused or wins whole", case=115)
def _(pair):
    answer = pair.client.send(
        argv=["cat", "f"],
        files=[{"path": "f", "content": "AAAAAAAAAA"}, {"path": "f", "content": "bbb"}],
    )
    if answer.status == 200:
        check.equal(check.text(check.ok(answer.json())), "bbb", "content")
    else:
        check.error(answer, 400, field="/files/1/path")


@test("a file where a directory is needed is refused or a start failure")
def _(pair):
    answer = pair.client.send(
        argv=["true"], files=[{"path": "f", "content": ""}, {"path": "f/g", "content": ""}]
    )
    if answer.status != 400:
        check.ended(answer.json(), "start")


@test("files over the disk cap are a start failure that says so")
def _(pair):
    answer = pair.client.run(
        argv=["true"], files=[{"path": "f", "content": "x" * (2 * MIB)}], limits={"disk_bytes": MIB}
    )
    end = check.ended(answer, "start")
    check.equal(
        (end["evidence"]["errno"], end["evidence"]["stage"]), ("ENOSPC", "files"), "evidence"
    )


@test("a thousand files go in")
def _(pair):
    answer = check.ok(
        pair.client.run(
            sh="ls | wc -l; cat f999",
            files=[{"path": "f%d" % i, "content": str(i)} for i in range(1000)],
        )
    )
    check.equal(check.text(answer), "1000\n999", "stdout")


# Collect


@test("what is missing is told beside what is there", case=121)
def _(pair):
    for script, limits in (
        ("echo made > made.txt", {}),
        ("echo made > made.txt; sleep 9", {"wall_ms": 400}),
    ):
        answer = pair.client.sh(script, collect=["out.txt", "made.txt"], limits=limits)
        seen = collected(answer)
        check.equal(seen["out.txt"].get("error"), "not_found", "error of out.txt")
        check.equal(content(seen["made.txt"]), b"made\n", "made.txt")


@test("files are collected after a failed step too", case=121)
def _(pair):
    answer = pair.client.run(
        steps=[{"sh": "echo a > a"}, {"sh": "exit 1"}, {"sh": "echo b > b"}], collect=["a", "b"]
    )
    seen = collected(answer)
    check.equal((content(seen["a"]), seen["b"].get("error")), (b"a\n", "not_found"), "files")


GLOBS = [
    ("*.txt", ["a.txt", "b.txt"]),
    ("**", ["a.txt", "b.txt", "d/c.txt", "d/e/f.md"]),
    ("d/**", ["d/c.txt", "d/e/f.md"]),
    ("**/*.txt", ["a.txt", "b.txt", "d/c.txt"]),
    ("?.txt", ["a.txt", "b.txt"]),
    ("[ab].txt", ["a.txt", "b.txt"]),
    ("d/*/f.md", ["d/e/f.md"]),
]


def glob(pair, pattern, wanted):
    answer = check.ok(
        pair.client.sh(
            "mkdir -p d/e; echo x | tee a.txt b.txt d/c.txt d/e/f.md >/dev/null", collect=[pattern]
        )
    )
    check.equal(sorted(one["path"] for one in answer["files"]), wanted, "collected")


table([("collect %s" % pattern, None, pattern, wanted) for pattern, wanted in GLOBS], glob)


@test("what a pattern costs is bounded by its length and the names', however often it may begin anew", case=120)
def _(pair):
    deep = "d=.; for i in $(seq 40); do d=$d/a; mkdir $d; done; touch $d/b"
    patterns = ["**/a/" * 14 + "c", "**/*a*a*a/" * 14 + "c", "**/" * 50 + "b", "**/a/" * 14 + "b"]
    answer = check.ok(pair.client.sh(deep, collect=patterns))
    check.equal([one.get("error") for one in answer["files"]], ["not_found", "not_found", None, None], "errors")
    check.equal({one["path"] for one in answer["files"][2:]}, {"a/" * 40 + "b"}, "what was found")


def bad_collect(pair, pattern):
    check.error(pair.client.send(argv=["true"], collect=[pattern]), 400, field="/collect/0")


table(
    [
        ("collect %r is refused" % pattern[:20], 103, pattern)
        for pattern in ("../x", "/etc/passwd", "a/../../x", "", "..", "a\0b")
    ],
    bad_collect,
)


@test("links that the program planted give no file of the host", case="104, 109")
def _(pair):
    script = (
        "ln -s /etc/shadow out; ln -s %s o2; ln -s /proc/self/root/etc/hostname o3; ln -s / d; "
        "ln -s %s dir; ln -s ../../../../etc/passwd o4; ln -s /proc/1/environ o5"
        % (Canaries.root_only, Canaries.directory)
    )
    answer = check.ok(
        pair.client.sh(
            script,
            collect=["out", "o2", "o3", "o4", "o5", "d/etc/shadow", "dir/root", "d/**", "**"],
        )
    )
    text = str(answer)
    check.lacks(text, canary.SECRET, "the answer")
    check.lacks(text, "root:", "the answer")
    for name in ("out", "o2", "o3", "o4", "o5"):
        check.true(
            "error" in collected(answer)[name], "%s came back: %r", name, collected(answer)[name]
        )


@test("links in the workspace change nothing on the host", case="105, 109")
def _(pair):
    with tempfile.TemporaryDirectory(prefix="pinfold-precious-") as precious:
        os.chmod(precious, 0o777)
        path = os.path.join(precious, "f")
        with open(path, "w") as out:
            out.write("precious")
        os.chmod(path, 0o666)
        before = (os.stat(precious), os.stat(path))
        check.ok(
            pair.client.sh(
                "ln -s %s l; ln -s %s m; ls l/ m 2>&1 | head -3; chmod -R 0 l m 2>/dev/null; "
                "rm -rf l/* 2>/dev/null; echo x > m/new 2>/dev/null; true" % (precious, path)
            )
        )
        for seen, name in zip(before, (precious, path)):
            now = os.stat(name)
            check.equal(
                (now.st_mode, now.st_uid, now.st_size),
                (seen.st_mode, seen.st_uid, seen.st_size),
                name,
            )
        check.equal(os.listdir(precious), ["f"], "files")


@test("files of the image cannot be linked into the workspace", case=110)
def _(pair):
    before = os.stat("/usr/bin/env")
    answer = pair.client.sh(
        "ln /usr/bin/env h; echo $?; ln /proc/1/environ h2; echo $?", collect=["h"]
    )
    check.equal(check.lines(answer), ["1", "1"], "exit codes of ln")
    check.equal(collected(answer)["h"].get("error"), "not_found", "error of h")
    now = os.stat("/usr/bin/env")
    check.equal(
        (now.st_mode, now.st_nlink, now.st_ctime),
        (before.st_mode, before.st_nlink, before.st_ctime),
        "the host's file",
    )


ODD = [
    ("a FIFO", "mkfifo p"),
    ("a socket", "python3 -c 'import socket; socket.socket(1).bind(\"p\")'"),
    ("a directory", "mkdir p"),
    ("a link", "echo x > y; ln -s y p"),
    ("a dangling link", "ln -s nosuch p"),
]


def odd(pair, script):
    watch = Stopwatch()
    answer = check.ok(pair.client.sh(script + "; echo ok > other", collect=["p", "other"]))
    watch.below(2, "the answer")
    seen = collected(answer)
    check.member(seen["p"].get("error"), ("not_regular", "not_found"), "error of p")
    check.equal(content(seen["other"]), b"ok\n", "the other file")


table(
    [("%s is not collected, and nobody waits for it" % name, 111, script) for name, script in ODD],
    odd,
)


@test("a file that turns into a FIFO and back while it is read does no harm", case=111)
def _(pair):
    script = "(while :; do rm -f p; mkfifo p; rm -f p; echo x > p; done) & sleep 0.2; echo started"
    for _ in range(5):
        watch = Stopwatch()
        answer = check.ok(pair.client.sh(script, collect=["p"]))
        watch.below(3, "the answer")
        check.equal(len(answer["files"]), 1, "entries")


@test("a sparse giant is refused by its size", case=112)
def _(pair):
    watch = Stopwatch()
    answer = check.ok(
        pair.client.sh(
            "truncate -s 1T s || truncate -s 200M s; echo x > f; ls -l s", collect=["s", "f"]
        )
    )
    watch.below(3, "the answer")
    seen = collected(answer)
    check.equal(seen["s"].get("error"), "too_large", "error of s")
    check.equal(content(seen["f"]), b"x\n", "the other file")


@test("an unreadable file is told, the others come", case=119)
def _(pair):
    answer = check.ok(
        pair.client.sh(
            "mkdir z; touch z/f; chmod 0 z; echo x > f; echo y > g; chmod 0 g", collect=["**"]
        )
    )
    seen = collected(answer)
    check.equal(content(seen["f"]), b"x\n", "f")
    check.true(
        all("root" not in str(one) for one in answer["files"]), "unexpected: %r", answer["files"]
    )


DEEP = """
import os
for i in range(3000):
    os.mkdir('d' * 200)
    os.chdir('d' * 200)
"""


@test("3000 levels and read-only trees are gone soon", case=119, deadline=30)
def _(pair):
    answer = check.ok(
        pair.client.run(
            steps=[
                {"argv": ["python3", "-c", DEEP]},
                {
                    "sh": "mkdir z; touch z/f; chmod 0 z; mkdir r; touch r/f; chmod 444 r/f; "
                          "chmod 555 r; echo x > f"
                },
            ],
            collect=["**"],
            limits={"wall_ms": 20000},
        )
    )
    check.equal(content(collected(answer)["f"]), b"x\n", "f")
    pair.check_clean(5)


@test("very many files are collected up to a bound, and told", case=120, deadline=40)
def _(pair):
    watch = Stopwatch()
    answer = check.ok(
        pair.client.python("for i in range(40000): open('f%d' % i, 'w').close()", collect=["**"])
    )
    watch.below(10, "the answer")
    check.within(1000, len(answer["files"]), 5000, "entries")
    check.true(
        any(one.get("error") == "too_many" for one in answer["files"]),
        "nothing says that there is more",
    )


@test("a glob that could not be looked for everywhere is not called absent", case=120, deadline=40)
def _(pair):
    answer = check.ok(
        pair.client.python(
            "for i in range(60000): open('f%d' % i, 'w').close()\nopen('here', 'w').write('x')",
            collect=["here*"] + ["no%d*" % i for i in range(17)] + ["her*"],
        )
    )
    entries = {one["path"]: one.get("error") for one in answer["files"]}
    check.equal(entries["here"], None, "a file that was looked for")
    check.equal(entries["no0*"], "not_found", "a glob without a match")
    check.equal(entries["her*"], "too_many", "a glob for which there were too many entries")


@test("more bytes than may be collected are told per file", case=120)
def _(pair):
    answer = check.ok(
        pair.client.sh(
            "for i in {1..30}; do head -c 1000000 /dev/zero > f$i; done; echo s > small",
            collect=["small", "f*"],
        )
    )
    kinds = [one.get("error", "content") for one in answer["files"]]
    check.true("too_large" in kinds and kinds.count("content") >= 10, "entries: %s", kinds)
    check.equal(content(collected(answer)["small"]), b"s\n", "small")


@test("a file that changes while it is read does no harm", case=113)
def _(pair):
    script = (
        "(while :; do echo xxxxxxxxxxxx >> g; : > t; head -c 100000 /dev/zero > t; done) & "
        "sleep 0.2"
    )
    for _ in range(5):
        answer = check.ok(pair.client.sh(script, collect=["g", "t"]))
        check.equal(len(answer["files"]), 2, "entries")

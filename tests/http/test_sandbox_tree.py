"""The rest of a sandbox's file system over HTTP: stat, mkdir, move, and watches for changes."""

import check
from box import Box, status
from client import Stream
from suite import test


def stat(box, path, follow=None):
    query = "" if follow is None else "?follow=" + follow
    return box.client.get("%s/stat%s%s" % (box.path, path, query))


def mkdir(box, path, query=""):
    return box.client.post("%s/mkdir%s%s" % (box.path, path, query), {})


def move(box, source, to, **more):
    return box.client.post(box.path + "/move", dict({"from": source, "to": to}, **more))


def seen_by(box, path):
    return box.text("stat -c '%%F %%a' %s" % path).strip()


@test("stat tells of a file, a directory, a link and what it leads to, and of nothing")
def _(pair):
    with Box.make(pair.client) as box:
        box.sh("printf abc > f; chmod 0640 f; mkdir d; ln -s f l; ln -s nowhere b; mkfifo p")
        for path, follow, kind, size in (("f", None, "file", 3), ("d", None, "directory", None),
                                         ("l", None, "symlink", 1), ("l", "true", "file", 3),
                                         ("p", None, "fifo", None), ("b", None, "symlink", 7)):
            one = status(stat(box, "/workspace/" + path, follow), 200).json()
            check.equal(one["type"], kind, "type of %s" % path)
            if size is not None:
                check.equal(one["size"], size, "size of %s" % path)
        check.equal(stat(box, "/workspace/f").json()["mode"], "0640", "mode")
        check.equal(stat(box, "/workspace/l").json()["target"], "f", "target")
        check.error(stat(box, "/workspace/b", "true"), 404, "not_found")
        check.error(stat(box, "/workspace/none"), 404, "not_found")
        check.error(stat(box, "/workspace/f/below"), 409, "not_directory")
        check.error(stat(box, "/workspace/f", "perhaps"), 400)


@test("mkdir makes parents when asked, sets the mode, and says what is in the way")
def _(pair):
    with Box.make(pair.client) as box:
        box.sh("echo x > f; ln -s /etc out")
        one = status(mkdir(box, "/workspace/a/b/c", "?mode=0750"), 201).json()
        check.equal((one["type"], one["mode"]), ("directory", "0750"), "what was made")
        check.equal(seen_by(box, "a/b/c"), "directory 750", "inside")
        check.equal(box.text("stat -c %U a a/b a/b/c | sort -u; id -un").split()[0],
                    box.text("id -un").strip(), "its owner")
        status(mkdir(box, "/workspace/a/b/c"), 201)
        check.error(mkdir(box, "/workspace/a/b/c", "?parents=false"), 409, "exists")
        check.error(mkdir(box, "/workspace/x/y", "?parents=false"), 404, "not_found")
        check.error(mkdir(box, "/workspace/f"), 409, "exists")
        check.error(mkdir(box, "/workspace/f/g"), 409, "not_directory")
        check.error(mkdir(box, "/workspace/out/here"), 403, "denied")
        check.error(mkdir(box, "/workspace/m", "?mode=9"), 400)


@test("a move renames files and trees, replaces only when asked, and crosses to /tmp")
def _(pair):
    with Box.make(pair.client) as box:
        box.sh("echo one > f; echo two > g; mkdir -p d/e; echo three > d/e/h; ln -s f l")
        check.error(move(box, "/workspace/f", "/workspace/g"), 409, "exists")
        check.equal(box.text("cat f g"), "one\ntwo\n", "after a refusal")
        status(move(box, "/workspace/f", "/workspace/g", replace=True), 201)
        check.equal(box.text("ls; cat g"), "d\ng\nl\none\n", "replaced")
        status(move(box, "/workspace/d", "/workspace/moved"), 201)
        check.equal(box.text("cat moved/e/h"), "three\n", "a tree")
        status(move(box, "/workspace/l", "/workspace/k"), 201)
        check.equal(box.text("readlink k"), "f\n", "a link moves, not what it leads to")
        status(move(box, "/workspace/g", "/tmp/g"), 201)
        check.equal(box.text("cat /tmp/g; ls g 2>&1 | grep -c 'No such'"), "one\n1\n", "to /tmp")
        check.error(move(box, "/workspace/none", "/workspace/x"), 404, "not_found")
        check.error(move(box, "/workspace/moved", "/workspace/moved/e/in"), (400, 409))
        check.error(move(box, "/workspace/moved", "/etc/moved"), (403, 409))
        check.error(move(box, "/workspace/moved", 7), 400, field="/to")
        check.error(move(box, "/workspace/moved", "/workspace/x", force=True), 400)


# Watches


def watch(box, path, query=""):
    return Stream(box.client, "GET", "%s/watch%s%s" % (box.path, path, query))


def until(stream, event, path):
    """Reads on to this event -> what came before it, as (event, path)."""
    before = []
    for _, one in stream:
        if (one["event"], one["path"]) == (event, path):
            return before
        before.append((one["event"], one["path"]))
    return check.fail("the watch ended before %s %s: %s" % (event, path, before))


@test("a watch tells what is made, written, changed and removed, from its first line on",
      deadline=30)
def _(pair):
    with Box.make(pair.client) as box:
        box.sh("mkdir d; echo x > old")
        with watch(box, "/workspace") as one:
            check.equal(next(iter(one))[1]["event"], "ready", "the first line")
            box.sh("echo a > new")
            until(one, "created", "new")
            box.sh("echo b >> old")
            until(one, "modified", "old")
            box.sh("chmod 0600 old")
            until(one, "attributes", "old")
            box.put("/workspace/put", b"by the server")
            until(one, "created", "put")
            box.sh("echo deep > d/deep; mv new newer")
            before = until(one, "created", "newer")
            check.true(not any("deep" in path for _, path in before), "below: %s", before)
            box.remove("/workspace/old")
            until(one, "deleted", "old")


@test("a recursive watch follows directories that are made and moved", deadline=30)
def _(pair):
    with Box.make(pair.client) as box:
        box.sh("mkdir -p d/e")
        with watch(box, "/workspace", "?recursive=true") as one:
            check.equal(next(iter(one))[1]["event"], "ready", "the first line")
            box.sh("echo a > d/e/f")
            until(one, "created", "d/e/f")
            box.sh("mkdir -p n/m")
            until(one, "created", "n")
            box.sh("sleep 0.2; echo a > n/m/g")
            until(one, "created", "n/m/g")
            box.sh("mv d moved; sleep 0.2; echo b > moved/e/h")
            until(one, "created", "moved/e/h")
        # The names of work in progress are nobody's business.
        with watch(box, "/workspace", "?recursive=true") as one:
            next(iter(one))
            box.put("/workspace/whole", b"x" * 100000)
            check.true(not any(".pinfold" in path for _, path in until(one, "created", "whole")),
                       "a name of work in progress is told")


@test("a watch goes on over a snapshot; a restore ends it as it ends all else, and so does the end",
      deadline=40)
def _(pair):
    with Box.make(pair.client) as box:
        with watch(box, "/workspace") as one:
            next(iter(one))
            snapshot = box.snapshot()
            box.sh("echo a > one; sleep 3; echo b > two")
            until(one, "created", "two")
            status(box.restore(snapshot["id"]), 200)
            for _, line in one:
                check.true(line["path"] != "three", "it goes on")
        with watch(box, "/workspace") as one:
            check.equal(next(iter(one))[1]["event"], "ready", "the first line of another one")
            box.sh("echo c > three")
            until(one, "created", "three")
            box.delete()
            check.true(all(line["event"] != "ready" for _, line in one), "it begins anew")
        status(pair.client.delete("/v1/snapshots/" + snapshot["id"]), 204)


@test("a watch of nothing is refused, the ninth too, and none waits for another operation",
      deadline=30)
def _(pair):
    with Box.make(pair.client) as box:
        check.error(box.client.get(box.path + "/watch/workspace/none"), 404, "not_found")
        box.put("/workspace/f", b"x")
        open_ones = [watch(box, "/workspace") for _ in range(8)]
        for one in open_ones:
            check.equal(next(iter(one))[1]["event"], "ready", "the first line")
        check.error(box.client.get(box.path + "/watch/workspace"), 429, "busy")
        check.equal(box.content("/workspace/f"), b"x", "reading meanwhile")
        for one in open_ones:
            one.close()

        def again():
            with watch(box, "/workspace") as one:
                return one.status == 200

        check.eventually(again, 5, "a place is free again", 0.1)

"""What programs find who work in files that lie in the layers of snapshots: names, links, renames."""

import check
from box import Box, forget, status
from suite import test

PACKAGE = r"""set -e
for v in 1 2; do
    mkdir -p p$v/DEBIAN p$v/usr/share/thing/deep
    printf 'Package: thing\nVersion: %s\nArchitecture: all\nMaintainer: a <a@b>\nDescription: x\n' $v >p$v/DEBIAN/control
    echo "one of $v" >p$v/usr/share/thing/one
    ln p$v/usr/share/thing/one p$v/usr/share/thing/same
    ln -s one p$v/usr/share/thing/link
    echo "deep of $v" >p$v/usr/share/thing/deep/f
    echo /usr/share/thing/one >p$v/DEBIAN/conffiles
    dpkg-deb --root-owner-group -b p$v t$v.deb >/dev/null
done
mkdir -p r/var/lib/dpkg/info r/var/lib/dpkg/updates
touch r/var/lib/dpkg/status r/var/lib/dpkg/available
"""
DPKG = "dpkg --root=$PWD/r --force-not-root --force-script-chrootless --log=/dev/null --no-triggers "


@test("a package is installed, and replaced and removed over snapshots and in copies of them",
      case=126, deadline=40)
def _(pair):
    def content(box):
        return box.text("cd r/usr/share/thing; cat one same link deep/f; stat -c %h one")

    def state(version):
        return "one of %d\n" % version * 3 + "deep of %d\n2\n" % version

    with Box.make(pair.client) as box:
        check.ok(box.sh(PACKAGE, limits={"wall_ms": 20000}))
        check.ok(box.sh(DPKG + "-i t1.deb"))
        check.equal(content(box), state(1), "after the installation")
        taken = [box.snapshot()]
        try:
            check.ok(box.sh(DPKG + "-i t2.deb"))
            check.equal(content(box), state(2), "after the next version, over a snapshot")
            taken.append(box.snapshot())
            with Box.make(pair.client, **{"from": taken[1]["id"]}) as copy:
                check.equal(content(copy), state(2), "in a copy")
                check.ok(copy.sh(DPKG + "-i t1.deb"))
                check.equal(content(copy), state(1), "the version before, over two snapshots")
                check.ok(copy.sh(DPKG + "-P thing"))
                check.equal(copy.text("find r/usr r/var/lib/dpkg/info | sort | tail -1; "
                                      "grep -c . r/var/lib/dpkg/status || true"),
                            "r/var/lib/dpkg/info/format\n0\n", "what is left")
            status(box.restore(taken[0]["id"]), 200, 204)
            check.equal(content(box), state(1), "after a restore")
        finally:
            forget(pair.client, *taken)


@test("renames and hard links over snapshots: directories move, links are made, what is written to "
      "one name parts from the others", case=126, deadline=30)
def _(pair):
    with Box.make(pair.client) as box:
        box.text("mkdir -p d/deep; echo f >d/deep/f; echo one >a; ln a b; git init -q g; cd g; "
                 "git config user.email a@b; git config user.name a; echo 1 >x; mkdir s; echo s >s/y; "
                 "git add .; git commit -qm 1; git checkout -qb other; git mv s t; echo 2 >x; "
                 "git commit -qam 2")
        taken = [box.snapshot()]
        try:
            check.equal(box.text("mv d e && mv e/deep e/dark && mv e /workspace/z && cat z/dark/f && "
                                 "! ls d 2>/dev/null && ln a c && stat -c %h a && mv c z/ && "
                                 "cat z/c"), "f\n2\none\n", "moved and linked")
            check.equal(box.text("cd g && git checkout -q - && cat x s/y && git checkout -q other && "
                                 "cat x t/y && git clone -q . ../h && git -C ../h log --oneline | "
                                 "wc -l && git fsck 2>&1"), "1\ns\n2\ns\n2\n", "git")
            # README: the copy that is made when one name is written to has that name alone.
            check.equal(box.text("echo two >>a; cat a; echo .; cat b; rm b; cat a"),
                        "one\ntwo\n.\none\none\ntwo\n", "names of one file")
            check.equal(box.text("echo 1 >n; ln n m; echo 2 >>n; cat m"), "1\n2\n",
                        "names that were made since the snapshot")
            answer = box.run(sh="mv /usr/share /usr/s2")
            check.holds(check.text(answer, stream="stderr"), "Read-only file system", "the image")
        finally:
            forget(pair.client, *taken)

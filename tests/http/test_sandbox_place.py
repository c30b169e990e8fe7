"""Sandboxes on a state directory that lies on an unusual file system."""

import os
import subprocess
import tempfile

import check
import clean
import harness
from box import Box
from suite import table


class Place:
    """A directory whose file system is not the host's."""

    def __init__(self):
        self.work = tempfile.mkdtemp(prefix=clean.TEST_MOUNT)
        os.chmod(self.work, 0o755)
        self.mounts = []

    def make(self, name):
        path = os.path.join(self.work, name)
        os.makedirs(path, exist_ok=True)
        os.chmod(path, 0o755)
        return path

    def mount(self, name, kind, options):
        path = self.make(name)
        subprocess.run(["mount", "-t", kind, "-o", options, "none", path], check=True,
                       capture_output=True, timeout=20)
        self.mounts.append(path)
        return path

    def tmpfs(self, name):
        return self.mount(name, "tmpfs", "size=512m,mode=0755")

    def overlay(self, base, name):
        """As the root of a container is one, with its layers in `base`."""
        parts = [self.make(os.path.join(base, part)) for part in ("lower", "upper", "work")]
        return self.mount(name, "overlay", "lowerdir=%s,upperdir=%s,workdir=%s" % tuple(parts))

    def close(self):
        for path in reversed(self.mounts):
            subprocess.run(["umount", "-l", path], capture_output=True, timeout=20)
        subprocess.run(["rm", "-rf", self.work], timeout=30)


def tmpfs(place):
    return place.tmpfs("m")


def overlay(place):
    place.tmpfs("base")
    return place.overlay("base", "m")


def submounts(place):
    place.tmpfs("m")
    place.tmpfs("m/other")
    return place.tmpfs("m/inner")


def whole(pair, **request):
    """What needs layers, images of disks and stacks of them."""
    with Box.make(pair.client, **request) as box:
        box.put("/workspace/f", b"one")
        snapshot = box.snapshot()
        box.put("/workspace/f", b"two")
        (fork,) = box.fork(1)
        with fork:
            check.equal(fork.text("cat f; echo fork > g; mv g f; cat f"), "twofork\n", "in a fork")
        box.restore(snapshot["id"])
        check.equal(box.text("cat f"), "one", "restored")


def placed(_, where):
    place = Place()
    try:
        state = os.path.join(where(place), "state")
        with harness.Pair(slots=4, warm=1, state=state) as pair:
            check.ok(pair.client.run(argv=["true"]))
            whole(pair)
            whole(pair, disk="file")
    finally:
        place.close()


table([("the state directory may lie on %s" % name, 125, where)
       for name, where in (("a tmpfs", tmpfs), ("an overlay", overlay),
                           ("a file system below others", submounts))],
      placed, own=True, deadline=60)

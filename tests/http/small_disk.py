"""A file system that is full soon."""

import os
import subprocess
import tempfile

import clean
from box import MIB


class Image:
    """A small file system for a state directory."""

    def __init__(self, mib):
        self.work = tempfile.mkdtemp(prefix=clean.TEST_MOUNT)
        os.chmod(self.work, 0o755)
        self.file = os.path.join(self.work, "image")
        self.place = os.path.join(self.work, "mount")
        os.mkdir(self.place)
        with open(self.file, "wb") as out:
            out.truncate(mib << 20)
        self.call("mkfs.ext4", "-q", "-F", "-N", "4000", "-m", "0", self.file)
        self.call("mount", "-o", "loop", self.file, self.place)
        os.chmod(self.place, 0o755)
        self.ballast = os.path.join(self.place, "ballast")

    def call(self, *arguments):
        subprocess.run(arguments, check=True, capture_output=True, timeout=20)

    def fill(self):
        """To the last byte."""
        with open(self.ballast, "wb", 0) as out:
            for size in (MIB, 4096, 512, 1):
                try:
                    while True:
                        out.write(b"x" * size)
                except OSError:
                    pass

    def fill_inodes(self):
        os.makedirs(self.ballast)
        try:
            for i in range(100000):
                os.close(os.open("%s/%d" % (self.ballast, i), os.O_CREAT | os.O_WRONLY))
        except OSError:
            pass

    def free(self):
        subprocess.run(["rm", "-rf", self.ballast], timeout=30)

    def close(self):
        subprocess.run(["umount", "-l", self.place], capture_output=True, timeout=20)
        subprocess.run(["rm", "-rf", self.work], timeout=30)

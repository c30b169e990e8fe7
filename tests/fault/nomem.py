"""Drives tests/fault/nomem.c: which allocation of a program fails, and where allocations come
from."""

import mmap
import os
import struct
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
HEAD = struct.Struct("=IIIII")
PADDED = 24  # what follows is aligned
LOG = 262144
GENERATION, NTH, RECORD, HIT, COUNT = 0, 4, 8, 12, 16


def build(directory):
    library = os.path.join(directory, "nomem.so")
    flags = ["-std=gnu17", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC"]
    subprocess.run(
        ["gcc"] + flags + ["-shared", "-o", library, os.path.join(HERE, "nomem.c")], check=True
    )
    os.chmod(library, 0o755)
    return library


class Plan:
    """What is to fail. The file is for every user: a program may have become another one."""

    def __init__(self, directory, library, name="plan"):
        self.library = library
        self.path = os.path.join(directory, name)
        with open(self.path, "wb") as out:
            out.truncate(PADDED + 8 * LOG)
        os.chmod(self.path, 0o666)
        self.file = open(self.path, "r+b")
        self.map = mmap.mmap(self.file.fileno(), 0)

    def environment(self):
        """PINFOLD_NOMEM_TRACE, a file, is told where an allocation has failed."""
        return {"LD_PRELOAD": self.library, "PINFOLD_NOMEM": self.path}

    def prefix(self, command=None):
        """`command`: not for the program itself, but for those with this first argument that it
        starts."""
        found = self.environment()
        if command is not None:
            found["PINFOLD_NOMEM_COMMAND"] = command
        return ["env"] + ["%s=%s" % pair for pair in found.items()]

    def word(self, at):
        return struct.unpack_from("=I", self.map, at)[0]

    def set(self, nth, record):
        struct.pack_into("=III", self.map, NTH, 0, 0, 0)
        struct.pack_into("=I", self.map, COUNT, 0)
        struct.pack_into("=II", self.map, NTH, nth, record)

    def record(self):
        self.set(0, 1)

    def arm(self, nth):
        self.set(nth, 0)

    def disarm(self):
        """-> did it happen?"""
        hit = self.word(HIT)
        self.set(0, 0)
        return hit

    def origins(self):
        """-> [number of the first allocation from each place] since record()"""
        seen, first = set(), []
        for at in range(min(self.word(COUNT), LOG)):
            (origin,) = struct.unpack_from("=Q", self.map, PADDED + 8 * at)
            if origin not in seen:
                seen.add(origin)
                first.append(at + 1)
        return first

    def close(self):
        self.map.close()
        self.file.close()

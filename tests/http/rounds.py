"""How long the server's loop is held: the longest processor time between two waits of its one
thread, which is a measure that a busy machine does not change. A shim in front of epoll_pwait2()
takes it."""

import mmap
import os
import struct
import subprocess

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static volatile uint64_t *most; /* of the longest round; then the number of rounds */
static uint64_t begun;

static uint64_t used(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
__attribute__((constructor)) static void start(void)
{
    const char *path = getenv("PINFOLD_TEST_ROUNDS");
    int fd = -1;
    if (path && strcmp(program_invocation_short_name, "pinfold-server") == 0)
        fd = open(path, O_RDWR | O_CLOEXEC);
    void *at = fd < 0 ? MAP_FAILED : mmap(NULL, 16, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    most = at == MAP_FAILED ? NULL : at;
}
int epoll_pwait2(int epoll, struct epoll_event *events, int count, const struct timespec *wait,
                 const sigset_t *mask)
{
    static int (*real)(int, struct epoll_event *, int, const struct timespec *, const sigset_t *);
    int mine = most && gettid() == getpid();
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "epoll_pwait2");
    if (mine && begun) {
        uint64_t round = used() - begun;
        most[0] = round > most[0] ? round : most[0];
        most[1]++;
    }
    int n = real(epoll, events, count, wait, mask);
    if (mine)
        begun = used();
    return n;
}
"""


class Rounds:
    """For a pair that has not been started yet."""

    def __init__(self, pair):
        source, shim = os.path.join(pair.work, "rounds.c"), os.path.join(pair.work, "rounds.so")
        path = os.path.join(pair.work, "rounds")
        with open(source, "w") as out:
            out.write(SHIM)
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", source, "-o", shim, "-ldl"], check=True)
        with open(path, "wb") as out:
            out.write(bytes(16))
        os.chmod(path, 0o666)
        pair.environment.update(LD_PRELOAD=shim, PINFOLD_TEST_ROUNDS=path)
        with open(path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), 16)

    def start(self):
        """Forgets what was."""
        self.map[:] = bytes(16)

    def longest(self):
        """-> milliseconds of processor time of the longest round since start()."""
        longest, count = struct.unpack("QQ", self.map[:])
        assert count > 0, "the loop's rounds are not seen"
        return longest / 1e6

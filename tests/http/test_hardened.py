"""Hosts that keep namespaces from people, or from containers: the runner says so when it starts, with
what is missing and what to do, and ends with an error; or it works."""

import os
import sys

import check
import clean
import harness
from check import Stopwatch
from suite import table, test

HERE = os.path.dirname(os.path.abspath(__file__))
NEW_USER = "&%d" % 0x10000000  # CLONE_NEWUSER
# The bounding set of a container that nobody gave more.
DOCKER = ("chown dac_override fowner fsetid kill setgid setuid setpcap net_bind_service net_raw "
          "sys_chroot mknod audit_write setfcap").split()
CAPABLE = ("CAP_SYS_ADMIN", "seccomp", "AppArmor", "--cap-add SYS_ADMIN")
# Somebody's own user namespace, in which no further one may be made.
NO_MORE = ("import ctypes, os, sys; libc = ctypes.CDLL(None); "
           "libc.unshare(0x10000000) == 0 or sys.exit('no namespace'); "
           "open('/proc/sys/user/max_user_namespaces', 'w').write('0'); "
           "os.execv(sys.argv[1], sys.argv[1:])")


def refuse(number, errno, option="-"):
    return [sys.executable, os.path.join(HERE, "refuse.py"), str(number), str(errno), option]


def refused(prefix, wanted, rootless):
    pair = harness.Pair(slots=2, warm=1, runner_prefix=prefix,
                        rootless="nobody" if rootless else None)
    try:
        pair.init()
        watch = Stopwatch()
        pair.start_runner()
        check.equal(pair.runner.wait(10), 1, "exit code")
        watch.below(6, "the refusal")
        lines = clean.read(os.path.join(pair.work, "runner.log")).decode().strip().splitlines()
        said = [line for line in lines if line.startswith("pinfold-runner: ")]
        check.equal(len(said), 1, "sentences: %r" % lines)
        for word in wanted:
            check.holds(said[0], word, "what the runner says")
        pair.runner = None
    finally:
        pair.discard()


ROWS = [
    ("a container engine's filter refuses unshare and mount", 163,
     refuse(165, 1) + refuse(272, 1), CAPABLE, False),
    ("a filter refuses jails their user namespace", 163, refuse(56, 1, NEW_USER),
     CAPABLE + ("namespaces (clone)",), False),
    ("a container has no CAP_SYS_ADMIN", 163,
     ["setpriv", "--inh-caps", "-all", "--bounding-set", ",".join(["-all"] + ["+" + c for c in DOCKER])],
     CAPABLE, False),
    ("there are no user namespaces left", 163, refuse(56, 28, NEW_USER),
     ("user.max_user_namespaces",), False),
    ("users may make no user namespace", 163, [sys.executable, "-c", NO_MORE],
     ("user.max_user_namespaces", "AppArmor", "profile"), True),
]
table([("the runner does not start when %s, and says what to do" % row[0],) + row[1:]
       for row in ROWS], lambda _, *row: refused(*row), own=True, deadline=40)


@test("parts of /proc that are covered or read-only, as in a container, are no obstacle", case=163,
      own=True, deadline=30)
def _(_):
    cover = ("mount -o bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys && "
             "mount -t tmpfs -o ro none /proc/fs && exec \"$@\"")
    with harness.Pair(slots=2, warm=1, runner_prefix=["unshare", "-m", "sh", "-c", cover, "sh"]) as pair:
        answer = check.ok(pair.client.run(sh="ls /proc/self/fd | wc -l; cat /proc/self/comm"))
        check.equal(check.text(answer), "4\ncat\n", "what /proc shows inside")

#!/usr/bin/python3
"""probes.py OUTPUT: the probes of tests/http/escape.py as attempts of the escape suite.

There they return what the call said. Here every call of theirs says before it is made that it was
reached, so the last line tells which door was tried."""

import os
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "http"))

import escape

# Which class a probe belongs to: the first prefix of its key that is here. Those that must work
# are no attempts, and `abstract` has a better one of its own.
CLASSES = (
    ("tioc", "terminals"),
    ("unshare", "namespaces"),
    ("clone", "namespaces"),
    ("setns", "namespaces"),
    ("mount_cgroup", "cgroups"),
    ("pivot", "pivot and chroot"),
    ("chroot", "pivot and chroot"),
    ("mount_setattr", "new mount interface"),
    ("move_mount", "new mount interface"),
    ("open_tree", "new mount interface"),
    ("fs", "new mount interface"),
    ("mount", "mounts"),
    ("umount", "mounts"),
    ("swapon", "mounts"),
    ("quotactl", "mounts"),
    ("handle", "mounts"),
    ("mknod", "devices"),
    ("io_uring", "io_uring"),
    ("bpf", "bpf"),
    ("perf", "perf"),
    ("userfaultfd", "userfaultfd"),
    ("key", "keys"),
    ("add_key", "keys"),
    ("request_key", "keys"),
    ("kcmp", "process 1"),
    ("pidfd_getfd", "process 1"),
    ("i386", "other architectures"),
    ("x32", "other architectures"),
    ("ptrace", "ptrace"),
    ("vm_", "ptrace"),
    ("mem_write", "ptrace"),
    ("exe_", "/proc/self/exe"),
    ("kill_init", "process 1"),
    ("init_module", "kernel"),
    ("init", "process 1"),
    ("prlimit", "process 1"),
    ("sched", "process 1"),
    ("set", "capabilities"),
    ("cap", "capabilities"),
    ("ambient", "capabilities"),
    ("nofile", "exhaustion"),
    ("core", "exhaustion"),
    ("mlock", "exhaustion"),
    ("raw", "socket families"),
    ("packet", "socket families"),
    ("vsock", "socket families"),
    ("alg", "socket families"),
    ("can", "socket families"),
    ("tipc", "socket families"),
    ("bluetooth", "socket families"),
    ("xdp", "socket families"),
    ("nfnetlink", "socket families"),
)
OTHER = {"setns_user": "namespaces", "key": "socket families", "settime": "kernel",
         "sethostname": "kernel", "setdomainname": "kernel"}
LEFT_OUT = {"abstract", "new_privs", "seccomp"}

CALLS = (
    "open socket syscall unshare mount umount2 chroot swapon mknod setns kill ptrace ioctl "
    "name_to_handle_at open_by_handle_at process_vm_readv process_vm_writev clock_settime adjtimex "
    "sethostname setdomainname prlimit setpriority setuid setresuid setgid setgroups prctl "
    "setrlimit mlock send terminal i386"
).split()


def class_of(key):
    if key in OTHER:
        return OTHER[key]
    for prefix, name in CLASSES:
        if key.startswith(prefix):
            return name
    return "kernel"


def quoted(text):
    return '"%s"' % text.replace("\\", "\\\\").replace('"', '\\"')


def main():
    text = '#include "attempt.h"\n' + escape.HEAD
    for name in CALLS:
        text += "#define %s(...) TRY(%s(__VA_ARGS__))\n" % (name, name)
    for key, what, _, body, right in escape.PROBES:
        if key in LEFT_OUT or key.startswith("works_"):
            continue
        # Where the 32-bit tables are let through to a filter it may name the error itself.
        more = {"clone3": " EINVAL", "i386": " EPERM", "x32": " EPERM"}.get(key.split("_")[0], "")
        wide = right + more
        text += "ATTEMPT(%s, %s, %s, %s) { %s }\n" % (
            quoted(class_of(key)), "probe_" + key, quoted(wide), quoted(what), body)
    with open(sys.argv[1], "w") as out:
        out.write(text)


if __name__ == "__main__":
    main()

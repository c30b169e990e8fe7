#!/usr/bin/python3
"""confine.py UNIT WRITABLE PROGRAM ARGUMENT…: becomes PROGRAM, confined as the systemd unit file
UNIT says, on a machine without systemd. Of the file system only WRITABLE can be written.

What is applied: user, group, bounding set, no_new_privs, umask, limit of open files, a network
namespace of its own, ProtectSystem=strict, ProtectHome, RestrictAddressFamilies, SystemCallFilter,
MemoryDenyWriteExecute, RestrictNamespaces, RestrictSUIDSGID, RestrictRealtime, LockPersonality. What
it does not know how to apply must be in IGNORED, so that no new line of a unit goes untested
unnoticed."""

import ctypes
import errno
import grp
import os
import pwd
import re
import resource
import stat
import subprocess
import sys

try:
    import seccomp
except ImportError:
    seccomp = None  # what reads units needs none

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWNET = 0x20000, 0x40000000
MS_RDONLY, MS_BIND, MS_REC, MS_PRIVATE = 1, 0x1000, 0x4000, 0x40000
SYS_MOUNT_SETATTR, AT_RECURSIVE, ATTR_RDONLY = 442, 0x8000, 1
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38
NAMESPACES = 0x7E020080  # every CLONE_NEW… flag

CAPABILITIES = (
    "chown dac_override dac_read_search fowner fsetid kill setgid setuid setpcap linux_immutable "
    "net_bind_service net_broadcast net_admin net_raw ipc_lock ipc_owner sys_module sys_rawio "
    "sys_chroot sys_ptrace sys_pacct sys_admin sys_boot sys_nice sys_resource sys_time "
    "sys_tty_config mknod lease audit_write audit_control setfcap mac_override mac_admin syslog "
    "wake_alarm block_suspend audit_read perfmon bpf checkpoint_restore"
).split()
FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}
IGNORED = set(
    # Of the manager, not of the process.
    "Type ExecStartPre ExecStart ExecReload EnvironmentFile Restart RestartSec KillMode "
    "TimeoutStopSec Delegate OOMPolicy LimitCORE OOMScoreAdjust SystemCallErrorNumber ReadWritePaths "
    "AmbientCapabilities "
    # A server's tests look into these from outside; nothing in it needs more.
    "PrivateTmp PrivateDevices PrivateUsers ProtectProc RemoveIPC ProtectControlGroups "
    "ProtectKernelTunables "
    # Device cgroups.
    "DevicePolicy DeviceAllow "
    # Beyond what an empty bounding set and the filters above them do already.
    "ProtectClock ProtectHostname ProtectKernelLogs ProtectKernelModules SystemCallArchitectures".split()
)


def settings(path):
    """{name: [value, …]} of the section [Service]."""
    found, section = {}, ""
    for line in open(path):
        line = line.strip()
        if line.startswith("["):
            section = line
        elif section == "[Service]" and line and line[0] not in "#;":
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def call(result, what):
    if result < 0:
        code = ctypes.get_errno()
        sys.exit("confine: %s: %s" % (what, os.strerror(code)))


def mount(source, target, kind, flags):
    call(LIBC.mount(source, target, kind, flags, None), "mount on %s" % target)


def set_read_only(path, on, recursive=AT_RECURSIVE):
    attr = (ctypes.c_uint64 * 4)(ATTR_RDONLY if on else 0, 0 if on else ATTR_RDONLY, 0, 0)
    call(
        LIBC.syscall(SYS_MOUNT_SETATTR, -100, path, recursive, ctypes.byref(attr), 32),
        "mount_setattr of %s" % path,
    )


def file_system(writable):
    """ProtectSystem=strict, ProtectHome=yes, ReadWritePaths=writable."""
    call(LIBC.unshare(CLONE_NEWNS), "unshare")
    mount(b"none", b"/", None, MS_REC | MS_PRIVATE)
    keep = writable.encode()
    mount(keep, keep, None, MS_BIND | MS_REC)
    set_read_only(b"/", True)
    for path in (keep, b"/dev", b"/proc", b"/sys"):
        set_read_only(path, False)
    for path in (b"/home", b"/root", b"/run/user"):
        if os.path.isdir(path):
            mount(b"tmpfs", path, b"tmpfs", MS_RDONLY)


def expand(words):
    """System calls that a SystemCallFilter line names, groups taken apart."""
    names = []
    for word in words:
        if word.startswith("@"):
            text = subprocess.run(
                ["systemd-analyze", "--no-pager", "syscall-filter", word],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            inner = re.findall(r"^ +([@\w-]+)$", text, re.M)
            names += expand(inner)
        else:
            names.append(word)
    return names


def new_filter(default):
    made = seccomp.SyscallFilter(default)
    # As systemd has it: what other architectures may do is not this filter's affair.
    made.set_attr(seccomp.Attr.ACT_BADARCH, seccomp.ALLOW)
    return made


def call_filter(lines):
    """The meaning of several lines, as systemd.exec(5) has it: the first one decides what is
    assumed of calls that no line names."""
    allow_list = not lines[0].startswith("~")
    listed = set()
    for line in lines:
        names = expand(line.lstrip("~").split())
        if line.startswith("~") == allow_list:
            listed -= set(names)
        else:
            listed |= set(names)
    deny = seccomp.ERRNO(errno.EPERM)
    made = new_filter(deny if allow_list else seccomp.ALLOW)
    if allow_list:
        listed |= set(expand(["@default"]))
    for name in sorted(listed):
        try:
            made.add_rule(seccomp.ALLOW if allow_list else deny, name)
        except RuntimeError:
            pass  # a call that libseccomp or this architecture does not have
    return made


def argument_filter(unit):
    """Everything that looks at arguments."""
    arg, eq, masked = seccomp.Arg, seccomp.EQ, seccomp.MASKED_EQ
    made = new_filter(seccomp.ALLOW)
    deny = seccomp.ERRNO(errno.EPERM)
    if "RestrictAddressFamilies" in unit:
        allowed = {FAMILIES[name] for name in unit["RestrictAddressFamilies"][-1].split()}
        refuse = seccomp.ERRNO(errno.EAFNOSUPPORT)
        for family in set(range(46)) - allowed:
            made.add_rule(refuse, "socket", arg(0, eq, family))
        made.add_rule(refuse, "socket", arg(0, seccomp.GT, 45))
    if yes(unit, "MemoryDenyWriteExecute"):
        made.add_rule(deny, "mmap", arg(2, masked, 6, 6))
        for name in ("mprotect", "pkey_mprotect"):
            made.add_rule(deny, name, arg(2, masked, 4, 4))
    if yes(unit, "RestrictNamespaces"):
        for bit in range(32):
            if NAMESPACES >> bit & 1:
                for name in ("clone", "unshare"):
                    made.add_rule(deny, name, arg(0, masked, 1 << bit, 1 << bit))
        made.add_rule(deny, "setns")
        made.add_rule(seccomp.ERRNO(errno.ENOSYS), "clone3")
    if yes(unit, "RestrictSUIDSGID"):
        # Its flags lie in memory, where no filter can look.
        made.add_rule(seccomp.ERRNO(errno.ENOSYS), "openat2")
        for bit in (stat.S_ISUID, stat.S_ISGID):
            for name, at in (("chmod", 1), ("fchmod", 1), ("fchmodat", 2), ("mkdirat", 2)):
                made.add_rule(deny, name, arg(at, masked, bit, bit))
    if yes(unit, "RestrictRealtime"):
        for policy in (1, 2):
            made.add_rule(deny, "sched_setscheduler", arg(1, eq, policy))
    if yes(unit, "LockPersonality"):
        made.add_rule(deny, "personality", arg(0, seccomp.NE, 0xFFFFFFFF))
    return made


def yes(unit, name):
    return unit.get(name, ["no"])[-1] == "yes"


APPLIED = set(
    "User Group CapabilityBoundingSet NoNewPrivileges PrivateNetwork ProtectSystem ProtectHome UMask "
    "LimitNOFILE RestrictAddressFamilies SystemCallFilter MemoryDenyWriteExecute RestrictNamespaces "
    "RestrictSUIDSGID RestrictRealtime LockPersonality".split()
)


def become(unit):
    """User, capabilities, no_new_privs: what cannot be taken back."""
    kept = {name.lower()[4:] for name in unit["CapabilityBoundingSet"][-1].split()}
    unknown = kept - set(CAPABILITIES)
    if unknown:
        sys.exit("confine: unknown capabilities %s" % unknown)
    for number, name in enumerate(CAPABILITIES):
        if name not in kept:
            LIBC.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)
    if "User" in unit:
        # Where the package was never installed its user is missing; the state then belongs to the
        # same other one (harness.server_user).
        try:
            user = pwd.getpwnam(unit["User"][-1])
            group = grp.getgrnam(unit["Group"][-1]).gr_gid
        except KeyError:
            user = pwd.getpwnam("nobody")
            group = user.pw_gid
        os.setgroups([])
        os.setresgid(*[group] * 3)
        os.setresuid(*[user.pw_uid] * 3)
    if yes(unit, "NoNewPrivileges"):
        call(LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def main():
    if seccomp is None:
        sys.exit("confine: the package python3-seccomp is missing")
    unit = settings(sys.argv[1])
    strange = set(unit) - APPLIED - IGNORED
    if strange:
        sys.exit("confine: cannot apply %s" % ", ".join(sorted(strange)))
    # Made before anything is taken away: they need a child process and files. The second may
    # forbid to load another.
    filters = [argument_filter(unit), call_filter(unit["SystemCallFilter"])]
    if yes(unit, "PrivateNetwork"):
        call(LIBC.unshare(CLONE_NEWNET), "unshare")
    if unit["ProtectSystem"][-1] == "strict":
        file_system(sys.argv[2])
    os.umask(int(unit["UMask"][-1], 8))
    hard = min(int(unit["LimitNOFILE"][-1]), resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    become(unit)
    for one in filters:
        one.load()
    os.execv(sys.argv[3], sys.argv[3:])


if __name__ == "__main__":
    main()

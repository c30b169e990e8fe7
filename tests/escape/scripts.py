"""Attempts in shell and Python. Like those in C, each says what it is about to do before it does it.

A shell attempt calls `try COMMAND…` or `write PATH TEXT`; a Python attempt calls `t("what", function)`.
Both print the line REACHED first and the outcome afterwards. `right` lists outcomes that are
refusals: names of errors for Python, REFUSED (the command failed) or HARMLESS for shell."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))

import escape

SHELL = r"""
N=$1 A=$2
# A command that is not there would fail as well.
have() { command -v "$1" >/dev/null 2>&1 || { echo "$N UNFIT $A no $1 here"; exit 0; }; }
reached() { echo "$N REACHED $A $*"; }
result() { echo "$N RESULT $A $1 0"; exit 0; }
try() { have "$1"; reached "$*"; if "$@" >/tmp/out 2>&1; then result OK; else result REFUSED; fi; }
# What stands in for a file that is hidden is /dev/null, which takes everything.
write() { reached "write $1"; [ -c "$1" ] && result REFUSED; if (printf %s "$2" >"$1") 2>/dev/null; then result OK; else result REFUSED; fi; }
same() { if [ "$1" = "$2" ]; then result REFUSED; else result OK; fi; }
"""

PYTHON = r"""
import ctypes, errno, os, socket, struct, sys
N, A = sys.argv[1:3]
libc = ctypes.CDLL(None, use_errno=True)
def reached(what): print(N, "REACHED", A, what, flush=True)
def result(word): print(N, "RESULT", A, word, 0, flush=True); os._exit(0)
def t(what, function):
    reached(what)
    try: value = function()
    except OSError as e: result(errno.errorcode.get(e.errno, "E%s" % e.errno))
    except OverflowError: result("EINVAL")
    return value
def ok(what, function): t(what, function); result("OK")
def call(*a):
    r = libc.syscall(*[ctypes.c_long(x) if isinstance(x, int) else x for x in a])
    if r == -1: raise OSError(ctypes.get_errno(), "refused")
    return r
"""

PROC = "/proc and /sys writes"
CGROUPS = "cgroups"
GONE = "EPERM EACCES ENOENT ENOSYS EROFS ENOTDIR EINVAL ENXIO ENODEV ESRCH EISDIR EIO ELOOP"


def _knobs():
    for path in escape.KNOBS:
        name = CGROUPS if "cgroup" in path else PROC
        yield name, "knob " + path, "write %s 1" % path, "REFUSED"
    for path in MORE_KNOBS:
        yield PROC, "knob " + path, "write %s 1" % path, "REFUSED"
    for path in CGROUP_FILES:
        yield CGROUPS, "writing " + path, "write %s 1" % path, "REFUSED"


MORE_KNOBS = """
/proc/sys/kernel/randomize_va_space /proc/sys/kernel/yama/ptrace_scope /proc/sys/kernel/kptr_restrict
/proc/sys/kernel/dmesg_restrict /proc/sys/kernel/panic /proc/sys/kernel/hung_task_timeout_secs
/proc/sys/kernel/threads-max /proc/sys/kernel/pid_max /proc/sys/kernel/shmmax /proc/sys/kernel/msgmax
/proc/sys/kernel/sem /proc/sys/kernel/domainname /proc/sys/kernel/hostname /proc/sys/kernel/perf_event_paranoid
/proc/sys/kernel/unprivileged_bpf_disabled /proc/sys/kernel/io_uring_disabled /proc/sys/fs/file-max
/proc/sys/fs/protected_symlinks /proc/sys/fs/pipe-max-size /proc/sys/fs/inotify/max_user_watches
/proc/sys/fs/mqueue/queues_max /proc/sys/vm/max_map_count /proc/sys/vm/panic_on_oom /proc/sys/vm/swappiness
/proc/sys/user/max_net_namespaces /proc/sys/net/ipv4/ip_unprivileged_port_start
/proc/sys/net/ipv4/ping_group_range /proc/sys/net/ipv4/conf/all/forwarding /proc/sys/net/core/somaxconn
/proc/sys/net/ipv6/conf/all/disable_ipv6 /proc/sys/dev/tty/ldisc_autoload /proc/sys/abi/vsyscall32
/proc/self/attr/current /proc/self/attr/exec /proc/self/projid_map /proc/self/timens_offsets
/proc/kcore /proc/kmsg /proc/keys /proc/timer_list /proc/sched_debug /proc/tty/driver/serial
/sys/module/kernel/parameters/panic /sys/class/net/lo/mtu /sys/block/vda/queue/scheduler
/sys/kernel/mm/ksm/run /sys/kernel/security/apparmor/.load /sys/devices/system/cpu/cpu1/online
""".split()

CGROUP_FILES = """
/sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/cgroup.subtree_control /sys/fs/cgroup/memory.max
/sys/fs/cgroup/cpu/cgroup.procs /sys/fs/cgroup/memory/memory.limit_in_bytes
/sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/cpu/notify_on_release /sys/fs/cgroup/devices/devices.allow
/sys/fs/cgroup/unified/cgroup.procs /sys/fs/cgroup/cgroup.kill /sys/fs/cgroup/cgroup.freeze
/proc/self/cgroup /proc/1/cgroup
""".split()

SHELLS = [
    (CGROUPS, "a mounted cgroup hierarchy anywhere",
     "reached find; x=$(find / -xdev -name release_agent -o -xdev -name cgroup.procs 2>/dev/null | head -1); "
     "[ -z \"$x\" ] && result REFUSED; result OK", "REFUSED"),
    (CGROUPS, "a directory in a cgroup file system", "try mkdir /sys/fs/cgroup/x", "REFUSED"),
    (CGROUPS, "the host's names in /proc/self/cgroup",
     "x=$(grep -vE ':/[a-z0-9.-]{0,20}(/[a-z0-9.-]{0,20})?$' /proc/self/cgroup | head -1); reached cat $x; "
     "[ -z \"$x\" ] && result REFUSED; result OK", "REFUSED"),
    (CGROUPS, "the mount helper with a cgroup", "try mount -t cgroup -o memory none /tmp", "REFUSED"),
    ("namespaces", "the program unshare", "try unshare --user --map-root-user true", "REFUSED"),
    ("namespaces", "the program unshare with a mount namespace", "try unshare --mount true", "REFUSED"),
    ("namespaces", "the program nsenter", "try nsenter --target 1 --all true", "REFUSED"),
    ("namespaces", "the program nsenter on one's own namespaces",
     "try nsenter --target $$ --user --mount true", "REFUSED"),
    ("mounts", "the program mount", "try mount --bind /usr /tmp", "REFUSED"),
    ("mounts", "the program mount with a loop device",
     "head -c 1M /dev/zero >/tmp/i; try mount -o loop /tmp/i /tmp", "REFUSED"),
    ("mounts", "the program umount", "try umount /proc", "REFUSED"),
    ("mounts", "the program umount, lazily, on a mask", "try umount -l /proc/keys", "REFUSED"),
    ("pivot and chroot", "the program chroot", "try chroot /tmp /bin/true", "REFUSED"),
    ("pivot and chroot", "the program pivot_root", "PATH=$PATH:/sbin:/usr/sbin; try pivot_root /tmp /tmp", "REFUSED"),
    ("devices", "the program mknod", "try mknod /workspace/d b 8 0", "REFUSED"),
    ("devices", "a disk by its number in /dev/block", "try head -c 1 /dev/block/8:0", "REFUSED"),
    ("devices", "a file in /dev", "write /dev/x x", "REFUSED"),
    ("devices", "removing /dev/null", "try rm -f /dev/null", "REFUSED"),
    ("set-uid", "the program su", "try su root -c true", "REFUSED"),
    ("set-uid", "the program passwd", "try passwd -d root", "REFUSED"),
    ("set-uid", "the program newgrp", "reached newgrp; x=$(echo 'id -g' | newgrp root 2>/dev/null); "
     "[ \"$x\" = 0 ] && result OK; result REFUSED", "REFUSED"),
    ("set-uid", "every set-uid program there is",
     "reached find; for f in $(find /usr -xdev -perm -4000 -type f 2>/dev/null); do "
     "findmnt -no OPTIONS -T \"$f\" | grep -q nosuid || grep -q 'NoNewPrivs:.1' /proc/self/status || x=$f; "
     "\"$f\" --help >/dev/null 2>&1 </dev/null; done; [ -z \"$x\" ] && result REFUSED; result OK", "REFUSED"),
    ("set-uid", "a set-uid script", "printf '#!/bin/sh\\nid -u\\n' >/workspace/s; chmod 4755 /workspace/s; "
     "reached ./s; same \"$(/workspace/s)\" \"$(id -u)\"", "REFUSED"),
    ("capabilities", "the program setpriv with all capabilities",
     "try setpriv --inh-caps +all --ambient-caps +all true", "REFUSED"),
    ("capabilities", "the program nice upwards", "reached nice; x=$(nice -n -20 nice 2>/dev/null); "
     "[ \"$x\" -lt 0 ] 2>/dev/null && result OK; result REFUSED", "REFUSED"),
    ("capabilities", "the program renice on process 1", "try renice -n 19 -p 1", "REFUSED"),
    ("kernel", "the program dmesg", "try dmesg", "REFUSED"),
    ("kernel", "the program date", "try date -s 2001-01-01", "REFUSED"),
    ("kernel", "the program hostname by /proc", "write /proc/sys/kernel/hostname evil", "REFUSED"),
    ("kernel", "the program losetup", "PATH=$PATH:/sbin:/usr/sbin; try losetup -f /tmp/x", "REFUSED"),
    ("kernel", "the program swapon", "PATH=$PATH:/sbin:/usr/sbin; try swapon /tmp/x", "REFUSED"),
    ("kernel", "the program insmod by its file", "write /proc/sys/kernel/modprobe /tmp/x", "REFUSED"),
    ("kernel", "a handler for all programs (binfmt_misc)",
     "write /proc/sys/fs/binfmt_misc/register ':x:E::x::/tmp/x:'", "REFUSED"),
    ("kernel", "a handler of core dumps", "write /proc/sys/kernel/core_pattern '|/tmp/x'", "REFUSED"),
    ("system files", "/usr/bin/ls", "write /usr/bin/ls x", "REFUSED"),
    ("system files", "removing /usr/bin/ls", "try rm -f /usr/bin/ls", "REFUSED"),
    ("system files", "renaming /usr", "try mv /usr /user", "REFUSED"),
    ("system files", "a library for every program", "write /etc/ld.so.preload /tmp/x", "REFUSED"),
    ("system files", "a user without a password", "write /etc/passwd x::0:0::/:/bin/sh", "REFUSED"),
    ("system files", "a directory in /", "try mkdir /x", "REFUSED"),
    ("system files", "the mode of /usr", "try chmod 777 /usr", "REFUSED"),
    ("system files", "the mode of /", "try chmod 777 /", "REFUSED"),
    ("system files", "the time of a file of the host", "try touch /usr/bin/ls", "REFUSED"),
    ("system files", "a hard link to a file of the host", "try ln /usr/bin/ls /workspace/ls", "REFUSED"),
    ("system files", "an attribute on a file of the host",
     "try python3 -c 'import os; os.setxattr(\"/usr/bin/ls\", \"user.x\", b\"x\")'", "REFUSED"),
    ("system files", "the shadow file", "try cat /etc/shadow", "REFUSED"),
    ("system files", "the home of root", "try ls /root/", "REFUSED"),
    ("leaked descriptors", "the directory of the server by /proc/self/fd",
     "reached ls; x=$(ls /proc/self/fd | tr '\\n' ' '); [ \"$x\" = '0 1 2 3 ' ] && result REFUSED; result OK", "REFUSED"),
    ("leaked descriptors", "a cwd that leads out of the root", "try ls /proc/self/cwd/../../../../../../root/x",
     "REFUSED"),
    ("leaked descriptors", "the environment of process 1", "try cat /proc/1/environ", "REFUSED"),
    ("/proc/self/exe", "a script whose interpreter is /proc/1/exe",
     "printf '#!/proc/1/exe\\n' >/workspace/t; chmod +x /workspace/t; try /workspace/t", "REFUSED"),
    ("/proc/self/exe", "a library that loads itself into /proc/1/exe",
     "try env LD_PRELOAD=/workspace/x.so /proc/1/exe", "REFUSED"),
    ("process 1", "kill -9 1: the run goes on", "reached kill; kill -9 1 2>/dev/null; sleep 0.05; result REFUSED",
     "REFUSED"),
    ("process 1", "every signal to process 1: the run goes on",
     "reached kill; for s in $(seq 1 64); do kill -$s 1 2>/dev/null; done; sleep 0.05; result REFUSED", "REFUSED"),
    ("warm pool", "stopping the parent", "reached kill; kill -STOP $PPID 2>/dev/null; sleep 0.05; result REFUSED",
     "REFUSED"),
    ("network", "the only interface is lo",
     "reached cat; x=$(tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' \\n'); [ \"$x\" = lo ] && result REFUSED; "
     "result OK", "REFUSED"),
    ("terminals", "the host's terminals in /dev/pts",
     "reached ls; x=$(ls /dev/pts | tr -d '\\n'); [ \"$x\" = ptmx ] || [ -z \"$x\" ] && result REFUSED; result OK",
     "REFUSED"),
    ("exhaustion", "a fork bomb in the shell",
     "reached bomb; b() { b | b & }; b 2>/dev/null; sleep 0.3; result REFUSED", "REFUSED LIMIT"),
    ("exhaustion", "thirty million bytes of output",
     "reached yes; yes 0123456789 2>/dev/null | head -c 30000000; echo; result REFUSED", "REFUSED LIMIT"),
    ("exhaustion", "yes into a variable", "reached yes; x=$(yes); result OK", "LIMIT REFUSED"),
]

PYTHONS = [
    ("namespaces", "unshare by ctypes", "ok('unshare', lambda: call(272, 0x10000000))", "EPERM ENOSYS"),
    ("namespaces", "setns to a descriptor of /proc/self/ns/user",
     "fd = os.open('/proc/self/ns/user', 0)\nok('setns', lambda: call(308, fd, 0x10000000))", "EPERM ENOSYS EINVAL"),
    ("capabilities", "os.setuid(0)", "ok('setuid', lambda: os.setuid(0))", "EPERM EINVAL"),
    ("capabilities", "os.setgroups", "ok('setgroups', lambda: os.setgroups([0]))", "EPERM EINVAL"),
    ("capabilities", "real-time scheduling",
     "ok('sched_setscheduler', lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50)))", "EPERM"),
    ("capabilities", "os.nice(-5)", "ok('nice', lambda: os.nice(-5))", "EPERM EACCES"),
    ("devices", "os.mknod of a disk", "import stat\nok('mknod', lambda: os.mknod('/workspace/x', stat.S_IFBLK | 0o666, 0x800))",
     "EPERM EACCES ENOSYS"),
    ("ptrace", "/proc/1/mem by Python", "ok('open', lambda: os.open('/proc/1/mem', os.O_RDWR))", GONE),
    ("ptrace", "the maps of every other process",
     "me = {os.getpid(), os.getppid()}\nreached('open maps of others')\n"
     "for p in filter(str.isdigit, os.listdir('/proc')):\n"
     "    if int(p) not in me:\n        try:\n            if open('/proc/%s/maps' % p).read(): result('OK')\n"
     "        except OSError: pass\nresult('EPERM')", "EPERM"),
    ("keys", "a key ring of the session by ctypes", "ok('keyctl', lambda: call(250, 0, -3, 1))", "EPERM ENOSYS"),
    ("other architectures", "machine code that enters as a 32-bit program",
     "import mmap\nm = mmap.mmap(-1, 4096, prot=7)\n"
     "m.write(bytes.fromhex('53b814000000cd805bc3'))\n"
     "f = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))\n"
     "p = os.fork()\nif p == 0:\n    reached('int 0x80')\n    r = f()\n    os._exit(0 if r > 0 else 7)\n"
     "s = os.waitpid(p, 0)[1]\nresult('SIGSYS' if os.WIFSIGNALED(s) else 'ENOSYS' if os.WEXITSTATUS(s) == 7 else 'OK')",
     "SIGSYS ENOSYS"),
    ("socket families", "every family by number",
     "bad = []\nreached('socket(0…64)')\nfor f in range(65):\n    if f in (1, 2, 10, 16): continue\n"
     "    for k in (1, 2, 3, 5):\n        try: socket.socket(f, k).close(); bad.append((f, k))\n        except OSError: pass\n"
     "result('OK' if bad else 'EAFNOSUPPORT')", "EAFNOSUPPORT"),
    ("socket families", "every raw protocol",
     "bad = []\nreached('socket(raw 0…255)')\nfor f in (2, 10):\n    for p in range(256):\n"
     "        try: socket.socket(f, 3, p).close(); bad.append(p)\n        except OSError: pass\n"
     "result('OK' if bad else 'EPERM')", "EPERM"),
    ("abstract sockets", "every name in /proc/net/unix",
     "reached('connect')\nfor l in open('/proc/net/unix'):\n    w = l.split()\n    if len(w) > 7 and w[7][0] == '@':\n"
     "        try: socket.socket(socket.AF_UNIX).connect('\\0' + w[7][1:]); result('OK')\n        except OSError: pass\n"
     "result('ECONNREFUSED')", "ECONNREFUSED ENOENT EACCES"),
    ("network", "a public address", "s = t('socket', lambda: socket.socket())\ns.settimeout(2)\n"
     "ok('connect', lambda: s.connect(('192.0.2.1', 443)))", "ENETUNREACH EACCES EPERM EAFNOSUPPORT"),
    ("network", "the metadata service", "s = t('socket', lambda: socket.socket())\ns.settimeout(2)\n"
     "ok('connect', lambda: s.connect(('169.254.169.254', 80)))", "ENETUNREACH EACCES EPERM EAFNOSUPPORT"),
    ("network", "a public address by IPv6", "s = t('socket', lambda: socket.socket(socket.AF_INET6))\ns.settimeout(2)\n"
     "ok('connect', lambda: s.connect(('2001:db8::1', 443)))", "ENETUNREACH EADDRNOTAVAIL EACCES EPERM EAFNOSUPPORT"),
    ("network", "a new interface by netlink",
     "s = t('socket', lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0))\n"
     "a = struct.pack('HH', 10, 3) + b'dumm0\\0\\0\\0' + struct.pack('HH', 16, 18) + struct.pack('HH', 10, 1) + b'dummy\\0\\0\\0'\n"
     "m = struct.pack('IHHII', 32 + len(a), 16, 0x605, 1, 0) + struct.pack('BBHiII', 0, 0, 0, 0, 0, 0) + a\n"
     "t('send', lambda: s.send(m))\nr = s.recv(4096)\ne = -struct.unpack_from('i', r, 16)[0]\n"
     "result(errno.errorcode.get(e, 'OK'))", "EPERM EACCES EAFNOSUPPORT EOPNOTSUPP"),
    ("network", "a new route by netlink",
     "s = t('socket', lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0))\n"
     "m = struct.pack('IHHII', 28, 24, 0x605, 1, 0) + struct.pack('BBBBBBBBI', 2, 0, 0, 0, 254, 4, 253, 1, 0)\n"
     "t('send', lambda: s.send(m))\nr = s.recv(4096)\ne = -struct.unpack_from('i', r, 16)[0]\n"
     "result(errno.errorcode.get(e, 'OK'))", "EPERM EACCES EAFNOSUPPORT"),
    ("network", "the server itself on 127.0.0.1",
     "s = t('socket', lambda: socket.socket())\nok('connect', lambda: s.connect(('127.0.0.1', int(os.environ['ESCAPE_PORT']))))",
     "ECONNREFUSED EACCES EPERM EAFNOSUPPORT"),
    ("system files", "canaries of the host by their paths",
     "reached('lstat')\nresult('OK' if any(os.path.lexists(p) for p in os.environ['ESCAPE_PATHS'].split(':')) else 'ENOENT')",
     "ENOENT"),
    ("system files", "the same behind /proc/1/root and /proc/self/root/..",
     "reached('lstat')\nresult('OK' if any(os.path.lexists(q + p) for p in os.environ['ESCAPE_PATHS'].split(':') "
     "for q in ('/proc/1/root', '/proc/self/root/..', '/proc/1/cwd', '/proc/self/cwd/../../../..')) else 'ENOENT')", "ENOENT"),
    ("system files", "secrets of the host in the environment of any process",
     "reached('read environ')\nfor p in filter(str.isdigit, os.listdir('/proc')):\n"
     "    try:\n        if b'PINFOLD_CANARY' in open('/proc/%s/environ' % p, 'rb').read(): result('OK')\n"
     "    except OSError: pass\nresult('EPERM')", "EPERM"),
    ("system files", "what names the host's state can be read",
     "bad = []\nreached('read')\nfor p in os.environ['ESCAPE_SECRETS'].split(':'):\n    try:\n"
     "        if os.listdir(p) if os.path.isdir(p) else os.read(os.open(p, os.O_NONBLOCK), 17).strip(b'0 '): bad.append(p)\n"
     "    except OSError: pass\nreached(' '.join(bad) or 'read')\nresult('OK' if bad else 'EACCES')", "EACCES"),
    ("neighbour", "processes that can be seen are our own",
     "reached('listdir')\nok = all(open('/proc/%s/cmdline' % p).read().find('neighbour') < 0 for p in os.listdir('/proc') "
     "if p.isdigit() and int(p) not in (1, os.getpid()))\nresult('EPERM' if ok else 'OK')", "EPERM"),
    ("process 1", "a child's end that was never, by SIGCHLD storms",
     "import signal\nreached('kill')\nfor _ in range(20000):\n    try: os.kill(1, signal.SIGCHLD)\n    except OSError: pass\n"
     "result('EPERM')", "EPERM"),
    ("control socket", "SCM_RIGHTS from a socket that connects to itself",
     "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\nok('connect', lambda: s.connect('\\0'))",
     "ECONNREFUSED EINVAL EPERM EACCES"),
    ("exhaustion", "directories by a million in one loop",
     "reached('mkdir')\ntry:\n    for i in range(1000000): os.mkdir('/tmp/d%d' % i)\nexcept OSError as e:\n"
     "    result('OK' if i > 2000 else errno.errorcode[e.errno])\nresult('OK')", "ENOSPC EDQUOT"),
    ("exhaustion", "a zip of zeros in memory",
     "import zlib\nreached('decompress')\nz = zlib.compress(bytes(1 << 24), 9)\nkeep = []\ntry:\n"
     "    while True: keep.append(zlib.decompress(z))\nexcept MemoryError: result('ENOMEM')", "ENOMEM LIMIT SIGKILL"),
    ("exhaustion", "regular expression without an end", "import re, signal\nreached('match')\n"
     "signal.setitimer(signal.ITIMER_REAL, 0.3)\nsignal.signal(signal.SIGALRM, lambda *_: result('EINTR'))\n"
     "signal.alarm(1)\nre.match('(a*)*b', 'a' * 24)\nresult('EINTR')", "EINTR"),
    ("exhaustion", "sockets that wait to be accepted",
     "keep = []\nreached('connect')\ntry:\n    l = socket.socket(socket.AF_UNIX); l.bind('/tmp/l'); l.listen(65535)\n"
     "    for i in range(100000):\n        s = socket.socket(socket.AF_UNIX); s.connect('/tmp/l'); keep.append(s)\n"
     "except OSError as e: result(errno.errorcode[e.errno] if len(keep) < 128 else 'OK')\nresult('OK')", "EMFILE EAGAIN"),
]


def table():
    """-> [(class, name, language, text, right)]"""
    rows = [(a, b, "sh", text, right) for a, b, text, right in list(_knobs()) + SHELLS]
    rows += [(a, b, "py", text, right) for a, b, text, right in PYTHONS]
    return rows


def argv(language, text, nonce, name):
    """The command of an attempt. `name` has no blanks."""
    if language == "sh":
        return ["/bin/bash", "-c", SHELL + text, "attempt", nonce, name]
    return ["/usr/bin/python3", "-c", PYTHON + text, nonce, name]

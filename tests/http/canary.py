"""Things on the host that no jail may read, write or reach. Tests look at them from inside by
name and afterwards from outside."""

import ctypes
import mmap
import os
import shutil
import socket
import stat
import tempfile

from client import nonce

SECRET = "canary" + nonce()
ENVIRONMENT_NAME = "PINFOLD_CANARY"
ABSTRACT = "pinfold-canary-%d" % os.getpid()
IPC_PRIVATE, IPC_CREAT, IPC_RMID = 0, 0o1000, 0

_made = {"paths": [], "sockets": [], "shm": None}


def environment():
    """Put into the environment of the server and the runner."""
    return {ENVIRONMENT_NAME: SECRET, "API_TOKEN": SECRET}


class Canaries:
    """Where they are, once set_up() has made them."""

    root_only = ""  # a file with SECRET that only root may read
    open_file = ""  # a file that anybody on the host may read and write
    directory = ""  # a directory with mode 0777 that holds both
    shm_file = ""  # the same in /dev/shm
    etc_file = ""  # the same in /etc
    unix_socket = ""  # a listening socket in /tmp
    run_socket = ""  # a listening socket in /run
    tcp_port = 0  # a listening port on 127.0.0.1
    tcp6_port = 0  # the same on ::1, 0 without IPv6
    shm_key = 0  # a System V segment with SECRET, mode 0666


def _file(path, mode):
    with open(path, "w") as out:
        out.write(SECRET + "\n")
    os.chmod(path, mode)
    _made["paths"].append(path)
    return path


def _listen(family, address, backlog=16):
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.bind(address)
    sock.listen(backlog)
    sock.setblocking(False)
    _made["sockets"].append(sock)
    return sock


def set_up():
    directory = tempfile.mkdtemp(prefix="pinfold-canary-")
    os.chmod(directory, 0o777)
    Canaries.directory = directory
    Canaries.root_only = _file(os.path.join(directory, "root"), 0o600)
    Canaries.open_file = _file(os.path.join(directory, "open"), 0o666)
    Canaries.shm_file = _file("/dev/shm/pinfold-canary-%d" % os.getpid(), 0o666)
    Canaries.etc_file = _file("/etc/pinfold-canary-%d" % os.getpid(), 0o644)
    Canaries.unix_socket = os.path.join(directory, "socket")
    Canaries.run_socket = "/run/pinfold-canary-%d.sock" % os.getpid()
    for path in (Canaries.unix_socket, Canaries.run_socket):
        _listen(socket.AF_UNIX, path)
        os.chmod(path, 0o777)
        _made["paths"].append(path)
    _listen(socket.AF_UNIX, "\0" + ABSTRACT)
    Canaries.tcp_port = _listen(socket.AF_INET, ("127.0.0.1", 0)).getsockname()[1]
    try:
        Canaries.tcp6_port = _listen(socket.AF_INET6, ("::1", 0)).getsockname()[1]
    except OSError:
        Canaries.tcp6_port = 0
    _segment()


def _segment():
    libc = ctypes.CDLL(None, use_errno=True)
    Canaries.shm_key = 0x50000000 | (os.getpid() & 0xFFFFF)
    number = libc.shmget(Canaries.shm_key, mmap.PAGESIZE, IPC_CREAT | 0o666)
    if number < 0:
        Canaries.shm_key = 0
        return
    _made["shm"] = number
    libc.shmat.restype = ctypes.c_void_p
    at = libc.shmat(number, None, 0)
    if at not in (None, ctypes.c_void_p(-1).value):
        ctypes.memmove(at, SECRET.encode(), len(SECRET))
        libc.shmdt(ctypes.c_void_p(at))


def problems():
    """-> [sentence]: what has been done to the canaries."""
    found = []
    for path, mode in (
        (Canaries.root_only, 0o600),
        (Canaries.open_file, 0o666),
        (Canaries.shm_file, 0o666),
    ):
        try:
            seen = os.stat(path)
            with open(path) as file:
                text = file.read()
        except OSError as problem:
            found.append("%s: %s" % (path, problem))
            continue
        if text != SECRET + "\n":
            found.append("%s was written to" % path)
        if stat.S_IMODE(seen.st_mode) != mode or seen.st_uid != 0:
            found.append("%s has mode %o and owner %d" % (path, seen.st_mode, seen.st_uid))
    wanted = {
        os.path.basename(p) for p in _made["paths"] if os.path.dirname(p) == Canaries.directory
    }
    seen = set(os.listdir(Canaries.directory))
    if seen != wanted:
        found.append("%s holds %s" % (Canaries.directory, sorted(seen ^ wanted)))
    for sock in _made["sockets"]:
        try:
            sock.accept()[0].close()
            found.append("something connected to %s" % (sock.getsockname(),))
        except BlockingIOError:
            pass
    return found


def remove():
    for sock in _made["sockets"]:
        sock.close()
    for path in _made["paths"]:
        try:
            os.unlink(path)
        except OSError:
            pass
    if _made["shm"] is not None:
        ctypes.CDLL(None).shmctl(_made["shm"], IPC_RMID, None)
    if Canaries.directory:
        shutil.rmtree(Canaries.directory, ignore_errors=True)
    _made.update(paths=[], sockets=[], shm=None)

#!/usr/bin/python3
"""refuse.py NUMBER ERRNO OPTION|- PROGRAM…: runs a program in which one system call fails.

With OPTION only calls whose first argument is that number fail; with &OPTION those in which it has
one of these bits. A seccomp filter does it; as root
(CAP_SYS_ADMIN) it needs no no_new_privs, which would itself change what is being tested."""

import ctypes
import os
import struct
import sys

LOAD, JEQ, JSET, RETURN = 0x20, 0x15, 0x45, 0x06
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
AUDIT_X86_64 = 0xC000003E
SECCOMP_SET_MODE_FILTER, NR_SECCOMP = 1, 317


def instruction(code, true, false, value):
    return struct.pack("<HBBI", code, true, false, value)


def program(number, errno, option, bits):
    lines = [instruction(LOAD, 0, 0, 4), None, instruction(LOAD, 0, 0, 0), None]
    if option is not None:
        lines += [instruction(LOAD, 0, 0, 16), None]
    lines += [instruction(RETURN, 0, 0, ERRNO | errno), instruction(RETURN, 0, 0, ALLOW)]
    allow = len(lines) - 1
    for at, value in ((1, AUDIT_X86_64), (3, number), (5, option)):
        if value is not None:
            lines[at] = instruction(JSET if bits and at == 5 else JEQ, 0, allow - at - 1, value)
    return b"".join(lines)


def main():
    number, errno = int(sys.argv[1]), int(sys.argv[2])
    bits = sys.argv[3].startswith("&")
    option = None if sys.argv[3] == "-" else int(sys.argv[3].lstrip("&"))
    code = program(number, errno, option, bits)
    buffer = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("<HxxxxxxQ", len(code) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(NR_SECCOMP, SECCOMP_SET_MODE_FILTER, 0, ctypes.c_char_p(head)) != 0:
        sys.exit("cannot install the filter: errno %d" % ctypes.get_errno())
    os.execv(sys.argv[4], sys.argv[4:])


if __name__ == "__main__":
    main()

/* File descriptors: closing, reading, writing and passing them. Every descriptor made here has
 * O_CLOEXEC. All calls retry EINTR. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "buf.h"
#include "err.h"

/* `fd_cleanup int fd = -1;` closes on scope exit when >= 0. */
void fd_close_cleanup(int *fd);
#define fd_cleanup __attribute__((cleanup(fd_close_cleanup)))

/* Closes *fd when >= 0 and sets it to -1. Keeps errno. */
void fd_close(int *fd);
/* Returns *fd and sets it to -1: moves ownership out of a cleanup variable. */
int fd_steal(int *fd);

/* Reads `path` (relative to `dirfd`, or AT_FDCWD) to its end into `out` (appended; out->max bounds
 * it: ERR_LIMIT). Never follows a final symbolic link. */
int fd_read_file(int dirfd, const char *path, struct buf *out, struct err *err);
/* Opens an existing file for writing and writes `len` bytes in one write(2), as kernel interfaces
 * (cgroupfs, /proc) need. A short write is an error. */
int fd_write_kernel(int dirfd, const char *path, const void *data, size_t len, struct err *err);
/* Creates `path` whole or not at all: temporary name, write, fsync, rename. */
int fd_write_atomic(int dirfd, const char *path, const void *data, size_t len, mode_t mode,
                    struct err *err);
/* Writes everything, over short writes. Not for non-blocking descriptors. */
int fd_write_all(int fd, const void *data, size_t len, struct err *err);
/* Parses the unsigned decimal that pread(fd, 0) yields (kernel counter files). */
int fd_read_u64(int fd, uint64_t *value, struct err *err);
/* In a kernel file of "key value" lines (memory.events, cpu.stat, …), read by pread(fd, 0): the
 * value of `key`. ERR_INVALID when the key is missing. */
int fd_read_keyed_u64(int fd, const char *key, uint64_t *value, struct err *err);

/* A memfd with these bytes, position 0; `seal` adds F_SEAL_{SEAL,SHRINK,GROW,WRITE}. -1 on error.
 */
int fd_memfd(const char *name, const void *data, size_t len, bool seal, struct err *err);

/* Closes descriptors that somebody else chose, whatever they are, and sets them to -1. What close()
 * waits for is up to whoever made them: a TCP socket whose maker set SO_LINGER, for hours, and
 * a socket in whose queue such a one travels. All but pipes, files and devices is left to a process
 * of its own: one that exits waits for nothing. */
void fd_drop(int *fds, size_t n);
/* Closes a SOCK_SEQPACKET socket whose other end is not trusted, with all that is in its queue. */
void fd_hang_up(int *sock);

#define FD_PASS_MAX 9
/* One datagram on a SOCK_SEQPACKET socket, with `nfds` (0…FD_PASS_MAX) descriptors attached.
 * Never raises SIGPIPE. On a non-blocking socket, a full queue is ERR_SYSTEM with code EAGAIN. */
int fd_send(int sock, const void *data, size_t len, const int *fds, size_t nfds, struct err *err);
/* Receives one datagram of at most `size` bytes. Returns its length, 0 at end of file, -1 on error
 * (EAGAIN included). Descriptors land in fds[FD_PASS_MAX], their count in *nfds; the caller owns
 * them. A datagram or a control message that was truncated is ERR_PROTOCOL and drops whatever
 * arrived. `cred` (may be NULL) is the kernel's word on the sender if SO_PASSCRED is on. */
ssize_t fd_recv(int sock, void *data, size_t size, int fds[FD_PASS_MAX], size_t *nfds,
                struct ucred *cred, struct err *err);

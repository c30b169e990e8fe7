/* The template of an image: a mount namespace that holds the root file system of a jail and nothing
 * of the host's mount tree. It is built once per (image, writable mask), off the path of a run;
 * a jail's own mount namespace is a copy of it:
 *
 *   setns(template.mnt_ns, CLONE_NEWNS); clone3(CLONE_NEWUSER | CLONE_NEWNS | …); setns(back)
 *
 * Because the copy belongs to a new user namespace, the kernel locks every mount in it: process 1
 * of the jail can mount over a directory, but can neither remove a mount of the template nor lift
 * its read-only, nosuid, nodev and noexec flags. (setns() of a mount namespace moves the caller's
 * root and working directory to the root of that namespace, on the way back as well.)
 *
 * What a jail finds in it, before it mounts anything itself:
 *
 *   /            read-only, nosuid, nodev: a small tmpfs (image "host"), or the imported image
 *   /usr         image "host": the host's, recursively, read-only, nosuid, nodev; with /bin, /sbin
 *                and /lib… as the host has them; an empty directory covers its etc directories
 *   /etc         image "host": synthesised (etc.h); imported: its own, with a hosts file of ours
 *   /dev         own tmpfs, read-only, nosuid, noexec: null zero full random urandom tty (0666),
 *                ptmx -> pts/ptmx, fd, stdin, stdout, stderr; empty directories pts and shm
 *   /proc        the procfs of a dead process namespace: it names no process, and its presence is
 *                what lets the jail mount its own (the kernel's mount_too_revealing())
 *   /workspace /home/user /tmp /var/tmp   empty directories to mount over (and /dev/shm, /dev/pts)
 *   /run /root   empty (image "host"); no /sys */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "err.h"

#define ROOTFS_IMAGE_HOST "host"

struct rootfs_config {
    const char *image; /* ROOTFS_IMAGE_HOST, or the name of an imported image */
    int images_dirfd;  /* STATE/images, borrowed; not used for "host" (may be -1) */
    uint32_t writable; /* mask of enum wire_writable: what the jail will mount over */
    bool rootless;     /* no device node can be made: the host's are bound instead */
};

struct rootfs {
    int mnt_ns; /* the mount namespace; owned, close-on-exec; -1 = none */
};

/* Builds the template in a helper process and waits for it (typically some 10 ms, 30 s at most).
 * Needs CAP_SYS_ADMIN, and CAP_MKNOD in the first user namespace unless `rootless`. The calling
 * process must be single-threaded; its own namespaces, root and working directory stay as they are.
 * Fails closed: on -1 nothing is left behind and `err` names the image and the step ("template of
 * image alpine: step targets: mount target proc is a symbolic link"). ERR_INVALID when the image is
 * at fault. */
int rootfs_build(const struct rootfs_config *cfg, struct rootfs *out, struct err *err);

/* Closes the namespace; jails that were copied from it live on. Accepts NULL and -1 in mnt_ns. */
void rootfs_done(struct rootfs *r);

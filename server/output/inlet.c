#include "inlet.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"

/* No folio is larger, and each begins at a multiple of its size: what ends at a multiple of this
 * ends within none. */
#define INLET_FOLIO_MAX ((uint64_t)1 << 30)

void inlet_init(struct inlet *in) {
    *in = (struct inlet){.fd = -1};
}

void inlet_done(struct inlet *in) {
    fd_close(&in->fd);
}

int inlet_open(struct inlet *in, struct err *err) {
    int fd = fd_memfd("stdin", NULL, 0, false, err);
    if (fd < 0)
        return -1;
    *in = (struct inlet){.fd = fd};
    return 0;
}

int inlet_adopt(struct inlet *in, int fd, struct err *err) {
    fd_cleanup int mine = fd;
    struct stat st;
    off_t sent = lseek(fd, 0, SEEK_CUR);
    if (sent < 0 || fstat(fd, &st) < 0)
        return err_sys(err, "looking at stdin that was kept");
    if (!S_ISREG(st.st_mode) || sent > st.st_size)
        return err_set(err, ERR_PROTOCOL, 0, "stdin that was kept is not a file of ours");
    uint64_t taken = (uint64_t)st.st_size;
    /* How much was given back nobody knows, but that it never held more than that. */
    *in = (struct inlet){.fd = fd_steal(&mine),
                         .taken = taken,
                         .sent = (uint64_t)sent,
                         .freed = taken > INLET_MAX ? taken - INLET_MAX : 0};
    return 0;
}

static int inlet_free(struct inlet *in, struct err *err) {
    uint64_t end = (in->taken + INLET_FOLIO_MAX - 1) & ~(INLET_FOLIO_MAX - 1);
    if (fallocate(in->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)end) < 0)
        return err_sys(err, "giving back memory of stdin");
    in->freed = in->taken;
    return 0;
}

ssize_t inlet_take(struct inlet *in, const char *data, size_t len, struct err *err) {
    uint64_t held = in->taken - in->freed;
    if (held > 0 && in->sent == in->taken && held + len > INLET_MAX) {
        if (inlet_free(in, err) < 0)
            return -1;
        held = 0;
    }
    size_t n = INLET_MAX - held < len ? (size_t)(INLET_MAX - held) : len;
    if (n == 0)
        return 0;
    /* Not at the position, and without moving it. */
    ssize_t rc = pwrite(in->fd, data, n, (off_t)in->taken);
    if (rc < 0)
        return err_sys(err, "keeping stdin");
    in->taken += (uint64_t)rc;
    return rc;
}

int inlet_send(struct inlet *in, int to, bool terminal) {
    while (in->sent < in->taken) {
        size_t left = (size_t)(in->taken - in->sent);
        ssize_t n = terminal ? sendfile(to, in->fd, NULL, left)
                             : splice(in->fd, NULL, to, NULL, left, SPLICE_F_NONBLOCK);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n <= 0)
            return -1;
        in->sent += (uint64_t)n;
    }
    return 1;
}

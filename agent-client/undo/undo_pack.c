/* Small contents, many in one file. A file of its own for each costs an inode, which is most of
 * what keeping it costs.
 *
 * A pack is the contents one after the other, then a row for each (hash, offset, size, all numbers
 * little-endian), then how many rows there are. It is written without a name, made durable, and
 * gets one name (a hard link) per content, <sha256>.p: so contents are found, shared and removed by
 * their hash as those with a file of their own are, and the pack is gone with its last name. */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"
#include "undo_internal.h"

/* A file has no more than 65,000 names on ext4; and a table is read whole. */
#define UNDO_PACK_ROWS 1000u
#define UNDO_PACK_BYTES ((uint64_t)32 * 1024 * 1024)

struct undo_pack_row {
    uint8_t sha256[UNDO_HASH_SIZE];
    uint64_t offset, size;
};

struct undo_pack_end {
    char magic[16];
    uint64_t rows;
};

static const char undo_pack_magic[16] = "pinfold-pack 1\n";

struct undo_pack {
    int fd;
    uint64_t bytes;
    size_t count;
    struct undo_pack_row rows[UNDO_PACK_ROWS]; /* in the file's byte order */
    uint8_t data[UNDO_PACK_EACH + 1];
};

static void undo_pack_name(const uint8_t sha256[UNDO_HASH_SIZE], char name[UNDO_NAME_SIZE]) {
    sodium_bin2hex(name, UNDO_HEX_SIZE, sha256, UNDO_HASH_SIZE);
    memcpy(name + UNDO_HEX_SIZE - 1, ".p", 3);
}

bool undo_pack_has(const struct undo *u, const uint8_t sha256[UNDO_HASH_SIZE]) {
    char name[UNDO_NAME_SIZE];

    undo_pack_name(sha256, name);
    for (size_t i = 0; u->pack != NULL && i < u->pack->count; i++)
        if (memcmp(u->pack->rows[i].sha256, sha256, UNDO_HASH_SIZE) == 0)
            return true;
    return faccessat(u->blobs, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* ---- writing ---- */

void undo_pack_drop(struct undo *u) {
    if (u->pack != NULL)
        fd_close(&u->pack->fd);
    free(u->pack);
    u->pack = NULL;
}

static int undo_pack_begin(struct undo *u, struct err *err) {
    if (u->pack != NULL)
        return 0;
    u->pack = calloc(1, sizeof(*u->pack));
    if (u->pack == NULL)
        return err_set(err, ERR_LIMIT, 0, "no memory for the journal");
    u->pack->fd = openat(u->blobs, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (u->pack->fd >= 0)
        return 0;
    err_sys(err, "cannot make a file in the journal");
    undo_pack_drop(u);
    return -1;
}

static ssize_t undo_pack_read(int fd, uint8_t *data, size_t size) {
    size_t done = 0;

    while (done < size) {
        ssize_t n = pread(fd, data + done, size - done, (off_t)done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

int undo_pack_put(struct undo *u, int fd, struct undo_state *s, struct err *err) {
    struct undo_pack *p;
    struct undo_pack_row *row;
    ssize_t n;

    if (undo_pack_begin(u, err) < 0)
        return -1;
    p = u->pack;
    n = undo_pack_read(fd, p->data, sizeof(p->data));
    if (n < 0)
        return err_sys(err, "cannot read contents");
    if ((size_t)n > UNDO_PACK_EACH)
        return 1;
    /* What is hashed is what is written: the file may change in between. */
    s->size = (uint64_t)n;
    crypto_hash_sha256(s->sha256, p->data, (unsigned long long)n);
    if (undo_blob_has(u, s->sha256))
        return 0;
    if (fd_write_all(p->fd, p->data, (size_t)n, err) < 0)
        return -1;
    row = &p->rows[p->count++];
    memcpy(row->sha256, s->sha256, UNDO_HASH_SIZE);
    row->offset = htole64(p->bytes);
    row->size = htole64((uint64_t)n);
    p->bytes += (uint64_t)n;
    return p->count < UNDO_PACK_ROWS && p->bytes < UNDO_PACK_BYTES ? 0 : undo_batch_flush(u, err);
}

int undo_pack_seal(struct undo *u, struct err *err) {
    struct undo_pack *p = u->pack;
    struct undo_pack_end end = {.rows = 0};

    if (p == NULL || p->count == 0)
        return 0;
    memcpy(end.magic, undo_pack_magic, sizeof(end.magic));
    end.rows = htole64(p->count);
    if (fd_write_all(p->fd, p->rows, p->count * sizeof(p->rows[0]), err) < 0 ||
        fd_write_all(p->fd, &end, sizeof(end), err) < 0)
        return -1;
    return fdatasync(p->fd) == 0 ? 0 : err_sys(err, "cannot make the journal durable");
}

int undo_pack_link(struct undo *u, struct err *err) {
    struct undo_pack *p = u->pack;
    char self[40], name[UNDO_NAME_SIZE];

    for (size_t i = 0; p != NULL && i < p->count; i++) {
        snprintf(self, sizeof(self), "/proc/self/fd/%d", p->fd);
        undo_pack_name(p->rows[i].sha256, name);
        if (linkat(AT_FDCWD, self, u->blobs, name, AT_SYMLINK_FOLLOW) < 0 && errno != EEXIST)
            return err_sys(err, "cannot store contents in the journal");
    }
    return 0;
}

/* ---- reading ---- */

/* How many rows the pack has, and where they begin; 0 = it is none. */
static size_t undo_pack_table(int fd, uint64_t *begin) {
    struct undo_pack_end end;
    struct stat st;
    uint64_t rows, size;

    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof(end))
        return 0;
    size = (uint64_t)st.st_size - sizeof(end);
    if (pread(fd, &end, sizeof(end), (off_t)size) != (ssize_t)sizeof(end) ||
        memcmp(end.magic, undo_pack_magic, sizeof(end.magic)) != 0)
        return 0;
    rows = le64toh(end.rows);
    if (rows > UNDO_PACK_ROWS || rows * sizeof(struct undo_pack_row) > size)
        return 0;
    *begin = size - rows * sizeof(struct undo_pack_row);
    return (size_t)rows;
}

/* The row with this hash, in this machine's byte order; -1 = there is none that is sound. */
static int undo_pack_find(int fd, const uint8_t sha256[UNDO_HASH_SIZE], struct undo_pack_row *row) {
    uint64_t begin = 0;
    size_t rows = undo_pack_table(fd, &begin), bytes = rows * sizeof(*row);
    struct undo_pack_row *table = malloc(bytes + 1);
    int rc = -1;

    if (table != NULL && pread(fd, table, bytes, (off_t)begin) == (ssize_t)bytes)
        for (size_t i = 0; i < rows && rc < 0; i++) {
            *row = table[i];
            row->offset = le64toh(row->offset);
            row->size = le64toh(row->size);
            if (memcmp(row->sha256, sha256, UNDO_HASH_SIZE) == 0 && row->offset <= begin &&
                row->size <= begin - row->offset && row->size <= UNDO_PACK_EACH)
                rc = 0;
        }
    free(table);
    return rc;
}

static int undo_pack_look(const struct undo *u, const uint8_t sha256[UNDO_HASH_SIZE],
                          struct undo_pack_row *row) {
    char name[UNDO_NAME_SIZE];
    fd_cleanup int fd = -1;

    undo_pack_name(sha256, name);
    fd = openat(u->blobs, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return fd >= 0 && undo_pack_find(fd, sha256, row) == 0 ? fd_steal(&fd) : -1;
}

int undo_pack_open(const struct undo *u, const uint8_t sha256[UNDO_HASH_SIZE], uint64_t *offset) {
    struct undo_pack_row row;
    int fd = undo_pack_look(u, sha256, &row);

    if (fd >= 0)
        *offset = row.offset;
    return fd;
}

int undo_pack_copy(const struct undo *u, const uint8_t sha256[UNDO_HASH_SIZE], struct err *err) {
    struct undo_pack_row row;
    fd_cleanup int fd = undo_pack_look(u, sha256, &row);
    uint8_t *data = NULL;
    int copy = -1;

    if (fd < 0)
        return err_set(err, ERR_INVALID, 0, "the contents are not in a pack of the journal");
    data = malloc(row.size + 1);
    if (data == NULL || pread(fd, data, row.size, (off_t)row.offset) != (ssize_t)row.size)
        err_set(err, ERR_SYSTEM, errno, "cannot read contents in the journal");
    else
        copy = fd_memfd("contents", data, row.size, true, err);
    free(data);
    return copy;
}

uint64_t undo_pack_bytes(const struct undo *u, const char *name) {
    fd_cleanup int fd = openat(u->blobs, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    uint64_t begin = 0;

    return fd >= 0 && undo_pack_table(fd, &begin) > 0 ? begin : 0;
}

#include "spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"
#include "str.h"

/* Holes are whole pages: the kernel writes zeros into parts of them. */
#define SPOOL_PAGE ((uint64_t)4096)
#define SPOOL_PROBE_NAME ".spool-probe"
#define SPOOL_PROBE_CAP 65536u

void spool_init(struct spool *s, const int *dir, uint64_t cap) {
    memset(s, 0, sizeof(*s));
    s->dir = dir;
    s->fd = -1;
    s->head_max = cap / 2;
    s->tail_keep = cap - cap / 2;
}

static void spool_unmap(struct spool *s) {
    if (s->window == NULL)
        return;
    (void)munmap(s->window, SPOOL_WINDOW);
    s->window = NULL;
    (void)!ftruncate(s->fd, (off_t)s->total);
}

void spool_done(struct spool *s) {
    spool_unmap(s);
    fd_close(&s->fd);
}

void spool_end_head(struct spool *s, uint64_t at) {
    if (at >= s->head_max)
        return;
    s->tail_keep += s->head_max - at;
    s->head_max = at;
}

bool spool_has_file(const struct spool *s) {
    return s->name[0] != '\0';
}

int spool_create(struct spool *s, const char *name, struct err *err) {
    int fd = openat(*s->dir, name, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(err, "making the spool %s", name);
    str_copy(s->name, sizeof(s->name), name);
    s->fd = fd;
    return 0;
}

static int spool_open(struct spool *s, struct err *err) {
    if (s->fd >= 0)
        return 0;
    int fd = openat(*s->dir, s->name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, "opening the spool %s", s->name);
    s->fd = fd;
    return 0;
}

/* The end of the hole behind the head; 0 = there is none. */
static uint64_t spool_find_gone(const struct spool *s) {
    /* The page in which the head ends holds data in any case. */
    uint64_t from = (s->head_max + SPOOL_PAGE - 1) / SPOOL_PAGE * SPOOL_PAGE;
    if (from >= s->total)
        return 0;
    off_t data = lseek(s->fd, (off_t)from, SEEK_DATA);
    if (data < 0 || (uint64_t)data > s->total)
        return s->total; /* ENXIO: a hole up to the end */
    return (uint64_t)data > from ? (uint64_t)data : 0;
}

int spool_load(struct spool *s, const char *name, struct err *err) {
    struct stat st;
    struct spool loaded = *s;
    str_copy(loaded.name, sizeof(loaded.name), name);
    if (spool_open(&loaded, err) < 0)
        return -1;
    if (fstat(loaded.fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        err_set(err, ERR_STATE, 0, "the spool %s is not a file", name);
        fd_close(&loaded.fd);
        return -1;
    }
    loaded.total = (uint64_t)st.st_size;
    /* A hole in the head is where the disk was full. */
    off_t hole = lseek(loaded.fd, 0, SEEK_HOLE);
    if (hole >= 0 && (uint64_t)hole < loaded.total)
        spool_end_head(&loaded, (uint64_t)hole);
    loaded.gone = spool_find_gone(&loaded);
    *s = loaded;
    return 0;
}

void spool_rest(struct spool *s) {
    spool_unmap(s);
    fd_close(&s->fd);
}

void spool_remove(struct spool *s) {
    spool_unmap(s);
    fd_close(&s->fd);
    if (s->name[0] != '\0')
        (void)unlinkat(*s->dir, s->name, 0);
    s->name[0] = '\0';
}

/* Gives back what lies between the head and the last `keep` bytes. */
static void spool_punch(struct spool *s, uint64_t keep) {
    uint64_t from = s->gone > s->head_max ? s->gone : s->head_max;
    uint64_t to = s->total > keep ? s->total - keep : 0;
    from = (from + SPOOL_PAGE - 1) / SPOOL_PAGE * SPOOL_PAGE;
    to = to / SPOOL_PAGE * SPOOL_PAGE;
    if (to <= from || s->fd < 0)
        return;
    /* Said to be gone also should it fail: nobody may rely on it. */
    (void)fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from,
                    (off_t)(to - from));
    s->gone = to;
}

static void spool_bound(struct spool *s) {
    uint64_t keep = s->tail_keep > SPOOL_TAIL_MIN ? s->tail_keep : SPOOL_TAIL_MIN;
    uint64_t from = s->gone > s->head_max ? s->gone : s->head_max;
    if (s->total > from && s->total - from >= 2 * keep)
        spool_punch(s, keep);
}

ssize_t spool_take(struct spool *s, int pipe, size_t max, struct err *err) {
    if (spool_open(s, err) < 0)
        return -1;
    off_t at = (off_t)s->total;
    ssize_t n;
    do
        n = splice(pipe, NULL, s->fd, &at, max, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return err_sys(err, "moving output into the spool %s", s->name);
    s->total += (uint64_t)n;
    spool_bound(s);
    return n;
}

/* Nothing of [from, total) is kept. */
static void spool_lose(struct spool *s, uint64_t from) {
    spool_end_head(s, from);
    s->gone = s->total;
    /* The file's size says how many bytes there were. */
    if (s->fd >= 0 && s->window == NULL)
        (void)!ftruncate(s->fd, (off_t)s->total);
}

ssize_t spool_discard(struct spool *s, int from, size_t max, struct err *err) {
    char block[16384];
    uint64_t at = s->total;
    ssize_t n;
    do
        n = read(from, block, max < sizeof(block) ? max : sizeof(block));
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EIO)
        return 0; /* a terminal whose other side nobody has open any more */
    if (n < 0)
        return err_sys(err, "reading output");
    spool_unmap(s);
    s->total += (uint64_t)n;
    if (n > 0)
        spool_lose(s, at);
    return n;
}

/* A window in which there is room behind the end of the stream. */
static int spool_map(struct spool *s, struct err *err) {
    if (s->window != NULL && s->total < s->window_at + SPOOL_WINDOW)
        return 0;
    uint64_t at = s->total / SPOOL_PAGE * SPOOL_PAGE;
    spool_unmap(s);
    if (ftruncate(s->fd, (off_t)(at + SPOOL_WINDOW)) < 0)
        return err_sys(err, "extending the spool %s", s->name);
    void *map = mmap(NULL, SPOOL_WINDOW, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, (off_t)at);
    if (map == MAP_FAILED)
        return err_sys(err, "mapping the spool %s", s->name);
    s->window = map;
    s->window_at = at;
    return 0;
}

ssize_t spool_take_terminal(struct spool *s, int terminal, struct err *err) {
    ssize_t n;
    if (spool_open(s, err) < 0 || spool_map(s, err) < 0)
        return -1;
    size_t used = (size_t)(s->total - s->window_at);
    /* Only the kernel writes there, so a full disk is an error of read(2), and no signal. */
    do
        n = read(terminal, s->window + used, (size_t)SPOOL_WINDOW - used);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EIO)
        return 0; /* nobody has its other side open any more */
    if (n < 0)
        return err_sys(err, "reading from a terminal");
    s->total += (uint64_t)n;
    spool_bound(s);
    return n;
}

int spool_put(struct spool *s, const void *data, size_t len, struct err *err) {
    const char *from = data;
    if (spool_open(s, err) < 0)
        return -1;
    uint64_t at = s->total;
    while (len > 0) {
        ssize_t n = pwrite(s->fd, from, len, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            int code = n < 0 ? errno : ENOSPC;
            (void)!ftruncate(s->fd, (off_t)s->total);
            errno = code;
            return err_sys(err, "writing to the spool %s", s->name);
        }
        at += (uint64_t)n;
        from += n;
        len -= (size_t)n;
    }
    s->total = at;
    spool_bound(s);
    return 0;
}

void spool_finish(struct spool *s) {
    spool_unmap(s);
    if (spool_has_file(s) && s->total > s->head_max + s->tail_keep && spool_open(s, NULL) == 0)
        spool_punch(s, s->tail_keep);
}

int spool_cut(struct spool *s, uint64_t total, struct err *err) {
    if (s->total <= total)
        return 0;
    if (spool_open(s, err) < 0)
        return -1;
    if (ftruncate(s->fd, (off_t)total) < 0)
        return err_sys(err, "cutting the spool %s", s->name);
    s->total = total;
    if (s->gone > total)
        s->gone = total;
    return 0;
}

/* Where the zeros at the end begin, at most the length of a window before it. What is a hole there
 * says nothing about `gone`, so this reads the file and not the stream. */
static int spool_find_zeros(const struct spool *s, uint64_t *out, struct err *err) {
    char block[4096];
    uint64_t least = s->total > SPOOL_WINDOW ? s->total - SPOOL_WINDOW : 0, end = s->total;
    while (end > least) {
        size_t len = end - least < sizeof(block) ? (size_t)(end - least) : sizeof(block);
        ssize_t n = pread(s->fd, block, len, (off_t)(end - len));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, "reading the spool %s", s->name);
        if ((size_t)n < len)
            return err_set(err, ERR_STATE, 0, "the spool %s is shorter than it was", s->name);
        while (len > 0 && block[len - 1] == '\0') {
            len--;
            end--;
        }
        if (len > 0)
            break;
    }
    *out = end;
    return 0;
}

int spool_cut_terminal(struct spool *s, uint64_t least, struct err *err) {
    uint64_t end = 0;
    if (!spool_has_file(s))
        return 0;
    if (spool_open(s, err) < 0 || spool_find_zeros(s, &end, err) < 0 ||
        spool_cut(s, end > least ? end : least, err) < 0)
        return -1;
    s->gone = spool_find_gone(s);
    return 0;
}

bool spool_has(const struct spool *s, uint64_t offset, uint64_t len) {
    uint64_t end = offset + len;
    if (end < offset || end > s->total)
        return false;
    return s->gone <= s->head_max || end <= s->head_max || offset >= s->gone;
}

int spool_read(struct spool *s, uint64_t offset, void *data, size_t len, struct err *err) {
    char *to = data;
    bool inside = s->host != NULL;
    if (len == 0)
        return 0;
    if (!spool_has(s, offset, len))
        return err_set(err, ERR_STATE, 0, "reading from the spool %s what is not there", s->name);
    if (!inside && spool_open(s, err) < 0)
        return -1;
    int fd = inside ? *s->host : s->fd;
    uint64_t at = inside ? s->host_at + offset : offset;
    while (len > 0) {
        ssize_t n = pread(fd, to, len, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, "reading the spool %s", s->name);
        if (n == 0)
            return err_set(err, ERR_STATE, 0, "the spool %s is shorter than it was", s->name);
        to += n;
        at += (uint64_t)n;
        len -= (size_t)n;
    }
    return 0;
}

int spool_lend(struct spool *s, struct spool *copy, struct err *err) {
    static const int nowhere = -1;
    struct spool lent = *s;
    lent.window = NULL;
    lent.dir = &nowhere;
    lent.fd = -1;
    if (spool_has_file(s)) {
        if (spool_open(s, err) < 0)
            return -1;
        lent.fd = fcntl(s->fd, F_DUPFD_CLOEXEC, 0);
        if (lent.fd < 0)
            return err_sys(err, "lending the spool %s", s->name);
    }
    *copy = lent;
    return 0;
}

void spool_kept(const struct spool *s, uint64_t *head, uint64_t *tail) {
    *head = s->total < s->head_max ? s->total : s->head_max;
    /* More than the middle is gone when the disk was full. */
    uint64_t from = s->gone > *head ? s->gone : *head;
    *tail = s->total - from < s->tail_keep ? s->total - from : s->tail_keep;
}

uint64_t spool_bytes(const struct spool *s) {
    uint64_t hole = s->gone > s->head_max ? s->gone - s->head_max : 0;
    return s->total - hole;
}

static int spool_try(struct spool *s, struct err *err) {
    char block[4096];
    struct stat st;
    memset(block, 'x', sizeof(block));
    for (uint64_t i = 0; i < 4 * SPOOL_TAIL_MIN / sizeof(block); i++)
        if (spool_put(s, block, sizeof(block), err) < 0)
            return -1;
    spool_finish(s);
    struct spool again;
    spool_init(&again, s->dir, SPOOL_PROBE_CAP);
    if (spool_load(&again, s->name, err) < 0)
        return -1;
    bool same = again.gone == s->gone && again.total == s->total && fstat(again.fd, &st) == 0 &&
                (uint64_t)st.st_blocks * 512 <= 2 * SPOOL_PROBE_CAP;
    spool_done(&again);
    return same ? 0
                : err_set(err, ERR_STATE, EOPNOTSUPP,
                          "the file system of the state directory cannot give back the middle of a "
                          "file (FALLOC_FL_PUNCH_HOLE); use ext4, xfs, btrfs or tmpfs");
}

int spool_probe(int dir, struct err *err) {
    struct spool s;
    spool_init(&s, &dir, SPOOL_PROBE_CAP);
    if (spool_create(&s, SPOOL_PROBE_NAME, err) < 0)
        return -1;
    int rc = spool_try(&s, err);
    spool_remove(&s);
    return rc;
}

#include "bench_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "bench_box.h"
#include "bench_static.h"
#include "clock.h"
#include "fd.h"

#define BENCH_FILE_PIECE (1u << 20)
#define BENCH_FILE_HEAD 4096u
#define BENCH_FILE_BOX                                                                             \
    "{\"policy\":\"ci\",\"limits\":{\"disk_bytes\":3221225472,\"mem_bytes\":4294967296}}"

/* Where a file goes: what is behind "/" and the sandbox server's token, if any. */
struct bench_file_place {
    struct bench_target target;
    char up[BENCH_BOX_PATH_SIZE], down[BENCH_BOX_PATH_SIZE];
};

static int bench_file_head(int fd, const struct bench_target *target, const char *method,
                           const char *path, struct err *err) {
    struct buf head;
    buf_init(&head, BENCH_FILE_HEAD);
    int rc = buf_printf(&head, err, "%s %s HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n", method, path,
                        target->port);
    if (rc == 0 && target->token[0])
        rc = buf_printf(&head, err, "Authorization: Bearer %s\r\n", target->token);
    if (rc == 0 && strcmp(method, "PUT") == 0)
        rc = buf_printf(&head, err,
                        "Content-Type: application/octet-stream\r\nContent-Length: %u\r\n",
                        BENCH_FILE_BYTES);
    if (rc == 0)
        rc = buf_puts(&head, "\r\n", err);
    if (rc == 0)
        rc = fd_write_all(fd, head.data, head.len, err);
    buf_done(&head);
    return rc;
}

/* Reads the head of an answer and `*body` bytes of what follows it. */
static int bench_file_answer(int fd, char *piece, uint64_t *body, struct err *err) {
    size_t have = 0;
    char *end = NULL;
    while (!end && have < BENCH_FILE_HEAD) {
        ssize_t n = recv(fd, piece + have, BENCH_FILE_HEAD - have, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_set(err, ERR_PROTOCOL, errno, "no answer to a large file");
        have += (size_t)n;
        end = memmem(piece, have, "\r\n\r\n", 4);
    }
    if (!end || strncmp(piece, "HTTP/1.1 2", 10) != 0) {
        piece[have < 300 ? have : 300] = '\0';
        return err_set(err, ERR_PROTOCOL, 0, "a large file: %.200s", piece);
    }
    *body = have - (size_t)(end + 4 - piece);
    return 0;
}

static int bench_file_up(const struct bench_file_place *p, char *piece, uint64_t *ns,
                         struct err *err) {
    fd_cleanup int fd = bench_http_connect(p->target.port, err);
    uint64_t body, start = clock_mono_ns();
    if (fd < 0 || bench_file_head(fd, &p->target, "PUT", p->up, err) < 0)
        return -1;
    memset(piece, 'x', BENCH_FILE_PIECE);
    for (uint64_t left = BENCH_FILE_BYTES; left;) {
        size_t n = left < BENCH_FILE_PIECE ? (size_t)left : BENCH_FILE_PIECE;
        if (fd_write_all(fd, piece, n, err) < 0)
            return -1;
        left -= n;
    }
    if (bench_file_answer(fd, piece, &body, err) < 0)
        return -1;
    uint64_t took = clock_mono_ns() - start;
    *ns = !*ns || took < *ns ? took : *ns;
    return 0;
}

static int bench_file_down(const struct bench_file_place *p, char *piece, uint64_t *ns,
                           struct err *err) {
    fd_cleanup int fd = bench_http_connect(p->target.port, err);
    uint64_t body, start = clock_mono_ns();
    if (fd < 0 || bench_file_head(fd, &p->target, "GET", p->down, err) < 0 ||
        bench_file_answer(fd, piece, &body, err) < 0)
        return -1;
    while (body < BENCH_FILE_BYTES) {
        ssize_t n = recv(fd, piece, BENCH_FILE_PIECE, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_set(err, ERR_PROTOCOL, errno, "a large file was cut at %llu bytes",
                           (unsigned long long)body);
        body += (uint64_t)n;
    }
    uint64_t took = clock_mono_ns() - start;
    *ns = !*ns || took < *ns ? took : *ns;
    return 0;
}

/* Both after the other, so that whatever else the machine does meets both. */
static int bench_file_laps(const struct bench_file_place *box, const struct bench_file_place *plain,
                           unsigned laps, struct bench_file_result *r, struct err *err) {
    char *piece = malloc(BENCH_FILE_PIECE);
    int rc = piece ? 0 : err_set(err, ERR_SYSTEM, ENOMEM, "room for a piece of a file");
    for (unsigned i = 0; rc == 0 && i < laps; i++)
        if (bench_file_up(plain, piece, &r->static_up_ns, err) < 0 ||
            bench_file_up(box, piece, &r->up_ns, err) < 0 ||
            bench_file_down(plain, piece, &r->static_down_ns, err) < 0 ||
            bench_file_down(box, piece, &r->down_ns, err) < 0)
            rc = -1;
    free(piece);
    return rc;
}

int bench_file_run(const struct bench_target *target, unsigned laps,
                   struct bench_file_result *result, struct err *err) {
    struct bench_box b = {0};
    struct bench_static plain = {0};
    char id[BENCH_BOX_ID_SIZE] = "";
    int rc = bench_box_open(&b, target, err);
    if (rc == 0)
        rc = bench_static_start(&plain, err);
    if (rc == 0)
        rc = bench_box_make(&b, BENCH_FILE_BOX, id, err);
    if (rc == 0) {
        struct bench_file_place in = {.target = *target};
        struct bench_file_place out = {.target = {.port = plain.port}, .up = "/file"};
        snprintf(in.up, sizeof(in.up), "/v1/sandboxes/%s/files/workspace/large", id);
        memcpy(in.down, in.up, sizeof(in.down));
        snprintf(out.down, sizeof(out.down), "/%u", BENCH_FILE_BYTES);
        rc = bench_file_laps(&in, &out, laps, result, err);
    }
    bench_static_stop(&plain);
    /* The server has closed the first connection meanwhile. */
    bench_box_close(&b);
    if (id[0] && bench_box_open(&b, target, rc == 0 ? err : NULL) < 0)
        rc = -1;
    if (id[0] && b.fd >= 0 && bench_box_delete(&b, id, rc == 0 ? err : NULL) < 0)
        rc = -1;
    bench_box_close(&b);
    return rc;
}

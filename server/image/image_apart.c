#include "image_apart.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fd.h"
#include "image_reader.h"

#define IMAGE_APART_STUCK 2 /* exit status: it could not give up its rights */

int image_apart_reap(pid_t child, struct err *err) {
    int status = 0;

    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return err_sys(err, "cannot wait for the reader of the image");
    if (WIFEXITED(status) && WEXITSTATUS(status) == IMAGE_APART_STUCK)
        return err_set(err, ERR_SYSTEM, EPERM, "the reader of the image could not give up root");
    return 0;
}

int image_apart_start(image_apart_stream_fn *fn, int in, const void *arg, pid_t *child,
                      struct err *err) {
    int ends[2];
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(err, "cannot start to read the image");
    pid = fork();
    if (pid == 0) {
        if (image_reader_drop(in, ends[1]) < 0)
            _exit(IMAGE_APART_STUCK);
        _exit(fn(in, ends[1], arg) < 0 ? 1 : 0);
    }
    fd_close(&ends[1]);
    if (pid < 0) {
        fd_close(&ends[0]);
        return err_sys(err, "cannot start the reader of the image");
    }
    *child = pid;
    return ends[0];
}

/* One answer. */

struct image_apart_head {
    int32_t rc;
    struct err err;
};

struct image_apart_call {
    image_apart_fn *fn;
    const void *in;
    size_t len, size;
};

static int image_apart_answer(int in, int out, const void *arg) {
    const struct image_apart_call *call = arg;
    struct image_apart_head head = {0};
    void *result = calloc(1, call->size);

    (void)in;
    if (result == NULL)
        return -1;
    head.rc = call->fn(call->in, call->len, result, &head.err);
    if (fd_write_all(out, &head, sizeof(head), NULL) < 0)
        return -1;
    return head.rc == 0 ? fd_write_all(out, result, call->size, NULL) : 0;
}

static int image_apart_read(int fd, void *to, size_t len) {
    char *p = to;

    while (len > 0) {
        ssize_t got = read(fd, p, len);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return -1;
        p += got;
        len -= (size_t)got;
    }
    return 0;
}

static int image_apart_take(int fd, void *out, size_t size, struct err *err) {
    struct image_apart_head head;

    if (image_apart_read(fd, &head, sizeof(head)) < 0)
        return err_set(err, ERR_PROTOCOL, 0, "the reader of the image broke off");
    if (head.rc != 0) {
        head.err.text[sizeof(head.err.text) - 1] = '\0';
        for (char *p = head.err.text; *p != '\0'; p++)
            if (*p < ' ' || *p > '~')
                *p = '?';
        return err_set(err, ERR_INVALID, 0, "%s", head.err.text);
    }
    if (image_apart_read(fd, out, size) < 0)
        return err_set(err, ERR_PROTOCOL, 0, "the reader of the image broke off");
    return 0;
}

int image_apart(image_apart_fn *fn, const void *in, size_t len, void *out, size_t size,
                struct err *err) {
    const struct image_apart_call call = {fn, in, len, size};
    struct err why = {0};
    pid_t child = -1;
    fd_cleanup int nothing = -1;
    fd_cleanup int from = -1;
    int rc;

    if (size > IMAGE_APART_OUT_MAX)
        return err_set(err, ERR_LIMIT, 0, "the answer of the reader is too long");
    nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing < 0)
        return err_sys(err, "cannot open /dev/null");
    from = image_apart_start(image_apart_answer, nothing, &call, &child, err);
    if (from < 0)
        return -1;
    rc = image_apart_take(from, out, size, err);
    fd_close(&from);
    if (image_apart_reap(child, &why) < 0) {
        if (err != NULL)
            *err = why;
        return -1;
    }
    return rc;
}

#include "exec_body.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "body_parts.h"
#include "fd.h"
#include "local_file.h"
#include "str.h"

#define EXEC_BODY_MAX ((size_t)128 * 1024 * 1024)

static void exec_body_make_id(char id[EXEC_ID_MAX]) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";

    memcpy(id, "ex_", 3);
    for (int i = 3; i < 27; i++)
        id[i] = letters[randombytes_uniform(sizeof(letters) - 1)];
    id[27] = '\0';
}

static int exec_body_set_tty(json_t *object, const struct exec_options *o,
                             const struct exec_body_tty *tty, struct err *err) {
    json_t *env;

    if (body_parts_set(object, "pty",
                       json_pack("{s:i,s:i}", "rows", (int)tty->rows, "cols", (int)tty->cols),
                       err) < 0)
        return -1;
    for (size_t i = 0; i < o->env.count; i++)
        if (strncmp(o->env.item[i], "TERM=", 5) == 0)
            return 0;
    if (tty->term == NULL || !str_is_name(tty->term))
        return 0;
    env = json_object_get(object, "env");
    if (env == NULL) {
        env = json_object();
        if (body_parts_set(object, "env", env, err) < 0)
            return -1;
    }
    return body_parts_set_text(env, "TERM", tty->term, err);
}

static int exec_body_set_flags(json_t *object, const struct exec_options *o, bool open,
                               struct err *err) {
    const struct {
        const char *key;
        bool on;
    } flags[] = {{"merge_stderr", o->merge_stderr},
                 {"stdin_open", open},
                 {"background", o->background},
                 {"stream", !o->background}};

    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
        if (flags[i].on && body_parts_set(object, flags[i].key, json_true(), err) < 0)
            return -1;
    return 0;
}

static int exec_body_set(json_t *object, const struct exec_options *o, const char *id,
                         struct err *err) {
    int rc = body_parts_set_text(object, "id", id, err);

    if (rc == 0)
        rc = body_parts_set_text(object, "sh", o->shell, err);
    if (rc == 0 && o->argc > 0)
        rc =
            body_parts_set_list(object, "argv", (const char *const *)o->argv, (size_t)o->argc, err);
    if (rc == 0)
        rc = body_parts_set_text(object, "cwd", o->cwd, err);
    if (rc == 0 && o->env.count > 0)
        rc = body_parts_set_pairs(object, "env", &o->env, err);
    if (rc == 0)
        rc = body_parts_set_limits(object, &o->limits, err);
    return rc;
}

/* Opens the input; a short file is read at once into `bytes`, and so is everything for a command in
 * the background, which nobody will feed. -> descriptor to feed from, -1 = none. */
static int exec_body_open(const struct exec_options *o, struct buf *bytes, int *feed,
                          struct err *err) {
    fd_cleanup int fd = -1;
    struct stat st;
    bool ours = strcmp(o->input, "-") == 0;

    /* O_NONBLOCK: opening a FIFO must not wait for its writer; it is refused below. */
    fd = ours ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
              : open(o->input, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 && errno == ELOOP)
        return err_set(err, ERR_INVALID, ELOOP, "%s is a symbolic link; name the file itself",
                       o->input);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(err, "cannot open %s", ours ? "standard input" : o->input);
    if (!ours && !S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID, 0, "%s is not a regular file; use --stdin - for others",
                       o->input);
    if (!o->background &&
        (o->tty || !S_ISREG(st.st_mode) || st.st_size > (off_t)EXEC_BODY_INLINE_MAX)) {
        *feed = fd_steal(&fd);
        return 0;
    }
    return local_file_read_fd(fd, ours ? "standard input" : o->input, bytes, err);
}

/* Somebody's keys; without a terminal of ours, an end of input at once: a program that waits for
 * keys which nobody can type would wait for ever. */
static int exec_body_open_tty(const struct exec_body_tty *tty, int *feed, struct err *err) {
    *feed = tty->input >= 0 ? fcntl(tty->input, F_DUPFD_CLOEXEC, 3)
                            : open("/dev/null", O_RDONLY | O_CLOEXEC);
    return *feed < 0 ? err_sys(err, "cannot use the terminal") : 0;
}

static int exec_body_write(json_t *object, const struct buf *bytes, struct buf *out,
                           struct err *err) {
    char *head = json_dumps(object, JSON_COMPACT);
    int rc;

    if (head == NULL)
        return body_parts_memory(err);
    rc = buf_append(out, head, strlen(head) - 1, err);
    free(head);
    if (rc == 0 && bytes->len > 0)
        rc = buf_puts(out, ",", err);
    if (rc == 0 && bytes->len > 0)
        rc = body_parts_put_bytes(out, "stdin", "stdin_encoding", bytes, err);
    return rc < 0 ? -1 : buf_puts(out, "}", err);
}

int exec_body_make(const struct exec_options *o, const struct exec_body_tty *tty,
                   struct exec_body *out, struct err *err) {
    struct exec_body b = {.input = -1};
    struct buf bytes;
    json_t *object = json_object();
    int rc = object != NULL ? 0 : body_parts_memory(err);

    buf_init(&b.json, EXEC_BODY_MAX);
    buf_init(&bytes, EXEC_BODY_STDIN_MAX);
    if (o->id == NULL)
        exec_body_make_id(b.id);
    else if (!str_copy(b.id, sizeof(b.id), o->id))
        rc = err_set(err, ERR_INVALID, 0, "option --id: it is too long");
    if (rc == 0 && o->input != NULL)
        rc = exec_body_open(o, &bytes, &b.input, err);
    if (rc == 0 && o->input == NULL && tty->rows > 0)
        rc = exec_body_open_tty(tty, &b.input, err);
    if (rc == 0)
        rc = exec_body_set(object, o, b.id, err);
    if (rc == 0)
        rc = exec_body_set_flags(object, o, b.input >= 0, err);
    if (rc == 0 && tty->rows > 0)
        rc = exec_body_set_tty(object, o, tty, err);
    if (rc == 0)
        rc = exec_body_write(object, &bytes, &b.json, err);
    json_decref(object);
    buf_done(&bytes);
    if (rc < 0) {
        exec_body_done(&b);
        return -1;
    }
    *out = b;
    return 0;
}

void exec_body_done(struct exec_body *b) {
    if (b == NULL)
        return;
    buf_done(&b->json);
    if (b->input > STDERR_FILENO)
        fd_close(&b->input);
}

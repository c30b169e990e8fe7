#include "run_body.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "body_parts.h"
#include "local_file.h"
#include "text.h"

#define RUN_BODY_STEPS_MAX ((size_t)4 * 1024 * 1024)

/* [{…}, …] or {"steps": [{…}, …]}. The server judges what is in the steps. */
static int run_body_load_steps(const char *path, struct run_body *b, struct err *err) {
    struct buf text;
    json_error_t why;
    json_t *file = NULL, *steps;
    int rc = -1;

    buf_init(&text, RUN_BODY_STEPS_MAX);
    if (local_file_read(path, &text, NULL, err) < 0)
        goto out;
    file = json_loadb(text.data != NULL ? text.data : "", text.len,
                      JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    if (file == NULL) {
        err_set(err, ERR_INVALID, 0, "%s, line %d: %s", path, why.line, why.text);
        goto out;
    }
    steps =
        json_is_object(file) && json_object_size(file) == 1 ? json_object_get(file, "steps") : file;
    if (!json_is_array(steps) || json_array_size(steps) == 0) {
        err_set(
            err, ERR_INVALID, 0,
            "%s: expected a list of steps such as [{\"name\": \"build\", \"argv\": [\"make\"]}]",
            path);
        goto out;
    }
    b->steps = json_incref(steps);
    b->step_count = json_array_size(steps);
    rc = 0;
out:
    json_decref(file);
    buf_done(&text);
    return rc;
}

/* Everything but the contents of files and stdin. */
static int run_body_set_small(json_t *object, const struct run_options *o, struct run_body *b,
                              struct err *err) {
    int rc = body_parts_set_text(object, "policy", o->policy, err);

    if (rc == 0)
        rc = body_parts_set_image(object, o->image, err);
    if (rc == 0)
        rc = body_parts_set_text(object, "backend", o->backend, err);
    if (rc == 0)
        rc = body_parts_set_text(object, "cwd", o->cwd, err);
    if (rc == 0)
        rc = body_parts_set_text(object, "priority", o->priority, err);
    if (rc == 0)
        rc = body_parts_set_text(object, "sh", o->shell, err);
    if (rc == 0 && o->argc > 0)
        rc =
            body_parts_set_list(object, "argv", (const char *const *)o->argv, (size_t)o->argc, err);
    if (rc == 0 && o->env.count > 0)
        rc = body_parts_set_pairs(object, "env", &o->env, err);
    if (rc == 0 && o->collect.count > 0)
        rc = body_parts_set_list(object, "collect", o->collect.item, o->collect.count, err);
    if (rc == 0)
        rc = body_parts_set_limits(object, &o->limits, err);
    b->step_count = 1;
    if (rc == 0 && o->steps != NULL)
        rc = run_body_load_steps(o->steps, b, err);
    if (rc == 0 && b->steps != NULL)
        rc = body_parts_set(object, "steps", json_incref(b->steps), err);
    if (rc == 0 && o->merge_stderr)
        rc = body_parts_set(object, "merge_stderr", json_true(), err);
    if (rc == 0 && o->keep_steps)
        rc = body_parts_set(object, "keep_steps", json_true(), err);
    if (rc == 0)
        rc = body_parts_set(object, "stream", json_true(), err);
    if (rc == 0)
        rc = body_parts_set(object, "cancel_on_disconnect", json_true(), err);
    return rc;
}

/* LOCAL[:PATH] apart; PATH is the base name when there is none. */
static int run_body_split(const char *item, char local[4096], const char **path, struct err *err) {
    const char *colon = strchr(item, ':');
    size_t len = colon != NULL ? (size_t)(colon - item) : strlen(item);
    const char *slash;

    if (len == 0 || len >= 4096)
        return err_set(err, ERR_INVALID, 0, "--file: expected LOCAL[:PATH]");
    memcpy(local, item, len);
    local[len] = '\0';
    slash = strrchr(local, '/');
    *path = colon != NULL ? colon + 1 : slash != NULL ? slash + 1 : local;
    if (**path == '\0')
        return err_set(err, ERR_INVALID, 0, "--file %s: no name to store it as", item);
    return 0;
}

static int run_body_put_file(struct buf *out, const char *item, struct err *err) {
    struct buf bytes;
    char local[4096];
    const char *path = "";
    bool executable = false;
    int rc;

    if (run_body_split(item, local, &path, err) < 0)
        return -1;
    if (!text_is_utf8(path, strlen(path)))
        return err_set(err, ERR_INVALID, 0, "--file: the name %s is not UTF-8", path);
    buf_init(&bytes, RUN_BODY_MAX);
    rc = local_file_read(local, &bytes, &executable, err);
    if (rc == 0)
        rc = buf_puts(out, "{\"path\":", err);
    if (rc == 0)
        rc = text_append_json(out, path, strlen(path), err);
    if (rc == 0)
        rc = buf_printf(out, err, ",\"mode\":\"%s\",", executable ? "0755" : "0644");
    if (rc == 0)
        rc = body_parts_put_bytes(out, "content", "encoding", &bytes, err);
    if (rc == 0)
        rc = buf_puts(out, "}", err);
    buf_done(&bytes);
    return rc;
}

static int run_body_put_files(struct buf *out, const struct opt_list *files, struct err *err) {
    int rc = buf_puts(out, ",\"files\":[", err);

    for (size_t i = 0; rc == 0 && i < files->count; i++) {
        if (i > 0)
            rc = buf_puts(out, ",", err);
        if (rc == 0)
            rc = run_body_put_file(out, files->item[i], err);
    }
    return rc < 0 ? -1 : buf_puts(out, "]", err);
}

static int run_body_put_input(struct buf *out, const char *from, struct err *err) {
    struct buf bytes;
    int rc;

    buf_init(&bytes, RUN_BODY_STDIN_MAX);
    if (strcmp(from, "-") == 0)
        rc = local_file_read_fd(STDIN_FILENO, "standard input", &bytes, err);
    else
        rc = local_file_read(from, &bytes, NULL, err);
    if (rc == 0)
        rc = buf_puts(out, ",", err);
    if (rc == 0)
        rc = body_parts_put_bytes(out, "stdin", "stdin_encoding", &bytes, err);
    buf_done(&bytes);
    return rc;
}

/* The small object without its last brace, then what is large, then the brace: large contents are
 * never held as a tree. */
static int run_body_write(const json_t *object, const struct run_options *o, struct run_body *b,
                          struct err *err) {
    char *head = json_dumps(object, JSON_COMPACT);
    int rc;

    if (head == NULL)
        return body_parts_memory(err);
    rc = buf_append(&b->json, head, strlen(head) - 1, err);
    free(head);
    if (rc == 0 && o->files.count > 0)
        rc = run_body_put_files(&b->json, &o->files, err);
    if (rc == 0 && o->input != NULL)
        rc = run_body_put_input(&b->json, o->input, err);
    if (rc == 0)
        rc = buf_puts(&b->json, "}", err);
    if (rc < 0)
        err_wrap(err, "cannot make the request");
    return rc;
}

int run_body_make(const struct run_options *o, struct run_body *out, struct err *err) {
    struct run_body b = {0};
    json_t *object = json_object();
    int rc;

    buf_init(&b.json, RUN_BODY_MAX);
    if (object == NULL)
        return body_parts_memory(err);
    rc = run_body_set_small(object, o, &b, err);
    if (rc == 0)
        rc = run_body_write(object, o, &b, err);
    json_decref(object);
    if (rc < 0) {
        run_body_done(&b);
        return -1;
    }
    *out = b;
    return 0;
}

void run_body_done(struct run_body *b) {
    if (b == NULL)
        return;
    buf_done(&b->json);
    json_decref(b->steps);
    b->steps = NULL;
}

const char *run_body_step_name(const struct run_body *b, size_t index, char *space, size_t size) {
    const char *name = json_string_value(json_object_get(json_array_get(b->steps, index), "name"));

    if (name != NULL)
        return name;
    if (b->steps == NULL)
        return "main";
    snprintf(space, size, "step-%zu", index);
    return space;
}

bool run_body_continues(const struct run_body *b, size_t index) {
    return json_is_true(json_object_get(json_array_get(b->steps, index), "continue_on_error"));
}

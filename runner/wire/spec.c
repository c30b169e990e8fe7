#include "spec.h"

#include <string.h>

/* NAME=value with a name. */
static int spec_env_ok(const char *entry) {
    const char *eq = strchr(entry, '=');
    return eq && eq != entry;
}

static int spec_put(struct buf *out, const char *text, struct err *err) {
    return buf_append(out, text, strlen(text) + 1, err);
}

int spec_encode(const char *cwd, const char *const *argv, size_t argc, const char *const *env,
                size_t envc, struct buf *out, struct err *err) {
    if (!cwd[0])
        return err_plain(err, ERR_INVALID, 0, "a spec needs a working directory");
    if (argc < 1 || argc > SPEC_ARGS_MAX)
        return err_set(err, ERR_INVALID, 0, "%zu arguments are not between 1 and %u", argc,
                       SPEC_ARGS_MAX);
    if (envc > SPEC_ARGS_MAX)
        return err_set(err, ERR_INVALID, 0, "%zu environment variables are more than %u", envc,
                       SPEC_ARGS_MAX);
    for (size_t i = 0; i < envc; i++) {
        if (!spec_env_ok(env[i]))
            return err_set(err, ERR_INVALID, 0, "environment variable %zu is not NAME=value", i);
    }
    size_t before = out->len;
    struct spec_head head = {.magic = SPEC_MAGIC, .argc = (uint32_t)argc, .envc = (uint32_t)envc};
    int rc = buf_append(out, &head, sizeof(head), err);
    if (rc == 0)
        rc = spec_put(out, cwd, err);
    for (size_t i = 0; i < argc && rc == 0; i++)
        rc = spec_put(out, argv[i], err);
    for (size_t i = 0; i < envc && rc == 0; i++)
        rc = spec_put(out, env[i], err);
    if (rc < 0 && out->len != before) {
        out->len = before;
        out->data[before] = '\0';
    }
    return rc;
}

/* The head is in bounds and the rest is exactly as many strings as it announces. */
static int spec_check(const char *data, size_t size, struct spec_head *head, struct err *err) {
    if (size <= sizeof(*head))
        return err_plain(err, ERR_PROTOCOL, 0, "the spec is too short");
    memcpy(head, data, sizeof(*head));
    if (head->magic != SPEC_MAGIC || head->reserved)
        return err_plain(err, ERR_PROTOCOL, 0, "the spec does not start like one");
    if (head->argc < 1 || head->argc > SPEC_ARGS_MAX)
        return err_plain(err, ERR_PROTOCOL, 0, "the spec has no or too many arguments");
    if (head->envc > SPEC_ARGS_MAX)
        return err_plain(err, ERR_PROTOCOL, 0, "the spec has too many environment variables");
    if (data[size - 1])
        return err_plain(err, ERR_PROTOCOL, 0, "the last string of the spec does not end");
    size_t strings = 0;
    for (size_t i = sizeof(*head); i < size; i += strlen(data + i) + 1)
        strings++;
    if (strings != 1u + head->argc + head->envc)
        return err_plain(err, ERR_PROTOCOL, 0, "the spec has not as many strings as it says");
    if (!data[sizeof(*head)])
        return err_plain(err, ERR_PROTOCOL, 0, "the spec has no working directory");
    return 0;
}

int spec_decode(char *data, size_t size, struct spec *out, struct err *err) {
    struct spec_head head;
    if (spec_check(data, size, &head, err) < 0)
        return -1;
    /* Everything is checked before the first write to *out, which stays untouched on failure. */
    char *env = data + sizeof(head);
    for (size_t i = 0; i < 1u + head.argc; i++)
        env += strlen(env) + 1;
    char *p = env;
    for (size_t i = 0; i < head.envc; i++, p += strlen(p) + 1) {
        if (!spec_env_ok(p))
            return err_plain(err, ERR_PROTOCOL, 0, "the spec has a variable without NAME=");
    }
    p = data + sizeof(head);
    out->cwd = p;
    out->argc = head.argc;
    out->envc = head.envc;
    for (size_t i = 0; i < head.argc; i++) {
        p += strlen(p) + 1;
        out->argv[i] = p;
    }
    for (size_t i = 0; i < head.envc; i++) {
        p += strlen(p) + 1;
        out->env[i] = p;
    }
    out->argv[head.argc] = NULL;
    out->env[head.envc] = NULL;
    return 0;
}

void spec_shell(struct spec *s, char *shell) {
    /* The terminating NULL moves too: room for both was left at the end. */
    memmove(s->argv + 2, s->argv, (s->argc + 1) * sizeof(s->argv[0]));
    s->argv[0] = shell;
    s->argv[1] = (char *)(uintptr_t) "-c";
    s->argc += 2;
}

const char *spec_getenv(const struct spec *s, const char *name) {
    size_t len = strlen(name);
    for (size_t i = 0; i < s->envc; i++) {
        if (strncmp(s->env[i], name, len) == 0 && s->env[i][len] == '=')
            return s->env[i] + len + 1;
    }
    return NULL;
}

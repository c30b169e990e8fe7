#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "fd.h"
#include "json_in.h"
#include "str.h"

#define CONFIG_KEY_MAX 128

/* One reading of a file. */
struct config_scan {
    struct config *c;
    const char *path;
    struct json_in j;
    uint64_t seen; /* a bit per row */
    /* By depth; of a section, the bit of its first row. */
    uint64_t seen_sections[JSON_IN_DEPTH_MAX + 1];
    char key[CONFIG_KEY_MAX]; /* where it is: "tls.certificate" */
};

/* "FILE: /tls/certificate". */
static int config_file_wrap(const struct config_scan *s, struct err *err) {
    char pointer[CONFIG_KEY_MAX], shown[2 * CONFIG_KEY_MAX];
    str_copy(pointer, sizeof(pointer), s->key);
    for (char *p = pointer; *p != '\0'; p++)
        if (*p == '.')
            *p = '/';
    str_escape(shown, sizeof(shown), pointer, strlen(pointer));
    return err_wrap(err, "%s: /%s", s->path, shown);
}

static int config_file_wrong(const struct config_scan *s, struct err *err, const char *what) {
    err_set(err, ERR_INVALID, 0, "%s", what);
    return config_file_wrap(s, err);
}

/* It is not JSON. */
static int config_file_syntax(const struct config_scan *s, struct err *err) {
    size_t line = 1;
    for (size_t i = 0; i < s->j.pos && i < s->j.len; i++)
        line += s->j.json[i] == '\n';
    return err_set(err, ERR_INVALID, 0, "%s: line %zu is not JSON: %s", s->path, line,
                   s->j.wrong != NULL ? s->j.wrong : "something is wrong");
}

/* What a value should be, in words. */
static const char *config_file_wanted(const struct config_row *row) {
    switch (row->type) {
    case CONFIG_STRING:
        return "a string is wanted";
    case CONFIG_U64:
        return row->unlimited ? "an integer or \"unlimited\" is wanted"
                              : "an integer that is not negative is wanted";
    case CONFIG_BYTES:
        return "a number of bytes, or a string such as \"64M\", is wanted";
    case CONFIG_DURATION:
        return "a string such as \"30s\" or \"2h\" is wanted";
    case CONFIG_SWITCH:
    case CONFIG_BOOL:
        return "true or false is wanted";
    case CONFIG_CHOICE:
        return "one of its words is wanted, as a string";
    case CONFIG_LIST:
        return "an array of strings is wanted";
    }
    return "it has no type";
}

static int config_file_set(struct config_scan *s, const struct config_row *row, const char *text,
                           struct err *err) {
    if (config_from(s->c, row) == CONFIG_FROM_FLAG)
        return 0;
    if (config_set(s->c, row, text, CONFIG_FROM_FILE, err) < 0)
        return config_file_wrap(s, err);
    return 0;
}

static int config_file_string(struct config_scan *s, const struct config_row *row,
                              struct err *err) {
    const char *text = NULL;
    size_t len = 0;
    if (json_in_string(&s->j, &text, &len) < 0)
        return config_file_syntax(s, err);
    if (row->type == CONFIG_U64 && !(row->unlimited && strcmp(text, "unlimited") == 0))
        return config_file_wrong(s, err, config_file_wanted(row));
    if (row->type == CONFIG_DURATION && text[strspn(text, "0123456789")] == '\0')
        return config_file_wrong(s, err, "it has no unit; a string such as \"30s\" is wanted");
    return config_file_set(s, row, text, err);
}

static int config_file_number(struct config_scan *s, const struct config_row *row,
                              struct err *err) {
    uint64_t value = 0;
    char text[32];
    if (json_in_u64(&s->j, &value) < 0)
        return config_file_wrong(s, err, config_file_wanted(row));
    snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    return config_file_set(s, row, text, err);
}

static int config_file_bool(struct config_scan *s, const struct config_row *row, struct err *err) {
    bool value = false;
    if (json_in_bool(&s->j, &value) < 0)
        return config_file_syntax(s, err);
    return config_file_set(s, row, value ? "yes" : "no", err);
}

static int config_file_list(struct config_scan *s, const struct config_row *row, struct err *err) {
    const char *text = NULL;
    size_t len = strlen(s->key), n = 0, unused = 0;
    int more;
    if (config_from(s->c, row) != CONFIG_FROM_FLAG)
        memset((char *)s->c + row->offset, 0, sizeof(struct config_list));
    if (json_in_open(&s->j, '[') < 0)
        return config_file_syntax(s, err);
    for (; (more = json_in_item(&s->j)) > 0; n++) {
        snprintf(s->key + len, sizeof(s->key) - len, ".%zu", n);
        if (json_in_peek(&s->j) != JSON_IN_STRING)
            return config_file_wrong(s, err, "a string is wanted");
        if (json_in_string(&s->j, &text, &unused) < 0)
            return config_file_syntax(s, err);
        if (config_file_set(s, row, text, err) < 0)
            return -1;
    }
    s->key[len] = '\0';
    return more < 0 ? config_file_syntax(s, err) : 0;
}

/* null: as if it were not there. */
static int config_file_null(struct config_scan *s, struct err *err) {
    struct json_in *j = &s->j;
    if (j->len - j->pos < 4 || memcmp(j->json + j->pos, "null", 4) != 0) {
        j->wrong = "it begins like null";
        return config_file_syntax(s, err);
    }
    j->pos += 4;
    return 0;
}

static int config_file_value(struct config_scan *s, const struct config_row *row, struct err *err) {
    enum json_in_type type = json_in_peek(&s->j);
    bool word = row->type == CONFIG_SWITCH || row->type == CONFIG_BOOL;
    if (type == JSON_IN_NULL)
        return config_file_null(s, err);
    if (type == JSON_IN_STRING && !word && row->type != CONFIG_LIST)
        return config_file_string(s, row, err);
    if (type == JSON_IN_NUMBER && (row->type == CONFIG_U64 || row->type == CONFIG_BYTES))
        return config_file_number(s, row, err);
    if ((type == JSON_IN_TRUE || type == JSON_IN_FALSE) && word)
        return config_file_bool(s, row, err);
    if (type == JSON_IN_ARRAY && row->type == CONFIG_LIST)
        return config_file_list(s, row, err);
    if (type == JSON_IN_NOTHING) {
        s->j.wrong = "a value is missing";
        return config_file_syntax(s, err);
    }
    return config_file_wrong(s, err, config_file_wanted(row));
}

/* The first row of the section that s->key names, or NULL. */
static const struct config_row *config_file_section(const struct config_scan *s) {
    size_t len = strlen(s->key);
    for (const struct config_row *row = config_table(); row->key != NULL; row++)
        if (strncmp(row->key, s->key, len) == 0 && row->key[len] == '.')
            return row;
    return NULL;
}

static int config_file_object(struct config_scan *s, struct err *err);

static int config_file_comment(struct config_scan *s, struct err *err) {
    const char *text = NULL;
    size_t len = 0;
    if (json_in_peek(&s->j) != JSON_IN_STRING)
        return config_file_wrong(s, err, "a comment must be a string");
    return json_in_string(&s->j, &text, &len) < 0 ? config_file_syntax(s, err) : 0;
}

/* The member whose key s->key ends with. */
static int config_file_member(struct config_scan *s, const char *name, struct err *err) {
    const struct config_row *row = NULL, *section = NULL;
    if (strncmp(name, "//", 2) == 0)
        return config_file_comment(s, err);
    if (strchr(name, '.') == NULL) {
        row = config_find(s->key, strlen(s->key));
        section = row == NULL ? config_file_section(s) : NULL;
    }
    if (row == NULL && section == NULL)
        return config_file_wrong(s, err,
                                 "there is no such setting; pinfold-server config shows "
                                 "all of them");
    uint64_t *seen = row != NULL ? &s->seen : &s->seen_sections[s->j.depth];
    uint64_t bit = 1ULL << ((row != NULL ? row : section) - config_table());
    if ((*seen & bit) != 0)
        return config_file_wrong(s, err, "it is there twice");
    *seen |= bit;
    if (row != NULL)
        return config_file_value(s, row, err);
    if (json_in_peek(&s->j) != JSON_IN_OBJECT)
        return config_file_wrong(s, err, "an object is wanted");
    return config_file_object(s, err);
}

static int config_file_object(struct config_scan *s, struct err *err) {
    const char *name = NULL;
    size_t len = strlen(s->key), name_len = 0;
    int more;
    if (json_in_open(&s->j, '{') < 0)
        return config_file_syntax(s, err);
    while ((more = json_in_key(&s->j, &name, &name_len)) > 0) {
        snprintf(s->key + len, sizeof(s->key) - len, "%s%s", len > 0 ? "." : "", name);
        if (config_file_member(s, name, err) < 0)
            return -1;
        s->key[len] = '\0';
    }
    return more < 0 ? config_file_syntax(s, err) : 0;
}

int config_parse(struct config *c, const char *path, const char *json, size_t len,
                 struct err *err) {
    struct config_scan s = {.c = c, .path = path};
    buf_clear(&c->text);
    if (buf_append(&c->text, json, len, err) < 0)
        return err_wrap(err, "%s", path);
    c->path = path;
    json_in_init(&s.j, c->text.data, c->text.len);
    if (json_in_peek(&s.j) != JSON_IN_OBJECT) {
        s.j.wrong = "an object is wanted";
        return config_file_syntax(&s, err);
    }
    if (config_file_object(&s, err) < 0)
        return -1;
    return json_in_end(&s.j) < 0 ? config_file_syntax(&s, err) : 0;
}

int config_read(struct config *c, const char *path, struct err *err) {
    struct buf file;
    buf_init(&file, CONFIG_FILE_MAX);
    /* The administrator names it: a link is as good as a file. */
    fd_cleanup int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int rc = fd < 0 ? err_sys(err, "cannot open %s", path) : 0;
    while (rc == 0) {
        char *room = buf_reserve(&file, 4096, err);
        ssize_t got = room == NULL ? -2 : read(fd, room, 4096);
        if (got == -2)
            rc = err_wrap(err, "%s", path);
        else if (got < 0)
            rc = err_sys(err, "cannot read %s", path);
        else if (got == 0)
            break;
        else
            file.len += (size_t)got;
    }
    if (rc == 0)
        rc = config_parse(c, path, file.data != NULL ? file.data : "", file.len, err);
    buf_done(&file);
    return rc;
}

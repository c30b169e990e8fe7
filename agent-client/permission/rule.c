#include "rule.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define RULE_ARENA_MAX ((size_t)64 * 1024 * 1024)

const char *rule_verdict_name(enum rule_verdict v) {
    static const char *const names[] = {"none", "allow", "ask", "deny"};

    return names[v];
}

static const char *rule_directory(struct rule_set *set, const char *path) {
    size_t len = strlen(path);

    while (len > 1 && path[len - 1] == '/')
        len--;
    return arena_copy(&set->arena, path, len);
}

int rule_set_init(struct rule_set *set, const char *workspace, const char *home, struct err *err) {
    *set = (struct rule_set){0};
    if (workspace[0] != '/' || home[0] != '/')
        return err_set(err, ERR_INVALID, 0,
                       "the workspace and the home directory must be absolute paths");
    if (sodium_init() < 0)
        return err_set(err, ERR_SYSTEM, 0, "cannot start libsodium");
    arena_init(&set->arena, RULE_ARENA_MAX);
    set->workspace = rule_directory(set, workspace);
    set->home = rule_directory(set, home);
    if (set->workspace == NULL || set->home == NULL) {
        rule_set_done(set);
        return err_set(err, ERR_LIMIT, 0, "no memory for rules");
    }
    return 0;
}

void rule_set_done(struct rule_set *set) {
    if (set == NULL)
        return;
    arena_done(&set->arena);
    free(set->rules);
    free(set->examples);
    for (size_t k = 0; k < RULE_KINDS; k++)
        free(set->of[k]);
    *set = (struct rule_set){0};
}

/* Room for one more in an array that doubles. */
static void *rule_grow(void *array, size_t count, size_t *cap, size_t size) {
    size_t want = *cap == 0 ? 32 : *cap * 2;
    void *bigger;

    if (count < *cap)
        return array;
    bigger = reallocarray(array, want, size);
    if (bigger != NULL)
        *cap = want;
    return bigger;
}

int rule_add(struct rule_set *set, const struct rule *rule, struct err *err) {
    struct rule *rules;
    size_t *of;

    if (set->count >= RULE_MAX)
        return err_set(err, ERR_LIMIT, 0, "there are more than %u rules", RULE_MAX);
    rules = rule_grow(set->rules, set->count, &set->cap, sizeof(*rules));
    if (rules == NULL)
        return err_set(err, ERR_LIMIT, 0, "no memory for rules");
    set->rules = rules;
    of = reallocarray(set->of[rule->kind], set->of_count[rule->kind] + 1, sizeof(*of));
    if (of == NULL)
        return err_set(err, ERR_LIMIT, 0, "no memory for rules");
    set->of[rule->kind] = of;
    of[set->of_count[rule->kind]++] = set->count;
    set->rules[set->count++] = *rule;
    return 0;
}

int rule_add_example(struct rule_set *set, const struct rule_where *where, bool must,
                     const char *text, struct err *err) {
    struct rule_example *list, e = {.must = must, .file = where->file, .line = where->line};
    size_t first = set->count;

    /* The rules of one line are neighbours; examples follow the line at once. */
    while (first > 0 && set->rules[first - 1].file == where->file &&
           set->rules[first - 1].line == set->rules[set->count - 1].line)
        first--;
    if (first == set->count)
        return err_set(err, ERR_INVALID, 0, "an example stands before the first rule");
    if (*text == '\0')
        return err_set(err, ERR_INVALID, 0, "an example is empty");
    list = rule_grow(set->examples, set->example_count, &set->example_cap, sizeof(*list));
    if (list == NULL)
        return err_set(err, ERR_LIMIT, 0, "no memory for rules");
    set->examples = list;
    e.first = first;
    e.count = set->count - first;
    e.kind = set->rules[first].kind;
    e.text = arena_copy(&set->arena, text, strlen(text));
    if (e.text == NULL)
        return err_set(err, ERR_LIMIT, 0, "no memory for rules");
    list[set->example_count++] = e;
    return 0;
}

/* The digest of all files is that of the digest so far and of this file. */
static void rule_digest(struct rule_set *set, const struct rule_where *where, const char *text,
                        size_t len) {
    crypto_hash_sha256_state state;
    unsigned char head[2] = {(unsigned char)where->layer, where->trusted};

    crypto_hash_sha256_init(&state);
    crypto_hash_sha256_update(&state, set->digest, sizeof(set->digest));
    crypto_hash_sha256_update(&state, head, sizeof(head));
    crypto_hash_sha256_update(&state, (const unsigned char *)text, len);
    crypto_hash_sha256_final(&state, set->digest);
}

/* One line of a file, NUL-terminated and without blanks at its ends. */
static int rule_load_line(struct rule_set *set, struct rule_where *where, bool *any, char *line,
                          struct err *err) {
    if (*line == '\0' || *line == '#')
        return 0;
    if ((*line == '?' || *line == '!') && (line[1] == ' ' || line[1] == '\t')) {
        if (!*any)
            return err_set(err, ERR_INVALID, 0, "an example stands before the first rule");
        return rule_add_example(set, where, *line == '?', line + 1 + strspn(line + 1, " \t"), err);
    }
    if (strncmp(line, "policy", 6) == 0 && (line[6] == ' ' || line[6] == '\t')) {
        if (strcmp(line + 6 + strspn(line + 6, " \t"), "1") != 0 || *any)
            return err_set(err, ERR_INVALID, 0,
                           "only \"policy 1\" is known, before the first rule");
        return 0;
    }
    *any = true;
    return rule_line(set, where, line, err);
}

static int rule_load_one(struct rule_set *set, struct rule_where *where, bool *any,
                         const char *text, size_t len, struct err *err) {
    char line[RULE_LINE_MAX];

    while (len > 0 && strchr(" \t\r", text[len - 1]) != NULL)
        len--;
    while (len > 0 && (*text == ' ' || *text == '\t')) {
        text++;
        len--;
    }
    if (len >= sizeof(line))
        return err_set(err, ERR_INVALID, 0, "a line is longer than %u bytes", RULE_LINE_MAX - 1);
    for (size_t i = 0; i < len; i++)
        if (((unsigned char)text[i] < 0x20 && text[i] != '\t') || text[i] == 0x7f)
            return err_set(err, ERR_INVALID, 0, "a control character is in the line");
    memcpy(line, text, len);
    line[len] = '\0';
    return rule_load_line(set, where, any, line, err);
}

int rule_load(struct rule_set *set, enum rule_layer layer, bool trusted, const char *file,
              const char *text, size_t len, struct err *err) {
    struct rule_where where = {.layer = layer, .trusted = trusted};
    bool any = false;

    where.file = arena_copy(&set->arena, file, strlen(file));
    if (where.file == NULL)
        return err_set(err, ERR_LIMIT, 0, "no memory for rules");
    if (len > RULE_FILE_MAX)
        return err_set(err, ERR_INVALID, 0, "%s:1: the file is larger than %zu bytes", file,
                       RULE_FILE_MAX);
    for (size_t pos = 0; pos < len;) {
        const char *nl = memchr(text + pos, '\n', len - pos);
        size_t n = nl != NULL ? (size_t)(nl - text) - pos : len - pos;

        where.line++;
        if (rule_load_one(set, &where, &any, text + pos, n, err) < 0)
            return err_wrap(err, "%s:%u", file, where.line);
        pos += n + 1;
    }
    rule_digest(set, &where, text, len);
    return 0;
}

bool rule_subject_fits(const struct rule *rule, const char *subject) {
    const char *port = strrchr(subject, ':');
    char host[300];

    if (rule_glob(rule->subject, subject))
        return true;
    /* A net rule without a port is about all ports. */
    if (rule->kind != RULE_NET || port == NULL || strchr(rule->subject, ':') != NULL ||
        (size_t)(port - subject) >= sizeof(host))
        return false;
    memcpy(host, subject, (size_t)(port - subject));
    host[port - subject] = '\0';
    return rule_glob(rule->subject, host);
}

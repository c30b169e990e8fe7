/* What rules keep from being read outside of the workspace: a hard link of it in here is it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "project.h"

/* "/home/me/.ssh" of "~/.ssh/id_*": where all that the rule covers is. NULL: no memory. */
static char *project_private_place(const struct rule_parts *parts) {
    size_t len = 1;
    for (size_t i = 0; i < parts->lead; i++)
        len += strlen(parts->part[i]) + 1;
    char *path = malloc(len), *at = path;
    for (size_t i = 0; path != NULL && i < parts->lead; i++) {
        size_t n = strlen(parts->part[i]);
        *at++ = '/';
        memcpy(at, parts->part[i], n);
        at += n;
    }
    if (path != NULL)
        *at = '\0';
    return path;
}

static bool project_private_is_inside(const struct project *p, const char *path) {
    size_t n = strlen(p->path);
    return strncmp(path, p->path, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

int project_private(const struct project *p, struct project_places *out, struct err *err) {
    const struct rule_set *set = &p->rules;
    struct project_places places = {.path = calloc(set->of_count[RULE_READ] + 1, sizeof(char *))};
    bool failed = places.path == NULL;
    for (size_t i = 0; !failed && i < set->of_count[RULE_READ]; i++) {
        const struct rule *rule = &set->rules[set->of[RULE_READ][i]];
        /* "**" at the beginning names no place. */
        if (rule->verdict != RULE_DENY || rule->parts.anywhere || rule->parts.lead == 0)
            continue;
        char *path = project_private_place(&rule->parts);
        failed = path == NULL;
        if (path != NULL && project_private_is_inside(p, path))
            free(path);
        else if (path != NULL)
            places.path[places.count++] = path;
    }
    *out = places;
    return failed ? err_set(err, ERR_SYSTEM, ENOMEM, "looking at the workspace: out of memory") : 0;
}

void project_places_done(struct project_places *places) {
    for (size_t i = 0; i < places->count; i++)
        free(places->path[i]);
    free(places->path);
    *places = (struct project_places){0};
}

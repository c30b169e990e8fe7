#include "agent_edit.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AGENT_EDIT_LINES_MAX 200000u
#define AGENT_EDIT_SHOWN 8u

struct agent_edit_line {
    const char *at;
    size_t len; /* without the line's end */
};

struct agent_edit_text {
    struct agent_edit_line *lines;
    size_t count;
};

static int agent_edit_cut(const char *text, size_t len, struct agent_edit_text *out) {
    size_t n = 1, i = 0;
    for (size_t k = 0; k < len; k++)
        n += text[k] == '\n';
    if (n > AGENT_EDIT_LINES_MAX)
        return -1;
    out->lines = calloc(n, sizeof(*out->lines));
    if (out->lines == NULL)
        return -1;
    while (len > 0) {
        const char *end = memchr(text, '\n', len);
        size_t line = end != NULL ? (size_t)(end - text) : len;
        out->lines[i++] = (struct agent_edit_line){text, line};
        line += end != NULL;
        text += line;
        len -= line;
    }
    out->count = i;
    return 0;
}

/* Exact. */

static const char *agent_edit_find(const char *text, size_t len, const char *old, size_t *count) {
    size_t n = strlen(old);
    const char *first = NULL, *at = text;
    *count = 0;
    while ((at = memmem(at, len - (size_t)(at - text), old, n)) != NULL) {
        if (first == NULL)
            first = at;
        ++*count;
        at++;
    }
    return first;
}

static size_t agent_edit_number(const char *text, const char *at) {
    size_t line = 1;
    for (; text < at; text++)
        line += *text == '\n';
    return line;
}

static int agent_edit_ambiguous(const char *text, size_t len, const char *old, size_t count,
                                struct err *err) {
    char lines[120] = "";
    const char *at = text;
    for (size_t i = 0; i < count && i < AGENT_EDIT_SHOWN; i++) {
        at = memmem(at, len - (size_t)(at - text), old, strlen(old));
        size_t n = strlen(lines);
        snprintf(lines + n, sizeof(lines) - n, "%s%zu", i > 0 ? ", " : "",
                 agent_edit_number(text, at));
        at++;
    }
    return err_set(
        err, ERR_INVALID, 0,
        "`old` is there %zu times (lines %s%s); give more of the text around the one that "
        "is meant",
        count, lines, count > AGENT_EDIT_SHOWN ? ", ..." : "");
}

/* Nearly. */

enum agent_edit_fold { AGENT_EDIT_ENDS, AGENT_EDIT_INDENT, AGENT_EDIT_NUMBERS, AGENT_EDIT_FOLDS };

static struct agent_edit_line agent_edit_trim(struct agent_edit_line l) {
    while (l.len > 0 && strchr(" \t\r", l.at[l.len - 1]) != NULL)
        l.len--;
    return l;
}

static size_t agent_edit_indent(struct agent_edit_line l) {
    size_t n = 0;
    while (n < l.len && (l.at[n] == ' ' || l.at[n] == '\t'))
        n++;
    return n;
}

/* "   12<tab>text" -> "text" */
static bool agent_edit_unnumber(struct agent_edit_line *l) {
    size_t n = agent_edit_indent(*l), digits = n;
    while (digits < l->len && l->at[digits] >= '0' && l->at[digits] <= '9')
        digits++;
    if (digits == n || digits >= l->len || strchr("\t|:", l->at[digits]) == NULL)
        return false;
    l->at += digits + 1;
    l->len -= digits + 1;
    return true;
}

static bool agent_edit_same(struct agent_edit_line a, struct agent_edit_line b) {
    return a.len == b.len && memcmp(a.at, b.at, a.len) == 0;
}

/* Does line `have` of the file stand for line `want` of the model? `shift` is what the file's lines
 * have more (or less) of indentation; it must be the same for all lines. */
static bool agent_edit_stands(struct agent_edit_line have, struct agent_edit_line want,
                              enum agent_edit_fold fold, long *shift, bool *shifted) {
    have = agent_edit_trim(have);
    if (fold == AGENT_EDIT_NUMBERS && !agent_edit_unnumber(&want) && want.len > 0)
        return false;
    want = agent_edit_trim(want);
    if (fold != AGENT_EDIT_INDENT || have.len == 0 || want.len == 0)
        return agent_edit_same(have, want);
    size_t h = agent_edit_indent(have), w = agent_edit_indent(want);
    long by = (long)h - (long)w;
    if (*shifted && by != *shift)
        return false;
    *shift = by;
    *shifted = true;
    return agent_edit_same((struct agent_edit_line){have.at + h, have.len - h},
                           (struct agent_edit_line){want.at + w, want.len - w});
}

static size_t agent_edit_look(const struct agent_edit_text *have,
                              const struct agent_edit_text *want, enum agent_edit_fold fold,
                              size_t *where, long *shift) {
    size_t found = 0;
    for (size_t i = 0; want->count > 0 && i + want->count <= have->count; i++) {
        long by = 0;
        bool shifted = false;
        size_t k = 0;
        while (k < want->count &&
               agent_edit_stands(have->lines[i + k], want->lines[k], fold, &by, &shifted))
            k++;
        if (k < want->count)
            continue;
        if (found++ == 0) {
            *where = i;
            *shift = by;
        }
    }
    return found;
}

/* A line of the new text as the file would have it. */
static int agent_edit_put(struct buf *out, struct agent_edit_line l, enum agent_edit_fold fold,
                          const struct agent_edit_line *model, long shift, bool crlf,
                          struct err *err) {
    if (fold == AGENT_EDIT_NUMBERS)
        (void)agent_edit_unnumber(&l);
    if (l.len > 0 && l.at[l.len - 1] == '\r')
        l.len--;
    if (fold == AGENT_EDIT_INDENT && l.len > 0 && shift > 0 &&
        buf_append(out, model->at, (size_t)shift <= agent_edit_indent(*model) ? (size_t)shift : 0,
                   err) < 0)
        return -1;
    if (fold == AGENT_EDIT_INDENT && shift < 0) {
        size_t less = (size_t)-shift, n = agent_edit_indent(l);
        less = less < n ? less : n;
        l.at += less;
        l.len -= less;
    }
    return buf_append(out, l.at, l.len, err) < 0 ? -1 : buf_puts(out, crlf ? "\r\n" : "\n", err);
}

struct agent_edit_place {
    const char *text;
    size_t len;
    const struct agent_edit_text *have, *want;
    enum agent_edit_fold fold;
    size_t where;
    long shift;
};

static int agent_edit_splice(const struct agent_edit_place *p, const char *fresh, struct buf *out,
                             struct err *err) {
    const struct agent_edit_line *first = &p->have->lines[p->where];
    const struct agent_edit_line *last = &p->have->lines[p->where + p->want->count - 1];
    const char *after = last->at + last->len, *end = p->text + p->len;
    bool crlf = first->len > 0 && first->at[first->len - 1] == '\r', ended = after < end;
    struct agent_edit_text lines = {0};
    after += ended;
    if (agent_edit_cut(fresh, strlen(fresh), &lines) < 0)
        return err_set(err, ERR_SYSTEM, ENOMEM, "the new text is too long");
    int rc = buf_append(out, p->text, (size_t)(first->at - p->text), err);
    for (size_t i = 0; rc == 0 && i < lines.count; i++)
        rc = agent_edit_put(out, lines.lines[i], p->fold, first, p->shift, crlf, err);
    free(lines.lines);
    if (rc == 0 && !ended && out->len > 0 && out->data[out->len - 1] == '\n') {
        out->len -= crlf ? 2 : 1; /* the file has no newline at its end */
        out->data[out->len] = '\0';
    }
    return rc < 0 ? -1 : buf_append(out, after, (size_t)(end - after), err);
}

/* The lines of the file that are most like the first line of the model's text. */
static int agent_edit_hint(const struct agent_edit_text *have, const struct agent_edit_text *want,
                           struct err *err) {
    char places[300] = "";
    size_t shown = 0;
    for (size_t k = 0; k < want->count && shown == 0; k++) {
        struct agent_edit_line w = agent_edit_trim(want->lines[k]);
        size_t wi = agent_edit_indent(w);
        if (w.len - wi < 4)
            continue;
        for (size_t i = 0; i < have->count && shown < 3; i++) {
            struct agent_edit_line h = agent_edit_trim(have->lines[i]);
            if (memmem(h.at, h.len, w.at + wi, w.len - wi) == NULL)
                continue;
            size_t n = strlen(places);
            snprintf(places + n, sizeof(places) - n, "%s line %zu: %.70s", shown > 0 ? ";" : "",
                     i + 1, "");
            n = strlen(places);
            snprintf(places + n, sizeof(places) - n, "%.*s", h.len < 70 ? (int)h.len : 70, h.at);
            shown++;
        }
    }
    if (shown == 0)
        return err_set(err, ERR_INVALID, 0,
                       "`old` is not in the file, and none of its lines is; read the file again");
    return err_set(err, ERR_INVALID, 0, "`old` is not in the file as given; nearest:%s", places);
}

static int agent_edit_nearly(const char *text, size_t len, const char *old, const char *fresh,
                             struct buf *out, size_t *line, struct err *err) {
    struct agent_edit_text have = {0}, want = {0};
    int rc = -1;
    if (agent_edit_cut(text, len, &have) < 0 || agent_edit_cut(old, strlen(old), &want) < 0) {
        free(have.lines);
        free(want.lines);
        return err_set(err, ERR_LIMIT, 0, "the file has too many lines");
    }
    struct agent_edit_place p = {.text = text, .len = len, .have = &have, .want = &want};
    size_t found = 0;
    for (p.fold = 0; p.fold < AGENT_EDIT_FOLDS; p.fold++) {
        found = agent_edit_look(&have, &want, p.fold, &p.where, &p.shift);
        if (found > 0)
            break;
    }
    if (found == 1) {
        *line = p.where + 1;
        rc = agent_edit_splice(&p, fresh, out, err);
    } else if (found > 1) {
        err_set(err, ERR_INVALID, 0,
                "`old` is not there as given, and nearly there %zu times; give more of the text",
                found);
    } else {
        agent_edit_hint(&have, &want, err);
    }
    free(have.lines);
    free(want.lines);
    return rc;
}

int agent_edit(const char *text, size_t len, const char *old, const char *fresh, struct buf *out,
               size_t *line, struct err *err) {
    size_t count = 0;
    buf_init(out, AGENT_EDIT_MAX);
    if (old[0] == '\0')
        return err_set(err, ERR_INVALID, 0, "`old` is empty; use write for a new file");
    if (strcmp(old, fresh) == 0)
        return err_set(err, ERR_INVALID, 0, "`old` and `new` are the same: nothing to do");
    const char *at = len > 0 ? agent_edit_find(text, len, old, &count) : NULL;
    if (count > 1)
        return agent_edit_ambiguous(text, len, old, count, err);
    if (count == 0)
        return agent_edit_nearly(text, len, old, fresh, out, line, err);
    const char *after = at + strlen(old);
    *line = agent_edit_number(text, at);
    return buf_append(out, text, (size_t)(at - text), err) < 0 || buf_puts(out, fresh, err) < 0
               ? -1
               : buf_append(out, after, len - (size_t)(after - text), err);
}

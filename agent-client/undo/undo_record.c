/* Entries of the journal as text: one line a fact, values with %XX for whatever is not plain. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fd.h"
#include "undo_internal.h"

#define UNDO_LISTS_MAX 100u /* of a directory, until two are the same */

void undo_record_free(struct undo_record *r) {
    if (r == NULL)
        return;
    for (size_t i = 0; i < r->count; i++) {
        free(r->items[i].path);
        undo_image_done(&r->items[i].before);
        undo_image_done(&r->items[i].after);
    }
    free(r->items);
    free(r->label);
    free(r->by);
    free(r->session);
    free(r->rules);
    free(r);
}

struct undo_item *undo_record_add(struct undo_record *r, const char *path, struct err *err) {
    struct undo_item *item;

    if (r->count == r->cap) {
        size_t cap = r->cap == 0 ? 16 : r->cap * 2;
        struct undo_item *items = reallocarray(r->items, cap, sizeof(*items));

        if (items == NULL) {
            err_set(err, ERR_LIMIT, 0, "no memory for the changes");
            return NULL;
        }
        r->items = items;
        r->cap = cap;
    }
    item = &r->items[r->count];
    *item = (struct undo_item){.fd = -1};
    item->path = strdup(path);
    if (item->path == NULL) {
        err_set(err, ERR_LIMIT, 0, "no memory for the changes");
        return NULL;
    }
    r->count++;
    return item;
}

/* ---- writing ---- */

static int undo_record_text(struct buf *out, const char *text, struct err *err) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_./-+=:,@";

    if (text == NULL || *text == '\0')
        return buf_puts(out, text == NULL ? "-" : "%", err);
    if (strcmp(text, "-") == 0)
        return buf_puts(out, "%2d", err);
    for (; *text != '\0'; text++)
        if ((strchr(plain, *text) != NULL
                 ? buf_append(out, text, 1, err)
                 : buf_printf(out, err, "%%%02x", (unsigned char)*text)) < 0)
            return -1;
    return 0;
}

static int undo_record_field(struct buf *out, const char *key, const char *text, struct err *err) {
    return buf_printf(out, err, "%s ", key) < 0 || undo_record_text(out, text, err) < 0 ||
                   buf_puts(out, "\n", err) < 0
               ? -1
               : 0;
}

static int undo_record_image(struct buf *out, char key, const struct undo_image *i,
                             struct err *err) {
    char hash[UNDO_HEX_SIZE];

    sodium_bin2hex(hash, sizeof(hash), i->s.sha256, UNDO_HASH_SIZE);
    if (buf_printf(out, err, "%c %d %o %" PRIu64 " %s %" PRId64 " ", key, (int)i->s.type,
                   (unsigned)i->s.mode, i->s.size, hash, i->mtime_ns) < 0 ||
        undo_record_text(out, i->s.target, err) < 0 || buf_puts(out, " ", err) < 0 ||
        undo_record_text(out, i->xattrs, err) < 0)
        return -1;
    return buf_puts(out, "\n", err);
}

static int undo_record_write(struct buf *out, const struct undo_record *r, struct err *err) {
    size_t n = 0;

    if (buf_printf(out, err, "pinfold-undo 1\nwhen %" PRIu64 "\n", r->when_ms) < 0 ||
        undo_record_field(out, "label", r->label, err) < 0 ||
        undo_record_field(out, "by", r->by, err) < 0 ||
        undo_record_field(out, "session", r->session, err) < 0)
        return -1;
    if (r->rules != NULL && undo_record_field(out, "rules", r->rules, err) < 0)
        return -1;
    if (r->of[0] != '\0' && buf_printf(out, err, "of %s %s\n", r->of,
                                       r->redo     ? "redo"
                                       : r->partly ? "part"
                                                   : "undo") < 0)
        return -1;
    for (size_t i = 0; i < r->count; i++) {
        const struct undo_item *item = &r->items[i];

        if (item->outcome != UNDO_APPLIED)
            continue;
        n++;
        if (undo_record_field(out, item->mode_only ? "m" : "c", item->path, err) < 0 ||
            undo_record_image(out, 'b', &item->before, err) < 0 ||
            undo_record_image(out, 'a', &item->after, err) < 0)
            return -1;
    }
    return buf_printf(out, err, "end %zu\n", n);
}

int undo_record_begin(struct undo *u, const struct undo_record *r, struct err *err) {
    char name[UNDO_ID_SIZE + 8];
    struct buf text;
    int rc;

    buf_init(&text, UNDO_ENTRY_MAX);
    snprintf(name, sizeof(name), "%s.todo", r->id);
    rc = undo_record_write(&text, r, err);
    /* The contents and their names must be there before the entry that needs them. */
    if (rc == 0)
        rc = undo_batch_flush(u, err);
    if (rc == 0 && fsync(u->blobs) < 0)
        rc = err_sys(err, "cannot make the journal durable");
    if (rc == 0)
        rc = fd_write_atomic(u->entries, name, text.data, text.len, 0600, err);
    if (rc == 0 && fsync(u->entries) < 0)
        rc = err_sys(err, "cannot make the journal durable");
    buf_done(&text);
    return rc;
}

int undo_record_commit(struct undo *u, const struct undo_record *r, struct err *err) {
    char name[UNDO_ID_SIZE + 8];

    snprintf(name, sizeof(name), "%s.todo", r->id);
    if (renameat(u->entries, name, u->entries, r->id) < 0 || fsync(u->entries) < 0)
        return err_sys(err, "cannot commit the entry %s", r->id);
    return 0;
}

int undo_record_drop(struct undo *u, const struct undo_record *r, struct err *err) {
    char name[UNDO_ID_SIZE + 8];

    snprintf(name, sizeof(name), "%s.todo", r->id);
    if ((unlinkat(u->entries, name, 0) < 0 && errno != ENOENT) || fsync(u->entries) < 0)
        return err_sys(err, "cannot remove the entry %s", r->id);
    return 0;
}

/* ---- reading ---- */

/* Takes the next word of the line and undoes its %XX; NULL for "-". */
static char *undo_record_word(char **line) {
    char *word = *line, *out = word;
    size_t n = strcspn(word, " ");
    bool more = word[n] == ' ';

    word[n] = '\0';
    *line = word + n + more;
    if (strcmp(word, "-") == 0)
        return NULL;
    for (const char *in = word; *in != '\0'; in++) {
        unsigned value;

        if (*in == '%' && sscanf(in + 1, "%2x", &value) == 1 && in[1] != '\0' && in[2] != '\0') {
            *out++ = (char)value;
            in += 2;
        } else if (*in != '%') {
            *out++ = *in;
        }
    }
    *out = '\0';
    return word;
}

static char *undo_record_dup(char **line) {
    const char *word = undo_record_word(line);

    return word != NULL ? strdup(word) : NULL;
}

/* The last word about it counts. */
static void undo_record_take(char **text, char **in) {
    free(*text);
    *text = undo_record_dup(in);
}

static int undo_record_read_image(char *line, struct undo_image *i) {
    int type, used = 0;
    unsigned mode;
    char hash[UNDO_HEX_SIZE];

    if (sscanf(line, "%d %o %" SCNu64 " %64s %" SCNd64 " %n", &type, &mode, &i->s.size, hash,
               &i->mtime_ns, &used) < 5 ||
        used == 0 || type < UNDO_ABSENT || type > UNDO_LINK ||
        sodium_hex2bin(i->s.sha256, UNDO_HASH_SIZE, hash, strlen(hash), NULL, NULL, NULL) != 0)
        return -1;
    i->s.type = (enum undo_type)type;
    i->s.mode = mode;
    line += used;
    free((void *)(uintptr_t)i->s.target);
    i->s.target = undo_record_dup(&line);
    undo_record_take(&i->xattrs, &line);
    return 0;
}

/* One line; 1 at the end. */
static int undo_record_line(struct undo_record *r, char *line, struct err *err) {
    char *value = strchr(line, ' ');
    struct undo_item *last = r->count > 0 ? &r->items[r->count - 1] : NULL;

    if (value == NULL)
        return -1;
    *value++ = '\0';
    if (strcmp(line, "pinfold-undo") == 0)
        return strcmp(value, "1") == 0 ? 0 : -1;
    if (strcmp(line, "when") == 0)
        r->when_ms = strtoull(value, NULL, 10);
    else if (strcmp(line, "label") == 0)
        undo_record_take(&r->label, &value);
    else if (strcmp(line, "by") == 0)
        undo_record_take(&r->by, &value);
    else if (strcmp(line, "session") == 0)
        undo_record_take(&r->session, &value);
    else if (strcmp(line, "rules") == 0)
        undo_record_take(&r->rules, &value);
    else if (strcmp(line, "of") == 0) {
        snprintf(r->of, sizeof(r->of), "%.*s", (int)strcspn(value, " "), value);
        r->redo = strstr(value, " redo") != NULL;
        r->partly = strstr(value, " part") != NULL;
    } else if (strcmp(line, "c") == 0 || strcmp(line, "m") == 0) {
        const char *path = undo_record_word(&value);

        last = path != NULL ? undo_record_add(r, path, err) : NULL;
        if (last == NULL)
            return -1;
        last->mode_only = line[0] == 'm';
    } else if (strcmp(line, "b") == 0 || strcmp(line, "a") == 0) {
        return last == NULL
                   ? -1
                   : undo_record_read_image(value, line[0] == 'b' ? &last->before : &last->after);
    } else if (strcmp(line, "end") == 0) {
        return strtoull(value, NULL, 10) == r->count ? 1 : -1;
    } else {
        return -1;
    }
    return 0;
}

struct undo_record *undo_record_read(struct undo *u, const char *name, struct err *err) {
    struct undo_record *r = calloc(1, sizeof(*r));
    struct buf text;
    char *save = NULL;
    int rc = 0;

    buf_init(&text, UNDO_ENTRY_MAX);
    if (r == NULL || fd_read_file(u->entries, name, &text, err) < 0 || text.data == NULL) {
        buf_done(&text);
        free(r);
        err_wrap(err, "entry %s", name);
        return NULL;
    }
    snprintf(r->id, sizeof(r->id), "%.*s", (int)strcspn(name, "."), name);
    for (char *line = strtok_r(text.data, "\n", &save); line != NULL && rc == 0;
         line = strtok_r(NULL, "\n", &save))
        rc = undo_record_line(r, line, err);
    buf_done(&text);
    if (rc != 1) {
        undo_record_free(r);
        err_set(err, ERR_INVALID, 0, "the entry %s of the journal is damaged", name);
        return NULL;
    }
    return r;
}

static int undo_record_filter(const struct dirent *d) {
    return strncmp(d->d_name, "ch_", 3) == 0 && strchr(d->d_name, '.') == NULL;
}

/* Which entries are undone now: the last word about each counts. */
static void undo_records_mark(struct undo_records *all) {
    for (size_t i = 0; i < all->count; i++) {
        const struct undo_record *r = all->list[i];

        for (size_t k = 0; k < i && r->of[0] != '\0' && !r->partly; k++)
            if (strcmp(all->list[k]->id, r->of) == 0)
                all->list[k]->undone = !r->redo;
    }
}

struct undo_names {
    struct dirent **list; /* owned, and so is each */
    int count;
};

static void undo_names_done(struct undo_names *n) {
    for (int i = 0; i < n->count; i++)
        free(n->list[i]);
    free(n->list);
    *n = (struct undo_names){.count = 0};
}

static int undo_names_scan(struct undo *u, struct undo_names *n, struct err *err) {
    n->count = scandirat(u->entries, ".", &n->list, undo_record_filter, alphasort);
    if (n->count >= 0)
        return 0;
    n->count = 0;
    return err_sys(err, "cannot list the journal");
}

static bool undo_names_same(const struct undo_names *a, const struct undo_names *b) {
    for (int i = 0; i < a->count && a->count == b->count; i++)
        if (strcmp(a->list[i]->d_name, b->list[i]->d_name) != 0)
            return false;
    return a->count == b->count;
}

/* A directory that changes while it is listed may show a later entry and not an earlier one. */
static int undo_records_list(struct undo *u, struct undo_names *n, struct err *err) {
    struct undo_names again = {.count = 0};
    int rc = undo_names_scan(u, n, err);

    for (unsigned i = 0; rc == 0 && u->reads && i < UNDO_LISTS_MAX; i++) {
        rc = undo_names_scan(u, &again, err);
        if (rc == 0 && undo_names_same(n, &again))
            break;
        if (rc == 0) {
            undo_names_done(n);
            *n = again;
            again = (struct undo_names){.count = 0};
        }
    }
    undo_names_done(&again);
    return rc;
}

int undo_records_load(struct undo *u, struct undo_records *all, struct err *err) {
    struct undo_names names = {.count = 0};
    struct undo_records found = {.count = 0};
    int rc = undo_records_list(u, &names, err);

    if (rc == 0) {
        found.list = calloc((size_t)names.count + 1, sizeof(*found.list));
        if (found.list == NULL)
            rc = err_set(err, ERR_LIMIT, 0, "no memory for the journal");
    }
    for (int i = 0; rc == 0 && i < names.count; i++) {
        const char *name = names.list[i]->d_name;
        struct undo_record *r = undo_record_read(u, name, err);

        if (r != NULL)
            found.list[found.count++] = r;
        /* The oldest go while somebody reads. */
        else if (!u->reads || faccessat(u->entries, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
            rc = -1;
    }
    undo_names_done(&names);
    if (rc < 0)
        undo_records_done(&found);
    else
        undo_records_mark(&found);
    *all = found;
    return rc;
}

void undo_records_done(struct undo_records *all) {
    for (size_t i = 0; i < all->count; i++)
        undo_record_free(all->list[i]);
    free(all->list);
    *all = (struct undo_records){.count = 0};
}

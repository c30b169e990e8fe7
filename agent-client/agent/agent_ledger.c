#include "agent_ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"

#define AGENT_LEDGER_FILE_MAX ((size_t)1024 * 1024 * 1024)
#define AGENT_LEDGER_PRICES_MAX ((size_t)1024 * 1024)
#define AGENT_LEDGER_FIRST "0000000000000000000000000000000000000000000000000000000000000000"

/* Prices. */

int agent_prices_load(struct agent_prices *p, int dir, const char *file, struct err *err) {
    struct buf text;
    json_error_t why;
    *p = (struct agent_prices){0};
    buf_init(&text, AGENT_LEDGER_PRICES_MAX);
    int rc = fd_read_file(dir, file, &text, err);
    if (rc == 0) {
        p->root =
            json_loadb(text.data != NULL ? text.data : "", text.len, JSON_REJECT_DUPLICATES, &why);
        const char *version = json_string_value(json_object_get(p->root, "version"));
        if (p->root == NULL || version == NULL || strlen(version) >= sizeof(p->version) ||
            !json_is_object(json_object_get(p->root, "models")))
            rc = err_set(err, ERR_INVALID, 0, "%s: prices are {\"version\": …, \"models\": {…}}",
                         file);
        else
            memcpy(p->version, version, strlen(version) + 1);
    }
    if (rc < 0)
        agent_prices_done(p);
    buf_done(&text);
    return rc;
}

void agent_prices_done(struct agent_prices *p) {
    json_decref(p->root);
    *p = (struct agent_prices){0};
}

static const json_t *agent_prices_of(const struct agent_prices *p, const char *model) {
    const json_t *best = NULL;
    size_t longest = 0;
    const char *name;
    json_t *one;
    json_object_foreach(json_object_get(p->root, "models"), name, one) {
        size_t n = strlen(name);
        bool prefix = n > 0 && name[n - 1] == '*';
        if (!prefix && strcmp(name, model) == 0)
            return one;
        if (prefix && n > longest && strncmp(name, model, n - 1) == 0) {
            best = one;
            longest = n;
        }
    }
    return best;
}

bool agent_prices_cost(const struct agent_prices *p, const char *model, bool local,
                       const struct model_usage *usage, uint64_t *micro_usd) {
    const json_t *price = agent_prices_of(p, model);
    const struct {
        const char *kind;
        uint64_t tokens;
    } parts[] = {{"input", usage->input},
                 {"cache_read", usage->cache_read},
                 {"cache_write", usage->cache_write},
                 {"output", usage->output}};
    unsigned __int128 total = 0;
    *micro_usd = 0;
    if (local)
        return true;
    if (price == NULL || !usage->known)
        return false;
    for (size_t i = 0; i < 4; i++) {
        const json_t *per = json_object_get(price, parts[i].kind);
        if (parts[i].tokens > 0 && (!json_is_integer(per) || json_integer_value(per) < 0))
            return false; /* a kind of token without a price makes the sum unknown */
        total += (unsigned __int128)parts[i].tokens * (uint64_t)json_integer_value(per);
    }
    *micro_usd = (uint64_t)((total + 999999u) / 1000000u);
    return true;
}

/* The chain. */

static void agent_ledger_hash(const char *line, size_t len, char hex[AGENT_LEDGER_HASH]) {
    unsigned char hash[crypto_hash_sha256_BYTES];
    crypto_hash_sha256(hash, (const unsigned char *)line, len);
    sodium_bin2hex(hex, AGENT_LEDGER_HASH, hash, sizeof(hash));
}

/* The hash of the last line; a half line at the end (a crash) is cut off: nobody was told of it. */
static int agent_ledger_last(int fd, char prev[AGENT_LEDGER_HASH], struct err *err) {
    char *tail = malloc(AGENT_LEDGER_LINE_MAX * 2);
    struct stat st;
    int rc = 0;
    memcpy(prev, AGENT_LEDGER_FIRST, AGENT_LEDGER_HASH);
    if (tail == NULL || fstat(fd, &st) < 0) {
        free(tail);
        return err_sys(err, "reading the journal of costs");
    }
    off_t from = st.st_size > (off_t)(AGENT_LEDGER_LINE_MAX * 2)
                     ? st.st_size - (off_t)(AGENT_LEDGER_LINE_MAX * 2)
                     : 0;
    ssize_t n = pread(fd, tail, (size_t)(st.st_size - from), from);
    if (n < 0) {
        rc = err_sys(err, "reading the journal of costs");
    } else if (n > 0) {
        char *end = memrchr(tail, '\n', (size_t)n);
        size_t whole = end != NULL ? (size_t)(end - tail) + 1 : 0;
        if (whole < (size_t)n && ftruncate(fd, from + (off_t)whole) < 0)
            rc = err_sys(err, "mending the journal of costs");
        if (whole > 0) {
            char *begin = memrchr(tail, '\n', whole - 1);
            begin = begin != NULL ? begin + 1 : tail;
            agent_ledger_hash(begin, (size_t)(end - begin), prev);
        }
    }
    free(tail);
    return rc;
}

static json_t *agent_ledger_object(const struct agent_ledger_entry *e, const char *prev) {
    const struct model_usage *u = &e->usage;
    json_t *tokens =
        u->known
            ? json_pack("{s:I, s:I, s:I, s:I, s:I}", "input", (json_int_t)u->input, "cache_read",
                        (json_int_t)u->cache_read, "cache_write", (json_int_t)u->cache_write,
                        "output", (json_int_t)u->output, "reasoning", (json_int_t)u->reasoning)
            : json_null();
    return json_pack(
        "{s:s, s:I, s:I, s:s?, s:s?, s:s?, s:s?, s:s?, s:s?, s:s?, s:s?, s:s?, s:s?, s:o, s:o}",
        "prev", prev, "time_ms", (json_int_t)e->when_ms, "duration_ms", (json_int_t)e->duration_ms,
        "session", e->session, "parent", e->parent, "task", e->task, "workspace", e->workspace,
        "provider", e->provider, "host", e->host, "model", e->model, "prices", e->prices, "rules",
        e->rules, "outcome", e->outcome, "tokens", tokens, "cost_micro_usd",
        e->priced ? json_integer((json_int_t)e->micro_usd) : json_null());
}

int agent_ledger_add(int dir, const char *file, const struct agent_ledger_entry *entry,
                     struct err *err) {
    char prev[AGENT_LEDGER_HASH];
    fd_cleanup int fd =
        openat(dir, file, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_sys(err, "opening the journal of costs");
    while (flock(fd, LOCK_EX) < 0)
        if (errno != EINTR)
            return err_sys(err, "locking the journal of costs");
    if (agent_ledger_last(fd, prev, err) < 0)
        return -1;
    json_t *object = agent_ledger_object(entry, prev);
    char *text = object != NULL ? json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(object);
    if (text == NULL)
        return err_set(err, ERR_INVALID, 0, "an entry of the journal of costs is not UTF-8");
    size_t len = strlen(text);
    int rc = len + 1 >= AGENT_LEDGER_LINE_MAX
                 ? err_set(err, ERR_LIMIT, 0, "an entry of the journal of costs is too long")
                 : 0;
    if (rc == 0) {
        text[len] = '\n'; /* in place of its NUL: one write for the whole line */
        rc = fd_write_all(fd, text, len + 1, err);
    }
    if (rc == 0 && fdatasync(fd) < 0)
        rc = err_sys(err, "writing the journal of costs");
    free(text);
    return rc;
}

/* Going through the lines. */
struct agent_ledger_walk {
    char prev[AGENT_LEDGER_HASH];
    size_t number;
    bool more;
    bool (*each)(void *arg, const json_t *line);
    void *arg;
};

static int agent_ledger_line(struct agent_ledger_walk *w, const char *line, size_t len,
                             struct err *err) {
    json_t *object = json_loadb(line, len, JSON_REJECT_DUPLICATES, NULL);
    const char *said = json_string_value(json_object_get(object, "prev"));
    int rc = 0;
    w->number++;
    if (said == NULL || strcmp(said, w->prev) != 0)
        rc = err_set(err, ERR_PROTOCOL, 0,
                     "line %zu of the journal of costs does not follow the one before it: it was "
                     "changed, or one is missing",
                     w->number);
    else if (w->more && w->each != NULL)
        w->more = w->each(w->arg, object);
    agent_ledger_hash(line, len, w->prev);
    json_decref(object);
    return rc;
}

int agent_ledger_read(int dir, const char *file, bool (*each)(void *arg, const json_t *line),
                      void *arg, struct err *err) {
    struct agent_ledger_walk w = {
        .prev = AGENT_LEDGER_FIRST, .more = true, .each = each, .arg = arg};
    struct buf text;
    struct err why;
    int rc;
    err_clear(&why);
    buf_init(&text, AGENT_LEDGER_FILE_MAX);
    rc = fd_read_file(dir, file, &text, &why);
    if (rc < 0) {
        buf_done(&text);
        if (why.code == ENOENT)
            return 0;
        return err_set(err, why.kind, why.code, "%s", why.text);
    }
    const char *at = text.data != NULL ? text.data : "", *end = at + text.len;
    while (rc == 0 && at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (stop == NULL)
            break; /* a half line: nobody was told of it */
        rc = agent_ledger_line(&w, at, (size_t)(stop - at), err);
        at = stop + 1;
    }
    buf_done(&text);
    return rc;
}

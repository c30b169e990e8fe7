#include "auth.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>

#include "buf.h"
#include "fd.h"
#include "state.h"

#define AUTH_FILE_MAX ((size_t)1024 * 1024)

static bool auth_same(const struct stat *a, const struct stat *b) {
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
           a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static int auth_read(struct auth *a, struct err *err) {
    struct token_list fresh;
    struct buf text;
    buf_init(&text, AUTH_FILE_MAX);
    int rc = fd_read_file(AT_FDCWD, STATE_TOKENS, &text, err);
    if (rc == 0)
        rc = token_list_parse(text.data != NULL ? text.data : "", text.len, &fresh, err);
    buf_done(&text);
    if (rc < 0)
        return -1;
    token_list_done(&a->tokens);
    a->tokens = fresh;
    a->loaded = true;
    return 0;
}

static void auth_refresh(struct auth *a) {
    struct stat now;
    struct err err;
    err_clear(&err);
    if (stat(STATE_TOKENS, &now) < 0)
        memset(&now, 0, sizeof(now));
    if (auth_same(&now, &a->seen))
        return;
    a->seen = now;
    if (auth_read(a, &err) == 0)
        return;
    token_list_done(&a->tokens);
    memset(&a->tokens, 0, sizeof(a->tokens));
    log_err(a->log, LOG_ERROR, "tokens_unreadable", &err);
}

int auth_start(struct auth *a, struct log *log, struct err *err) {
    memset(a, 0, sizeof(*a));
    a->log = log;
    if (stat(STATE_TOKENS, &a->seen) < 0)
        return err_sys(err, "reading " STATE_TOKENS " (pinfold-server init makes it)");
    return auth_read(a, err);
}

void auth_stop(struct auth *a) {
    token_list_done(&a->tokens);
    memset(&a->tokens, 0, sizeof(a->tokens));
}

const char *auth_bearer(const char *header) {
    static const char scheme[] = "Bearer ";
    if (header == NULL || strncasecmp(header, scheme, sizeof(scheme) - 1) != 0)
        return NULL;
    const char *token = header + sizeof(scheme) - 1;
    return token_is_form(token, strlen(token)) ? token : NULL;
}

const struct token_record *auth_check(struct auth *a, const char *header) {
    auth_refresh(a);
    const char *token = auth_bearer(header);
    return token != NULL ? token_list_find(&a->tokens, token, strlen(token)) : NULL;
}

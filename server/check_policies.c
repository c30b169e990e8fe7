#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buf.h"
#include "check.h"
#include "fd.h"
#include "json_memory.h"
#include "str.h"

#define CHECK_POLICY_MAX ((size_t)1024 * 1024)
#define CHECK_POLICIES "/etc/pinfold/policies"

/* The runner takes ceilings only from what nobody but root can have written. */
static int check_policy_owner(int fd, const char *path, struct err *err) {
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_sys(err, "cannot inspect %s", path);
    if (st.st_uid != 0 && st.st_uid != geteuid())
        return err_set(err, ERR_INVALID, 0, "%s belongs to user %u and must be root's", path,
                       (unsigned)st.st_uid);
    if ((st.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return err_set(err, ERR_INVALID, 0, "%s can be written by others; chmod go-w it", path);
    return 0;
}

static int check_policy_text(const char *path, const char *name, const struct buf *text,
                             struct err *err) {
    json_error_t wrong;
    json_t *root = json_memory_load(text->data != NULL ? text->data : "", text->len,
                                    JSON_REJECT_DUPLICATES, &wrong);
    if (root == NULL)
        return err_set(err, ERR_INVALID, 0, "%s line %d is not JSON: %s", path, wrong.line,
                       wrong.text);
    const char *says = json_string_value(json_object_get(root, "name"));
    int rc = 0;
    if (says == NULL || strlen(says) + 5 != strlen(name) || strncmp(says, name, strlen(says)) != 0)
        rc = err_set(err, ERR_INVALID, 0, "%s: /name must be the file's name without .json", path);
    json_decref(root);
    return rc;
}

static int check_policy(int dir, const char *where, const char *name, struct err *err) {
    char path[STATE_PATH_MAX + 300];
    struct buf text;
    snprintf(path, sizeof(path), "%s/%s", where, name);
    fd_cleanup int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, "cannot open %s", path);
    if (check_policy_owner(fd, path, err) < 0)
        return -1;
    buf_init(&text, CHECK_POLICY_MAX);
    int rc = fd_read_file(dir, name, &text, err);
    if (rc == 0)
        rc = check_policy_text(path, name, &text, err);
    buf_done(&text);
    return rc;
}

static bool check_is_policy(const char *name) {
    size_t len = strlen(name);
    return len > 5 && strcmp(name + len - 5, ".json") == 0 && name[0] != '.';
}

/* STATE/policies is where `make up` puts them. */
static const char *check_policies_where(const struct check *c, char path[STATE_PATH_MAX]) {
    struct stat st;
    if (c->policies != NULL)
        return c->policies;
    int n = snprintf(path, STATE_PATH_MAX, "%s/policies", c->config->state);
    if (n < STATE_PATH_MAX && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return path;
    return CHECK_POLICIES;
}

void check_policies(struct check *c) {
    char path[STATE_PATH_MAX];
    const char *where = check_policies_where(c, path);
    struct err err;
    err_clear(&err);
    fd_cleanup int fd = open(where, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        err_sys(&err, "cannot open the directory %s", where);
        check_err(c, CHECK_FAIL, "policies", &err);
        return;
    }
    if (check_policy_owner(fd, where, &err) < 0)
        check_err(c, CHECK_FAIL, "policies", &err);
    DIR *dir = fdopendir(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    unsigned good = 0, all = 0;
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        if (!check_is_policy(e->d_name))
            continue;
        all++;
        err_clear(&err);
        if (check_policy(fd, where, e->d_name, &err) < 0)
            check_err(c, CHECK_FAIL, "policies", &err);
        else
            good++;
    }
    if (dir != NULL)
        closedir(dir);
    if (all == 0)
        check_say(c, CHECK_FAIL, "policies", "there is none in %s", where);
    else if (good == all)
        check_say(c, CHECK_OK, "policies", "%u in %s", good, where);
}

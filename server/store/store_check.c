#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store_internal.h"

int store_check(int dir, struct err *err) {
    struct store s = {.dir = dir};
    struct stat st;
    if (fstatat(dir, STORE_FILE, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : err_sys(err, "looking at the database " STORE_FILE);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID, 0, "the database " STORE_FILE " is not a file");
    if (faccessat(dir, STORE_FILE, R_OK | W_OK, AT_EACCESS) < 0)
        return err_sys(err, "the database " STORE_FILE " cannot be written");
    /* Immutable: neither a lock nor a file beside it is made, whoever else has it open. */
    snprintf(s.path, sizeof(s.path), "file:/proc/self/fd/%d/" STORE_FILE "?immutable=1", dir);
    int rc = sqlite3_open_v2(s.path, &s.db,
                             SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc != SQLITE_OK)
        rc = err_set(err, ERR_SYSTEM, 0, "opening the database: %s",
                     s.db != NULL ? sqlite3_errmsg(s.db) : "out of memory");
    else
        rc = store_migrate_check(&s, err);
    store_sql_done(&s);
    sqlite3_close(s.db);
    return rc;
}

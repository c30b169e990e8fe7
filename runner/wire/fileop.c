#include "fileop.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "bundle.h"

#define FILEOP_MODE_MAX 07777u
#define FILEOP_ERRNO_MAX 4095
#define FILEOP_EVENTS                                                                              \
    (FILEOP_CREATED | FILEOP_MODIFIED | FILEOP_DELETED | FILEOP_ATTRIBUTES | FILEOP_OVERFLOW)

const char *fileop_code_name(uint32_t code) {
    static const char *const names[FILEOP_CODES] = {
        [FILEOP_OK] = "ok",
        [FILEOP_NOT_FOUND] = "not_found",
        [FILEOP_DENIED] = "denied",
        [FILEOP_NOT_DIRECTORY] = "not_directory",
        [FILEOP_IS_DIRECTORY] = "is_directory",
        [FILEOP_NOT_REGULAR] = "not_regular",
        [FILEOP_EXISTS] = "exists",
        [FILEOP_NOT_EMPTY] = "not_empty",
        [FILEOP_LOOP] = "loop",
        [FILEOP_NAME_TOO_LONG] = "name_too_long",
        [FILEOP_NO_SPACE] = "no_space",
        [FILEOP_TOO_LARGE] = "too_large",
        [FILEOP_CHANGED] = "changed",
        [FILEOP_CROSS_DEVICE] = "cross_device",
        [FILEOP_INVALID] = "invalid",
        [FILEOP_UNSUPPORTED] = "unsupported",
        [FILEOP_BUSY] = "busy",
        [FILEOP_IO] = "io",
    };
    return code < FILEOP_CODES ? names[code] : NULL;
}

const char *fileop_kind_name(uint32_t kind) {
    static const char *const names[FILEOP_KINDS] = {
        [FILEOP_FILE] = "file",       [FILEOP_DIRECTORY] = "directory",
        [FILEOP_SYMLINK] = "symlink", [FILEOP_HARDLINK] = "hardlink",
        [FILEOP_FIFO] = "fifo",       [FILEOP_SOCKET] = "socket",
        [FILEOP_DEVICE] = "device",   [FILEOP_WHITEOUT] = "whiteout",
    };
    return kind < FILEOP_KINDS ? names[kind] : NULL;
}

enum fileop_code fileop_code_of_errno(int code) {
    static const struct {
        int code;
        enum fileop_code means;
    } rows[] = {
        {0, FILEOP_OK},
        {ENOENT, FILEOP_NOT_FOUND},
        {EACCES, FILEOP_DENIED},
        {EPERM, FILEOP_DENIED},
        {EROFS, FILEOP_DENIED},
        {ENOTDIR, FILEOP_NOT_DIRECTORY},
        {EISDIR, FILEOP_IS_DIRECTORY},
        {ENXIO, FILEOP_NOT_REGULAR}, /* open(2) of a FIFO without a reader, of a socket */
        {ENODEV, FILEOP_NOT_REGULAR},
        {EEXIST, FILEOP_EXISTS},
        {ENOTEMPTY, FILEOP_NOT_EMPTY},
        {ELOOP, FILEOP_LOOP},
        {ENAMETOOLONG, FILEOP_NAME_TOO_LONG},
        {ENOSPC, FILEOP_NO_SPACE},
        {EDQUOT, FILEOP_NO_SPACE},
        {EFBIG, FILEOP_TOO_LARGE},
        {EOVERFLOW, FILEOP_TOO_LARGE},
        {EMLINK, FILEOP_TOO_LARGE},
        {ESTALE, FILEOP_CHANGED},
        {EXDEV, FILEOP_CROSS_DEVICE},
        {EINVAL, FILEOP_INVALID},
        {EILSEQ, FILEOP_INVALID},
        {EPROTO, FILEOP_INVALID},
        {ENOTSUP, FILEOP_UNSUPPORTED},
        {ENOSYS, FILEOP_UNSUPPORTED},
        {EBUSY, FILEOP_BUSY},
        {ETXTBSY, FILEOP_BUSY},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].code == code)
            return rows[i].means;
    }
    return FILEOP_IO;
}

/* What a type of record may have besides magic and type. */
struct fileop_form {
    const char *wrong;
    uint32_t flags;
    bool entry; /* kind, mode, nlink, size, inode, times, target */
    bool kind;
    bool code;
    bool data;
    uint32_t path_min, path_max;
};

static const struct fileop_form *fileop_form_of(uint32_t type) {
    static const struct fileop_form forms[] = {
        [FILEOP_ENTRY] = {.wrong = "an entry record is out of bounds",
                          .flags = FILEOP_CONTENT | FILEOP_OPAQUE | FILEOP_CREATED,
                          .entry = true,
                          .kind = true,
                          .path_max = FILEOP_PATH_MAX},
        [FILEOP_DATA] = {.wrong = "a data record is out of bounds", .data = true},
        [FILEOP_NAME] = {.wrong = "a name record is out of bounds",
                         .path_min = 1,
                         .path_max = FILEOP_PATH_MAX},
        [FILEOP_REMOVE] = {.wrong = "a remove record is out of bounds",
                           .path_min = 1,
                           .path_max = FILEOP_PATH_MAX},
        [FILEOP_EVENT] = {.wrong = "an event record is out of bounds",
                          .flags = FILEOP_EVENTS,
                          .kind = true,
                          .path_max = FILEOP_PATH_MAX},
        [FILEOP_ERROR] = {.wrong = "an error record is out of bounds",
                          .code = true,
                          .path_max = FILEOP_PATH_MAX},
        [FILEOP_END] = {.wrong = "an end record is not empty", .flags = FILEOP_MORE},
    };
    return type >= FILEOP_ENTRY && type <= FILEOP_END ? &forms[type] : NULL;
}

static bool fileop_entry_fits(const struct fileop_record *rec) {
    bool link = rec->kind == FILEOP_SYMLINK || rec->kind == FILEOP_HARDLINK;
    if (rec->kind == FILEOP_NONE || rec->mode > FILEOP_MODE_MAX || rec->size > INT64_MAX)
        return false;
    if (link != (rec->target_len > 0) || rec->target_len > FILEOP_TARGET_MAX)
        return false;
    if ((rec->flags & FILEOP_CONTENT) && rec->kind != FILEOP_FILE)
        return false;
    return !(rec->flags & FILEOP_OPAQUE) || rec->kind == FILEOP_DIRECTORY;
}

static bool fileop_fits(const struct fileop_record *rec, const struct fileop_form *form) {
    if ((rec->flags & ~form->flags) || rec->path_len < form->path_min ||
        rec->path_len > form->path_max || rec->data_len > (form->data ? FILEOP_DATA_MAX : 0))
        return false;
    if (form->code) {
        if (!rec->code || rec->code >= FILEOP_CODES || rec->sys < 0 || rec->sys > FILEOP_ERRNO_MAX)
            return false;
    } else if (rec->code || rec->sys) {
        return false;
    }
    if (form->kind ? rec->kind >= FILEOP_KINDS : rec->kind != FILEOP_NONE)
        return false;
    if (form->entry)
        return fileop_entry_fits(rec);
    if (rec->type == FILEOP_EVENT && !rec->flags)
        return false;
    return !rec->mode && !rec->nlink && !rec->size && !rec->inode && !rec->mtime_ns &&
           !rec->ctime_ns && !rec->target_len;
}

int fileop_check(const struct fileop_record *rec, struct err *err) {
    if (rec->magic != FILEOP_MAGIC)
        return err_plain(err, ERR_PROTOCOL, 0, "a record does not start like one");
    const struct fileop_form *form = fileop_form_of(rec->type);
    if (!form)
        return err_plain(err, ERR_PROTOCOL, 0, "a record has an unknown type");
    if (rec->reserved)
        return err_plain(err, ERR_PROTOCOL, 0, "a record has reserved bytes that are not zero");
    return fileop_fits(rec, form) ? 0 : err_plain(err, ERR_PROTOCOL, 0, form->wrong);
}

size_t fileop_size(const struct fileop_record *rec) {
    return sizeof(*rec) + rec->path_len + rec->target_len;
}

/* The target of a symbolic link may be any text. */
static bool fileop_names_fit(const struct fileop_record *rec, const char *path,
                             const char *target) {
    if (rec->path_len && !bundle_path_ok(path, rec->path_len))
        return false;
    if (rec->kind == FILEOP_HARDLINK)
        return bundle_path_ok(target, rec->target_len);
    return !rec->target_len || !memchr(target, '\0', rec->target_len);
}

int fileop_take(const char *bytes, size_t len, struct fileop_record *rec, const char **path,
                const char **target, struct err *err) {
    struct fileop_record r;
    if (len < sizeof(r))
        return 0;
    memcpy(&r, bytes, sizeof(r));
    if (fileop_check(&r, err) < 0)
        return -1;
    if (len < fileop_size(&r))
        return 0;
    const char *p = bytes + sizeof(r);
    if (!fileop_names_fit(&r, p, p + r.path_len))
        return err_plain(err, ERR_PROTOCOL, 0, "a record has a path that is not safe");
    *rec = r;
    *path = p;
    *target = p + r.path_len;
    return 1;
}

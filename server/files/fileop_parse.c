#include "fileop_parse.h"

#include <stdlib.h>
#include <string.h>

void fileop_parse_init(struct fileop_parse *p) {
    memset(p, 0, sizeof(*p));
}

void fileop_parse_done(struct fileop_parse *p) {
    free(p->bytes);
    p->bytes = NULL;
}

char *fileop_parse_space(struct fileop_parse *p, size_t *room) {
    if (p->bytes == NULL) {
        p->bytes = malloc(FILEOP_PARSE_SIZE);
        if (p->bytes == NULL)
            return NULL;
    }
    /* What is left is the beginning of one record at most, which fits. */
    if (p->at > 0) {
        memmove(p->bytes, p->bytes + p->at, p->end - p->at);
        p->end -= p->at;
        p->at = 0;
    }
    *room = FILEOP_PARSE_SIZE - p->end;
    return p->bytes + p->end;
}

void fileop_parse_add(struct fileop_parse *p, size_t len) {
    p->end += len;
}

/* What of the current DATA record is there. */
static size_t fileop_parse_now(const struct fileop_parse *p) {
    size_t there = p->end - p->at;
    return there < p->data_left ? there : p->data_left;
}

static int fileop_parse_data(struct fileop_parse *p, struct fileop_item *item) {
    size_t len = fileop_parse_now(p);
    if (len == 0)
        return 0;
    *item = (struct fileop_item){
        .rec = {.magic = FILEOP_MAGIC, .type = FILEOP_DATA, .data_len = (uint32_t)len},
        .path = "",
        .target = "",
        .data = p->bytes + p->at};
    p->at += len;
    p->data_left -= (uint32_t)len;
    return 1;
}

/* Does a record of this type have its place here? */
static int fileop_parse_order(const struct fileop_parse *p, const struct fileop_record *rec,
                              struct err *err) {
    bool last = rec->type == FILEOP_END || (rec->type == FILEOP_ERROR && rec->path_len == 0);
    switch (rec->type) {
    case FILEOP_DATA:
        if (!p->contents)
            return err_plain(err, ERR_PROTOCOL, 0, "contents came without a file");
        return 0;
    case FILEOP_ENTRY:
    case FILEOP_EVENT:
    case FILEOP_ERROR:
    case FILEOP_END:
        if (p->contents && (!last || rec->type == FILEOP_END))
            return err_plain(err, ERR_PROTOCOL, 0, "the contents of a file have no end");
        return 0;
    default:
        return err_plain(err, ERR_PROTOCOL, 0, "a record came that is no answer");
    }
}

int fileop_parse_next(struct fileop_parse *p, struct fileop_item *item, struct err *err) {
    const char *path, *target;
    struct fileop_record rec;
    if (p->over)
        return 0;
    if (p->data_left > 0)
        return fileop_parse_data(p, item);
    int rc = p->end == p->at
                 ? 0
                 : fileop_take(p->bytes + p->at, p->end - p->at, &rec, &path, &target, err);
    if (rc <= 0)
        return rc;
    if (fileop_parse_order(p, &rec, err) < 0)
        return -1;
    memcpy(p->path, path, rec.path_len);
    p->path[rec.path_len] = '\0';
    memcpy(p->target, target, rec.target_len);
    p->target[rec.target_len] = '\0';
    p->at += fileop_size(&rec);
    if (rec.type == FILEOP_DATA && rec.data_len > 0) {
        p->data_left = rec.data_len;
        return fileop_parse_data(p, item);
    }
    if (rec.type == FILEOP_DATA)
        p->contents = false;
    if (rec.type == FILEOP_ENTRY)
        p->contents = (rec.flags & FILEOP_CONTENT) != 0;
    p->over = rec.type == FILEOP_END || (rec.type == FILEOP_ERROR && rec.path_len == 0);
    *item = (struct fileop_item){.rec = rec, .path = p->path, .target = p->target, .data = ""};
    return 1;
}

enum fileop_parse_head fileop_parse_head(struct fileop_parse *p) {
    const char *path, *target;
    struct fileop_record rec;
    if (p->over || !p->contents)
        return FILEOP_PARSE_OTHER;
    int rc = p->end == p->at
                 ? 0
                 : fileop_take(p->bytes + p->at, p->end - p->at, &rec, &path, &target, NULL);
    if (rc == 0)
        return FILEOP_PARSE_MORE;
    if (rc < 0 || rec.type != FILEOP_DATA)
        return FILEOP_PARSE_OTHER;
    p->at += fileop_size(&rec);
    p->data_left = rec.data_len;
    p->contents = rec.data_len > 0;
    return p->contents ? FILEOP_PARSE_DATA : FILEOP_PARSE_END;
}

size_t fileop_parse_contents(struct fileop_parse *p, char *data, size_t size) {
    size_t len = fileop_parse_now(p);
    if (len > size)
        len = size;
    if (len == 0)
        return 0;
    memcpy(data, p->bytes + p->at, len);
    fileop_parse_took(p, len);
    return len;
}

const char *fileop_parse_there(const struct fileop_parse *p, size_t *len) {
    *len = fileop_parse_now(p);
    return *len > 0 ? p->bytes + p->at : NULL;
}

void fileop_parse_took(struct fileop_parse *p, size_t len) {
    p->at += len;
    p->data_left -= (uint32_t)len;
}

void fileop_parse_skip(struct fileop_parse *p, size_t len) {
    p->data_left -= (uint32_t)len;
}

#include "file_json.h"

#include <stdio.h>
#include <string.h>

#include "text.h"

void file_json_name(struct json_out *j, const char *key, const char *key_base64, const char *name) {
    size_t len = strlen(name);
    if (text_is_utf8(name, len)) {
        json_out_str(j, key, name);
        return;
    }
    json_out_raw(j, key_base64);
    if (j->failed)
        return;
    if (buf_puts(j->buf, "\"", &j->err) < 0 || text_base64_encode(name, len, j->buf, &j->err) < 0 ||
        buf_puts(j->buf, "\"", &j->err) < 0)
        j->failed = true;
}

int64_t file_json_ms(int64_t ns) {
    int64_t ms = ns / 1000000;
    return ns % 1000000 < 0 ? ms - 1 : ms;
}

void file_json_entry(struct json_out *j, const struct fileop_record *rec, const char *path,
                     const char *target) {
    const char *type = fileop_kind_name(rec->kind);
    char mode[8];
    snprintf(mode, sizeof(mode), "%04o", rec->mode & 07777u);
    json_out_open(j, NULL, '{');
    file_json_name(j, "path", "path_base64", path);
    json_out_str(j, "type", type != NULL ? type : "unknown");
    json_out_str(j, "mode", mode);
    json_out_u64(j, "size", rec->size);
    json_out_i64(j, "mtime_ms", file_json_ms(rec->mtime_ns));
    json_out_u64(j, "inode", rec->inode);
    json_out_u64(j, "nlink", rec->nlink);
    if (target[0] != '\0')
        file_json_name(j, "target", "target_base64", target);
    json_out_close(j, '}');
}

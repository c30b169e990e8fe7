#include "audit_command.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "audit_file.h"
#include "fd.h"
#include "json_out.h"
#include "str.h"

#define AUDIT_COMMAND_LOCK "audit.cmd.lock"

static int audit_command_lock(int server_dir, struct err *err) {
    fd_cleanup int fd =
        openat(server_dir, AUDIT_COMMAND_LOCK, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(err, "cannot open server/" AUDIT_COMMAND_LOCK);
    if (audit_file_give(fd, server_dir, err) < 0)
        return -1;
    if (flock(fd, LOCK_EX) < 0)
        return err_sys(err, "cannot lock server/" AUDIT_COMMAND_LOCK);
    return fd_steal(&fd);
}

/* Who it was, as far as that can be told: the kernel remembers who logged in, and sudo leaves a
 * name. The process itself may have become the server's user already. */
static void audit_command_who(struct json_out *j) {
    const char *sudo = getenv("SUDO_USER");
    struct buf text;
    uint64_t login;
    buf_init(&text, 64);
    if (fd_read_file(AT_FDCWD, "/proc/self/loginuid", &text, NULL) == 0 && text.len > 0 &&
        str_u64(text.data, 0, UINT32_MAX - 1, &login, NULL) == 0)
        json_out_u64(j, "login_uid", login);
    buf_done(&text);
    json_out_u64(j, "uid", getuid());
    if (sudo != NULL && str_is_name(sudo))
        json_out_str(j, "sudo_user", sudo);
}

static int audit_command_append(struct audit_log *l, int server_dir, const struct buf *fields,
                                const struct receipt_key *key, struct err *err) {
    char head[AUDIT_LOG_HEAD_SIZE];
    if (audit_log_add(l, fields, err) < 0 || audit_log_write(l, err) < 0 ||
        audit_log_sync(l->fd, err) < 0)
        return -1;
    audit_log_head_text(l->chain, &l->written, key, head);
    return audit_log_head_write(server_dir, l->chain, head, err);
}

static int audit_command_write(int server_dir, const struct buf *fields,
                               const struct receipt_key *key, struct err *err) {
    struct audit_log log;
    struct audit_log_found found;
    fd_cleanup int lock = audit_command_lock(server_dir, err);
    if (lock < 0 || audit_log_open(&log, server_dir, AUDIT_LOG_COMMANDS, &found, err) < 0)
        return -1;
    int rc = audit_command_append(&log, server_dir, fields, key, err);
    audit_log_close(&log);
    return rc;
}

int audit_command_record(int server_dir, const char *command, const char *subject,
                         struct err *err) {
    struct receipt_key key;
    struct json_out j;
    struct buf fields;
    if (receipt_key_open(server_dir, &key, NULL, err) < 0)
        return -1;
    buf_init(&fields, AUDIT_LINE_MAX);
    json_out_init(&j, &fields);
    json_out_str(&j, "type", "command");
    json_out_str(&j, "command", command);
    if (subject != NULL)
        json_out_str(&j, "subject", subject);
    audit_command_who(&j);
    int rc = json_out_end(&j, err);
    if (rc == 0)
        rc = audit_command_write(server_dir, &fields, &key, err);
    buf_done(&fields);
    receipt_key_wipe(&key);
    return rc;
}

int audit_command_pruned(int server_dir, const struct audit_mark *through, uint64_t first,
                         struct err *err) {
    char message[AUDIT_LINE_MESSAGE_MAX], signature[2 * RECEIPT_SIGNATURE_SIZE + 1], hash[65];
    struct receipt_key key;
    struct json_out j;
    struct buf fields;
    if (receipt_key_load(server_dir, &key, err) < 0)
        return -1;
    size_t len = audit_line_message(AUDIT_LOG_SERVER, through, true, message);
    receipt_key_sign(&key, message, len, signature);
    receipt_hex(through->hash, sizeof(through->hash), hash);
    buf_init(&fields, AUDIT_LINE_MAX);
    json_out_init(&j, &fields);
    json_out_str(&j, "type", "pruned");
    json_out_u64(&j, "first", first);
    json_out_u64(&j, "through", through->seq);
    json_out_str(&j, "through_hash", hash);
    json_out_str(&j, "key", key.id);
    json_out_str(&j, "signature", signature);
    audit_command_who(&j);
    int rc = json_out_end(&j, err);
    if (rc == 0)
        rc = audit_command_write(server_dir, &fields, &key, err);
    buf_done(&fields);
    receipt_key_wipe(&key);
    return rc;
}

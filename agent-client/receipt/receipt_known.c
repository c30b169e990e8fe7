#include "receipt_known.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fd.h"
#include "local_file.h"
#include "state_dir.h"
#include "str.h"

#define RECEIPT_KNOWN_DIR "receipt-keys"
#define RECEIPT_KNOWN_NAME_SIZE 96
#define RECEIPT_KNOWN_FILE_MAX ((size_t)4096)

int receipt_known_read(const char *text, struct receipt_public *out, struct err *err) {
    struct buf file;
    int rc;
    if (receipt_key_parse(text, strlen(text), out, NULL) == 0)
        return 0;
    buf_init(&file, RECEIPT_KNOWN_FILE_MAX);
    rc = local_file_read(text, &file, NULL, err);
    if (rc == 0)
        rc = receipt_key_parse(file.data != NULL ? file.data : "", file.len, out, err);
    buf_done(&file);
    return rc;
}

/* Its host for people, and a digest, because two addresses may look alike when cut. */
static void receipt_known_name(const char *url, char name[RECEIPT_KNOWN_NAME_SIZE]) {
    const char *host = strstr(url, "://");
    uint8_t hash[crypto_hash_sha256_BYTES];
    char hex[17];
    size_t n = 0;
    for (host = host != NULL ? host + 3 : url; *host != '\0' && n < 64; host++)
        name[n++] = isalnum((unsigned char)*host) || strchr(".-", *host) != NULL ? *host : '_';
    crypto_hash_sha256(hash, (const unsigned char *)url, strlen(url));
    receipt_hex(hash, 8, hex);
    snprintf(name + n, RECEIPT_KNOWN_NAME_SIZE - n, "_%s.key", hex);
}

static int receipt_known_load(int dir, const char *name, struct receipt_public *out,
                              struct err *err) {
    struct buf text;
    int rc;
    buf_init(&text, RECEIPT_KNOWN_FILE_MAX);
    rc = fd_read_file(dir, name, &text, err);
    if (rc == 0)
        rc = receipt_key_parse(text.data != NULL ? text.data : "", text.len, out, err);
    buf_done(&text);
    return rc;
}

int receipt_known_find(const char *url, struct receipt_public *out, char path[PATH_MAX],
                       struct err *err) {
    char name[RECEIPT_KNOWN_NAME_SIZE], shown[PATH_MAX];
    int dir = state_dir_open(RECEIPT_KNOWN_DIR, true, err), rc;
    if (dir < 0)
        return -1;
    receipt_known_name(url, name);
    state_dir_show(dir, name, shown);
    if (path != NULL)
        str_copy(path, PATH_MAX, shown);
    if (faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT) {
        close(dir);
        return 0;
    }
    rc = receipt_known_load(dir, name, out, err);
    close(dir);
    return rc < 0 ? err_wrap(err, "%.300s", shown) : 1;
}

int receipt_known_keep(const char *url, const struct receipt_public *key, struct err *err) {
    char name[RECEIPT_KNOWN_NAME_SIZE], fresh[RECEIPT_KNOWN_NAME_SIZE + 24];
    char hex[2 * RECEIPT_PUBLIC_SIZE + 1], line[sizeof(hex) + 1];
    struct receipt_public other;
    int dir = state_dir_open(RECEIPT_KNOWN_DIR, true, err), rc;
    if (dir < 0)
        return -1;
    receipt_known_name(url, name);
    snprintf(fresh, sizeof(fresh), "%s.%ld", name, (long)getpid());
    receipt_hex(key->bytes, sizeof(key->bytes), hex);
    snprintf(line, sizeof(line), "%s\n", hex);
    rc = fd_write_atomic(dir, fresh, line, strlen(line), 0600, err);
    /* A link never takes the place of one that is there. */
    if (rc == 0 && linkat(dir, fresh, dir, name, 0) < 0)
        rc = errno == EEXIST ? receipt_known_load(dir, name, &other, err)
                             : err_sys(err, "keeping the key of the server's receipts");
    else if (rc == 0)
        other = *key;
    (void)unlinkat(dir, fresh, 0);
    close(dir);
    if (rc == 0 && memcmp(&other, key, sizeof(other)) != 0)
        rc = err_set(err, ERR_STATE, 0, "another key of this server became known meanwhile");
    return rc;
}

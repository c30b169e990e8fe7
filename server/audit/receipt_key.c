#include "receipt_key.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit_file.h"
#include "fd.h"

#define RECEIPT_KEY_TEXT (2 * crypto_sign_SEEDBYTES)

static void receipt_key_of_seed(const unsigned char *seed, struct receipt_key *out) {
    crypto_sign_seed_keypair(out->public.bytes, out->secret, seed);
    receipt_key_id(&out->public, out->id);
}

int receipt_key_load(int dir, struct receipt_key *out, struct err *err) {
    unsigned char seed[crypto_sign_SEEDBYTES];
    char text[RECEIPT_KEY_TEXT + 2];
    struct stat st;
    fd_cleanup int fd =
        openat(dir, RECEIPT_KEY_FILE, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (sodium_init() < 0)
        return err_set(err, ERR_SYSTEM, 0, "libsodium does not start");
    if (fd < 0)
        return err_sys(err, "cannot open the key of the receipts, server/" RECEIPT_KEY_FILE);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID, 0, "server/" RECEIPT_KEY_FILE " is not a regular file");
    ssize_t n = read(fd, text, sizeof(text));
    int rc = n == RECEIPT_KEY_TEXT + 1 && text[n - 1] == '\n' ? 0 : -1;
    if (rc == 0) {
        text[RECEIPT_KEY_TEXT] = '\0';
        rc = receipt_unhex(text, seed, sizeof(seed));
    }
    if (rc == 0)
        receipt_key_of_seed(seed, out);
    else
        err_set(err, ERR_INVALID, 0, "server/" RECEIPT_KEY_FILE " holds no key (64 hex digits)");
    sodium_memzero(seed, sizeof(seed));
    sodium_memzero(text, sizeof(text));
    return rc;
}

static int receipt_key_make(int dir, struct err *err) {
    unsigned char seed[crypto_sign_SEEDBYTES];
    char text[RECEIPT_KEY_TEXT + 2];
    randombytes_buf(seed, sizeof(seed));
    receipt_hex(seed, sizeof(seed), text);
    text[RECEIPT_KEY_TEXT] = '\n';
    int rc = audit_file_write(dir, RECEIPT_KEY_FILE, text, RECEIPT_KEY_TEXT + 1, err);
    sodium_memzero(seed, sizeof(seed));
    sodium_memzero(text, sizeof(text));
    return rc;
}

int receipt_key_open(int dir, struct receipt_key *out, bool *made, struct err *err) {
    struct stat st;
    bool missing = fstatat(dir, RECEIPT_KEY_FILE, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
    if (sodium_init() < 0)
        return err_set(err, ERR_SYSTEM, 0, "libsodium does not start");
    if (missing && receipt_key_make(dir, err) < 0)
        return -1;
    if (receipt_key_load(dir, out, err) < 0)
        return -1;
    if (made != NULL)
        *made = missing;
    return 0;
}

void receipt_key_wipe(struct receipt_key *key) {
    sodium_memzero(key->secret, sizeof(key->secret));
}

void receipt_key_sign(const struct receipt_key *key, const void *message, size_t len,
                      char hex[129]) {
    unsigned char signature[crypto_sign_BYTES];
    crypto_sign_detached(signature, NULL, message, len, key->secret);
    receipt_hex(signature, sizeof(signature), hex);
}

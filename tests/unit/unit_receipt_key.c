/* The server's key: its file, and signatures. */
#include "receipt_key.h"

#include <sodium.h>

#include "audit_dir.h"

static void check(const struct receipt_key *key, const char *message, const char *hex) {
    uint8_t signature[64];
    assert_int_equal(receipt_unhex(hex, signature, sizeof(signature)), 0);
    assert_int_equal(crypto_sign_verify_detached(signature, (const unsigned char *)message,
                                                 strlen(message), key->public.bytes),
                     0);
}

/* From the key and the message alone: no number is drawn that a copy of the process could use for
 * another message. */
static void test_a_signature_depends_on_nothing_else(void **state) {
    (void)state;
    for (int k = 0; k < 20; k++) {
        struct audit_dir d;
        char first[129], second[129], other[129];
        audit_dir_init(&d);
        receipt_key_sign(&d.key, "message", 7, first);
        receipt_key_sign(&d.key, "message", 7, second);
        receipt_key_sign(&d.key, "massage", 7, other);
        check(&d.key, "message", first);
        check(&d.key, "massage", other);
        assert_string_equal(first, second);
        assert_memory_not_equal(first, other, 64);
        audit_dir_done(&d);
    }
}

static void test_the_key_stays(void **state) {
    (void)state;
    struct audit_dir d;
    struct receipt_key again;
    struct stat st;
    struct err err;
    bool made = true;
    audit_dir_init(&d);
    unit_works(receipt_key_open(d.fd, &again, &made, &err), err);
    assert_false(made);
    assert_memory_equal(again.secret, d.key.secret, sizeof(again.secret));
    assert_int_equal(fstatat(d.fd, RECEIPT_KEY_FILE, &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    audit_dir_done(&d);
}

static void test_what_is_no_key_is_not_touched(void **state) {
    (void)state;
    static const char *const texts[] = {"", "x", "00\n", "zz"};
    struct audit_dir d;
    struct receipt_key key;
    struct err err;
    audit_dir_init(&d);
    for (size_t i = 0; i < UNIT_COUNT(texts); i++) {
        struct buf b;
        int fd = openat(d.fd, RECEIPT_KEY_FILE, O_WRONLY | O_TRUNC);
        assert_int_equal(write(fd, texts[i], strlen(texts[i])), (ssize_t)strlen(texts[i]));
        close(fd);
        unit_fails(receipt_key_open(d.fd, &key, NULL, &err), err, ERR_INVALID);
        buf_init(&b, 100);
        assert_int_equal(fd_read_file(d.fd, RECEIPT_KEY_FILE, &b, NULL), 0);
        assert_string_equal(b.data != NULL ? b.data : "", texts[i]);
        buf_done(&b);
    }
    assert_int_equal(unlinkat(d.fd, RECEIPT_KEY_FILE, 0), 0);
    assert_int_equal(symlinkat("/dev/null", d.fd, RECEIPT_KEY_FILE), 0);
    unit_fails(receipt_key_open(d.fd, &key, NULL, &err), err, ERR_SYSTEM);
    audit_dir_done(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_signature_depends_on_nothing_else),
        cmocka_unit_test(test_the_key_stays),
        cmocka_unit_test(test_what_is_no_key_is_not_touched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

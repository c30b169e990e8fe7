/* The server's key: its file, and that signatures in two halves are like any other. */
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

static void test_halves_make_signatures(void **state) {
    (void)state;
    for (int k = 0; k < 20; k++) {
        struct audit_dir d;
        audit_dir_init(&d);
        for (int i = 0; i < 20; i++) {
            struct receipt_key_half half = {.ready = false};
            char hex[129], message[64];
            snprintf(message, sizeof(message), "message %d", i);
            receipt_key_sign(&d.key, message, strlen(message), hex);
            check(&d.key, message, hex);
            receipt_key_prepare(&d.key, &half);
            assert_true(half.ready);
            receipt_key_finish(&d.key, &half, message, strlen(message), hex);
            check(&d.key, message, hex);
        }
        audit_dir_done(&d);
    }
}

static void test_a_half_is_used_once(void **state) {
    (void)state;
    struct audit_dir d;
    struct receipt_key_half one = {.ready = false}, two = {.ready = false},
                            nothing = {.ready = false};
    char hex[129];
    audit_dir_init(&d);
    receipt_key_prepare(&d.key, &one);
    receipt_key_prepare(&d.key, &two);
    assert_memory_not_equal(one.number, two.number, 32);
    assert_memory_not_equal(one.point, two.point, 32);
    receipt_key_finish(&d.key, &one, "x", 1, hex);
    assert_false(one.ready);
    assert_memory_equal(one.number, nothing.number, 32);
    audit_dir_done(&d);
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
        cmocka_unit_test(test_halves_make_signatures),
        cmocka_unit_test(test_a_half_is_used_once),
        cmocka_unit_test(test_the_key_stays),
        cmocka_unit_test(test_what_is_no_key_is_not_touched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

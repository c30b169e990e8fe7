#include "image_check.h"

#include <stdlib.h>
#include <string.h>

#include "unit.h"

#define SEVENS "0707070707070707070707070707070707070707070707070707070707070707"

/* What a runner of this back end says of "host". */
static struct link_policy policy_of(enum backend backend, uint8_t fill) {
    struct link_policy policy = {.backend = backend, .any_image = true};
    memcpy(policy.head.name, "default", 8);
    memset(policy.host_sha256, fill, sizeof(policy.host_sha256));
    return policy;
}

static void refused(const struct link_policy *policy, const char *digest, const char *code) {
    struct api_error error = {0};
    uint8_t sha256[32] = {1};
    assert_int_equal(image_check(policy, "host", digest, sha256, &error), -1);
    assert_string_equal(error.code, code);
    assert_int_equal(sha256[0], 1); /* untouched */
}

static void test_native(void **state) {
    (void)state;
    static const uint8_t none[32];
    const struct link_policy policy = policy_of(BACKEND_NATIVE, 0);
    struct api_error error = {0};
    uint8_t sha256[32] = {1};
    assert_int_equal(image_check(&policy, "host", NULL, sha256, &error), 0);
    assert_memory_equal(sha256, none, sizeof(none));
    refused(&policy, "sha256:" SEVENS, "conflict");
}

static void test_engine(void **state) {
    (void)state;
    struct link_policy policy = policy_of(BACKEND_DOCKER, 7);
    struct api_error error = {0};
    uint8_t sha256[32] = {0};
    assert_int_equal(image_check(&policy, "host", NULL, sha256, &error), 0);
    assert_memory_equal(sha256, policy.host_sha256, sizeof(sha256));
    assert_int_equal(image_check(&policy, "host", "sha256:" SEVENS, sha256, &error), 0);
    refused(&policy, "sha256:17" SEVENS, "image_digest");
    policy.any_image = false;
    refused(&policy, NULL, "policy_image");
}

/* No image stands for "host" there. */
static void test_engine_without(void **state) {
    (void)state;
    const struct link_policy policy = policy_of(BACKEND_DOCKER, 0);
    refused(&policy, NULL, "unknown_image");
    refused(&policy, "sha256:" SEVENS, "unknown_image");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_native),
        cmocka_unit_test(test_engine),
        cmocka_unit_test(test_engine_without),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

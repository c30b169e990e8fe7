#include "auth.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buf.h"
#include "fd.h"
#include "state.h"
#include "unit.h"

static char token[TOKEN_TEXT_LEN + 1];

static void write_tokens(const char *text) {
    /* A new file each time, as whoever changes the list makes one. */
    struct err err = {0};
    unit_works(fd_write_atomic(AT_FDCWD, STATE_TOKENS, text, strlen(text), 0600, &err), err);
}

static void write_token(const char *name, bool admin) {
    char line[TOKEN_LINE_SIZE];
    struct err err = {0};
    struct token_record record = {.admin = admin};
    snprintf(record.name, sizeof(record.name), "%s", name);
    token_hash(token, TOKEN_TEXT_LEN, &record.hash);
    unit_works(token_record_format(&record, line, &err), err);
    write_tokens(line);
}

static int setup(void **state) {
    char dir[] = "/tmp/unit-auth-XXXXXX";
    struct err err = {0};
    (void)state;
    if (mkdtemp(dir) == NULL || chdir(dir) < 0 || mkdir(STATE_SERVER, 0700) < 0)
        return -1;
    return token_new(token, &err);
}

static int teardown(void **state) {
    char dir[256];
    (void)state;
    unlink(STATE_TOKENS);
    rmdir(STATE_SERVER);
    return getcwd(dir, sizeof(dir)) != NULL ? rmdir(dir) : -1;
}

static void test_form(void **state) {
    (void)state;
    char header[128];
    snprintf(header, sizeof(header), "Bearer %s", token);
    assert_string_equal(auth_bearer(header), token);
    snprintf(header, sizeof(header), "bearer %s", token);
    assert_string_equal(auth_bearer(header), token);
    static const char *const wrong[] = {"Bearer  %s", "Bearer %s ", "Bearer\t%s", "Basic %s",
                                        "%s",         " Bearer %s", "Bearer %s,", "Bearer %sx"};
    for (size_t i = 0; i < UNIT_COUNT(wrong); i++) {
        char *text = NULL;
        const char *at = strstr(wrong[i], "%s");
        assert_true(asprintf(&text, "%.*s%s%s", (int)(at - wrong[i]), wrong[i], token, at + 2) > 0);
        assert_null(auth_bearer(text));
        free(text);
    }
    assert_null(auth_bearer(NULL));
    assert_null(auth_bearer(""));
    assert_null(auth_bearer("Bearer"));
    assert_null(auth_bearer("Bearer "));
    assert_null(auth_bearer("Bearer x"));
}

static void test_list(void **state) {
    (void)state;
    struct auth a;
    struct log log;
    struct err err = {0};
    char header[128], other[TOKEN_TEXT_LEN + 1], wrong[128];
    log_init(&log, -1, LOG_ERROR, "unit");
    unit_works(token_new(other, &err), err);
    snprintf(header, sizeof(header), "Bearer %s", token);
    snprintf(wrong, sizeof(wrong), "Bearer %s", other);
    write_token("ann", true);
    unit_works(auth_start(&a, &log, &err), err);
    assert_string_equal(auth_check(&a, header)->name, "ann");
    assert_true(auth_check(&a, header)->admin);
    assert_null(auth_check(&a, wrong));
    assert_null(auth_check(&a, NULL));
    /* A change counts at once. */
    write_token("bob", false);
    assert_string_equal(auth_check(&a, header)->name, "bob");
    assert_false(auth_check(&a, header)->admin);
    write_tokens("# nobody\n");
    assert_null(auth_check(&a, header));
    write_token("ann", true);
    assert_non_null(auth_check(&a, header));
    /* What cannot be read lets nobody in. */
    write_tokens("not a list\n");
    assert_null(auth_check(&a, header));
    write_token("ann", true);
    assert_non_null(auth_check(&a, header));
    assert_int_equal(unlink(STATE_TOKENS), 0);
    assert_null(auth_check(&a, header));
    auth_stop(&a);
}

static void test_missing(void **state) {
    (void)state;
    struct auth a;
    struct log log;
    struct err err = {0};
    log_init(&log, -1, LOG_ERROR, "unit");
    unlink(STATE_TOKENS);
    unit_fails(auth_start(&a, &log, &err), err, ERR_SYSTEM);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_form),
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_missing),
    };
    return cmocka_run_group_tests_name("auth", tests, setup, teardown);
}

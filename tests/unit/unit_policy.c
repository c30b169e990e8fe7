/* The policy reader: the shipped policies, and that every deviation from the format is refused,
 * since a typo must not lead to a wider policy. */
#include "policy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"
#include "unit.h"

#define TEXT_MAX 16384

/* A right policy with the name "p" in out[TEXT_MAX]. */
static void build(char *out) {
    size_t used = (size_t)snprintf(out, TEXT_MAX, "{\"name\":\"p\",\"about\":\"a\",\"limits\":{");
    for (int id = 0; id < LIMIT_COUNT; id++) {
        const struct limit_info *info = limit_info((enum limit_id)id);
        used += (size_t)snprintf(out + used, TEXT_MAX - used,
                                 "%s\"%s\":{\"default\":%llu,\"ceiling\":%llu,\"why\":\"w\"}",
                                 id ? "," : "", info->name, (unsigned long long)info->min,
                                 (unsigned long long)info->max);
    }
    snprintf(
        out + used, TEXT_MAX - used,
        "},\"writable\":{\"home\":{\"allow\":true,\"why\":\"w\"},\"tmp\":{\"allow\":false,"
        "\"why\":\"w\"},\"var_tmp\":{\"allow\":false,\"why\":\"w\"},\"shm\":{\"allow\":true,"
        "\"why\":\"w\"}},\"network\":{\"mode\":\"none\",\"why\":\"w\"},\"syscalls\":{\"set\":"
        "\"strict\",\"why\":\"w\"},\"end_on\":{\"causes\":[\"output\",\"pids\"],\"why\":\"w\"},"
        "\"steps\":{\"max\":7,\"why\":\"w\"},\"backends\":{\"allow\":[\"docker\",\"native\"],"
        "\"why\":\"w\"}}");
}

/* Parses an exact-size copy. */
static int parse(const char *name, const char *text, size_t len, struct policy *p,
                 struct err *err) {
    char *copy = malloc(len ? len : 1);
    assert_non_null(copy);
    memcpy(copy, text, len);
    int rc = policy_parse(name, copy, len, p, err);
    free(copy);
    return rc;
}

static void test_right(void **state) {
    (void)state;
    char text[TEXT_MAX];
    struct policy p;
    struct err err;
    build(text);
    if (parse("p", text, strlen(text), &p, &err) != 0)
        fail_msg("%s", err.text);
    assert_string_equal(p.name, "p");
    assert_string_equal(p.text, text);
    assert_int_equal(p.text_size, strlen(text));
    assert_int_equal(p.writable, WIRE_WRITABLE_WORKSPACE | WIRE_WRITABLE_HOME | WIRE_WRITABLE_SHM);
    assert_int_equal(p.network, WIRE_NETWORK_NONE);
    assert_int_equal(p.syscalls, POLICY_SYSCALLS_STRICT);
    assert_int_equal(p.end_on, END_ON_OUTPUT | END_ON_PIDS);
    assert_int_equal(p.max_steps, 7);
    assert_int_equal(p.backends, BACKEND_BITS_ALL);
    assert_int_equal(p.backend, BACKEND_DOCKER);
    for (int id = 0; id < LIMIT_COUNT; id++) {
        assert_int_equal(p.preset.v[id], limit_info((enum limit_id)id)->min);
        assert_int_equal(p.ceiling.v[id], limit_info((enum limit_id)id)->max);
    }
    policy_done(&p);
    assert_null(p.text);
    policy_done(&p);
    policy_done(NULL);
}

/* The right policy with the first `from` replaced by `to` must be refused with a text that has
 * `says` in it. */
static void expect_bad(const char *from, const char *to, const char *says) {
    char text[TEXT_MAX], changed[TEXT_MAX];
    struct policy p, before;
    struct err err = {0};
    build(text);
    char *at = strstr(text, from);
    if (!at)
        fail_msg("%s is not in the policy", from);
    snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    memset(&p, 0x5a, sizeof(p));
    before = p;
    if (parse("p", changed, strlen(changed), &p, &err) == 0)
        fail_msg("%s -> %s: accepted", from, to);
    if (err.kind != ERR_INVALID || !strstr(err.text, says))
        fail_msg("%s -> %s: says %s", from, to, err.text);
    assert_memory_equal(&p, &before, sizeof(p));
}

static void test_wrong(void **state) {
    (void)state;
    static const struct {
        const char *from, *to, *says;
    } table[] = {
        {"\"about\":\"a\",", "", "/about is missing"},
        {"\"about\":\"a\"", "\"about\":\" \\t\"", "/about must be a text"},
        {"\"about\":\"a\"", "\"about\":7", "/about must be a text"},
        {"\"about\":\"a\"", "\"about\":\"a\",\"about\":\"b\"", "duplicate object key"},
        {"\"about\":\"a\"", "\"about\":\"a\",\"abuot\":\"b\"", "/abuot is not a known key"},
        {"\"about\":\"a\"", "\"about\":\"a\\u0000\"", "line 1"},
        {"\"name\":\"p\"", "\"name\":\"q\"", "/name must be \"p\""},
        {"\"name\":\"p\"", "\"name\":null", "/name must be a text"},
        {"\"limits\":{", "\"limits\":{\"gpus\":{},", "/limits/gpus is not a known key"},
        {"\"wall_ms\":{", "\"wall_ms\":{\"max\":1,", "/limits/wall_ms/max is not a known key"},
        {"\"wall_ms\":{", "\"wal_ms\":{", "/limits/wal_ms is not a known key"},
        {"\"network\":{\"mode\":\"none\"", "\"network\":{\"mode\":\"egress\"",
         "/network/mode must be"},
        {"\"network\":{\"mode\":\"none\",", "\"network\":{", "/network/mode is missing"},
        {"\"network\":{\"mode\":\"none\",\"why\":\"w\"}", "\"network\":\"none\"",
         "/network must be an object"},
        {"\"set\":\"strict\"", "\"set\":\"none\"",
         "/syscalls/set must be one of \"default\", \"strict\""},
        {"\"set\":\"strict\"", "\"set\":0", "/syscalls/set must be"},
        {"[\"output\",\"pids\"]", "[\"output\",\"output\"]", "/end_on/causes must be"},
        {"[\"output\",\"pids\"]", "[\"memory\"]", "/end_on/causes must be"},
        {"[\"output\",\"pids\"]", "\"output\"", "/end_on/causes must be"},
        {"[\"output\",\"pids\"]", "[null]", "/end_on/causes must be"},
        {"\"home\":{\"allow\":true", "\"home\":{\"allow\":1", "/writable/home/allow must be"},
        {"\"home\":{\"allow\":true", "\"home\":{\"allow\":\"true\"",
         "/writable/home/allow must be"},
        {"\"home\":", "\"house\":", "/writable/house is not a known key"},
        {"\"writable\":{", "\"writable\":{\"workspace\":{\"allow\":true,\"why\":\"w\"},",
         "/writable/workspace is not a known key"},
        {"[\"docker\",\"native\"]", "[]", "/backends/allow must name at least one"},
        {"[\"docker\",\"native\"]", "[\"docker\",\"docker\"]", "/backends/allow must be"},
        {"[\"docker\",\"native\"]", "[\"podman\"]", "/backends/allow must be"},
        {"[\"docker\",\"native\"]", "\"docker\"", "/backends/allow must be"},
        {"\"backends\":{\"allow\"", "\"backends\":{\"alow\"", "/backends/alow is not a known"},
        {"\"backends\":", "\"backend\":", "/backend is not a known key"},
        {"\"max\":7", "\"max\":0", "/steps/max must be a whole number from 1 to 256"},
        {"\"max\":7", "\"max\":257", "/steps/max must be"},
        {"\"max\":7", "\"max\":7.0", "/steps/max must be"},
        {"\"max\":7", "\"max\":-1", "/steps/max must be"},
        {"\"max\":7", "\"max\":18446744073709551617", "line 1"},
        {"\"max\":7,\"why\":\"w\"}", "\"max\":7,\"why\":\"w\"},\"images\":[\"host\"]",
         "/images must be an object"},
        {"\"max\":7,\"why\":\"w\"}", "\"max\":7,\"why\":\"w\"},\"images\":{\"allow\":[\"host\"]}",
         "/images/why is missing"},
        {"\"max\":7,\"why\":\"w\"}",
         "\"max\":7,\"why\":\"w\"},\"images\":{\"allow\":[],\"why\":\"w\"}",
         "/images/allow must name 1 to 256"},
        {"\"max\":7,\"why\":\"w\"}",
         "\"max\":7,\"why\":\"w\"},\"images\":{\"allow\":\"host\",\"why\":\"w\"}",
         "/images/allow must be an array"},
        {"\"max\":7,\"why\":\"w\"}",
         "\"max\":7,\"why\":\"w\"},\"images\":{\"allow\":[\"host\",7],\"why\":\"w\"}",
         "/images/allow/1 must be a text"},
        {"\"max\":7,\"why\":\"w\"}",
         "\"max\":7,\"why\":\"w\"},\"images\":{\"allow\":[\"a/b\"],\"why\":\"w\"}",
         "/images/allow/0: an image is named"},
        {"\"max\":7,\"why\":\"w\"}",
         "\"max\":7,\"why\":\"w\"},\"images\":{\"allow\":[\"a@sha256:12\"],\"why\":\"w\"}",
         "/images/allow/0: after the name"},
        {"}}", "}},", "line 1"},
        {"{\"name\"", "[{\"name\"", "line 1"},
        {"{\"name\"", "\xef\xbb\xbf{\"name\"", "line 1"},
    };
    for (size_t i = 0; i < UNIT_COUNT(table); i++)
        expect_bad(table[i].from, table[i].to, table[i].says);
}

/* Who did not think of containers did not allow them. */
static void test_without_backends(void **state) {
    (void)state;
    char text[TEXT_MAX];
    struct policy p;
    build(text);
    char *at = strstr(text, ",\"backends\"");
    assert_non_null(at);
    memcpy(at, "}", 2);
    assert_int_equal(parse("p", text, strlen(text), &p, NULL), 0);
    assert_int_equal(p.backends, BACKEND_BIT(BACKEND_NATIVE));
    assert_int_equal(p.backend, BACKEND_NATIVE);
    policy_done(&p);
}

static void test_wrong_limits(void **state) {
    (void)state;
    static const char *const values[] = {"-1",   "0",  "1.5", "\"5\"", "null",
                                         "true", "[]", "{}",  "1e9",   "9223372036854775807"};
    for (int id = 0; id < LIMIT_COUNT; id++) {
        const struct limit_info *info = limit_info((enum limit_id)id);
        char from[160], to[256], says[160];
        unsigned long long min = info->min, max = info->max;
        snprintf(from, sizeof(from), "\"%s\":{\"default\":%llu,\"ceiling\":%llu", info->name, min,
                 max);
        for (size_t i = 0; i < UNIT_COUNT(values); i++) {
            snprintf(to, sizeof(to), "\"%s\":{\"default\":%s,\"ceiling\":%llu", info->name,
                     values[i], max);
            snprintf(says, sizeof(says), "/limits/%s/default must be a whole number", info->name);
            expect_bad(from, to, says);
            snprintf(to, sizeof(to), "\"%s\":{\"default\":%llu,\"ceiling\":%s", info->name, min,
                     values[i]);
            snprintf(says, sizeof(says), "/limits/%s/ceiling must be a whole number", info->name);
            expect_bad(from, to, says);
        }
        snprintf(to, sizeof(to), "\"%s\":{\"default\":%llu,\"ceiling\":%llu", info->name, min + 1,
                 min);
        snprintf(says, sizeof(says), "/limits/%s/ceiling is", info->name);
        expect_bad(from, to, says);
        snprintf(to, sizeof(to), "\"%s\":{\"default\":%llu", info->name, min);
        expect_bad(from, to, "ceiling is missing");
        snprintf(to, sizeof(to), "\"%s\":{\"ceiling\":%llu", info->name, max);
        expect_bad(from, to, "default is missing");
    }
}

/* Every "why" is needed and must say something. */
static void test_why(void **state) {
    (void)state;
    static const char *const wrong[] = {"\"why\":\"\"", "\"why\":\"  \"", "\"why\":null",
                                        "\"wy\":\"w\""};
    char text[TEXT_MAX], changed[TEXT_MAX];
    size_t count = 0;
    build(text);
    for (const char *at = text; (at = strstr(at, "\"why\":\"w\"")) != NULL; at++, count++) {
        for (size_t i = 0; i < UNIT_COUNT(wrong); i++) {
            struct policy p;
            struct err err;
            snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - text), text, wrong[i],
                     at + strlen("\"why\":\"w\""));
            assert_int_equal(parse("p", changed, strlen(changed), &p, &err), -1);
            assert_int_equal(err.kind, ERR_INVALID);
        }
    }
    assert_int_equal(count, LIMIT_COUNT + 9);
}

static void test_prefixes(void **state) {
    (void)state;
    char text[TEXT_MAX];
    struct policy p;
    build(text);
    for (size_t len = 0; len < strlen(text); len++)
        assert_int_equal(parse("p", text, len, &p, NULL), -1);
    assert_int_equal(parse("../p", text, strlen(text), &p, NULL), -1);
    char *big = malloc(WIRE_POLICY_TEXT_MAX + 1);
    assert_non_null(big);
    memset(big, ' ', WIRE_POLICY_TEXT_MAX + 1);
    memcpy(big, text, strlen(text));
    assert_int_equal(parse("p", big, WIRE_POLICY_TEXT_MAX + 1, &p, NULL), -1);
    assert_int_equal(parse("p", big, WIRE_POLICY_TEXT_MAX, &p, NULL), 0);
    policy_done(&p);
    free(big);
}

/* SHA-256 of the bytes, so that two people can tell that they mean the same policy. */
static void test_sha256(void **state) {
    (void)state;
    char text[TEXT_MAX];
    struct policy a, b;
    build(text);
    assert_int_equal(parse("p", text, strlen(text), &a, NULL), 0);
    size_t len = strlen(text);
    text[len] = '\n';
    assert_int_equal(parse("p", text, len + 1, &b, NULL), 0);
    assert_memory_not_equal(a.sha256, b.sha256, sizeof(a.sha256));
    policy_done(&a);
    policy_done(&b);
}

/* --- directories ---------------------------------------------------------------------------------
 */

struct place {
    char dir[64];
    int fd;
};

static void place_make(struct place *at) {
    snprintf(at->dir, sizeof(at->dir), "/tmp/unit-policy-XXXXXX");
    assert_non_null(mkdtemp(at->dir));
    assert_int_equal(chmod(at->dir, 0755), 0);
    at->fd = open(at->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(at->fd >= 0);
}

static void place_put(const struct place *at, const char *file, const char *name) {
    char text[TEXT_MAX], quoted[80];
    build(text);
    snprintf(quoted, sizeof(quoted), "{\"name\":\"%s\"", name);
    int fd = openat(at->fd, file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(fchmod(fd, 0644), 0);
    assert_int_equal(fd_write_all(fd, quoted, strlen(quoted), NULL), 0);
    const char *rest = text + strlen("{\"name\":\"p\"");
    assert_int_equal(fd_write_all(fd, rest, strlen(rest), NULL), 0);
    close(fd);
}

static void place_remove(struct place *at) {
    static const char *const files[] = {"default.json", "a.json",  "z.json",
                                        "x.json",       ".h.json", "notes.txt"};
    for (size_t i = 0; i < UNIT_COUNT(files); i++)
        (void)unlinkat(at->fd, files[i], 0);
    close(at->fd);
    assert_int_equal(rmdir(at->dir), 0);
}

static void expect_load_error(const struct place *at, const char *says) {
    struct policy_set set = {0};
    struct err err = {0};
    if (policy_set_load(at->dir, &set, &err) == 0)
        fail_msg("accepted, wanted: %s", says);
    if (!strstr(err.text, says))
        fail_msg("says \"%s\", wanted: %s", err.text, says);
    assert_null(set.items);
}

static void test_set(void **state) {
    (void)state;
    struct place at;
    struct policy_set set;
    struct err err;
    place_make(&at);
    expect_load_error(&at, "there is no default.json");
    place_put(&at, "z.json", "z");
    expect_load_error(&at, "there is no default.json");
    place_put(&at, "default.json", "default");
    place_put(&at, "a.json", "a");
    place_put(&at, ".h.json", "nonsense");
    place_put(&at, "notes.txt", "nonsense");
    if (policy_set_load(at.dir, &set, &err) != 0)
        fail_msg("%s", err.text);
    assert_int_equal(set.count, 3);
    assert_string_equal(set.items[0].name, "a");
    assert_string_equal(set.items[2].name, "z");
    assert_ptr_equal(policy_find(&set, "default"), &set.items[1]);
    assert_null(policy_find(&set, "defaul"));
    policy_set_done(&set);
    policy_set_done(&set);
    policy_set_done(NULL);
    /* One bad file fails all. */
    place_put(&at, "x.json", "y");
    expect_load_error(&at, "x.json: /name must be \"x\"");
    place_remove(&at);
}

/* Owner, mode and kind of the files and of the directory. */
static void test_set_untrusted(void **state) {
    (void)state;
    static const mode_t bad_modes[] = {0664, 0646, 0666, 0620};
    struct place at;
    place_make(&at);
    place_put(&at, "default.json", "default");
    for (size_t i = 0; i < UNIT_COUNT(bad_modes); i++) {
        assert_int_equal(fchmodat(at.fd, "default.json", bad_modes[i], 0), 0);
        expect_load_error(&at, "default.json can be written by group or others");
    }
    assert_int_equal(fchmodat(at.fd, "default.json", 0644, 0), 0);
    assert_int_equal(chmod(at.dir, 0775), 0);
    expect_load_error(&at, "can be written by group or others");
    assert_int_equal(chmod(at.dir, 0755), 0);
    assert_int_equal(symlinkat("default.json", at.fd, "x.json"), 0);
    expect_load_error(&at, "cannot open x.json");
    assert_int_equal(unlinkat(at.fd, "x.json", 0), 0);
    assert_int_equal(mkfifoat(at.fd, "x.json", 0600), 0);
    expect_load_error(&at, "x.json is not a regular file");
    assert_int_equal(unlinkat(at.fd, "x.json", 0), 0);
    assert_int_equal(mkdirat(at.fd, "x.json", 0755), 0);
    expect_load_error(&at, "x.json is not a regular file");
    assert_int_equal(unlinkat(at.fd, "x.json", AT_REMOVEDIR), 0);
    if (geteuid() == 0) {
        assert_int_equal(fchownat(at.fd, "default.json", 12345, 0, 0), 0);
        expect_load_error(&at, "default.json belongs to user 12345");
        assert_int_equal(fchownat(at.fd, "default.json", 0, 0, 0), 0);
        assert_int_equal(chown(at.dir, 12345, 0), 0);
        expect_load_error(&at, "belongs to user 12345");
        assert_int_equal(chown(at.dir, 0, 0), 0);
    }
    place_remove(&at);
    expect_load_error(&at, "cannot open the policy directory");
}

/* --- what is shipped -----------------------------------------------------------------------------
 */

static void read_shipped(const char *name, struct policy *p) {
    char path[64];
    struct buf text;
    struct err err;
    snprintf(path, sizeof(path), "policies/%s.json", name);
    buf_init(&text, WIRE_POLICY_TEXT_MAX);
    if (fd_read_file(AT_FDCWD, path, &text, &err) != 0 ||
        policy_parse(name, text.data, text.len, p, &err) != 0)
        fail_msg("%s: %s (run from the top of the tree)", path, err.text);
    buf_done(&text);
}

static void test_images(void **state) {
    (void)state;
    char text[TEXT_MAX];
    struct policy p;
    struct err err = {0};
    uint8_t none[32] = {0}, ones[32], twos[32];
    memset(ones, 0x11, sizeof(ones));
    memset(twos, 0x22, sizeof(twos));
    build(text);
    if (parse("p", text, strlen(text), &p, &err) != 0)
        fail_msg("%s", err.text);
    assert_true(p.any_image);
    assert_int_equal(policy_check_image(&p, "host", none, &err), 0);
    assert_int_equal(policy_check_image(&p, "x", twos, &err), 0);
    policy_done(&p);
    snprintf(text + strlen(text) - 1, 512,
             ",\"images\":{\"allow\":[\"py\",\"go@sha256:"
             "1111111111111111111111111111111111111111111111111111111111111111\"],"
             "\"why\":\"w\"}}");
    if (parse("p", text, strlen(text), &p, &err) != 0)
        fail_msg("%s", err.text);
    assert_false(p.any_image);
    assert_int_equal(policy_check_image(&p, "py", ones, &err), 0);
    assert_int_equal(policy_check_image(&p, "py", twos, &err), 0);
    assert_int_equal(policy_check_image(&p, "go", ones, &err), 0);
    assert_int_equal(policy_check_image(&p, "go", twos, &err), -1);
    assert_int_equal(err.code, EPERM);
    assert_int_equal(policy_check_image(&p, "host", none, &err), -1);
    assert_int_equal(policy_check_image(&p, "pyx", ones, &err), -1);
    policy_done(&p);
}

static void test_shipped(void **state) {
    (void)state;
    struct policy def, ci, judge;
    struct err err;
    read_shipped("default", &def);
    read_shipped("ci", &ci);
    read_shipped("judge", &judge);
    assert_int_equal(limit_check(&def.preset, &def.ceiling, &err), 0);
    for (int id = 0; id < LIMIT_COUNT; id++) {
        /* ci is the largest, judge never above it. */
        assert_true(def.preset.v[id] <= ci.preset.v[id]);
        assert_true(def.ceiling.v[id] <= ci.ceiling.v[id]);
        assert_true(judge.ceiling.v[id] <= ci.ceiling.v[id]);
    }
    assert_int_equal(def.preset.v[LIMIT_WALL_MS], 30000);
    assert_int_equal(def.preset.v[LIMIT_PIDS], 64);
    assert_int_equal(def.writable, WIRE_WRITABLE_ALL);
    assert_int_equal(def.end_on, 0);
    assert_int_equal(judge.writable, WIRE_WRITABLE_WORKSPACE | WIRE_WRITABLE_TMP);
    assert_int_equal(judge.syscalls, POLICY_SYSCALLS_STRICT);
    assert_int_equal(def.network | ci.network | judge.network, WIRE_NETWORK_NONE);
    policy_done(&def);
    policy_done(&ci);
    policy_done(&judge);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right),        cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_wrong_limits), cmocka_unit_test(test_why),
        cmocka_unit_test(test_prefixes),     cmocka_unit_test(test_sha256),
        cmocka_unit_test(test_set),          cmocka_unit_test(test_set_untrusted),
        cmocka_unit_test(test_shipped),      cmocka_unit_test(test_without_backends),
        cmocka_unit_test(test_shipped),      cmocka_unit_test(test_images),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Ends: JSON, sentence and exit code of every cause. */
#include "end_json.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"

#define MIB 1048576u

struct end_case {
    struct step_end end;
    int exit_code;
    const char *message;
    const char *json; /* without "message" */
};

static const struct end_case cases[] = {
    {{.cause = CAUSE_EXIT, .exit_code = 0},
     0,
     "The program finished.",
     "{\"cause\":\"exit\",\"exit_code\":0,\"signal\":null}"},
    {{.cause = CAUSE_EXIT, .exit_code = 137},
     137,
     "The program ended with exit code 137.",
     "{\"cause\":\"exit\",\"exit_code\":137,\"signal\":null}"},
    {{.cause = CAUSE_SIGNAL, .exit_code = -1, .signal = 11},
     139,
     "The program was ended by signal 11 (SIGSEGV: Segmentation fault).",
     "{\"cause\":\"signal\",\"exit_code\":null,\"signal\":11}"},
    {{.cause = CAUSE_SIGNAL, .exit_code = -1, .signal = 40},
     168,
     "The program was ended by signal 40.",
     "{\"cause\":\"signal\",\"exit_code\":null,\"signal\":40}"},
    {{.cause = CAUSE_WALL_TIME,
      .exit_code = -1,
      .signal = 9,
      .limit = 2000,
      .observed = 2003,
      .wall_ms = 2003},
     124,
     "The wall-clock limit of 2.0 s was reached.",
     "{\"cause\":\"wall_time\",\"exit_code\":null,\"signal\":9,\"limit\":2000,\"observed\":2003,"
     "\"evidence\":{\"wall_ms\":2003}}"},
    {{.cause = CAUSE_CPU_TIME,
      .exit_code = -1,
      .signal = 9,
      .limit = 150,
      .observed = 151,
      .cpu_ms = 151},
     124,
     "The CPU time limit of 150 ms was reached.",
     "{\"cause\":\"cpu_time\",\"exit_code\":null,\"signal\":9,\"limit\":150,\"observed\":151,"
     "\"evidence\":{\"cpu_ms\":151}}"},
    {{.cause = CAUSE_MEMORY,
      .exit_code = -1,
      .signal = 9,
      .limit = 64 * MIB,
      .observed = 64 * MIB,
      .oom_kills = 1},
     137,
     "The program was killed because it and its files used all of its 64.0 MiB of memory.",
     "{\"cause\":\"memory\",\"exit_code\":null,\"signal\":9,\"limit\":67108864,\"observed\":"
     "67108864,"
     "\"evidence\":{\"oom_kills\":1}}"},
    {{.cause = CAUSE_MEMORY, .exit_code = -1, .signal = 9, .oom_kills = 2},
     137,
     "The program was killed because it and its files used all of its share of memory.",
     "{\"cause\":\"memory\",\"exit_code\":null,\"signal\":9,\"evidence\":{\"oom_kills\":2}}"},
    {{.cause = CAUSE_MEMORY_HOST, .exit_code = -1, .signal = 9, .oom_kills = 1},
     125,
     "The host ran out of memory; the program was within its own limit.",
     "{\"cause\":\"memory_host\",\"exit_code\":null,\"signal\":9,\"evidence\":{\"oom_kills\":1}}"},
    {{.cause = CAUSE_PIDS, .exit_code = -1, .signal = 9, .limit = 64, .observed = 64, .refused = 3},
     137,
     "The limit of 64 on processes and threads was reached.",
     "{\"cause\":\"pids\",\"exit_code\":null,\"signal\":9,\"limit\":64,\"observed\":64,"
     "\"evidence\":{\"refused\":3}}"},
    {{.cause = CAUSE_DISK,
      .exit_code = -1,
      .signal = 9,
      .limit = 8 * MIB,
      .observed = 8 * MIB,
      .disk_bytes = 8 * MIB,
      .inodes = 12},
     137,
     "The disk limit of 8.0 MiB was reached.",
     "{\"cause\":\"disk\",\"exit_code\":null,\"signal\":9,\"limit\":8388608,\"observed\":8388608,"
     "\"evidence\":{\"disk_bytes\":8388608,\"inodes\":12}}"},
    {{.cause = CAUSE_DISK,
      .exit_code = -1,
      .signal = 9,
      .limit = 4096,
      .observed = 4096,
      .disk_bytes = 8192,
      .inodes = 4096},
     137,
     "The limit of 4096 on files and directories was reached.",
     "{\"cause\":\"disk\",\"exit_code\":null,\"signal\":9,\"limit\":4096,\"observed\":4096,"
     "\"evidence\":{\"disk_bytes\":8192,\"inodes\":4096}}"},
    {{.cause = CAUSE_OUTPUT,
      .exit_code = -1,
      .signal = 9,
      .limit = 1000,
      .observed = 5000,
      .bytes = 5000},
     137,
     "The output limit of 1000 bytes was reached.",
     "{\"cause\":\"output\",\"exit_code\":null,\"signal\":9,\"limit\":1000,\"observed\":5000,"
     "\"evidence\":{\"bytes\":5000}}"},
    {{.cause = CAUSE_SYSCALL, .exit_code = -1, .signal = 31},
     159,
     "The program was killed for a system call that is not allowed.",
     "{\"cause\":\"syscall\",\"exit_code\":null,\"signal\":31,\"evidence\":{\"signal\":31}}"},
    {{.cause = CAUSE_CANCELLED, .exit_code = -1, .signal = 9},
     125,
     "It was cancelled on request.",
     "{\"cause\":\"cancelled\",\"exit_code\":null,\"signal\":9}"},
    {{.cause = CAUSE_LOST_CLIENT, .exit_code = -1, .signal = 9},
     125,
     "It was cancelled because the client went away.",
     "{\"cause\":\"lost_client\",\"exit_code\":null,\"signal\":9}"},
    {{.cause = CAUSE_START, .exit_code = -1, .code = ENOENT, .stage = "exec", .path = "/no/such"},
     125,
     "The program could not be started: /no/such: No such file or directory.",
     "{\"cause\":\"start\",\"exit_code\":null,\"signal\":null,"
     "\"evidence\":{\"errno\":\"ENOENT\",\"stage\":\"exec\",\"path\":\"/no/such\"}}"},
    {{.cause = CAUSE_START,
      .exit_code = -1,
      .code = ENOSPC,
      .stage = "files",
      .path = "\x1b[2J\xff"},
     125,
     "A file of the request could not be written: \\x1b[2J\\xff: No space left on device.",
     "{\"cause\":\"start\",\"exit_code\":null,\"signal\":null,\"evidence\":{\"errno\":\"ENOSPC\","
     "\"stage\":\"files\",\"path\":\"G1sySv8=\",\"path_encoding\":\"base64\"}}"},
    {{.cause = CAUSE_START, .exit_code = -1, .stage = "limits"},
     125,
     "The program could not be started (limits): the reason is not known.",
     "{\"cause\":\"start\",\"exit_code\":null,\"signal\":null,"
     "\"evidence\":{\"errno\":null,\"stage\":\"limits\"}}"},
    {{.cause = CAUSE_INTERRUPTED, .exit_code = -1},
     125,
     "The service stopped while the program was running.",
     "{\"cause\":\"interrupted\",\"exit_code\":null,\"signal\":null}"},
    {{.cause = CAUSE_INTERNAL, .exit_code = -1, .code = ENOSPC, .stage = "cgroup"},
     125,
     "The service failed at cgroup (ENOSPC); it is not the program's fault.",
     "{\"cause\":\"internal\",\"exit_code\":null,\"signal\":null,"
     "\"evidence\":{\"errno\":\"ENOSPC\",\"stage\":\"cgroup\"}}"},
};
#define CASES (UNIT_COUNT(cases))

static void test_encode(void **state) {
    (void)state;
    bool seen[CAUSE_COUNT] = {[CAUSE_NONE] = true};
    for (size_t i = 0; i < CASES; i++) {
        char message[END_MESSAGE_MAX];
        json_t *object = end_json_encode(&cases[i].end);
        assert_non_null(object);
        end_message(&cases[i].end, message, sizeof(message));
        assert_string_equal(message, cases[i].message);
        assert_string_equal(json_string_value(json_object_get(object, "message")), message);
        json_object_del(object, "message");
        char *json = json_dumps(object, JSON_COMPACT);
        assert_string_equal(json, cases[i].json);
        free(json);
        json_decref(object);
        seen[cases[i].end.cause] = true;
    }
    for (int cause = 0; cause < CAUSE_COUNT; cause++)
        assert_true(seen[cause]);
}

static void test_round_trip(void **state) {
    (void)state;
    for (size_t i = 0; i < CASES; i++) {
        struct step_end back;
        struct err err;
        json_t *object = end_json_encode(&cases[i].end);
        memset(&back, 0x5a, sizeof(back));
        if (end_json_decode(object, &back, &err) != 0)
            fail_msg("case %zu: %s", i, err.text);
        json_t *again = end_json_encode(&back);
        assert_true(json_equal(object, again));
        assert_int_equal(back.cause, cases[i].end.cause);
        assert_int_equal(back.code, cases[i].end.code);
        assert_string_equal(back.path, cases[i].end.path);
        json_decref(object);
        json_decref(again);
    }
}

static void test_exit_code(void **state) {
    (void)state;
    for (size_t i = 0; i < CASES; i++) {
        assert_int_equal(end_exit_code(&cases[i].end), cases[i].exit_code);
        assert_int_equal(end_ok(&cases[i].end), i == 0);
    }
    struct step_end e;
    end_init(&e, CAUSE_NONE);
    assert_int_equal(e.exit_code, -1);
    assert_int_equal(end_exit_code(&e), 125);
    e.cause = CAUSE_EXIT;
    assert_int_equal(end_exit_code(&e), 125);
    e.cause = (enum cause)99;
    assert_int_equal(end_exit_code(&e), 125);
}

static void test_decode_wrong(void **state) {
    (void)state;
    static const char *const table[] = {
        "{}",
        "[]",
        "{\"cause\":7}",
        "{\"cause\":\"boredom\"}",
        "{\"cause\":\"exit\",\"exit_code\":256}",
        "{\"cause\":\"exit\",\"exit_code\":-1}",
        "{\"cause\":\"exit\",\"exit_code\":\"0\"}",
        "{\"cause\":\"signal\",\"signal\":128}",
        "{\"cause\":\"signal\",\"signal\":1.0}",
        "{\"cause\":\"memory\",\"limit\":-1}",
        "{\"cause\":\"memory\",\"observed\":\"x\"}",
        "{\"cause\":\"memory\",\"evidence\":{\"oom_kills\":null}}",
        "{\"cause\":\"start\",\"evidence\":{\"errno\":2}}",
        "{\"cause\":\"start\",\"evidence\":{\"path\":2}}",
        "{\"cause\":\"start\",\"evidence\":{\"path\":\"x\",\"path_encoding\":\"base64\"}}",
    };
    for (size_t i = 0; i < UNIT_COUNT(table); i++) {
        struct step_end e, before;
        json_t *object = json_loads(table[i], 0, NULL);
        memset(&e, 0x5a, sizeof(e));
        before = e;
        if (end_json_decode(object, &e, NULL) == 0)
            fail_msg("%s: accepted", table[i]);
        assert_memory_equal(&e, &before, sizeof(e));
        json_decref(object);
    }
    struct step_end e;
    assert_int_equal(end_json_decode(NULL, &e, NULL), -1);
}

/* A newer server may say more; long texts are cut. */
static void test_decode_tolerant(void **state) {
    (void)state;
    struct step_end e;
    char path[3000] = "";
    memset(path, 'p', sizeof(path) - 1);
    json_t *object = json_pack("{s:s, s:i, s:{s:s, s:s, s:s}}", "cause", "start", "new", 1,
                               "evidence", "errno", "EWHATEVER", "path", path, "more", "x");
    assert_int_equal(end_json_decode(object, &e, NULL), 0);
    assert_int_equal(e.code, 0);
    assert_int_equal(e.exit_code, -1);
    assert_int_equal(strlen(e.path), END_PATH_MAX - 1);
    json_decref(object);
}

/* A path that was cut in the middle of a character stays a string; a sentence fits its array. */
static void test_cut(void **state) {
    (void)state;
    struct step_end e;
    char message[40];
    end_init(&e, CAUSE_START);
    e.code = ENOENT;
    memset(e.path, 'x', END_PATH_MAX - 1);
    memcpy(e.path + END_PATH_MAX - 3, "\xe2\x82", 3);
    json_t *object = end_json_encode(&e);
    json_t *evidence = json_object_get(object, "evidence");
    assert_int_equal(json_string_length(json_object_get(evidence, "path")), END_PATH_MAX - 3);
    assert_null(json_object_get(evidence, "path_encoding"));
    json_decref(object);
    end_message(&e, message, sizeof(message));
    assert_int_equal(strlen(message), sizeof(message) - 1);
}

static void test_huge_figures(void **state) {
    (void)state;
    struct step_end e;
    end_init(&e, CAUSE_OUTPUT);
    e.limit = UINT64_MAX;
    e.observed = e.bytes = UINT64_MAX;
    json_t *object = end_json_encode(&e);
    assert_true(json_integer_value(json_object_get(object, "limit")) == INT64_MAX);
    json_decref(object);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_encode),          cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_exit_code),       cmocka_unit_test(test_decode_wrong),
        cmocka_unit_test(test_decode_tolerant), cmocka_unit_test(test_cut),
        cmocka_unit_test(test_huge_figures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

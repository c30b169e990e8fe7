#include "model.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "unit.h"

/* A server that plays back whole answers, one a connection, and keeps what it was asked. */
struct played {
    const char *const *answers; /* NULL = the end; "" = the connection is closed at once */
    size_t count;
    int fd,
        hold; /* hold: an answer that begins with '!' is followed by silence until this closes */
    uint16_t port;
    pthread_t thread;
    char asked[8][16384];
};

static void played_read(int fd, char *into, size_t size) {
    size_t n = 0, want = SIZE_MAX;
    while (n + 1 < size && n < want) {
        ssize_t got = read(fd, into + n, size - 1 - n);
        if (got <= 0)
            break;
        n += (size_t)got;
        into[n] = '\0';
        char *end = strstr(into, "\r\n\r\n"), *length = strstr(into, "Content-Length: ");
        if (end != NULL && length != NULL)
            want = (size_t)(end + 4 - into) + strtoul(length + 16, NULL, 10);
    }
}

static void *played_main(void *arg) {
    struct played *p = arg;
    for (size_t i = 0; p->answers[i] != NULL; i++) {
        int fd = accept(p->fd, NULL, NULL);
        if (fd < 0)
            return NULL;
        const char *answer = p->answers[i];
        played_read(fd, p->asked[i], sizeof(p->asked[i]));
        p->count++;
        size_t skip = answer[0] == '!', len = strlen(answer) - skip;
        /* In small pieces, so that every token is cut somewhere. */
        for (size_t at = 0; at < len; at += 7)
            if (write(fd, answer + skip + at, len - at < 7 ? len - at : 7) < 0)
                break;
        uint64_t word;
        if (skip)
            (void)!read(p->hold, &word, sizeof(word));
        close(fd);
    }
    return NULL;
}

static void played_start(struct played *p, const char *const *answers) {
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(in);
    memset(p, 0, sizeof(*p));
    p->answers = answers;
    p->hold = eventfd(0, EFD_CLOEXEC);
    p->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(p->fd, (struct sockaddr *)&in, sizeof(in)), 0);
    assert_int_equal(listen(p->fd, 8), 0);
    assert_int_equal(getsockname(p->fd, (struct sockaddr *)&in, &len), 0);
    p->port = ntohs(in.sin_port);
    assert_int_equal(pthread_create(&p->thread, NULL, played_main, p), 0);
}

static void played_stop(struct played *p) {
    uint64_t one = 1;
    (void)!write(p->hold, &one, sizeof(one));
    shutdown(p->fd, SHUT_RDWR);
    pthread_join(p->thread, NULL);
    close(p->fd);
    close(p->hold);
}

struct asked {
    struct model *model;
    struct model_reply reply;
    struct err err;
    char seen[4096]; /* by on_text */
    unsigned retries;
};

static void asked_text(void *arg, const char *text, size_t len) {
    struct asked *a = arg;
    strncat(a->seen, text, len);
}

static void asked_retry(void *arg, unsigned attempt, uint64_t wait_ms, const char *why) {
    struct asked *a = arg;
    (void)attempt;
    assert_true(wait_ms <= 8000);
    assert_true(why[0] != '\0');
    a->retries++;
    a->seen[0] = '\0';
}

static int ask(struct asked *a, struct played *p, enum model_protocol protocol, int cancel) {
    char url[64];
    json_t *schema = json_pack("{s:s}", "type", "object");
    struct model_call call = {
        .id = (char *)"c1", .name = (char *)"list", .arguments = (char *)"{}"};
    struct model_message messages[] = {
        {.role = MODEL_SYSTEM, .text = (char *)"be brief"},
        {.role = MODEL_USER, .text = (char *)"hello"},
        {.role = MODEL_ASSISTANT, .calls = &call, .call_count = 1},
        {.role = MODEL_TOOL, .text = (char *)"a.txt", .call_id = (char *)"c1"},
    };
    struct model_tool tool = {.name = "read", .description = "reads", .parameters = schema};
    struct model_request request = {.messages = messages,
                                    .message_count = 4,
                                    .tools = &tool,
                                    .tool_count = 1,
                                    .answer_tokens = 77};
    memset(a, 0, sizeof(*a));
    snprintf(url, sizeof(url), "http://127.0.0.1:%u/v1/", p->port);
    struct model_options o = {.url = url,
                              .name = "m",
                              .key = "sk-secret",
                              .protocol = protocol,
                              .local_only = true,
                              .retries = 2,
                              .cancel_fd = cancel,
                              .on_text = asked_text,
                              .on_retry = asked_retry,
                              .arg = a};
    a->model = model_new(&o, &a->err);
    assert_non_null(a->model);
    int rc = model_ask(a->model, &request, &a->reply, &a->err);
    json_decref(schema);
    return rc;
}

static void asked_done(struct asked *a) {
    model_reply_done(&a->reply);
    model_free(a->model);
}

#define STREAM "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
#define JSON(status, extra)                                                                        \
    "HTTP/1.1 " status "\r\nContent-Type: application/json\r\nConnection: close\r\n" extra "\r\n"

static void test_openai_stream(void **state) {
    static const char *const answers[] = {
        STREAM
        ": hello\r\n\r\n"
        "data: "
        "{\"model\":\"m-1\",\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":"
        "\"H\xc3\xa9\"}}]}\r\n\r\n"
        "data: "
        "{\"choices\":[{\"delta\":{\"content\":\"llo\",\"tool_calls\":[{\"index\":0,\"id\":\"a\","
        "\"type\":\"function\",\"function\":{\"name\":\"read\",\"arguments\":\"{\"}}]}}]}\n\n"
        "data: "
        "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":"
        "\"\\\"path\\\":\\\"x\\\"}\"}}]}}]}\n\n"
        "data: "
        "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"b\",\"function\":{"
        "\"name\":\"list\",\"arguments\":\"\"}}]}}]}\n\n"
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":null}\n\n"
        "data: "
        "{\"choices\":[],\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":7,\"prompt_tokens_"
        "details\":{\"cached_tokens\":60}}}\n\n"
        "data: [DONE]\n\n",
        NULL};
    struct played p;
    struct asked a;
    (void)state;
    played_start(&p, answers);
    unit_works(ask(&a, &p, MODEL_AUTO, -1), a.err);
    played_stop(&p);
    assert_string_equal(a.reply.message.text, "H\xc3\xa9llo");
    assert_string_equal(a.seen, "H\xc3\xa9llo");
    assert_int_equal(a.reply.stop, MODEL_STOP_CALLS); /* whatever finish_reason says */
    assert_int_equal(a.reply.message.call_count, 2);
    assert_string_equal(a.reply.message.calls[0].arguments, "{\"path\":\"x\"}");
    assert_string_equal(a.reply.message.calls[1].name, "list");
    assert_string_equal(a.reply.message.calls[1].arguments, "{}");
    assert_true(a.reply.usage.known);
    assert_int_equal(a.reply.usage.input, 40);
    assert_int_equal(a.reply.usage.cache_read, 60);
    assert_string_equal(a.reply.model, "m-1");
    assert_true(strncmp(a.reply.host, "127.0.0.1:", 10) == 0);
    assert_non_null(strstr(p.asked[0], "POST /v1/chat/completions "));
    assert_non_null(strstr(p.asked[0], "Authorization: Bearer sk-secret"));
    assert_non_null(strstr(p.asked[0], "\"max_tokens\":77"));
    assert_non_null(strstr(p.asked[0], "\"tool_call_id\":\"c1\""));
    asked_done(&a);
}

static void test_anthropic_stream(void **state) {
    static const char *const answers[] = {
        STREAM
        "event: message_start\ndata: "
        "{\"type\":\"message_start\",\"message\":{\"model\":\"c\",\"usage\":{\"input_tokens\":10,"
        "\"cache_read_input_tokens\":5,\"cache_creation_input_tokens\":3,\"output_tokens\":1}}}\n\n"
        "event: ping\ndata: {\"type\":\"ping\"}\n\n"
        "event: content_block_start\ndata: "
        "{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\","
        "\"thinking\":\"\"}}\n\n"
        "event: content_block_delta\ndata: "
        "{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"thinking_delta\","
        "\"thinking\":\"hm\"}}\n\n"
        "event: content_block_delta\ndata: "
        "{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"signature_delta\","
        "\"signature\":\"S1\"}}\n\n"
        "event: content_block_start\ndata: "
        "{\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"text\","
        "\"text\":\"\"}}\n\n"
        "event: content_block_delta\ndata: "
        "{\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"text_delta\",\"text\":"
        "\"ok\"}}\n\n"
        "event: content_block_start\ndata: "
        "{\"type\":\"content_block_start\",\"index\":2,\"content_block\":{\"type\":\"tool_use\","
        "\"id\":\"t1\",\"name\":\"read\",\"input\":{}}}\n\n"
        "event: content_block_delta\ndata: "
        "{\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":\"input_json_delta\","
        "\"partial_json\":\"{\\\"path\\\":\"}}\n\n"
        "event: content_block_delta\ndata: "
        "{\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":\"input_json_delta\","
        "\"partial_json\":\"\\\"y\\\"}\"}}\n\n"
        "event: message_delta\ndata: "
        "{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"},\"usage\":{\"output_"
        "tokens\":20}}\n\n"
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        NULL};
    struct played p;
    struct asked a;
    (void)state;
    played_start(&p, answers);
    unit_works(ask(&a, &p, MODEL_ANTHROPIC, -1), a.err);
    played_stop(&p);
    assert_string_equal(a.reply.message.text, "ok");
    assert_int_equal(a.reply.message.call_count, 1);
    assert_string_equal(a.reply.message.calls[0].arguments, "{\"path\":\"y\"}");
    char *kept = json_dumps(a.reply.message.opaque, JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(kept, "[{\"signature\":\"S1\",\"thinking\":\"hm\",\"type\":\"thinking\"}]");
    free(kept);
    assert_int_equal(a.reply.usage.input, 10);
    assert_int_equal(a.reply.usage.cache_read, 5);
    assert_int_equal(a.reply.usage.cache_write, 3);
    assert_int_equal(a.reply.usage.output, 20);
    assert_non_null(strstr(p.asked[0], "POST /v1/messages "));
    assert_non_null(strstr(p.asked[0], "x-api-key: sk-secret"));
    assert_non_null(strstr(p.asked[0], "\"system\":[{"));
    assert_non_null(strstr(p.asked[0], "\"tool_use_id\":\"c1\""));
    asked_done(&a);
}

static void test_answer_that_is_not_streamed(void **state) {
    static const char *const answers[] = {
        JSON("200 OK", "") "{\"model\":\"m\",\"choices\":[{\"message\":{\"content\":\"hi\","
                           "\"tool_calls\":[{\"id\":\"z\",\"function\":{\"name\":\"list\","
                           "\"arguments\":{\"a\":1}}}]},\"finish_reason\":\"tool_calls\"}]}",
        NULL};
    struct played p;
    struct asked a;
    (void)state;
    played_start(&p, answers);
    unit_works(ask(&a, &p, MODEL_OPENAI, -1), a.err);
    played_stop(&p);
    assert_string_equal(a.reply.message.text, "hi");
    assert_string_equal(a.reply.message.calls[0].arguments, "{\"a\":1}");
    asked_done(&a);
}

/* A call is never acted upon when its arguments did not arrive whole. */
static void test_call_that_is_cut_off(void **state) {
    static const char *const answers[] = {
        STREAM "data: "
               "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{"
               "\"name\":\"write\",\"arguments\":\"{\\\"path\\\":\\\"x\"}}]},\"finish_reason\":"
               "\"length\"}]}\n\n"
               "data: [DONE]\n\n",
        NULL};
    struct played p;
    struct asked a;
    (void)state;
    played_start(&p, answers);
    unit_works(ask(&a, &p, MODEL_OPENAI, -1), a.err);
    played_stop(&p);
    assert_int_equal(a.reply.message.call_count, 0);
    assert_int_equal(a.reply.dropped, 1);
    assert_int_equal(a.reply.stop, MODEL_STOP_LENGTH);
    asked_done(&a);
}

static void test_calls_in_the_text(void **state) {
    static const char *const answers[] = {
        STREAM
        "data: {\"choices\":[{\"delta\":{\"content\":\"I "
        "look.<tool_call>{\\\"name\\\":\\\"list\\\",\\\"arguments\\\":{\\\"path\\\":\\\".\\\"}}</"
        "tool_call> and <tool_call>nonsense</tool_call>\"},\"finish_reason\":\"stop\"}]}\n\n",
        NULL};
    struct played p;
    struct asked a;
    (void)state;
    played_start(&p, answers);
    unit_works(ask(&a, &p, MODEL_OPENAI, -1), a.err);
    played_stop(&p);
    assert_int_equal(a.reply.message.call_count, 1);
    assert_string_equal(a.reply.message.calls[0].arguments, "{\"path\":\".\"}");
    assert_string_equal(a.reply.message.text, "I look. and <tool_call>nonsense</tool_call>");
    asked_done(&a);
}

static void test_busy_then_broken_off_then_well(void **state) {
    static const char *const answers[] = {
        JSON("429 Too Many Requests", "Retry-After: 0\r\n") "{\"error\":{\"message\":\"slow\"}}",
        STREAM "data: {\"choices\":[{\"delta\":{\"content\":\"half\"}}]}\n\n",
        STREAM
        "data: {\"choices\":[{\"delta\":{\"content\":\"whole\"},\"finish_reason\":\"stop\"}]}\n\n",
        NULL};
    struct played p;
    struct asked a;
    (void)state;
    played_start(&p, answers);
    unit_works(ask(&a, &p, MODEL_OPENAI, -1), a.err);
    played_stop(&p);
    assert_int_equal(a.retries, 2);
    assert_int_equal(a.reply.attempts, 3);
    assert_string_equal(a.reply.message.text, "whole");
    assert_string_equal(a.seen, "whole");
    asked_done(&a);
}

static void failing(const char *answer, enum model_protocol protocol, enum model_failure failure,
                    uint64_t context) {
    const char *const answers[] = {answer, NULL};
    struct played p;
    struct asked a;
    played_start(&p, answers);
    assert_int_equal(ask(&a, &p, protocol, -1), -1);
    played_stop(&p);
    if (a.reply.failure != failure || a.reply.attempts != 1)
        fail_msg("failure %d after %u attempts: %s", (int)a.reply.failure, a.reply.attempts,
                 a.err.text);
    assert_int_equal(a.reply.context_tokens, context);
    assert_null(strstr(a.err.text, "sk-secret"));
    asked_done(&a);
}

static void test_failures_that_are_final(void **state) {
    (void)state;
    failing(JSON("401 Unauthorized", "") "{\"error\":{\"message\":\"bad key\"}}", MODEL_OPENAI,
            MODEL_REJECTED, 0);
    failing(JSON("429 No", "") "{\"error\":{\"message\":\"pay\",\"code\":\"insufficient_quota\"}}",
            MODEL_OPENAI, MODEL_REJECTED, 0);
    failing(JSON("503 No", "x-should-retry: false\r\n") "{}", MODEL_OPENAI, MODEL_BUSY, 0);
    failing(JSON("400 No", "") "{\"error\":{\"message\":\"This model's maximum context length is "
                               "4096 tokens. However, you requested 5000\",\"code\":400}}",
            MODEL_OPENAI, MODEL_OVERFLOW, 4096);
    failing(JSON("400 No", "") "{\"error\":{\"code\":400,\"type\":\"exceed_context_size_error\","
                               "\"message\":\"too much\",\"n_ctx\":2048}}",
            MODEL_OPENAI, MODEL_OVERFLOW, 2048);
    failing(
        JSON("400 No", "") "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\","
                           "\"message\":\"prompt is too long: 210000 tokens > 200000 maximum\"}}",
        MODEL_ANTHROPIC, MODEL_OVERFLOW, 200000);
    failing(JSON("302 Found", "Location: http://192.0.2.1/\r\n") "", MODEL_OPENAI, MODEL_REJECTED,
            0);
}

/* The server knows only the other name of the limit. */
static void test_the_other_token_limit(void **state) {
    static const char *const answers[] = {
        JSON("400 No", "") "{\"error\":{\"message\":\"Unsupported parameter: 'max_tokens' is not "
                           "supported with this model. Use 'max_completion_tokens' instead.\"}}",
        STREAM
        "data: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}\n\n",
        NULL};
    struct played p;
    struct asked a;
    (void)state;
    played_start(&p, answers);
    unit_works(ask(&a, &p, MODEL_OPENAI, -1), a.err);
    played_stop(&p);
    assert_non_null(strstr(p.asked[1], "\"max_completion_tokens\":77"));
    asked_done(&a);
}

static void *cancel_when_asked(void *arg) {
    struct played *p = ((void **)arg)[0];
    int fd = *(int *)((void **)arg)[1];
    uint64_t one = 1;
    while (__atomic_load_n(&p->count, __ATOMIC_ACQUIRE) == 0)
        usleep(1000);
    (void)!write(fd, &one, sizeof(one));
    return NULL;
}

static void test_cancelled_in_the_middle(void **state) {
    static const char *const answers[] = {
        "!" STREAM "data: {\"choices\":[{\"delta\":{\"content\":\"half\"}}]}\n\n", NULL};
    struct played p;
    struct asked a;
    pthread_t thread;
    int fd = eventfd(0, EFD_CLOEXEC);
    (void)state;
    played_start(&p, answers);
    void *both[] = {&p, &fd};
    assert_int_equal(pthread_create(&thread, NULL, cancel_when_asked, both), 0);
    assert_int_equal(ask(&a, &p, MODEL_OPENAI, fd), -1);
    assert_int_equal(a.reply.failure, MODEL_CANCELLED);
    pthread_join(thread, NULL);
    played_stop(&p);
    close(fd);
    asked_done(&a);
}

static void test_local_only(void **state) {
    static const char *const outside[] = {
        "http://192.0.2.1/v1",        "http://example.org/v1",   "http://localhost.example.org/v1",
        "http://127.0.0.1.nip.io/v1", "http://[2001:db8::1]/v1", "http://0.0.0.0:1/v1",
        "http://user@127.0.0.1/v1",   "ftp://127.0.0.1/",        "http://127.0.0.1/?key=x"};
    static const char *const inside[] = {"http://127.0.0.1:9/v1", "http://localhost:9/v1",
                                         "http://[::1]:9/v1", "http://2130706433:9/v1"};
    struct err err;
    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(outside); i++) {
        struct model_options o = {
            .url = outside[i], .name = "m", .local_only = true, .cancel_fd = -1};
        err_clear(&err);
        struct model *m = model_new(&o, &err);
        if (m != NULL)
            fail_msg("%s was taken for local", outside[i]);
        assert_true(err.text[0] != '\0');
    }
    /* The last is an odd spelling of 127.0.0.1, which libcurl makes plain. */
    for (size_t i = 0; i < UNIT_COUNT(inside); i++) {
        struct model_options o = {
            .url = inside[i], .name = "m", .local_only = true, .cancel_fd = -1};
        struct model *m = model_new(&o, &err);
        if (m == NULL)
            fail_msg("%s: %s", inside[i], err.text);
        model_free(m);
    }
}

static void test_keys_of_more_than_one_line(void **state) {
    struct model_options o = {
        .url = "http://127.0.0.1/v1", .name = "m", .key = "a\r\nX: y", .cancel_fd = -1};
    struct err err;
    (void)state;
    err_clear(&err);
    assert_null(model_new(&o, &err));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_openai_stream),
        cmocka_unit_test(test_anthropic_stream),
        cmocka_unit_test(test_answer_that_is_not_streamed),
        cmocka_unit_test(test_call_that_is_cut_off),
        cmocka_unit_test(test_calls_in_the_text),
        cmocka_unit_test(test_busy_then_broken_off_then_well),
        cmocka_unit_test(test_failures_that_are_final),
        cmocka_unit_test(test_the_other_token_limit),
        cmocka_unit_test(test_cancelled_in_the_middle),
        cmocka_unit_test(test_local_only),
        cmocka_unit_test(test_keys_of_more_than_one_line),
    };
    return cmocka_run_group_tests_name("model", tests, NULL, NULL);
}

/* Writes the first inputs of the codec harnesses: `seeds DIRECTORY` fills DIRECTORY/wire,
 * DIRECTORY/spec and DIRECTORY/bundle. Built by `make build/tests/seeds`; to be run again when a
 * layout changes. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "bundle.h"
#include "fd.h"
#include "spec.h"
#include "wire.h"

struct seeds {
    const char *root;
    int failed;
};

static void seeds_write(struct seeds *s, const char *name, const struct buf *bytes) {
    char path[512];
    struct err err = {0};
    snprintf(path, sizeof(path), "%s/%s", s->root, name);
    if (fd_write_atomic(AT_FDCWD, path, bytes->data, bytes->len, 0644, &err) < 0) {
        fprintf(stderr, "seeds: %s\n", err.text);
        s->failed = 1;
    }
}

static struct limits seeds_limits(void) {
    struct limits l;
    for (int i = 0; i < LIMIT_COUNT; i++)
        l.v[i] = limit_info((enum limit_id)i)->max;
    return l;
}

/* One byte of choices (fuzz_wire.c), then the packet with its tail. */
static void seeds_packet(struct seeds *s, const char *name, unsigned choice, void *packet,
                         size_t size, const struct buf *tail) {
    struct buf out;
    buf_init(&out, 1u << 20);
    char first = (char)choice;
    struct wire_head *head = packet;
    head->version = WIRE_VERSION;
    head->size = (uint32_t)(size + (tail ? tail->len : 0));
    if (buf_append(&out, &first, 1, NULL) < 0 || buf_append(&out, packet, size, NULL) < 0 ||
        (tail && buf_append(&out, tail->data, tail->len, NULL) < 0))
        s->failed = 1;
    seeds_write(s, name, &out);
    buf_done(&out);
}

static void seeds_spec_block(struct seeds *s, struct buf *out, size_t argc, size_t envc) {
    static const char *const argv[] = {"/bin/sh", "-c", "echo hi", ""};
    static const char *const env[] = {"PATH=/usr/bin:/bin", "HOME=/home/user", "EMPTY="};
    if (spec_encode("/workspace", argv, argc, env, envc, out, NULL) < 0)
        s->failed = 1;
}

static void seeds_requests(struct seeds *s) {
    struct wire_hello hello = {.head.type = WIRE_HELLO};
    seeds_packet(s, "wire/hello", 0, &hello, sizeof(hello), NULL);
    struct wire_look look = {.head.type = WIRE_LOOK, .what = WIRE_LOOK_ALL};
    seeds_packet(s, "wire/look", 0, &look, sizeof(look), NULL);
    struct wire_weigh weigh = {.head = {.type = WIRE_WEIGH, .jail = 1}, .shares = WIRE_SHARES};
    seeds_packet(s, "wire/weigh", 0, &weigh, sizeof(weigh), NULL);
    struct wire_open open = {.head = {.type = WIRE_OPEN, .jail = 1},
                             .policy = "default",
                             .image = "host",
                             .limits = seeds_limits()};
    seeds_packet(s, "wire/open", 0, &open, sizeof(open), NULL);
    struct buf spec;
    buf_init(&spec, 1u << 20);
    seeds_spec_block(s, &spec, 4, 3);
    struct wire_exec exec = {.head = {.type = WIRE_EXEC, .jail = 1, .exec = 2},
                             .fds = WIRE_FD_STDOUT | WIRE_FD_STDERR,
                             .flags = WIRE_EXEC_SHELL | WIRE_EXEC_MORE,
                             .end_on = END_ON_ALL,
                             .limits = seeds_limits(),
                             .spec_size = (uint32_t)spec.len};
    seeds_packet(s, "wire/exec_inline", 2 << 1, &exec, sizeof(exec), &spec);
    exec.fds = WIRE_FD_ALL;
    exec.spec_size = WIRE_SPEC_MAX;
    seeds_packet(s, "wire/exec_memfd", 5 << 1, &exec, sizeof(exec), NULL);
    exec.kind = WIRE_EXEC_COLLECT;
    exec.fds = WIRE_FD_STDOUT;
    exec.flags = 0;
    exec.collect_bytes = 1u << 24;
    exec.collect_files = 1024;
    exec.spec_size = (uint32_t)spec.len;
    seeds_packet(s, "wire/exec_collect", 1 << 1, &exec, sizeof(exec), &spec);
    buf_done(&spec);
    struct wire_kill kill = {.head = {.type = WIRE_KILL, .jail = 1}, .cause = CAUSE_CANCELLED};
    seeds_packet(s, "wire/kill", 0, &kill, sizeof(kill), NULL);
    struct wire_close close = {.head = {.type = WIRE_CLOSE, .jail = 1}};
    seeds_packet(s, "wire/close", 0, &close, sizeof(close), NULL);
}

static void seeds_replies(struct seeds *s) {
    struct wire_welcome welcome = {.head.type = WIRE_WELCOME,
                                   .slots = 64,
                                   .policies = 3,
                                   .capabilities = 20,
                                   .execs = 64,
                                   .backend = BACKEND_NATIVE};
    seeds_packet(s, "wire/welcome", 1, &welcome, sizeof(welcome), NULL);
    welcome.backend = BACKEND_DOCKER;
    memset(welcome.host_sha256, 7, sizeof(welcome.host_sha256));
    seeds_packet(s, "wire/welcome_docker", 1, &welcome, sizeof(welcome), NULL);
    struct buf text;
    buf_init(&text, 1024);
    buf_puts(&text, "{\"name\": \"default\"}", NULL);
    struct wire_policy policy = {.head.type = WIRE_POLICY,
                                 .name = "default",
                                 .ceiling = seeds_limits(),
                                 .preset = seeds_limits(),
                                 .writable = WIRE_WRITABLE_ALL,
                                 .max_steps = 64,
                                 .backends = BACKEND_BITS_ALL,
                                 .backend = BACKEND_NATIVE,
                                 .text_size = (uint32_t)text.len};
    seeds_packet(s, "wire/policy", 1, &policy, sizeof(policy), &text);
    buf_done(&text);
    struct wire_capability capability = {.head.type = WIRE_CAPABILITY,
                                         .status = WIRE_CAP_ENFORCED,
                                         .required = 1,
                                         .name = "mem_bytes",
                                         .how = "cgroup",
                                         .proof = "tried"};
    seeds_packet(s, "wire/capability", 1, &capability, sizeof(capability), NULL);
    struct wire_kind kind = {.head.type = WIRE_KIND, .policy = "default", .image = "host"};
    seeds_packet(s, "wire/kind", 1, &kind, sizeof(kind), NULL);
    struct wire_seen seen = {.head = {.type = WIRE_SEEN, .jail = 1}, .cpu_ns = 1, .mem_bytes = 1};
    seeds_packet(s, "wire/seen", 1, &seen, sizeof(seen), NULL);
    struct wire_ready ready = {.head.type = WIRE_READY};
    seeds_packet(s, "wire/ready", 1, &ready, sizeof(ready), NULL);
    struct wire_end end = {.head = {.type = WIRE_END, .jail = 1}, .cause = CAUSE_EXIT};
    seeds_packet(s, "wire/end_exit", 1, &end, sizeof(end), NULL);
    end.cause = CAUSE_START;
    end.exit_code = -1;
    end.code = 2;
    memcpy(end.stage, "exec", 5);
    memcpy(end.path, "/no/such", 9);
    seeds_packet(s, "wire/end_start", 1, &end, sizeof(end), NULL);
    struct wire_failed failed = {
        .head = {.type = WIRE_FAILED, .jail = 1}, .code = 1, .stage = "mount", .text = "refused"};
    seeds_packet(s, "wire/failed", 1, &failed, sizeof(failed), NULL);
    struct wire_closed closed = {.head = {.type = WIRE_CLOSED, .jail = 1}};
    seeds_packet(s, "wire/closed", 1, &closed, sizeof(closed), NULL);
    struct wire_state state = {.head.type = WIRE_STATE, .warm = 4, .health = "no memory"};
    seeds_packet(s, "wire/state", 1, &state, sizeof(state), NULL);
}

static void seeds_specs(struct seeds *s) {
    struct buf out;
    buf_init(&out, 1u << 20);
    seeds_spec_block(s, &out, 4, 3);
    seeds_write(s, "spec/full", &out);
    out.data[out.len - 1] = 'x';
    seeds_write(s, "spec/unended", &out);
    buf_clear(&out);
    seeds_spec_block(s, &out, 1, 0);
    seeds_write(s, "spec/least", &out);
    buf_done(&out);
}

static void seeds_bundles(struct seeds *s) {
    struct buf out;
    buf_init(&out, 1u << 20);
    if (bundle_file(&out, 0644, "main.py", 7, "print(1)\n", 9, NULL) < 0 ||
        bundle_file(&out, 0755, "a/b/c", 5, NULL, 0, NULL) < 0 ||
        bundle_error(&out, BUNDLE_NOT_FOUND, "../x*", 5, NULL) < 0)
        s->failed = 1;
    seeds_write(s, "bundle/unended", &out);
    if (bundle_end(&out, NULL) < 0)
        s->failed = 1;
    seeds_write(s, "bundle/full", &out);
    buf_consume(&out, out.len - sizeof(struct bundle_record));
    seeds_write(s, "bundle/empty", &out);
    buf_done(&out);
}

int main(int argc, char **argv) {
    struct seeds s = {.root = argc == 2 ? argv[1] : "tests/fuzz/corpus"};
    seeds_requests(&s);
    seeds_replies(&s);
    seeds_specs(&s);
    seeds_bundles(&s);
    return s.failed;
}

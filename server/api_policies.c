#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "api.h"
#include "json_memory.h"
#include "json_out.h"
#include "str.h"

#define API_POLICIES_MAX ((size_t)1024 * 1024)

static const struct {
    uint32_t bit;
    const char *key, *path;
} api_policies_places[] = {
    {WIRE_WRITABLE_WORKSPACE, "workspace", "/workspace"},
    {WIRE_WRITABLE_HOME, "home", "/home/user"},
    {WIRE_WRITABLE_TMP, "tmp", "/tmp"},
    {WIRE_WRITABLE_VAR_TMP, "var_tmp", "/var/tmp"},
    {WIRE_WRITABLE_SHM, "shm", "/dev/shm"},
};
#define API_POLICIES_PLACES (sizeof(api_policies_places) / sizeof(api_policies_places[0]))

/* root[key1][key2] of the policy file as a string, or NULL. */
static const char *api_policies_text(const json_t *root, const char *key1, const char *key2,
                                     const char *key3) {
    const json_t *v = json_object_get(root, key1);
    if (key2 != NULL)
        v = json_object_get(v, key2);
    if (key3 != NULL)
        v = json_object_get(v, key3);
    return json_string_value(v);
}

static void api_policies_why(struct json_out *j, const char *why) {
    if (why != NULL)
        json_out_str(j, "why", why);
}

static void api_policies_limits(struct json_out *j, const struct wire_policy *p,
                                const json_t *root) {
    json_out_open(j, "limits", '{');
    for (int i = 0; i < LIMIT_COUNT; i++) {
        const struct limit_info *info = limit_info((enum limit_id)i);
        json_out_open(j, info->name, '{');
        json_out_u64(j, "default", p->preset.v[i]);
        json_out_u64(j, "ceiling", p->ceiling.v[i]);
        json_out_str(j, "what", info->what);
        if (root != NULL)
            api_policies_why(j, api_policies_text(root, "limits", info->name, "why"));
        json_out_close(j, '}');
    }
    json_out_close(j, '}');
}

static void api_policies_writable(struct json_out *j, const struct wire_policy *p,
                                  const json_t *root) {
    json_out_open(j, "writable", '{');
    for (size_t i = 0; i < API_POLICIES_PLACES; i++) {
        json_out_open(j, api_policies_places[i].key, '{');
        json_out_str(j, "path", api_policies_places[i].path);
        json_out_bool(j, "allow", (p->writable & api_policies_places[i].bit) != 0);
        api_policies_why(j, api_policies_text(root, "writable", api_policies_places[i].key, "why"));
        json_out_close(j, '}');
    }
    json_out_close(j, '}');
}

static void api_policies_end_on(struct json_out *j, const struct wire_policy *p,
                                const json_t *root) {
    json_out_open(j, "end_on", '{');
    json_out_open(j, "causes", '[');
    if (p->end_on & END_ON_OUTPUT)
        json_out_str(j, NULL, "output");
    if (p->end_on & END_ON_PIDS)
        json_out_str(j, NULL, "pids");
    if (p->end_on & END_ON_DISK)
        json_out_str(j, NULL, "disk");
    json_out_close(j, ']');
    api_policies_why(j, api_policies_text(root, "end_on", "why", NULL));
    json_out_close(j, '}');
}

/* Sentences. Each says what a program inside can find out by trying, and the tests do try. */

static void api_policies_say_read(struct json_out *j) {
    static const char *const say[] = {
        "It can read the programs and libraries of its image: /usr with /bin, /sbin and /lib.",
        ("It can read an /etc that is made up for it: users, hosts, time zone, certificates; "
         "and copies of the few settings of the host that compilers and runtimes in /usr need; no "
         "names of people or hosts, no passwords, no keys."),
        "It can read the files that came with the request, in /workspace.",
        "It can see its own processes in /proc, and no others.",
        ("It cannot read the host's /home, /root, /var, /run, /opt, /srv or /sys; they are not "
         "there."),
        "It cannot read environment variables, keys or open files of the server or of the host.",
    };
    json_out_open(j, "read", '[');
    for (size_t i = 0; i < sizeof(say) / sizeof(say[0]); i++)
        json_out_str(j, NULL, say[i]);
    json_out_close(j, ']');
}

static void api_policies_say_write(struct json_out *j, const struct wire_policy *p) {
    char yes[160] = "", no[160] = "", disk[32], most[32], line[400];
    for (size_t i = 0; i < API_POLICIES_PLACES; i++) {
        char *list = p->writable & api_policies_places[i].bit ? yes : no;
        size_t len = strlen(list);
        snprintf(list + len, sizeof(yes) - len, "%s%s", len > 0 ? ", " : "",
                 api_policies_places[i].path);
    }
    str_human_bytes(disk, sizeof(disk), p->preset.v[LIMIT_DISK_BYTES]);
    str_human_bytes(most, sizeof(most), p->ceiling.v[LIMIT_DISK_BYTES]);
    json_out_open(j, "write", '[');
    snprintf(line, sizeof(line), "It can write to %s, and nowhere else.", yes);
    json_out_str(j, NULL, line);
    if (no[0] != '\0') {
        snprintf(line, sizeof(line), "It cannot write to %s.", no);
        json_out_str(j, NULL, line);
    }
    snprintf(line, sizeof(line),
             "All of that together holds at most %s in %" PRIu64
             " files, directories and links (a request may ask for up to %s and %" PRIu64 ").",
             disk, p->preset.v[LIMIT_INODES], most, p->ceiling.v[LIMIT_INODES]);
    json_out_str(j, NULL, line);
    json_out_str(j, NULL, "These files are in memory and count against mem_bytes as well.");
    json_out_str(j, NULL,
                 "What it writes is gone when the run is over, except for what the "
                 "request collects.");
    json_out_close(j, ']');
}

static void api_policies_say_reach(struct json_out *j, bool strict) {
    const char *const say[] = {
        "It cannot reach any network: the only interface is a loopback of its own, and names "
        "other than localhost are not found, at once.",
        strict ? "It cannot open sockets other than Unix ones, so not even that loopback is of use."
               : "It can talk to itself over loopback, with IPv4 and IPv6.",
        "It cannot reach other sandboxes, the host's processes or sockets, shared memory or keys.",
        "It cannot gain privileges: setuid programs have no effect, capabilities are empty, and "
        "system calls outside of an allow-list fail or end it.",
    };
    json_out_open(j, "reach", '[');
    for (size_t i = 0; i < sizeof(say) / sizeof(say[0]); i++)
        json_out_str(j, NULL, say[i]);
    json_out_close(j, ']');
}

static void api_policies_head(struct json_out *j, const struct wire_policy *p, const json_t *root) {
    char hex[65];
    for (size_t i = 0; i < 32; i++)
        snprintf(hex + 2 * i, 3, "%02x", p->sha256[i]);
    json_out_str(j, "name", p->name);
    json_out_str(j, "sha256", hex);
    const char *about = api_policies_text(root, "about", NULL, NULL);
    if (about != NULL)
        json_out_str(j, "about", about);
}

static const struct link *api_policies_shard(struct server *s, struct http_req *req) {
    struct api_error error = {0};
    const struct link *shard = links_first_ready(&s->links);
    if (shard != NULL)
        return shard;
    api_error_set(&error, 503, "no_runner", NULL,
                  "No runner is connected, and the policies come from it.");
    http_reply_error(req, &error);
    return NULL;
}

void api_policies_list(struct server *s, struct http_req *req, const struct route_args *args) {
    (void)args;
    struct buf out;
    struct json_out j;
    const struct link *shard = api_policies_shard(s, req);
    if (shard == NULL)
        return;
    buf_init(&out, API_POLICIES_MAX);
    json_out_init(&j, &out);
    json_out_open(&j, NULL, '{');
    json_out_open(&j, "policies", '[');
    for (size_t i = 0; i < shard->policy_count; i++) {
        const struct link_policy *p = &shard->policies[i];
        json_t *root = json_memory_load(p->text, strlen(p->text), 0, NULL);
        json_out_open(&j, NULL, '{');
        api_policies_head(&j, &p->head, root);
        api_policies_limits(&j, &p->head, NULL);
        json_out_close(&j, '}');
        json_decref(root);
    }
    json_out_close(&j, ']');
    json_out_close(&j, '}');
    api_reply_buf(req, 200, "application/json", &out, json_out_end(&j, NULL));
}

/* The policy's own first. */
static void api_policies_backends(struct json_out *j, const struct wire_policy *p,
                                  const json_t *root) {
    json_out_open(j, "backends", '{');
    json_out_open(j, "allow", '[');
    json_out_str(j, NULL, backend_name(p->backend));
    for (uint32_t b = BACKEND_NATIVE; b < BACKEND_COUNT; b++)
        if ((p->backends & BACKEND_BIT(b)) && b != p->backend)
            json_out_str(j, NULL, backend_name(b));
    json_out_close(j, ']');
    api_policies_why(j, api_policies_text(root, "backends", "why", NULL));
    json_out_close(j, '}');
}

static void api_policies_write(struct json_out *j, const struct wire_policy *p,
                               const json_t *root) {
    const char *set = api_policies_text(root, "syscalls", "set", NULL);
    json_out_open(j, NULL, '{');
    api_policies_head(j, p, root);
    api_policies_limits(j, p, root);
    api_policies_writable(j, p, root);
    json_out_open(j, "network", '{');
    json_out_str(j, "mode", "none");
    api_policies_why(j, api_policies_text(root, "network", "why", NULL));
    json_out_close(j, '}');
    json_out_open(j, "syscalls", '{');
    json_out_str(j, "set", set != NULL ? set : "default");
    api_policies_why(j, api_policies_text(root, "syscalls", "why", NULL));
    json_out_close(j, '}');
    api_policies_end_on(j, p, root);
    json_out_open(j, "steps", '{');
    json_out_u64(j, "max", p->max_steps);
    api_policies_why(j, api_policies_text(root, "steps", "why", NULL));
    json_out_close(j, '}');
    api_policies_backends(j, p, root);
    json_t *images = json_object_get(root, "images");
    if (images != NULL)
        json_out_tree(j, "images", images);
    json_out_open(j, "sentences", '{');
    api_policies_say_read(j);
    api_policies_say_write(j, p);
    api_policies_say_reach(j, set != NULL && strcmp(set, "strict") == 0);
    json_out_close(j, '}');
    json_out_close(j, '}');
}

void api_policies_get(struct server *s, struct http_req *req, const struct route_args *args) {
    struct buf out;
    struct json_out j;
    struct api_error error = {0};
    const struct link *shard = api_policies_shard(s, req);
    if (shard == NULL)
        return;
    const struct link_policy *p = link_policy(shard, args->value[0]);
    if (p == NULL) {
        api_error_set(&error, 404, "not_found", NULL,
                      "There is no such policy; GET /v1/policies lists them.");
        http_reply_error(req, &error);
        return;
    }
    json_t *root = json_memory_load(p->text, strlen(p->text), 0, NULL);
    buf_init(&out, API_POLICIES_MAX);
    json_out_init(&j, &out);
    api_policies_write(&j, &p->head, root);
    json_decref(root);
    api_reply_buf(req, 200, "application/json", &out, json_out_end(&j, NULL));
}

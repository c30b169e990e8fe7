#include "policy.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "policy_json.h"
#include "str.h"

#define POLICY_STEPS_MAX 256u

static const char *const policy_why[] = {"why", NULL};

/* Reads `why` where nothing keeps it: the text of the file is what people are shown. */
static int policy_read_why(const struct policy_object *o, struct err *err) {
    const char *why;
    return policy_json_text(o, policy_why[0], &why, err);
}

static int policy_read_limit(const struct policy_object *limits, enum limit_id id, struct policy *p,
                             struct err *err) {
    static const char *const keys[] = {"default", "ceiling", "why", NULL};
    const struct limit_info *info = limit_info(id);
    struct policy_object o;
    if (policy_json_open(limits, info->name, keys, &o, err) != 0 || policy_read_why(&o, err) != 0)
        return -1;
    if (policy_json_u64(&o, "default", info->min, info->max, &p->preset.v[id], err) != 0 ||
        policy_json_u64(&o, "ceiling", info->min, info->max, &p->ceiling.v[id], err) != 0)
        return -1;
    if (p->ceiling.v[id] < p->preset.v[id])
        return err_set(err, ERR_INVALID, 0,
                       "%s/ceiling is %" PRIu64 ", less than the default of %" PRIu64, o.where,
                       p->ceiling.v[id], p->preset.v[id]);
    return 0;
}

static int policy_read_limits(const struct policy_object *top, struct policy *p, struct err *err) {
    const char *keys[LIMIT_COUNT + 1] = {NULL};
    struct policy_object o;
    for (int id = 0; id < LIMIT_COUNT; id++)
        keys[id] = limit_info((enum limit_id)id)->name;
    if (policy_json_open(top, "limits", keys, &o, err) != 0)
        return -1;
    for (int id = 0; id < LIMIT_COUNT; id++)
        if (policy_read_limit(&o, (enum limit_id)id, p, err) != 0)
            return -1;
    return 0;
}

static int policy_read_writable(const struct policy_object *top, struct policy *p,
                                struct err *err) {
    static const char *const places[] = {"home", "tmp", "var_tmp", "shm", NULL};
    static const uint32_t bits[] = {WIRE_WRITABLE_HOME, WIRE_WRITABLE_TMP, WIRE_WRITABLE_VAR_TMP,
                                    WIRE_WRITABLE_SHM};
    static const char *const keys[] = {"allow", "why", NULL};
    struct policy_object o;
    p->writable = WIRE_WRITABLE_WORKSPACE;
    if (policy_json_open(top, "writable", places, &o, err) != 0)
        return -1;
    for (size_t i = 0; places[i]; i++) {
        struct policy_object place;
        bool allow;
        if (policy_json_open(&o, places[i], keys, &place, err) != 0 ||
            policy_json_bool(&place, "allow", &allow, err) != 0 ||
            policy_read_why(&place, err) != 0)
            return -1;
        if (allow)
            p->writable |= bits[i];
    }
    return 0;
}

static int policy_read_network(const struct policy_object *top, struct policy *p, struct err *err) {
    static const char *const keys[] = {"mode", "why", NULL};
    static const char *const modes[] = {[WIRE_NETWORK_NONE] = "none", NULL};
    struct policy_object o;
    if (policy_json_open(top, "network", keys, &o, err) != 0 ||
        policy_json_word(&o, "mode", modes, &p->network, err) != 0)
        return -1;
    return policy_read_why(&o, err);
}

static int policy_read_syscalls(const struct policy_object *top, struct policy *p,
                                struct err *err) {
    static const char *const keys[] = {"set", "why", NULL};
    static const char *const sets[] = {
        [POLICY_SYSCALLS_DEFAULT] = "default", [POLICY_SYSCALLS_STRICT] = "strict", NULL};
    struct policy_object o;
    uint32_t set;
    if (policy_json_open(top, "syscalls", keys, &o, err) != 0 ||
        policy_json_word(&o, "set", sets, &set, err) != 0 || policy_read_why(&o, err) != 0)
        return -1;
    p->syscalls = (enum policy_syscalls)set;
    return 0;
}

static int policy_read_end_on(const struct policy_object *top, struct policy *p, struct err *err) {
    static const char *const keys[] = {"causes", "why", NULL};
    /* In the order of the bits of enum end_on. */
    static const char *const causes[] = {"pids", "disk", "output", NULL};
    _Static_assert(END_ON_PIDS == 1 && END_ON_DISK == 2 && END_ON_OUTPUT == 4, "order of causes");
    struct policy_object o;
    if (policy_json_open(top, "end_on", keys, &o, err) != 0 ||
        policy_json_words(&o, "causes", causes, &p->end_on, err) != 0)
        return -1;
    return policy_read_why(&o, err);
}

static int policy_read_steps(const struct policy_object *top, struct policy *p, struct err *err) {
    static const char *const keys[] = {"max", "why", NULL};
    struct policy_object o;
    uint64_t max;
    if (policy_json_open(top, "steps", keys, &o, err) != 0 ||
        policy_json_u64(&o, "max", 1, POLICY_STEPS_MAX, &max, err) != 0 ||
        policy_read_why(&o, err) != 0)
        return -1;
    p->max_steps = (uint32_t)max;
    return 0;
}

/* The only key that may be missing. A word that is there twice, or no word at all, is an error. */
static int policy_read_backends(const struct policy_object *top, struct policy *p,
                                struct err *err) {
    static const char *const keys[] = {"allow", "why", NULL};
    static const char *const words[] = {"native", "docker", NULL};
    _Static_assert(BACKEND_NATIVE == 1 && BACKEND_DOCKER == 2, "order of words");
    struct policy_object o;
    uint32_t mask;
    p->backend = BACKEND_NATIVE;
    p->backends = BACKEND_BIT(BACKEND_NATIVE);
    if (json_object_get(top->json, "backends") == NULL)
        return 0;
    if (policy_json_open(top, "backends", keys, &o, err) != 0 ||
        policy_json_words(&o, "allow", words, &mask, err) != 0)
        return -1;
    const json_t *allow = json_object_get(o.json, "allow");
    if (mask == 0)
        return err_set(err, ERR_INVALID, 0, "%s/allow must name at least one back end", o.where);
    p->backend = backend_by_name(json_string_value(json_array_get(allow, 0)));
    p->backends = mask << BACKEND_NATIVE;
    return policy_read_why(&o, err);
}

static int policy_read_image_list(const struct policy_object *o, struct policy *p,
                                  struct err *err) {
    const json_t *list;
    if (policy_json_array(o, "allow", &list, err) != 0)
        return -1;
    size_t count = json_array_size(list);
    if (count == 0 || count > IMAGE_REF_LIST_MAX)
        return err_set(err, ERR_INVALID, 0, "%s/allow must name 1 to %u images", o->where,
                       IMAGE_REF_LIST_MAX);
    p->images = calloc(count, sizeof(*p->images));
    if (!p->images)
        return err_sys(err, "cannot keep the images of a policy");
    for (size_t i = 0; i < count; i++) {
        const char *text = json_string_value(json_array_get(list, i));
        if (!text)
            return err_set(err, ERR_INVALID, 0, "%s/allow/%zu must be a text", o->where, i);
        if (image_ref_parse(text, &p->images[i], err) != 0)
            return err_wrap(err, "%s/allow/%zu", o->where, i);
    }
    p->image_count = count;
    return 0;
}

static int policy_read_images(const struct policy_object *top, struct policy *p, struct err *err) {
    static const char *const keys[] = {"allow", "why", NULL};
    struct policy_object o;
    p->any_image = !policy_json_has(top, "images");
    if (p->any_image)
        return 0;
    if (policy_json_open(top, "images", keys, &o, err) != 0 || policy_read_why(&o, err) != 0)
        return -1;
    return policy_read_image_list(&o, p, err);
}

static int policy_read_name(const struct policy_object *top, const char *expected, struct policy *p,
                            struct err *err) {
    const char *name, *about;
    if (policy_json_text(top, "name", &name, err) != 0 ||
        policy_json_text(top, "about", &about, err) != 0)
        return -1;
    if (strcmp(name, expected) != 0 || !str_copy(p->name, sizeof(p->name), name))
        return err_set(err, ERR_INVALID, 0, "/name must be \"%s\", as the file is named", expected);
    return 0;
}

static int policy_read(const char *name, const json_t *json, struct policy *p, struct err *err) {
    static const char *const keys[] = {"name",     "about",  "limits", "writable", "network",
                                       "syscalls", "end_on", "steps",  NULL};
    static const char *const more[] = {"backends", "images", NULL};
    struct policy_object top;
    if (policy_json_top(json, keys, more, &top, err) != 0 ||
        policy_read_name(&top, name, p, err) != 0 || policy_read_limits(&top, p, err) != 0 ||
        policy_read_writable(&top, p, err) != 0)
        return -1;
    if (policy_read_network(&top, p, err) != 0 || policy_read_syscalls(&top, p, err) != 0 ||
        policy_read_end_on(&top, p, err) != 0)
        return -1;
    if (policy_read_steps(&top, p, err) != 0 || policy_read_backends(&top, p, err) != 0)
        return -1;
    return policy_read_images(&top, p, err);
}

int policy_parse(const char *name, const char *text, size_t size, struct policy *out,
                 struct err *err) {
    struct policy p = {0};
    json_error_t e;
    if (!str_is_name(name))
        return err_set(err, ERR_INVALID, 0,
                       "a policy's name must begin with a letter, a digit or "
                       "'_' and go on with those, '.' and '-', 63 at most");
    if (size == 0 || size > WIRE_POLICY_TEXT_MAX)
        return err_set(err, ERR_INVALID, 0, "the file has %zu bytes; it must have 1 to %u", size,
                       WIRE_POLICY_TEXT_MAX);
    json_t *json = json_loadb(text, size, JSON_REJECT_DUPLICATES, &e);
    if (!json)
        return err_set(err, ERR_INVALID, 0, "line %d, column %d: %s", e.line, e.column, e.text);
    int rc = policy_read(name, json, &p, err);
    json_decref(json);
    p.text = rc == 0 ? malloc(size + 1) : NULL;
    if (rc == 0 && !p.text) {
        errno = ENOMEM;
        rc = err_sys(err, "cannot keep the text of policy %s", name);
    }
    if (rc != 0) {
        policy_done(&p);
        return -1;
    }
    memcpy(p.text, text, size);
    p.text[size] = '\0';
    p.text_size = size;
    (void)crypto_hash_sha256(p.sha256, (const unsigned char *)text, size);
    *out = p;
    return 0;
}

void policy_done(struct policy *p) {
    if (!p)
        return;
    free(p->images);
    free(p->text);
    memset(p, 0, sizeof(*p));
}

int policy_check_image(const struct policy *p, const char *name, const uint8_t sha256[32],
                       struct err *err) {
    if (p->any_image || image_ref_allows(p->images, p->image_count, name, sha256))
        return 0;
    return err_set(err, ERR_INVALID, EPERM, "the policy %s does not allow the image %s, as it is",
                   p->name, name);
}

#include <jansson.h>
#include <stdio.h>

#include "image_check.h"
#include "json_out.h"
#include "sandbox_internal.h"
#include "store_file.h"

static const char *sandbox_json_state(const struct sandbox *sb) {
    static const char *const names[] = {[SANDBOX_OPENING] = "opening",
                                        [SANDBOX_READY] = "ready",
                                        [SANDBOX_PAUSED] = "paused",
                                        [SANDBOX_GONE] = "gone"};
    return names[sb->state];
}

static void sandbox_json_usage(struct json_out *j, const struct sandbox_live *live) {
    json_out_open(j, "usage", '{');
    json_out_u64(j, "executions", live->executions);
    json_out_u64(j, "running", live->command_count);
    if (live->measured) {
        json_out_u64(j, "disk_bytes", live->disk_bytes);
        json_out_u64(j, "inodes", live->inodes);
        json_out_u64(j, "mem_peak_bytes", live->mem_peak_bytes);
    }
    json_out_close(j, '}');
}

void sandbox_json_write(struct json_out *j, const char *key, const struct sandbox *sb) {
    const struct sandbox_live *live = sandbox_left(sb);
    const struct sandbox_spec *spec = &live->spec;
    char sha[65];
    json_out_open(j, key, '{');
    json_out_str(j, "id", sb->id);
    json_out_str(j, "state", sandbox_json_state(sb));
    json_out_u64(j, "created_at", sb->created_ms);
    json_out_u64(j, "expires_at", live->expires_ms);
    json_out_u64(j, "ttl_ms", spec->ttl_ms);
    json_out_u64(j, "idle_ms", spec->idle_ms);
    json_t *limits = limits_json_encode(&spec->limits);
    json_out_tree(j, "limits", limits);
    json_decref(limits);
    store_file_hex(spec->policy.sha256, 32, sha);
    json_out_open(j, "policy", '{');
    json_out_str(j, "name", spec->policy.name);
    json_out_str(j, "sha256", sha);
    json_out_close(j, '}');
    json_out_str(j, "image", spec->image);
    json_out_str(j, "backend", backend_name(spec->backend));
    image_check_write(j, spec->image_sha256);
    json_out_open(j, "network", '{');
    json_out_str(j, "mode", "none");
    json_out_close(j, '}');
    json_out_str(j, "disk", spec->disk == WIRE_DISK_FILE ? "file" : "memory");
    if (spec->origin[0] != '\0')
        json_out_str(j, "from", spec->origin);
    else
        json_out_null(j, "from");
    if (spec->metadata != NULL) {
        json_out_tree(j, "metadata", spec->metadata);
    } else {
        json_out_open(j, "metadata", '{');
        json_out_close(j, '}');
    }
    sandbox_json_usage(j, live);
    trace_write(j, &sb->trace);
    json_out_close(j, '}');
}

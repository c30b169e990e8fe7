#include "rootfs_steps.h"

#include <stdbool.h>
#include <string.h>

#include "buf.h"
#include "fd.h"

#define ROOTFS_MOUNTINFO_MAX (1u << 20)

static bool rootfs_has_option(const char *options, const char *name) {
    size_t len = strlen(name);
    for (const char *p = options; (p = strstr(p, name)) != NULL; p += len) {
        if ((p == options || p[-1] == ',') && (p[len] == ',' || p[len] == '\0')) {
            return true;
        }
    }
    return false;
}

/* Is this the directory /NAME, or something in it? */
static bool rootfs_is_below(const char *point, const char *name) {
    size_t len = strlen(name);
    return strncmp(point + 1, name, len) == 0 && (point[1 + len] == '\0' || point[1 + len] == '/');
}

/* /dev/null and the like, where they are bound. */
static bool rootfs_is_device(const char *point) {
    for (size_t i = 0; strncmp(point, "/dev/", 5) == 0 && i < ROOTFS_NODES; i++) {
        if (strcmp(point + 5, rootfs_nodes[i].name) == 0) {
            return true;
        }
    }
    return false;
}

/* Is this mount point one that the template is meant to have? */
static bool rootfs_is_ours(const char *point, bool host, bool rootless) {
    static const char *const fixed[] = {"/", "/dev", "/proc"};
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++) {
        if (strcmp(point, fixed[i]) == 0) {
            return true;
        }
    }
    if (rootless && rootfs_is_device(point)) {
        return true;
    }
    if (!host) {
        return strcmp(point, "/etc/hosts") == 0;
    }
    for (size_t i = 0; rootfs_usr_names[i] != NULL; i++) {
        if (rootfs_is_below(point, rootfs_usr_names[i])) {
            return true;
        }
    }
    return rootfs_is_below(point, "usr");
}

static int rootfs_verify_line(char *line, bool host, bool rootless, struct err *err) {
    char *field[7];
    char *save = NULL;
    for (size_t i = 0; i < 7; i++) {
        field[i] = strtok_r(i == 0 ? line : NULL, " ", &save);
        if (field[i] == NULL) {
            return err_set(err, ERR_STATE, 0, "mountinfo has a line of %zu fields", i);
        }
    }
    const char *point = field[4], *options = field[5], *propagation = field[6];
    if (!rootfs_is_ours(point, host, rootless)) {
        return err_set(err, ERR_STATE, 0, "an unexpected mount is left at %s", point);
    }
    bool ok = rootfs_has_option(options, "nosuid") && strcmp(propagation, "-") == 0 &&
              (strcmp(point, "/proc") == 0 || rootfs_has_option(options, "ro")) &&
              (strcmp(point, "/dev") == 0 || rootfs_has_option(options, "nodev") ||
               (rootless && rootfs_is_device(point)));
    return ok ? 0
              : err_set(err, ERR_STATE, 0, "the mount at %s has the wrong flags: %s %s", point,
                        options, propagation);
}

int rootfs_verify(struct rootfs_build *b, struct err *err) {
    struct buf text;
    buf_init(&text, ROOTFS_MOUNTINFO_MAX);
    if (fd_read_file(b->proc_self, "mountinfo", &text, err) != 0) {
        return -1;
    }
    bool host = strcmp(b->cfg->image, ROOTFS_IMAGE_HOST) == 0;
    size_t lines = 0;
    char *save = NULL;
    for (char *line = text.len > 0 ? strtok_r(text.data, "\n", &save) : NULL; line != NULL;
         line = strtok_r(NULL, "\n", &save)) {
        if (rootfs_verify_line(line, host, b->cfg->rootless, err) != 0) {
            return -1;
        }
        lines++;
    }
    return lines >= 3 ? 0 : err_set(err, ERR_STATE, 0, "only %zu mounts are there", lines);
}

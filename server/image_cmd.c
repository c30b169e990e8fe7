#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "buf.h"
#include "fd.h"
#include "image.h"
#include "image_import.h"
#include "image_layout.h"
#include "image_peek.h"
#include "image_pull.h"
#include "opt.h"
#include "state.h"
#include "str.h"
#include "subcommand.h"

#define IMAGE_CMD_OPERANDS 3

struct image_args {
    const char *state;
    struct image_bounds bounds;
    uint64_t ratio;
    const char *auth, *ca_file;
    const char *operand[IMAGE_CMD_OPERANDS];
    int operands;
    bool help;
};

struct image_action {
    const char *name;
    int operands; /* beside the action's name */
    int (*run)(const struct image_args *args, const struct state *state, int images,
               struct err *err);
};

static int image_cmd_lock(const struct state *state, struct err *err) {
    return state_lock(state, STATE_LOCK_IMAGES, "pinfold-server image", err);
}

/* stdin as a file, which can be read more than once. */
static int image_cmd_spool(int images, uint64_t max_bytes, struct err *err) {
    fd_cleanup int file = -1;
    uint64_t done = 0;
    char block[65536];

    if (unlinkat(images, ".import-stdin", 0) < 0 && errno != ENOENT)
        return err_sys(err, "cannot remove what an earlier import left");
    file =
        openat(images, ".import-stdin", O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0 || unlinkat(images, ".import-stdin", 0) < 0)
        return err_sys(err, "cannot keep what comes from stdin");
    for (;;) {
        ssize_t got = read(STDIN_FILENO, block, sizeof(block));

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_sys(err, "cannot read stdin");
        if (got == 0)
            return fd_steal(&file);
        if ((uint64_t)got > max_bytes - done)
            return err_set(err, ERR_INVALID, 0, "stdin has more than --max-bytes");
        done += (uint64_t)got;
        if (fd_write_all(file, block, (size_t)got, err) < 0)
            return -1;
    }
}

/* PATH, or PATH:TAG when there is no such path. -> fd */
static int image_cmd_open(const char *operand, char path[4096], const char **tag, struct err *err) {
    const int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    char *colon;
    int fd;

    *tag = "";
    if (!str_copy(path, 4096, operand))
        return err_set(err, ERR_INVALID, ENAMETOOLONG, "the path is too long");
    fd = open(path, flags);
    colon = strrchr(path, ':');
    if (fd < 0 && errno == ENOENT && colon != NULL && colon != path) {
        *colon = '\0';
        *tag = colon + 1;
        fd = open(path, flags);
    }
    return fd < 0 ? err_sys(err, "cannot open %s", path) : fd;
}

static void image_cmd_imported(const struct image *image, const struct image_count *count) {
    char size[32];

    str_human_bytes(size, sizeof(size), image->bytes);
    printf("imported %s: %" PRIu64 " %s, %s, sha256 %s\n", image->name, image->files,
           image->files == 1 ? "entry" : "entries", size, image->sha256);
    if (count->left_out > 0)
        printf("left out: %" PRIu64 " devices and sockets that a jail does not use\n",
               count->left_out);
}

static int image_cmd_import(const struct image_args *args, const struct state *state, int images,
                            struct err *err) {
    fd_cleanup int lock = image_cmd_lock(state, err);
    fd_cleanup int fd = -1;
    enum image_peek_form form = IMAGE_PEEK_ROOTFS;
    struct image_layout_source source = {.tag = "", .ratio = args->ratio};
    struct image_count count;
    struct image image;
    struct stat st;
    char path[4096];
    int rc;

    if (lock < 0)
        return -1;
    if (strcmp(args->operand[2], "-") == 0)
        fd = image_cmd_spool(images, args->bounds.max_bytes, err);
    else
        fd = image_cmd_open(args->operand[2], path, &source.tag, err);
    if (fd < 0 || image_peek(fd, &form, err) < 0)
        return -1;
    source.fd = fd;
    if (fstat(fd, &st) < 0)
        return err_sys(err, "cannot inspect %s", args->operand[2]);
    if (form == IMAGE_PEEK_ROOTFS && source.tag[0] == '\0' && !S_ISDIR(st.st_mode))
        rc = image_import(images, args->operand[1], fd, &args->bounds, &image, &count, err);
    else
        rc = image_layout_import(images, args->operand[1], &source, &args->bounds, &image, &count,
                                 err);
    if (rc < 0)
        return err_wrap(err, "%s", args->operand[2]);
    image_cmd_imported(&image, &count);
    return 0;
}

static void image_cmd_say(void *arg, const char *line) {
    (void)arg;
    printf("%s\n", line);
    fflush(stdout);
}

/* NAME:PASSWORD, the first line of a file: arguments can be seen by others. */
static int image_cmd_auth(const char *path, char auth[512], struct err *err) {
    struct buf text;
    int rc;

    auth[0] = '\0';
    if (path == NULL)
        return 0;
    buf_init(&text, 510);
    rc = fd_read_file(AT_FDCWD, path, &text, err);
    if (rc == 0)
        snprintf(auth, 512, "%.*s", text.data != NULL ? (int)strcspn(text.data, "\r\n") : 0,
                 text.data != NULL ? text.data : "");
    buf_done(&text);
    if (rc == 0 && strchr(auth, ':') == NULL)
        rc = err_set(err, ERR_INVALID, 0, "the first line of %s is not NAME:PASSWORD", path);
    return rc;
}

static int image_cmd_pull(const struct image_args *args, const struct state *state, int images,
                          struct err *err) {
    struct image_registry_ref ref;
    struct image_pull pull = {.fetch = {.ref = &ref, .ca_file = args->ca_file},
                              .ratio = args->ratio,
                              .say = image_cmd_say};
    fd_cleanup int lock = -1;
    struct image_count count;
    struct image image;
    char auth[512];

    if (image_registry_parse(args->operand[2], &ref, err) < 0 ||
        image_cmd_auth(args->auth, auth, err) < 0)
        return -1;
    pull.fetch.user = auth[0] != '\0' ? auth : NULL;
    lock = image_cmd_lock(state, err);
    if (lock < 0)
        return -1;
    if (image_pull(images, args->operand[1], &pull, &args->bounds, &image, &count, err) < 0)
        return err_wrap(err, "%s", args->operand[2]);
    image_cmd_imported(&image, &count);
    return 0;
}

static int image_cmd_list(const struct image_args *args, const struct state *state, int images,
                          struct err *err) {
    struct image_list list;
    size_t broken = 0;

    (void)args;
    (void)state;
    if (image_list_read(images, &list, &broken, err) < 0)
        return -1;
    if (list.count > 0)
        printf("%-20s %10s %12s  %-20s  %s\n", "NAME", "ENTRIES", "SIZE", "IMPORTED", "DIGEST");
    for (size_t i = 0; i < list.count; i++) {
        const struct image *image = &list.items[i];
        time_t seconds = (time_t)(image->imported_at / 1000);
        char size[32], when[32] = "";
        struct tm tm;

        str_human_bytes(size, sizeof(size), image->bytes);
        if (gmtime_r(&seconds, &tm) != NULL)
            strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &tm);
        printf("%-20s %10" PRIu64 " %12s  %-20s  sha256:%s\n", image->name, image->files, size,
               when, image->sha256);
    }
    image_list_done(&list);
    if (broken > 0)
        return err_set(err, ERR_INVALID, 0,
                       "%zu directories in %s/%s have no readable manifest; remove them by name",
                       broken, state->path, STATE_IMAGES);
    return 0;
}

static int image_cmd_remove(const struct image_args *args, const struct state *state, int images,
                            struct err *err) {
    fd_cleanup int lock = image_cmd_lock(state, err);

    if (lock < 0 || image_remove(images, args->operand[1], err) < 0)
        return -1;
    printf("removed %s\n", args->operand[1]);
    return 0;
}

static const struct image_action image_actions[] = {
    {"import", 2, image_cmd_import},
    {"list", 0, image_cmd_list},
    {"pull", 2, image_cmd_pull},
    {"remove", 1, image_cmd_remove},
};

/* Options may stand before, between and after the operands. */
static int image_cmd_parse(const struct opt *table, int argc, char **argv, struct image_args *args,
                           struct err *err) {
    struct opt_result result = {0};

    while (argc > 1) {
        if (opt_parse(table, argc, argv, &result, err) < 0)
            return -1;
        args->help = args->help || result.help;
        if (result.help || result.rest >= argc)
            break;
        if (args->operands == IMAGE_CMD_OPERANDS)
            return err_set(err, ERR_INVALID, 0, "unexpected argument %s", argv[result.rest]);
        args->operand[args->operands++] = argv[result.rest];
        argc -= result.rest;
        argv += result.rest;
    }
    return 0;
}

static const struct image_action *image_cmd_find(const struct image_args *args, struct err *err) {
    const char *name = args->operands > 0 ? args->operand[0] : "";

    for (size_t i = 0; i < sizeof(image_actions) / sizeof(image_actions[0]); i++) {
        const struct image_action *a = &image_actions[i];

        if (strcmp(a->name, name) != 0)
            continue;
        if (args->operands - 1 != a->operands) {
            err_set(err, ERR_INVALID, 0, "%s takes %d arguments", name, a->operands);
            return NULL;
        }
        return a;
    }
    err_set(err, ERR_INVALID, 0, "expected import NAME FILE, pull NAME REF, list or remove NAME");
    return NULL;
}

static int image_cmd_do(const struct image_args *args, const struct image_action *action,
                        struct err *err) {
    struct state state = STATE_NONE;
    fd_cleanup int images = -1;
    int rc = -1;

    if (action->run != image_cmd_list && geteuid() != 0)
        return err_set(err, ERR_INVALID, EPERM, "only root can change images");
    if (action->operands > 0 && image_check_name(args->operand[1], err) < 0)
        return -1;
    if (state_open(args->state, &state, err) < 0)
        return -1;
    images = state_open_dir(&state, STATE_IMAGES, err);
    if (images >= 0)
        rc = action->run(args, &state, images, err);
    state_close(&state);
    return rc;
}

static int image_cmd_run(int argc, char **argv) {
    struct image_args args = {.state = "/var/lib/pinfold",
                              .bounds = {IMAGE_BYTES_DEFAULT, IMAGE_FILES_DEFAULT},
                              .ratio = IMAGE_RATIO_DEFAULT};
    const struct opt table[] = {
        {"state", 0, "DIR", OPT_STRING, &args.state, 0, 0,
         "the state directory (/var/lib/pinfold)"},
        {"max-bytes", 0, "SIZE", OPT_BYTES, &args.bounds.max_bytes, 0, 0,
         "import: all files together (8G)"},
        {"max-files", 0, "N", OPT_U64, &args.bounds.max_files, 1, 100000000,
         "import: entries of the archive (1000000)"},
        {"max-ratio", 0, "N", OPT_U64, &args.ratio, 1, 1000000,
         "import: a layer may unpack to N times its size (250)"},
        {"auth", 0, "FILE", OPT_STRING, &args.auth, 0, 0,
         "pull: NAME:PASSWORD for the registry, the first line of FILE"},
        {"ca-file", 0, "FILE", OPT_STRING, &args.ca_file, 0, 0,
         "pull: certificates to trust instead of this machine's"},
        {0},
    };
    const struct image_action *action;
    struct err err = {0};

    if (image_cmd_parse(table, argc, argv, &args, &err) == 0 && args.help) {
        opt_help(
            stdout,
            "pinfold-server image import NAME FILE.tar [--state DIR]\n"
            "pinfold-server image import NAME LAYOUT[:TAG] [--state DIR]\n"
            "docker save REF | pinfold-server image import NAME - [--state DIR]\n"
            "pinfold-server image pull NAME HOST/PATH[:TAG][@sha256:HEX] [--state DIR]\n"
            "pinfold-server image list [--state DIR]\n"
            "pinfold-server image remove NAME [--state DIR]",
            "Root file systems for jails, and for containers of the Docker back end. FILE.tar is "
            "the\n"
            "archive of a whole root file system (plain, or packed with gzip, bzip2, xz or zstd),\n"
            "as `docker export` or debootstrap make them. LAYOUT is an OCI layout, a directory or "
            "a\n"
            "tar, or what `docker save` writes: every blob is compared with its digest, the image\n"
            "for this machine is taken, and its layers are put on top of one another.\n"
            "Everything in it will belong to root; set-user-id bits and extended attributes are\n"
            "dropped; an image with entries that lead elsewhere is refused, whole. The digest "
            "that\n"
            "is shown (of the tar, of the OCI manifest, or Docker's id of the image) is what\n"
            "policies and requests can ask for. pull fetches from a registry, over HTTPS (HTTP "
            "only\n"
            "on this machine); what was broken off is continued by the next one.",
            table);
        return 0;
    }
    action = err.kind == ERR_NONE ? image_cmd_find(&args, &err) : NULL;
    if (action == NULL) {
        fprintf(stderr, "pinfold-server image: %s\n", err.text);
        return 2;
    }
    if (image_cmd_do(&args, action, &err) < 0) {
        fprintf(stderr, "pinfold-server image %s: %s\n", action->name, err.text);
        return 1;
    }
    return 0;
}

const struct subcommand image_cmd = {
    .name = "image",
    .about = "import, pull, list and remove root file systems",
    .run = image_cmd_run,
};

#include "image_pull.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "digest.h"
#include "fd.h"
#include "image_apart.h"
#include "image_blob.h"
#include "image_choose.h"
#include "image_oci.h"
#include "image_tree.h"
#include "str.h"

#define IMAGE_PULL_DIR ".pull"
#define IMAGE_PULL_OLD_S (7 * 24 * 60 * 60)

struct image_pulling {
    const struct image_pull *pull;
    const struct image_bounds *bounds;
    int dir;   /* STATE/images/.pull: a layout */
    int blobs; /* its blobs/sha256 */
    struct image_oci_index index;
    struct image_oci_manifest manifest;
};

static void image_pull_say(const struct image_pulling *p, const char *what, uint64_t size) {
    char line[160], bytes[32];

    str_human_bytes(bytes, sizeof(bytes), size);
    snprintf(line, sizeof(line), "%s, %s", what, bytes);
    if (p->pull->say != NULL)
        p->pull->say(p->pull->arg, line);
}

/* ---- the directory ---- */

static int image_pull_mkdir(int at, const char *name, struct err *err) {
    if (mkdirat(at, name, 0700) < 0 && errno != EEXIST)
        return err_sys(err, "cannot make the directory %s", name);
    return image_tree_open_dir(at, name, err);
}

/* What nobody came back for. */
static void image_pull_tidy(int blobs) {
    int copy = openat(blobs, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = copy < 0 ? NULL : fdopendir(copy);
    time_t now = time(NULL);
    struct dirent *entry;
    struct stat st;

    if (list == NULL) {
        fd_close(&copy);
        return;
    }
    while ((entry = readdir(list)) != NULL)
        if (fstatat(blobs, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
            st.st_mtime < now - IMAGE_PULL_OLD_S)
            (void)unlinkat(blobs, entry->d_name, 0);
    closedir(list);
}

static int image_pull_open(int images, struct image_pulling *p, struct err *err) {
    fd_cleanup int middle = -1;

    p->dir = image_pull_mkdir(images, IMAGE_PULL_DIR, err);
    if (p->dir < 0)
        return -1;
    middle = image_pull_mkdir(p->dir, "blobs", err);
    if (middle < 0)
        return -1;
    p->blobs = image_pull_mkdir(middle, "sha256", err);
    if (p->blobs < 0)
        return -1;
    image_pull_tidy(p->blobs);
    return 0;
}

/* ---- blobs ---- */

/* Hashes an open file from its beginning. */
static int image_pull_hash(int fd, char hex[65], struct err *err) {
    uint8_t hash[DIGEST_SIZE];

    if (digest_file(fd, 0, UINT64_MAX, -1, hash, NULL, err) < 0)
        return err_wrap(err, "what was fetched");
    sodium_bin2hex(hex, 65, hash, sizeof(hash));
    return 0;
}

/* A file of ours, new or with the beginning of what is to be fetched. */
static int image_pull_file(const struct image_pulling *p, const char *name, bool fresh,
                           struct err *err) {
    int fd;

    if (fresh)
        (void)unlinkat(p->blobs, name, 0);
    fd = openat(p->blobs, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    return fd < 0 ? err_sys(err, "cannot make a file for what is fetched") : fd;
}

/* Fetches a blob, or what is missing of it. What turns out to be another one is thrown away. -> fd
 */
static int image_pull_blob(const struct image_pulling *p, const struct image_oci_blob *blob,
                           const char *what, struct err *err) {
    char path[IMAGE_FETCH_DIGEST_MAX + 16], hex[65];
    fd_cleanup int fd = image_pull_file(p, blob->hex, false, err);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return fd < 0 ? -1 : err_sys(err, "cannot inspect what was fetched");
    if (blob->size > p->bounds->max_bytes)
        return err_set(err, ERR_INVALID, 0, "%s is larger than the image may be", what);
    if ((uint64_t)st.st_size > blob->size && ftruncate(fd, 0) < 0)
        return err_sys(err, "cannot cut what was fetched");
    if ((uint64_t)st.st_size != blob->size) {
        image_pull_say(p, what, blob->size);
        snprintf(path, sizeof(path), "%s/sha256:%s",
                 blob->kind <= IMAGE_OCI_MANIFEST ? "manifests" : "blobs", blob->hex);
        if (image_fetch(&p->pull->fetch, path, fd, blob->size, err) < 0)
            return err_wrap(err, "%s", what);
    }
    if (fstat(fd, &st) < 0 || image_pull_hash(fd, hex, err) < 0)
        return -1;
    if ((uint64_t)st.st_size != blob->size || strcmp(hex, blob->hex) != 0) {
        (void)unlinkat(p->blobs, blob->hex, 0);
        return err_set(err, ERR_INVALID, 0,
                       "%s is refused: it has %llu bytes with the digest sha256:%s, and should "
                       "have %llu with sha256:%s",
                       what, (unsigned long long)st.st_size, hex, (unsigned long long)blob->size,
                       blob->hex);
    }
    return fd_steal(&fd);
}

/* ---- documents ---- */

static int image_pull_do_kind(const void *in, size_t len, void *out, struct err *err) {
    return image_oci_kind_of(in, len, out, err);
}

static int image_pull_do_index(const void *in, size_t len, void *out, struct err *err) {
    return image_oci_parse_index(in, len, out, err);
}

static int image_pull_do_manifest(const void *in, size_t len, void *out, struct err *err) {
    return image_oci_parse_manifest(in, len, out, err);
}

static int image_pull_parse(int fd, image_apart_fn *fn, void *out, size_t size, struct err *err) {
    struct buf text;
    int rc = -1;

    buf_init(&text, IMAGE_OCI_TEXT_MAX + 1);
    if (lseek(fd, 0, SEEK_SET) < 0)
        rc = err_sys(err, "cannot read what was fetched");
    else if (image_blob_text(fd, &text, err) == 0 && buf_append(&text, "", 1, err) == 0)
        rc = image_apart(fn, text.data, text.len - 1, out, size, err);
    buf_done(&text);
    return rc;
}

/* What the tag or the digest stands for: a blob by its digest from now on. */
static int image_pull_top(struct image_pulling *p, struct image_oci_blob *top, struct err *err) {
    const struct image_registry_ref *ref = p->pull->fetch.ref;
    fd_cleanup int fd = image_pull_file(p, ".top", true, err);
    char path[160];
    struct stat st;

    if (fd < 0)
        return -1;
    snprintf(path, sizeof(path), "manifests/%s%s", ref->hex[0] != '\0' ? "sha256:" : "",
             ref->hex[0] != '\0' ? ref->hex : ref->tag);
    if (image_fetch(&p->pull->fetch, path, fd, IMAGE_OCI_TEXT_MAX, err) < 0)
        return err_wrap(err, "the manifest");
    if (fstat(fd, &st) < 0 || image_pull_hash(fd, top->hex, err) < 0)
        return -1;
    top->size = (uint64_t)st.st_size;
    if (ref->hex[0] != '\0' && strcmp(ref->hex, top->hex) != 0)
        return err_set(err, ERR_INVALID, 0,
                       "the manifest is refused: its digest is sha256:%s, not sha256:%s", top->hex,
                       ref->hex);
    if (image_pull_parse(fd, image_pull_do_kind, &top->kind, sizeof(top->kind), err) < 0)
        return -1;
    if (top->kind > IMAGE_OCI_MANIFEST)
        return err_set(err, ERR_PROTOCOL, 0, "the reader of the image gave a wrong answer");
    if (renameat(p->blobs, ".top", p->blobs, top->hex) < 0)
        return err_sys(err, "cannot keep the manifest");
    return 0;
}

/* From what the tag stands for to the manifest for this machine. */
static int image_pull_find(struct image_pulling *p, struct image_oci_blob *found, struct err *err) {
    if (image_pull_top(p, found, err) < 0)
        return -1;
    for (int depth = 0; found->kind == IMAGE_OCI_INDEX; depth++) {
        fd_cleanup int fd = image_pull_blob(p, found, "an index", err);

        if (fd < 0 ||
            image_pull_parse(fd, image_pull_do_index, &p->index, sizeof(p->index), err) < 0)
            return -1;
        if (!image_oci_is_sound_index(&p->index) || depth >= IMAGE_OCI_NESTING_MAX)
            return err_set(err, ERR_INVALID, 0, "the indexes of the image are nested too deep");
        if (image_choose(&p->index, "", found, err) < 0)
            return -1;
        if (found->size > IMAGE_OCI_TEXT_MAX)
            return err_set(err, ERR_INVALID, 0, "a manifest of the image is too long");
    }
    return 0;
}

static int image_pull_layers(struct image_pulling *p, const struct image_oci_blob *found,
                             struct err *err) {
    fd_cleanup int fd = image_pull_blob(p, found, "the manifest", err);
    fd_cleanup int config = -1;
    uint64_t sum = 0;

    if (fd < 0 ||
        image_pull_parse(fd, image_pull_do_manifest, &p->manifest, sizeof(p->manifest), err) < 0)
        return -1;
    if (!image_oci_is_sound_manifest(&p->manifest))
        return err_set(err, ERR_PROTOCOL, 0, "the reader of the image gave a wrong answer");
    if (p->manifest.config.size > IMAGE_OCI_TEXT_MAX)
        return err_set(err, ERR_INVALID, 0, "the configuration of the image is too long");
    config = image_pull_blob(p, &p->manifest.config, "the configuration", err);
    if (config < 0)
        return -1;
    for (uint32_t i = 0; i < p->manifest.layers; i++) {
        const struct image_oci_blob *layer = &p->manifest.layer[i];
        fd_cleanup int got = -1;
        char what[48];

        snprintf(what, sizeof(what), "layer %u of %u", i + 1, p->manifest.layers);
        if (layer->size > p->bounds->max_bytes - sum)
            return err_set(err, ERR_INVALID, 0, "all layers together are larger than allowed");
        sum += layer->size;
        got = image_pull_blob(p, layer, what, err);
        if (got < 0)
            return -1;
    }
    return 0;
}

/* The layout's own index: this one image. */
static int image_pull_index(const struct image_pulling *p, const struct image_oci_blob *found,
                            struct err *err) {
    char text[512];
    int len = snprintf(text, sizeof(text),
                       "{\"schemaVersion\":2,\"manifests\":[{\"mediaType\":\"application/"
                       "vnd.oci.image.manifest.v1+json\",\"digest\":\"sha256:%s\",\"size\":%llu}]}",
                       found->hex, (unsigned long long)found->size);

    if (fd_write_atomic(p->dir, "index.json", text, (size_t)len, 0600, err) < 0 ||
        fd_write_atomic(p->dir, "oci-layout", "{}", 2, 0600, err) < 0)
        return -1;
    return 0;
}

/* Once it is imported nothing of it is needed. */
static void image_pull_forget(const struct image_pulling *p, const struct image_oci_blob *found) {
    (void)unlinkat(p->blobs, found->hex, 0);
    (void)unlinkat(p->blobs, p->manifest.config.hex, 0);
    for (uint32_t i = 0; i < p->manifest.layers; i++)
        (void)unlinkat(p->blobs, p->manifest.layer[i].hex, 0);
}

static int image_pull_all(int images, const char *name, struct image_pulling *p, struct image *out,
                          struct image_count *count, struct err *err) {
    /* Not ours yet: who fetched the blobs had them open, and talked to strangers. */
    struct image_layout_source source = {.tag = "", .ratio = p->pull->ratio, .ours = false};
    struct image_oci_blob found = {0};

    if (image_pull_open(images, p, err) < 0 || image_pull_find(p, &found, err) < 0 ||
        image_pull_layers(p, &found, err) < 0 || image_pull_index(p, &found, err) < 0)
        return -1;
    source.fd = p->dir;
    if (image_layout_import(images, name, &source, p->bounds, out, count, err) < 0)
        return -1;
    image_pull_forget(p, &found);
    return 0;
}

int image_pull(int images, const char *name, const struct image_pull *pull,
               const struct image_bounds *bounds, struct image *out, struct image_count *count,
               struct err *err) {
    struct image_pulling *p = calloc(1, sizeof(*p));
    struct stat st;
    int rc;

    if (p == NULL)
        return err_sys(err, "cannot fetch an image");
    *p = (struct image_pulling){.pull = pull, .bounds = bounds, .dir = -1, .blobs = -1};
    /* Before anything is fetched. */
    if (image_check_name(name, err) < 0)
        rc = -1;
    else if (fstatat(images, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        rc = err_set(err, ERR_INVALID, EEXIST, "there is an image %s already; remove it first",
                     name);
    else
        rc = image_pull_all(images, name, p, out, count, err);
    fd_close(&p->blobs);
    fd_close(&p->dir);
    free(p);
    return rc;
}

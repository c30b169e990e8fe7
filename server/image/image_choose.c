#include "image_choose.h"

#include <stdio.h>
#include <string.h>

#include "str.h"

const char *image_choose_machine(void) {
#if defined(__x86_64__)
    return "amd64";
#elif defined(__aarch64__)
    return "arm64";
#elif defined(__riscv)
    return "riscv64";
#elif defined(__powerpc64__)
    return "ppc64le";
#elif defined(__s390x__)
    return "s390x";
#else
    return "unknown";
#endif
}

/* Entries that say nothing about a machine are looked at closer later (image_choose_check()). */
static bool image_choose_fits(const struct image_oci_entry *e) {
    return (e->os[0] == '\0' || strcmp(e->os, "linux") == 0) &&
           (e->machine[0] == '\0' || strcmp(e->machine, image_choose_machine()) == 0);
}

/* "registry.example/team/py:3" is found by its whole name and by "3". */
static bool image_choose_tagged(const struct image_oci_entry *e, const char *tag) {
    const char *colon = strrchr(e->ref, ':');
    return strcmp(e->ref, tag) == 0 || (colon != NULL && strcmp(colon + 1, tag) == 0);
}

static void image_choose_add(char list[256], const char *what) {
    char shown[64];
    size_t used = strlen(list);
    str_escape(shown, sizeof(shown), what, strlen(what));
    if (used + strlen(shown) + 3 < 256)
        snprintf(list + used, 256 - used, "%s%s", used > 0 ? ", " : "", shown);
}

static int image_choose_none(const struct image_oci_index *index, const char *tag,
                             struct err *err) {
    char list[256] = "", shown[80];
    for (uint32_t i = 0; i < index->count; i++) {
        const struct image_oci_entry *e = &index->entries[i];
        char platform[2 * IMAGE_OCI_WORD_SIZE + 2];
        snprintf(platform, sizeof(platform), "%s/%s", e->os, e->machine);
        if (tag[0] != '\0' && e->ref[0] != '\0')
            image_choose_add(list, e->ref);
        else if (tag[0] == '\0' && platform[1] != '\0')
            image_choose_add(list, platform);
    }
    str_escape(shown, sizeof(shown), tag, strlen(tag));
    if (tag[0] != '\0')
        return err_set(err, ERR_INVALID, 0, "there is no image tagged %s for linux/%s; tags: %s",
                       shown, image_choose_machine(), list[0] != '\0' ? list : "none");
    return err_set(err, ERR_INVALID, 0, "there is no image for linux/%s, only: %s",
                   image_choose_machine(), list[0] != '\0' ? list : "none at all");
}

/* Of two with the same tag, one that names its machine goes before one that leaves it open. */
static bool image_choose_better(const struct image_oci_entry *than,
                                const struct image_oci_entry *e) {
    return strcmp(than->ref, e->ref) == 0 && than->machine[0] == '\0' && e->machine[0] != '\0';
}

int image_choose(const struct image_oci_index *index, const char *tag, struct image_oci_blob *out,
                 struct err *err) {
    const struct image_oci_entry *found = NULL;
    char list[256] = "";
    bool many = false;
    for (uint32_t i = 0; i < index->count; i++) {
        const struct image_oci_entry *e = &index->entries[i];
        if (!image_choose_fits(e) || (tag[0] != '\0' && !image_choose_tagged(e, tag)))
            continue;
        image_choose_add(list, e->ref[0] != '\0' ? e->ref : e->blob.hex);
        if (found == NULL || image_choose_better(found, e))
            found = e;
        else if (strcmp(found->blob.hex, e->blob.hex) != 0 && !image_choose_better(e, found))
            many = true;
    }
    if (found == NULL)
        return image_choose_none(index, tag, err);
    if (many)
        return err_set(err, ERR_INVALID, 0,
                       "there is more than one image; say which with :TAG, one of: %s", list);
    *out = found->blob;
    return 0;
}

int image_choose_check(const struct image_oci_config *config, struct err *err) {
    if (strcmp(config->os, "linux") == 0 && strcmp(config->machine, image_choose_machine()) == 0)
        return 0;
    return err_set(err, ERR_INVALID, 0, "the image is for %s/%s, and this machine is linux/%s",
                   config->os, config->machine, image_choose_machine());
}

/* Which files with several names have been told already. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#define FILEOP_LINKS_MAX 65536u       /* files that are remembered; others are told each time */
#define FILEOP_LINKS_TEXT (16u << 20) /* bytes of their paths */

struct fileop_links_entry;

struct fileop_links {
    struct fileop_links_entry *table; /* open addressing; allocated with the first file */
    size_t count;
    char *text;
    size_t text_len, text_room;
};

/* The path that the same file was first found under, valid until the next call; NULL when it is
 * new (remembered from now on) or has one name only. */
const char *fileop_links_find(struct fileop_links *l, const struct stat *st, const char *path,
                              size_t len);
void fileop_links_done(struct fileop_links *l);

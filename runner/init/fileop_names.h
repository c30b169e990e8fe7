/* The names in a directory. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fileop_names_entry {
    uint64_t key;  /* the first eight bytes, so that most comparisons need no more */
    uint32_t at;   /* of its text */
    uint32_t type; /* DT_… */
};

struct fileop_names {
    char *text; /* NUL-terminated names */
    size_t text_len, text_room;
    struct fileop_names_entry *list;
    size_t count, room;
    bool full;   /* as many as are wanted were found … */
    size_t last; /* … and this text is the last of them so far */
};

struct fileop_names_wish {
    const char *first; /* none before this one; NULL = all */
    size_t most;       /* of the sorted ones, only so many are needed; 0 = all */
    size_t bytes_max;
    bool sorted; /* by bytes */
    bool hidden; /* with those of work in progress */
};

/* Reads an open directory to its end, without "." and "..". `out` is empty before, and holds what
 * fits after a failure (ENOMEM: more than bytes_max). `buf` is working memory. */
int fileop_names_read(struct fileop_names *out, int fd, const struct fileop_names_wish *wish,
                      char *buf, size_t size);
void fileop_names_done(struct fileop_names *n);
size_t fileop_names_bytes(const struct fileop_names *n);
const char *fileop_names_at(const struct fileop_names *n, size_t i);
unsigned char fileop_names_type(const struct fileop_names *n, size_t i);
/* How many entries an open directory has from its position on, without character devices, which the
 * whiteouts of an overlay are. -1 with errno. */
int64_t fileop_names_count(int fd);

/* Reads the records of a file operation's answer (fileop.h) from pieces of any size. Every byte of
 * it is hostile. Pure: no descriptor, no loop.
 *
 * Contents of files come as items of type FILEOP_DATA with as much as is there, not as the records
 * were cut; the end of a file's contents is an item without data. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "fileop.h"

/* Bytes that are read at once; holds the largest record without data. */
#define FILEOP_PARSE_SIZE ((size_t)128 * 1024)

/* One record, with what follows it. Valid until the next call. */
struct fileop_item {
    struct fileop_record rec; /* of DATA: data_len = bytes at `data` */
    const char *path;         /* NUL-terminated */
    const char *target;
    const char *data;
};

struct fileop_parse {
    char *bytes; /* FILEOP_PARSE_SIZE of them, made when the first are needed */
    size_t at, end;
    uint32_t data_left; /* of the current DATA record */
    bool contents;      /* between an ENTRY with FILEOP_CONTENT and its empty DATA */
    bool over;          /* END, or the last ERROR, was met */
    char path[FILEOP_PATH_MAX + 1];
    char target[FILEOP_TARGET_MAX + 1];
};

void fileop_parse_init(struct fileop_parse *p);
void fileop_parse_done(struct fileop_parse *p);

/* Where the next bytes go: *room of them (at least 1). NULL: memory is short. */
char *fileop_parse_space(struct fileop_parse *p, size_t *room);
void fileop_parse_add(struct fileop_parse *p, size_t len);

/* 1: *item is filled. 0: more bytes are needed, or the answer is over. -1: ERR_PROTOCOL. */
int fileop_parse_next(struct fileop_parse *p, struct fileop_item *item, struct err *err);

/* For who takes contents by hand: what comes next where a DATA record is due. */
enum fileop_parse_head {
    FILEOP_PARSE_MORE,  /* more bytes are needed to tell */
    FILEOP_PARSE_DATA,  /* data_left bytes of contents */
    FILEOP_PARSE_END,   /* these were the contents of this file */
    FILEOP_PARSE_OTHER, /* no contents: left to fileop_parse_next() */
};
enum fileop_parse_head fileop_parse_head(struct fileop_parse *p);
/* Takes up to `size` bytes of contents that are there already: their number. */
size_t fileop_parse_contents(struct fileop_parse *p, char *data, size_t size);
/* The same without a copy: contents that are there already, and that `len` of them were taken. */
const char *fileop_parse_there(const struct fileop_parse *p, size_t *len);
void fileop_parse_took(struct fileop_parse *p, size_t len);
/* `len` bytes of the current DATA record were read past the parser, which had none left. */
void fileop_parse_skip(struct fileop_parse *p, size_t len);

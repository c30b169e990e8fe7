/* The settings of the server.
 *
 * One table (config_table.c) says of each what it is called, what it may be, what it is when nobody
 * says anything, and what it is for. From it come the flags of `pinfold-server serve`, the JSON
 * file that --config names, what `pinfold-server config` prints, and the example file.
 *
 *   {"port": 443, "tls": {"certificate": "/etc/pinfold/tls.crt", "key": "/etc/pinfold/tls.key"}}
 *
 * Flags override the file. The file is read strictly: an unknown key, one that is there twice, a
 * wrong type or a value out of range is one sentence with the file and a JSON pointer. A key that
 * begins with "//" is a comment. A size is a number of bytes or a string such as "64M", a time a
 * string such as "30s"; null is the same as leaving the key out.
 *
 * A new setting is a member of struct config and a row of the table; nothing else. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"
#include "opt.h"
#include "quota.h"

#define CONFIG_ROWS_MAX 63 /* settings; opt.h has 64 rows */
#define CONFIG_LIST_MAX 64
#define CONFIG_FILE_MAX ((size_t)1024 * 1024)
#define CONFIG_UNLIMITED UINT64_MAX

enum config_type {
    CONFIG_STRING,   /* const char *; NULL when it has no preset and nobody said anything */
    CONFIG_U64,      /* uint64_t */
    CONFIG_BYTES,    /* uint64_t */
    CONFIG_DURATION, /* uint64_t, milliseconds */
    CONFIG_SWITCH,   /* bool, off unless asked for; its flag takes no value */
    CONFIG_BOOL,     /* bool; its flag takes yes or no */
    CONFIG_CHOICE,   /* unsigned: which of the words in `choices` */
    CONFIG_LIST,     /* struct config_list; its flag may be given several times */
};

enum config_from { CONFIG_FROM_DEFAULT, CONFIG_FROM_FILE, CONFIG_FROM_FLAG };

struct config_list {
    size_t count;
    const char *item[CONFIG_LIST_MAX];
};

enum config_results { CONFIG_RESULTS_DISK, CONFIG_RESULTS_MEMORY };
enum config_queued { CONFIG_QUEUED_KEEP, CONFIG_QUEUED_CANCEL };

struct config {
    const char *state, *user, *listen;
    uint64_t port, connections;
    uint64_t grace_ms, queue;
    unsigned queued_on_stop; /* enum config_queued */
    unsigned keep_results;   /* enum config_results */
    const char *tls_certificate, *tls_key;
    struct config_list proxy;
    uint64_t header_ms, body_ms;
    uint64_t keep_runs, keep_run_bytes, keep_run_age_ms, idempotency_ms;
    bool keep_requests;
    uint64_t results, result_bytes, snapshots, snapshot_bytes, blob_bytes, blob_age_ms;
    const char *memory_budget;         /* a size, or "auto" */
    uint64_t memory_overcommit;        /* percent; 0 = as memory_budget has it */
    struct quota_limits default_quota; /* of users for whom nothing is said */
    bool verbose;
    unsigned log_level; /* enum log_level */

    /* Private. Strings that came from the file lie in `text`. */
    const char *path; /* of the file; NULL = none was read */
    bool file_wrong;  /* it is because of the file that config_load() failed */
    struct buf text;
    unsigned char from[CONFIG_ROWS_MAX];
};

struct config_row {
    const char *key;  /* "tls.certificate" is /tls/certificate in the file */
    const char *flag; /* without "--" */
    char letter;
    bool unlimited;  /* the word "unlimited" is CONFIG_UNLIMITED */
    const char *arg; /* placeholder in the help; NULL for a switch */
    enum config_type type;
    size_t offset;      /* in struct config */
    uint64_t min, max;  /* of numbers, in bytes and milliseconds where it has units; max 0 = none */
    const char *preset; /* as one writes it behind the flag; NULL = not set */
    const char *choices; /* of a CONFIG_CHOICE: "keep|cancel" */
    const char *about;   /* one sentence without the full stop */
    /* Is this a proper value of a string or of an item? NULL = every one is. */
    int (*check)(const char *text, struct err *err);
};

/* Ends with .key == NULL. */
const struct config_row *config_table(void);
/* -> NULL when unknown. */
const struct config_row *config_find(const char *key, size_t len);

/* Everything is as the table presets it. */
int config_init(struct config *c, struct err *err);
void config_done(struct config *c);

/* The usual way: presets, then the file that --config names, then the flags. -> 0, go on; 1, --help
 * was there and is printed; -1, *err says what is wrong. `argv` must outlive *c, and `more` (may be
 * NULL) are options that the command has besides. Whatever is returned, config_done() is due. */
struct config_command {
    const char *usage, *about; /* of --help */
    const struct opt *more;    /* ends with .name == NULL */
};
int config_load(struct config *c, const struct config_command *command, int argc, char **argv,
                struct err *err);

/* Takes a file's settings, except those that came from flags. `path` is borrowed. */
int config_read(struct config *c, const char *path, struct err *err);
/* The same for its bytes; they are copied. */
int config_parse(struct config *c, const char *path, const char *json, size_t len, struct err *err);

/* Sets one from text, as behind its flag. `text` is borrowed. Items of a list are added. */
int config_set(struct config *c, const struct config_row *row, const char *text,
               enum config_from from, struct err *err);
enum config_from config_from(const struct config *c, const struct config_row *row);

/* As one would write it behind the flag; items of a list with ", " between; "" when not set. */
int config_show(const struct config *c, const struct config_row *row, struct buf *out,
                struct err *err);
/* Every setting: for people, as JSON for programs, and as a file with every preset in it and a
 * comment above. */
int config_print(const struct config *c, struct buf *out, struct err *err);
int config_print_json(const struct config *c, struct buf *out, struct err *err);
int config_print_example(struct buf *out, struct err *err);

#include "limit_options.h"

#include <string.h>

#include "str.h"

/* --NAME sets the limit `id`. */
static const struct limit_options_row {
    const char *name;
    const char *arg;
    enum opt_type type;
    enum limit_id id;
    const char *help;
} limit_options_table[] = {
    {"wall", "TIME", OPT_DURATION, LIMIT_WALL_MS, "wall-clock time of each step: 500ms, 30s, 5m"},
    {"cpu", "TIME", OPT_DURATION, LIMIT_CPU_MS, "CPU time of each step, all its processes"},
    {"mem", "SIZE", OPT_BYTES, LIMIT_MEM_BYTES, "memory, without swap: 256M, 1G"},
    {"pids", "N", OPT_U64, LIMIT_PIDS, "processes and threads at once"},
    {"disk", "SIZE", OPT_BYTES, LIMIT_DISK_BYTES, "all written files together"},
    {"inodes", "N", OPT_U64, LIMIT_INODES, "number of files and directories"},
    {"output", "SIZE", OPT_BYTES, LIMIT_OUTPUT_BYTES, "kept and shown of stdout and of stderr"},
    {"open-files", "N", OPT_U64, LIMIT_OPEN_FILES, "open files of one process"},
    {"file-size", "SIZE", OPT_BYTES, LIMIT_FILE_BYTES, "size of one file"},
    {"stack", "SIZE", OPT_BYTES, LIMIT_STACK_BYTES, "stack of the main thread"},
    {"cpus", "N", OPT_STRING, LIMIT_CPUS_MILLI, "share of processors: 0.5, 2"},
};

#define LIMIT_OPTIONS_COUNT (sizeof(limit_options_table) / sizeof(limit_options_table[0]))

_Static_assert(LIMIT_OPTIONS_COUNT == LIMIT_OPTIONS_MAX, "as many places as rows");

void limit_options_init(struct limit_options *o) {
    for (int i = 0; i < LIMIT_COUNT; i++)
        o->value[i] = LIMIT_OPTIONS_UNSET;
    o->cpus = NULL;
}

size_t limit_options_rows(struct limit_options *o, bool per_step,
                          struct opt rows[LIMIT_OPTIONS_MAX]) {
    size_t n = 0;

    for (size_t i = 0; i < LIMIT_OPTIONS_COUNT; i++) {
        const struct limit_options_row *l = &limit_options_table[i];
        const struct limit_info *info = limit_info(l->id);

        if (per_step && !info->per_step)
            continue;
        rows[n++] = (struct opt){.name = l->name,
                                 .arg = l->arg,
                                 .type = l->type,
                                 .value = l->type == OPT_STRING ? (void *)&o->cpus
                                                                : (void *)&o->value[l->id],
                                 .min = info->min,
                                 .max = info->max,
                                 .help = l->help};
    }
    return n;
}

/* "1.5" -> 1500. */
static int limit_options_cpus(const char *text, uint64_t *milli, struct err *err) {
    const struct limit_info *info = limit_info(LIMIT_CPUS_MILLI);
    char whole[24];
    const char *dot = strchr(text, '.');
    size_t len = dot != NULL ? (size_t)(dot - text) : strlen(text);
    uint64_t value = 0, part = 0;

    if (len == 0 || len >= sizeof(whole) || (dot != NULL && strlen(dot + 1) > 3))
        goto wrong;
    memcpy(whole, text, len);
    whole[len] = '\0';
    if (str_u64(whole, 0, info->max / 1000, &value, NULL) < 0)
        goto wrong;
    if (dot != NULL) {
        if (str_u64(dot + 1, 0, 999, &part, NULL) < 0)
            goto wrong;
        for (size_t digits = strlen(dot + 1); digits < 3; digits++)
            part *= 10;
    }
    value = value * 1000 + part;
    if (value < info->min || value > info->max)
        goto wrong;
    *milli = value;
    return 0;
wrong:
    str_escape(whole, sizeof(whole), text, strlen(text));
    return err_set(err, ERR_INVALID, 0,
                   "option --cpus: \"%s\" is not a number of processors such as 0.5 or 2", whole);
}

/* OPT_BYTES and OPT_DURATION rows do not check bounds themselves. */
int limit_options_check(struct limit_options *o, struct err *err) {
    if (o->cpus != NULL && limit_options_cpus(o->cpus, &o->value[LIMIT_CPUS_MILLI], err) < 0)
        return -1;
    for (size_t i = 0; i < LIMIT_OPTIONS_COUNT; i++) {
        const struct limit_options_row *l = &limit_options_table[i];
        const struct limit_info *info = limit_info(l->id);
        uint64_t value = o->value[l->id];

        if (value != LIMIT_OPTIONS_UNSET && (value < info->min || value > info->max))
            return err_set(err, ERR_INVALID, 0, "option --%s: %s must be between %llu and %llu %s",
                           l->name, info->what, (unsigned long long)info->min,
                           (unsigned long long)info->max,
                           l->type == OPT_DURATION ? "ms"
                           : l->type == OPT_BYTES  ? "bytes"
                                                   : "");
    }
    return 0;
}

/* Reads the records of `pack` (fileop.h) and writes them as a tar archive. Every byte that comes is
 * hostile. Blocks: for a process of its own. */
#pragma once

#include <stdint.h>

enum tar_pack_code {
    TAR_PACK_OK = 0,
    TAR_PACK_REFUSED, /* the operation failed as a whole: fileop and sys say why */
    TAR_PACK_CUT,     /* the records end too early, or make no sense */
    TAR_PACK_BROKEN,  /* what was packed changed under it */
    TAR_PACK_CLOSED,  /* nobody reads the archive */
    TAR_PACK_MEMORY,
};

struct tar_pack_result {
    enum tar_pack_code code;
    uint32_t fileop; /* enum fileop_code */
    int32_t sys;
};

/* From `in` to its end, to `out`; closes neither. `name`: of the only entry, when a single file is
 * packed. When the first record refuses, nothing was written. LC_CTYPE must be UTF-8. */
void tar_pack_run(int in, int out, const char *name, struct tar_pack_result *result);

/* How far a long transfer is, on stderr when that is a terminal, and only after a second. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool on;        /* stderr is a terminal */
    bool shown;     /* there is a line to be wiped */
    uint64_t total; /* bytes; 0 = not known */
    uint64_t done;
    uint64_t begun_ms, last_ms;
};

void progress_begin(struct progress *p, uint64_t total);
void progress_add(struct progress *p, uint64_t bytes);
/* Wipes the line. */
void progress_end(struct progress *p);
/* "12.0 MiB of 1.0 GiB, 40.0 MiB/s" */
void progress_text(const struct progress *p, uint64_t now_ms, char *dst, unsigned long size);

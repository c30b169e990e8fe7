#include "progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "str.h"

#define PROGRESS_FIRST_MS 1000u
#define PROGRESS_EVERY_MS 200u

void progress_begin(struct progress *p, uint64_t total) {
    *p = (struct progress){
        .on = isatty(STDERR_FILENO) != 0, .total = total, .begun_ms = clock_mono_ms()};
}

void progress_text(const struct progress *p, uint64_t now_ms, char *dst, unsigned long size) {
    uint64_t ms = now_ms > p->begun_ms ? now_ms - p->begun_ms : 1;
    char done[32], total[32], rate[32];

    str_human_bytes(done, sizeof(done), p->done);
    str_human_bytes(total, sizeof(total), p->total);
    str_human_bytes(rate, sizeof(rate), p->done / ms * 1000 + p->done % ms * 1000 / ms);
    snprintf(dst, size, "%s%s%s, %s/s", done, p->total > 0 ? " of " : "", p->total > 0 ? total : "",
             rate);
}

void progress_add(struct progress *p, uint64_t bytes) {
    char text[128], line[160];
    uint64_t now;

    p->done += bytes;
    if (!p->on)
        return;
    now = clock_mono_ms();
    if (now - p->begun_ms < PROGRESS_FIRST_MS || now - p->last_ms < PROGRESS_EVERY_MS)
        return;
    p->last_ms = now;
    progress_text(p, now, text, sizeof(text));
    snprintf(line, sizeof(line), "\r\033[K%s", text);
    p->shown = write(STDERR_FILENO, line, strlen(line)) > 0;
}

void progress_end(struct progress *p) {
    if (p->shown && write(STDERR_FILENO, "\r\033[K", 4) > 0)
        p->shown = false;
}

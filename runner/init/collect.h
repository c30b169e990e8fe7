/* Reads the files that a request asked back from /workspace, inside the jail and as its user: what
 * the command could not read, the collector cannot either, whatever links it finds. */
#pragma once

#include <stdint.h>

#include "spec.h"

/* Writes a bundle (bundle.h) to `out`. Each argv of `patterns` is a path or a glob below
 * /workspace:
 * '*' and '?' within a component, '**' over components, [..] classes. A plain path that isn't a
 * regular file, and a glob without a match, give an ERROR record with the pattern as its path; so
 * does a glob that was not looked for everywhere, because a million entries had been looked at
 * (too_many). At most `max_files` records and `max_bytes` of content. Returns the exit code: 0 when
 * the bundle is whole. */
int collect_run(int out, const struct spec *patterns, uint64_t max_bytes, uint32_t max_files);

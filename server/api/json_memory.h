/* The JSON library when memory is short. Version 2.14 does not look whether its buffer for a string
 * could grow: what it reads then lacks bytes, so that a command line could become another one, or
 * its end is not found and it reads on behind it; what it writes lacks bytes, too. So while it
 * reads, an allocation that fails is served from a block that was set aside, and what was read is
 * given up; and nothing that it wrote meanwhile is used. */
#pragma once

#include <jansson.h>
#include <stddef.h>

/* Once, at the start of a program: the library allocates through here. */
void json_memory_watch(void);

/* As json_loadb(). NULL with errno ENOMEM when memory was short, whatever was read. `e` may be
 * NULL. */
json_t *json_memory_load(const char *json, size_t len, size_t flags, json_error_t *e);
/* As json_dumps(): NULL also when memory was short. */
char *json_memory_dump(const json_t *json, size_t flags);

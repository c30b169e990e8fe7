/* A store in a directory of its own, for each test. */
#pragma once

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "store.h"
#include "store_file.h"
#include "unit.h"

static char store_place[64];
static int store_place_dir;

/* *state is the store. */
static inline int store_place_up(void **state) {
    struct err err = {0};
    struct store *s = NULL;
    snprintf(store_place, sizeof(store_place), "/tmp/unit-store-XXXXXX");
    if (mkdtemp(store_place) == NULL)
        return -1;
    store_place_dir = open(store_place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct store_options options = {.dir = store_place_dir};
    unit_works(store_open(&options, &s, &err), err);
    *state = s;
    return 0;
}

static inline int store_place_down(void **state) {
    store_close(*state);
    store_file_empty(store_place_dir, NULL);
    close(store_place_dir);
    return rmdir(store_place);
}

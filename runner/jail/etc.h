/* The /etc of image "host": written by us where a file could name users, hosts, keys or anything of
 * the host's set-up; copied from the host, by an allow-list, where programs in /usr cannot run
 * without it. Nothing that is not in one of the two tables of etc.c gets in. */
#pragma once

#include "err.h"

/* Fills an empty directory. Reads the host's /etc of the calling process's root. Only regular files
 * that everybody may read are copied (never through a symbolic link), links are copied as links;
 * depth, number of entries and bytes are bounded (ERR_LIMIT). The process's umask must let 0755 and
 * 0644 through. */
int etc_build(int etc_dirfd, struct err *err);

/* Writes only `hosts`, for an image that brings its own /etc but, as images do, an empty hosts. */
int etc_build_hosts(int dirfd, struct err *err);

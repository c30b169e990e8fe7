/* Makes an unpacked root file system fit to be a jail's: the directories that a jail mounts over
 * are real ones, and the files in /etc that every program expects are there. */
#pragma once

#include "err.h"

/* `root` is the rootfs. ERR_INVALID "mount target proc is a symbolic link" when the image cannot be
 * used. No link is followed or written through; a link in the place of a file is replaced. */
int image_prepare(int root, struct err *err);

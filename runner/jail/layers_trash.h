/* Removes trees that hostile programs made: by descriptors, through no link, however deep. */
#pragma once

/* Removes everything in the directory `trash`, best effort: what vanishes meanwhile, or cannot be
 * removed, is left. */
void layers_trash_empty(int trash);

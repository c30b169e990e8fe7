/* Asking the person at the terminal, whatever standard input and output are. */
#pragma once

#include <stdbool.h>

/* Is there somebody to ask? */
bool ask_possible(void);
/* Prints the question (cleaned: it may hold texts of a model, of a server) and reads a line.
 * Returns the letter of `choices` (small letters, e.g. "yna") that the answer begins with; the
 * first one that stands for no, 'n', for anything else, at the end of input, and without a
 * terminal. What was typed before the question was there is thrown away. */
char ask_person(const char *question, const char *choices);

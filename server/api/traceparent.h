/* The two headers of W3C Trace Context (https://www.w3.org/TR/trace-context/), as bytes: parsing
 * and writing. Pure. The server reads them from requests, the client from its environment.
 *
 *   traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
 *                version, trace, parent's span, flags
 *
 * One that is not well formed counts as none: it is never an error. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRACEPARENT_ID 16
#define TRACEPARENT_SPAN 8
#define TRACEPARENT_ID_TEXT (2 * TRACEPARENT_ID + 1)
#define TRACEPARENT_SPAN_TEXT (2 * TRACEPARENT_SPAN + 1)
#define TRACEPARENT_TEXT 56 /* of the whole, NUL included */
#define TRACEPARENT_STATE_MAX                                                                      \
    512 /* bytes of a tracestate that is passed on; a longer one is not                            \
         */

struct traceparent {
    uint8_t id[TRACEPARENT_ID];
    uint8_t span[TRACEPARENT_SPAN];
};

/* Reads one value; blanks around it do not count. A version above 00 is read as far as 00 goes. */
bool traceparent_parse(const char *text, struct traceparent *out);
/* 32 hexadecimal digits, not all of them 0; upper case is not allowed. */
bool traceparent_parse_id(const char *text, uint8_t id[TRACEPARENT_ID]);
/* Is it a tracestate that may be passed on: at most 32 members `key=value`, each as the
 * specification wants it, and at most TRACEPARENT_STATE_MAX bytes? "" is none. */
bool traceparent_state_ok(const char *text);

/* "00-…-…-01": it is recorded, so the flag says `sampled`. */
void traceparent_write(const struct traceparent *t, char text[TRACEPARENT_TEXT]);
/* `len` bytes as 2 * len digits and a NUL. */
void traceparent_hex(const uint8_t *bytes, size_t len, char *text);
/* `len` bytes from 2 * len digits; stops at the first character that is none, a NUL included. */
bool traceparent_unhex(const char *text, uint8_t *bytes, size_t len);

/* The listening TCP socket. */
#pragma once

#include <stdint.h>

#include "err.h"

/* Listens on `address` (a numeric IPv4 or IPv6 address) and `port` (0 = any). -> fd, or -1. *bound
 * is the port that it has. */
int listen_open(const char *address, uint16_t port, uint16_t *bound, struct err *err);

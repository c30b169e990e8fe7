/* Who the client is when a proxy stands in front: for logs and audit only, nothing is allowed or
 * refused for it.
 *
 * What Forwarded or X-Forwarded-For say counts only when the connection comes from an address that
 * the administrator trusts. Each proxy adds at the right whom it was spoken to by, so the list is
 * read from there, over those that are trusted, too, to the first that is not: what stands further
 * left may be anybody's invention. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "err.h"

#define PROXY_NETS_MAX 64u
#define PROXY_ADDRESS_SIZE 46u /* INET6_ADDRSTRLEN */

struct sockaddr;

/* An IPv4 network is one of IPv6: ::ffff:10.0.0.0/104. */
struct proxy_net {
    unsigned char address[16];
    unsigned bits;
};

struct proxy {
    size_t count;
    struct proxy_net nets[PROXY_NETS_MAX];
};

/* "10.0.0.0/8", "192.0.2.1", "2001:db8::/32". Bits of an address behind its network are an error.
 */
int proxy_net_parse(const char *text, struct proxy_net *out, struct err *err);
/* Is it one? For the table of settings. */
int proxy_check(const char *text, struct err *err);

/* The numeric address of the client, without a port. `forwarded` and `x_forwarded_for` are the
 * values of those headers, of several with a comma between; NULL = not there. Forwarded counts when
 * both are. A hop that is not an address ("unknown", "_hidden") ends the search: the client is then
 * the one who reported it. */
void proxy_client(const struct proxy *p, const struct sockaddr *peer, const char *forwarded,
                  const char *x_forwarded_for, char out[PROXY_ADDRESS_SIZE]);

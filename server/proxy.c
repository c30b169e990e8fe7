#include "proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "str.h"

#define PROXY_HOPS_MAX 64u
#define PROXY_HOP_SIZE 80u

static const unsigned char proxy_mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

/* An address of either kind as one of IPv6; *width is the number of bits that its own kind has. */
static bool proxy_address(const char *text, unsigned char out[16], unsigned *width) {
    memcpy(out, proxy_mapped, sizeof(proxy_mapped));
    *width = 32;
    if (inet_pton(AF_INET, text, out + 12) == 1)
        return true;
    *width = 128;
    return inet_pton(AF_INET6, text, out) == 1;
}

static bool proxy_within(const unsigned char a[16], const struct proxy_net *net) {
    unsigned whole = net->bits / 8, rest = net->bits % 8;
    if (memcmp(a, net->address, whole) != 0)
        return false;
    return rest == 0 || ((a[whole] ^ net->address[whole]) >> (8 - rest)) == 0;
}

int proxy_net_parse(const char *text, struct proxy_net *out, struct err *err) {
    struct proxy_net net;
    char address[PROXY_ADDRESS_SIZE];
    size_t len = strcspn(text, "/");
    unsigned width = 0;
    uint64_t bits;
    if (len >= sizeof(address))
        return err_set(err, ERR_INVALID, 0, "it is too long for an address");
    memcpy(address, text, len);
    address[len] = '\0';
    if (!proxy_address(address, net.address, &width))
        return err_set(err, ERR_INVALID, 0,
                       "it is neither an address nor a network such as 10.0.0.0/8");
    bits = width;
    if (text[len] == '/' && str_u64(text + len + 1, 0, width, &bits, err) < 0)
        return err_wrap(err, "behind the slash");
    net.bits = (unsigned)bits + 128 - width;
    for (unsigned i = net.bits; i < 128; i++)
        if ((net.address[i / 8] & (0x80 >> (i % 8))) != 0)
            return err_set(err, ERR_INVALID, 0,
                           "its address has bits behind the %llu that its network has",
                           (unsigned long long)bits);
    *out = net;
    return 0;
}

int proxy_check(const char *text, struct err *err) {
    struct proxy_net net;
    return proxy_net_parse(text, &net, err);
}

static bool proxy_trusts(const struct proxy *p, const unsigned char a[16]) {
    for (size_t i = 0; i < p->count; i++)
        if (proxy_within(a, &p->nets[i]))
            return true;
    return false;
}

static void proxy_write(const unsigned char a[16], char out[PROXY_ADDRESS_SIZE]) {
    bool four = memcmp(a, proxy_mapped, sizeof(proxy_mapped)) == 0;
    if (inet_ntop(four ? AF_INET : AF_INET6, four ? a + 12 : a, out, PROXY_ADDRESS_SIZE) == NULL)
        snprintf(out, PROXY_ADDRESS_SIZE, "?");
}

static bool proxy_peer(const struct sockaddr *peer, unsigned char out[16]) {
    memcpy(out, proxy_mapped, sizeof(proxy_mapped));
    if (peer->sa_family == AF_INET)
        memcpy(out + 12, &((const struct sockaddr_in *)(const void *)peer)->sin_addr, 4);
    else if (peer->sa_family == AF_INET6)
        memcpy(out, &((const struct sockaddr_in6 *)(const void *)peer)->sin6_addr, 16);
    else
        return false;
    return true;
}

/* Hops. */

static const char *proxy_blanks(const char *text) {
    return text + strspn(text, " \t");
}

/* How far it is to one of `ends` that stands outside of quotes, or to the end. */
static size_t proxy_until(const char *text, const char *ends) {
    bool quoted = false;
    size_t i = 0;
    for (; text[i] != '\0'; i++) {
        if (text[i] == '"')
            quoted = !quoted;
        else if (text[i] == '\\' && quoted && text[i + 1] != '\0')
            i++;
        else if (!quoted && strchr(ends, text[i]) != NULL)
            break;
    }
    return i;
}

/* "192.0.2.1:80", "[2001:db8::1]:80", either without a port, either in quotes. */
static bool proxy_hop(const char *text, size_t len, unsigned char out[16]) {
    char hop[PROXY_HOP_SIZE];
    unsigned width;
    while (len > 0 && (text[len - 1] == ' ' || text[len - 1] == '\t'))
        len--;
    if (len >= 2 && text[0] == '"' && text[len - 1] == '"') {
        text++;
        len -= 2;
    }
    if (len >= sizeof(hop))
        return false;
    memcpy(hop, text, len);
    hop[len] = '\0';
    char *first = strchr(hop, ':');
    if (hop[0] == '[') {
        hop[strcspn(hop, "]")] = '\0';
        return proxy_address(hop + 1, out, &width) && width == 128;
    }
    if (first != NULL && strchr(first + 1, ':') == NULL)
        *first = '\0';
    return proxy_address(hop, out, &width);
}

/* The value of `for` in one element of Forwarded; its length, 0 = there is none. */
static size_t proxy_for(const char *element, size_t len, const char **value) {
    const char *end = element + len;
    while (element < end) {
        element = proxy_blanks(element);
        size_t size = proxy_until(element, ";,");
        if (size >= 4 && strncasecmp(element, "for=", 4) == 0) {
            *value = element + 4;
            return size - 4;
        }
        element += size + 1;
    }
    return 0;
}

void proxy_client(const struct proxy *p, const struct sockaddr *peer, const char *forwarded,
                  const char *x_forwarded_for, char out[PROXY_ADDRESS_SIZE]) {
    struct {
        const char *text;
        size_t len;
    } hops[PROXY_HOPS_MAX];
    unsigned char client[16], hop[16];
    size_t n = 0;
    if (!proxy_peer(peer, client)) {
        snprintf(out, PROXY_ADDRESS_SIZE, "?");
        return;
    }
    const char *list = forwarded != NULL ? forwarded : x_forwarded_for;
    while (list != NULL && *(list = proxy_blanks(list)) != '\0') {
        size_t len = proxy_until(list, ",");
        if (n == PROXY_HOPS_MAX) {
            /* The right end counts. */
            memmove(hops, hops + 1, (n - 1) * sizeof(hops[0]));
            n--;
        }
        hops[n].text = list;
        hops[n].len = forwarded != NULL ? proxy_for(list, len, &hops[n].text) : len;
        n++;
        list += len + (list[len] == ',');
    }
    while (proxy_trusts(p, client) && n > 0 && proxy_hop(hops[n - 1].text, hops[n - 1].len, hop)) {
        memcpy(client, hop, sizeof(client));
        n--;
    }
    proxy_write(client, out);
}

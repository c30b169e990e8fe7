/* Forwarded and X-Forwarded-For, and the list of those who may say such things: an address comes
 * out. Parts are separated by 0xff: a network, Forwarded, X-Forwarded-For. */
#include "proxy.h"

#include <arpa/inet.h>

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sockaddr_in peer = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0a000001)};
    struct proxy proxy = {0};
    struct err err = {0};
    char out[PROXY_ADDRESS_SIZE] = "", *text[3];
    unsigned char address[16];
    for (size_t i = 0, len = 0; i < 3; i++) {
        const uint8_t *part = fuzz_part(&data, &size, &len);
        text[i] = fuzz_text(part, len);
    }
    fuzz_require(proxy_net_parse("10.0.0.0/8", &proxy.nets[0], &err) == 0);
    proxy.count = 1;
    if (proxy_net_parse(text[0], &proxy.nets[1], &err) == 0) {
        fuzz_require(proxy.nets[1].bits <= 128 && proxy_check(text[0], &err) == 0);
        proxy.count = 2;
    } else {
        fuzz_require(err.text[0] != '\0');
    }
    for (int i = 0; i < 4; i++) {
        proxy_client(&proxy, (struct sockaddr *)&peer, i & 1 ? text[1] : NULL,
                     i & 2 ? text[2] : NULL, out);
        fuzz_require(inet_pton(AF_INET, out, address) == 1 ||
                     inet_pton(AF_INET6, out, address) == 1);
    }
    for (size_t i = 0; i < 3; i++)
        free(text[i]);
    return 0;
}

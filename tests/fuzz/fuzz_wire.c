/* Both directions of the wire check. Input: one byte of choices, then a packet. Bit 0: from a
 * runner rather than a server; bits 1…4: number of descriptors; bit 7: correct version and size
 * first, so that the fields behind them are reached. A packet that is accepted must be safe to use.
 */
#include "wire.h"

#include <stdlib.h>
#include <string.h>

#include "str.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_require(int truth) {
    if (!truth)
        abort();
}

static void fuzz_use_request(const struct wire_head *head, size_t nfds) {
    if (head->type == WIRE_OPEN) {
        const struct wire_open *p = (const struct wire_open *)(const void *)head;
        fuzz_require(str_is_name(p->policy) && str_is_name(p->image));
    } else if (head->type == WIRE_EXEC) {
        const struct wire_exec *p = (const struct wire_exec *)(const void *)head;
        fuzz_require(nfds == wire_fd_count(p->fds) && p->spec_size <= WIRE_SPEC_MAX);
        if (!(p->fds & WIRE_FD_SPEC))
            fuzz_require(sizeof(*p) + p->spec_size == head->size);
    }
}

static void fuzz_use_reply(const struct wire_head *head) {
    if (head->type == WIRE_END) {
        const struct wire_end *p = (const struct wire_end *)(const void *)head;
        fuzz_require(cause_name(p->cause) != NULL);
        fuzz_require(strlen(p->stage) < sizeof(p->stage) && strlen(p->path) < sizeof(p->path));
    } else if (head->type == WIRE_WELCOME) {
        const struct wire_welcome *p = (const struct wire_welcome *)(const void *)head;
        static const uint8_t none[sizeof(p->host_sha256)];
        fuzz_require(backend_name(p->backend) != NULL);
        fuzz_require(p->backend != BACKEND_NATIVE ||
                     memcmp(p->host_sha256, none, sizeof(none)) == 0);
    } else if (head->type == WIRE_POLICY) {
        const struct wire_policy *p = (const struct wire_policy *)(const void *)head;
        fuzz_require(sizeof(*p) + p->text_size == head->size && str_is_name(p->name));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1)
        return 0;
    uint8_t choice = data[0];
    size_t nfds = choice >> 1 & 15;
    size_t len = size - 1;
    void *packet = malloc(len ? len : 1);
    fuzz_require(packet != NULL);
    memcpy(packet, data + 1, len);
    struct wire_head *head = packet;
    if ((choice & 0x80) && len >= sizeof(*head)) {
        head->version = WIRE_VERSION;
        head->size = (uint32_t)len;
    }
    struct err err = {0};
    int rc = choice & 1 ? wire_check_reply(packet, len, nfds, &err)
                        : wire_check_request(packet, len, nfds, &err);
    fuzz_require(rc == 0 ? err.kind == ERR_NONE : err.kind == ERR_PROTOCOL && err.text[0]);
    if (rc == 0 && (choice & 1))
        fuzz_use_reply(head);
    else if (rc == 0)
        fuzz_use_request(head, nfds);
    free(packet);
    return 0;
}

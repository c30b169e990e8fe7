#include "digest.h"

#include <errno.h>
#include <sodium.h>
#include <unistd.h>

#include "fd.h"

#define DIGEST_BLOCK 131072u

int digest_file(int fd, uint64_t offset, uint64_t max, int to, uint8_t digest[DIGEST_SIZE],
                uint64_t *size, struct err *err) {
    crypto_hash_sha256_state state;
    uint8_t block[DIGEST_BLOCK];
    uint64_t done = 0;
    crypto_hash_sha256_init(&state);
    while (done < max) {
        size_t want = max - done < sizeof(block) ? (size_t)(max - done) : sizeof(block);
        ssize_t n = pread(fd, block, want, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, "cannot read contents");
        if (n == 0)
            break;
        crypto_hash_sha256_update(&state, block, (unsigned long long)n);
        if (to >= 0 && fd_write_all(to, block, (size_t)n, err) < 0)
            return -1;
        done += (uint64_t)n;
    }
    crypto_hash_sha256_final(&state, digest);
    if (size != NULL)
        *size = done;
    return 0;
}

/* Whatever is sent as an archive: the records that come out are whole and good, keep within the
 * limits, and end with END if and only if all went well. */
#include "tar_read.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bundle.h"
#include "fileop_parse.h"

#define MAX_BYTES (256u * 1024)
#define MAX_ENTRIES 64u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_require(int truth) {
    if (!truth)
        abort();
}

struct fuzz_seen {
    uint64_t entries, bytes;
    bool end;
};

static void fuzz_item(struct fuzz_seen *seen, const struct fileop_item *item) {
    fuzz_require(!seen->end);
    if (item->rec.type == FILEOP_ENTRY) {
        fuzz_require(bundle_path_ok(item->path, item->rec.path_len));
        fuzz_require(item->rec.mode <= 0777);
        fuzz_require(item->rec.kind == FILEOP_FILE || item->rec.kind == FILEOP_DIRECTORY ||
                     item->rec.kind == FILEOP_SYMLINK || item->rec.kind == FILEOP_HARDLINK);
        seen->entries++;
    } else if (item->rec.type == FILEOP_DATA) {
        seen->bytes += item->rec.data_len;
    } else {
        fuzz_require(item->rec.type == FILEOP_END);
        seen->end = true;
    }
}

static void fuzz_check(int out, const struct tar_read_result *result) {
    struct fuzz_seen seen = {0};
    struct fileop_parse p;
    struct fileop_item item;
    ssize_t n;
    int rc = 0;
    fileop_parse_init(&p);
    lseek(out, 0, SEEK_SET);
    do {
        size_t room = 0;
        char *space = fileop_parse_space(&p, &room);
        fuzz_require(space != NULL);
        n = read(out, space, room);
        fuzz_require(n >= 0);
        fileop_parse_add(&p, (size_t)n);
        while ((rc = fileop_parse_next(&p, &item, NULL)) > 0)
            fuzz_item(&seen, &item);
        fuzz_require(rc == 0);
    } while (n > 0);
    fileop_parse_done(&p);
    fuzz_require(seen.entries <= MAX_ENTRIES && seen.bytes <= MAX_BYTES);
    fuzz_require(seen.end == (result->code == TAR_READ_OK));
    fuzz_require(!seen.end || (seen.entries == result->entries && seen.bytes == result->bytes));
    fuzz_require((result->code == TAR_READ_OK) == (result->why[0] == '\0'));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct tar_read_result result;
    int in = memfd_create("tar", MFD_CLOEXEC), out = memfd_create("records", MFD_CLOEXEC);
    fuzz_require(in >= 0 && out >= 0 && setlocale(LC_CTYPE, "C.UTF-8") != NULL);
    fuzz_require(write(in, data, size) == (ssize_t)size);
    lseek(in, 0, SEEK_SET);
    tar_read_run(in, out, MAX_BYTES, MAX_ENTRIES, &result);
    fuzz_check(out, &result);
    close(in);
    close(out);
    return 0;
}

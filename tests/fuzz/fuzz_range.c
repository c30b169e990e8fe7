/* The Range header: a part lies within the whole. The first two bytes are the size. */
#include "range.h"

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint64_t first = 7, last = 7;
    if (size < 2)
        return 0;
    uint64_t whole = data[0] == 0xff ? UINT64_MAX - data[1] : data[0] * 256u + data[1];
    char *header = fuzz_text(data + 2, size - 2);
    if (range_parse(header, whole, &first, &last) == RANGE_PART)
        fuzz_require(first <= last && last < whole);
    free(header);
    return 0;
}

/* A settings file: what is taken can be printed, as text and as JSON; what is not is one sentence.
 */
#include "config.h"

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct config c;
    struct err err = {0};
    struct buf out;
    fuzz_require(config_init(&c, &err) == 0);
    if (config_parse(&c, "settings.json", (const char *)data, size, &err) == 0) {
        buf_init(&out, CONFIG_FILE_MAX);
        fuzz_require(config_print(&c, &out, &err) == 0);
        fuzz_require(config_print_json(&c, &out, &err) == 0);
        for (const struct config_row *row = config_table(); row->key != NULL; row++)
            fuzz_require(config_show(&c, row, &out, &err) == 0);
        buf_done(&out);
    } else {
        fuzz_require(err.text[0] != '\0');
    }
    config_done(&c);
    return 0;
}

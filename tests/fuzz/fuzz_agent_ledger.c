/* The journal of costs as somebody else left it: lines come out or an error, and what is added then
 * does not hide it. */
#include "agent_ledger.h"

#include "fuzz.h"

static bool count(void *arg, const json_t *line) {
    fuzz_require(line != NULL);
    return ++*(size_t *)arg < 1000;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const struct agent_ledger_entry entry = {.session = "s",
                                             .task = "t",
                                             .workspace = "/w",
                                             .provider = "openai",
                                             .host = "h",
                                             .model = "m",
                                             .prices = "",
                                             .rules = "",
                                             .outcome = "ok"};
    char path[sizeof(FUZZ_DIR)];
    struct agent_prices prices = {0};
    struct model_usage usage = {.known = true, .input = UINT64_MAX, .output = 7};
    struct err err = {0};
    size_t found = 0, again = 0;
    uint64_t cost = 0;
    int dir = fuzz_dir(path);
    fuzz_file(dir, "costs", data, size);
    if (agent_ledger_read(dir, "costs", count, &found, &err) == 0 && found < 100) {
        if (agent_ledger_add(dir, "costs", &entry, &err) == 0)
            fuzz_require(agent_ledger_read(dir, "costs", count, &again, &err) == 0 &&
                         again == found + 1);
    }
    if (agent_prices_load(&prices, dir, "costs", &err) == 0) {
        (void)agent_prices_cost(&prices, "gpt-5", false, &usage, &cost);
        agent_prices_done(&prices);
    }
    fuzz_remove(dir, path);
    return 0;
}

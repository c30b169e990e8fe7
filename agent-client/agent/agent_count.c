/* Which verifiers must say how many tests there were. An exit code alone is the word of a process
 * in which the tested code runs as well. */
#include <fnmatch.h>
#include <string.h>

#include "agent.h"

#define AGENT_COUNT_WORD 128u

/* A program, and a word that must come somewhere behind it; NULL = the program alone. */
static const struct agent_count_runner {
    const char *program, *word, *name;
} agent_count_runners[] = {
    {"pytest*", NULL, "pytest"},     {"py.test*", NULL, "pytest"},
    {"python*", "pytest", "pytest"}, {"python*", "unittest", "unittest"},
    {"unittest", NULL, "unittest"},  {"go", "test", "go test"},
    {"cargo", "test", "cargo test"}, {"cargo", "t", "cargo test"},
    {"jest", NULL, "jest"},          {"vitest", NULL, "vitest"},
    {"node", "--test", "node"},      {"ctest", NULL, "ctest"},
    {"ctest3", NULL, "ctest"},       {"bats", NULL, "bats"},
};

/* The next word, as far as it can be told without a shell, without its directories and quotes. */
static bool agent_count_word(const char **at, char word[AGENT_COUNT_WORD]) {
    static const char between[] = " \t\n;&|()'\"`$<>{}";
    *at += strspn(*at, between);
    size_t n = strcspn(*at, between), from = 0;
    for (size_t i = 0; i < n; i++)
        from = (*at)[i] == '/' ? i + 1 : from;
    size_t len = n - from < AGENT_COUNT_WORD ? n - from : AGENT_COUNT_WORD - 1;
    memcpy(word, *at + from, len);
    word[len] = '\0';
    *at += n;
    return n > 0;
}

static bool agent_count_follows(const char *rest, const char *wanted) {
    char word[AGENT_COUNT_WORD];
    while (agent_count_word(&rest, word))
        if (strcmp(word, wanted) == 0)
            return true;
    return false;
}

const char *agent_count_runner(const char *command) {
    char word[AGENT_COUNT_WORD];
    for (const char *at = command; agent_count_word(&at, word);)
        for (size_t i = 0; i < sizeof(agent_count_runners) / sizeof(agent_count_runners[0]); i++) {
            const struct agent_count_runner *r = &agent_count_runners[i];
            if (fnmatch(r->program, word, 0) == 0 &&
                (r->word == NULL || agent_count_follows(at, r->word)))
                return r->name;
        }
    return NULL;
}

const char *agent_count_begun(const char *output) {
    static const struct {
        const char *line, *name;
    } first[] = {{"test session starts", "pytest"},
                 {"\nTAP version 1", "TAP"},
                 {"\nTest project /", "ctest"},
                 {"\n RUN  v", "vitest"},
                 {"\n=== RUN   ", "go test"}};
    for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++) {
        const char *line = first[i].line;
        if (strstr(output, line) != NULL ||
            (line[0] == '\n' && strncmp(output, line + 1, strlen(line + 1)) == 0))
            return first[i].name;
    }
    return NULL;
}

bool agent_count_adds(const char *format) {
    static const char *const adds[] = {"go", "cargo", "tap"};
    for (size_t i = 0; format != NULL && i < sizeof(adds) / sizeof(adds[0]); i++)
        if (strcmp(format, adds[i]) == 0)
            return true;
    return false;
}

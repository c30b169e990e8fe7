/* Bytes that a program printed, or wrote into a report: every reader takes them whole, and a
 * verdict agrees with its counts. The first byte picks the verifier. */
#include "verify.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_require(int truth) {
    if (!truth)
        abort();
}

static void fuzz_check(const struct verify_report *report) {
    fuzz_require(report->summary[0] != '\0');
    fuzz_require(report->count <= report->failed);
    if (report->verdict == VERIFY_PASS)
        fuzz_require(report->passed > 0 && report->failed == 0);
    if (report->verdict == VERIFY_FAIL)
        fuzz_require(report->failed > 0);
    for (size_t i = 0; i < report->count; i++)
        fuzz_require(report->failures[i].name != NULL && report->failures[i].message != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct {
        const char *verifier, *key, *value;
    } kinds[] = {{"log", "format", "auto"},      {"tap", NULL, NULL},
                 {"junit", NULL, NULL},          {"exit", NULL, NULL},
                 {"csv", "unique", "a"},         {"csv", "number", "a"},
                 {"json-schema", "schema", "-"}, {"completeness", "actual", "-"}};
    struct verify_args args = {.count = 0};
    struct verify_report report;
    if (size == 0)
        return 0;
    size_t kind = data[0] % (sizeof(kinds) / sizeof(kinds[0]));
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    fuzz_require(fd >= 0 && write(fd, data + 1, size - 1) == (ssize_t)(size - 1));
    fuzz_require(lseek(fd, 0, SEEK_SET) == 0 && dup2(fd, STDIN_FILENO) == STDIN_FILENO);
    args.root = AT_FDCWD;
    args.items[args.count++] = (struct verify_arg){
        .name = strcmp(kinds[kind].verifier, "completeness") == 0 ? "expected" : "file",
        .value = "-"};
    if (kinds[kind].key != NULL)
        args.items[args.count++] =
            (struct verify_arg){.name = kinds[kind].key, .value = kinds[kind].value};
    verify_run(verify_find(kinds[kind].verifier), &args, &report);
    fuzz_check(&report);
    verify_report_done(&report);
    close(fd);
    return 0;
}

#include "scratch.h"

#include <sys/mman.h>
#include <unistd.h>

void *scratch_new(size_t size) {
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        _exit(125);
    }
    return p;
}

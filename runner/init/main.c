#include "init.h"

int main(void) {
    return init_run();
}

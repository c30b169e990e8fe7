/* Any bytes as a command: the parser neither crashes nor loops, and what it returns is well formed.
 */
#include "bash_parse.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_node(const struct bash_node *n, size_t *commands);

static void fuzz_words(const struct bash_word *w, size_t *commands) {
    for (; w != NULL; w = w->next) {
        bool marked = false;

        if (strlen(w->text) != w->len)
            abort();
        for (size_t i = 0; i < w->len; i++) {
            if (w->text[i] >= 0x06 && w->text[i] <= 0x08)
                abort(); /* a brace that nobody expanded */
            marked = marked || w->text[i] == BASH_MARK_ANY || w->text[i] == BASH_MARK_TILDE;
        }
        if (marked && (w->flags & (unsigned)BASH_WORD_DYNAMIC) == 0)
            abort();
        for (const struct bash_node *sub = w->subs; sub != NULL; sub = sub->next)
            fuzz_node(sub, commands);
    }
}

static void fuzz_node(const struct bash_node *n, size_t *commands) {
    if (n == NULL)
        return;
    *commands += n->kind == BASH_SIMPLE;
    fuzz_words(n->assigns, commands);
    fuzz_words(n->words, commands);
    for (const struct bash_redir *r = n->redirs; r != NULL; r = r->next) {
        if (r->word == NULL)
            abort();
        fuzz_words(r->word, commands);
    }
    for (const struct bash_node *child = n->a; child != NULL; child = child->next)
        fuzz_node(child, commands);
    fuzz_node(n->b, commands);
    fuzz_node(n->c, commands);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct arena arena;
    struct bash_result result;
    size_t commands = 0;

    arena_init(&arena, (size_t)8 * 1024 * 1024);
    if (bash_parse(&arena, (const char *)data, size, &result) == 0) {
        if (result.why != NULL)
            abort();
        fuzz_node(result.tree, &commands);
        if (commands > result.commands)
            abort();
    } else if (result.why == NULL || result.tree != NULL) {
        abort();
    }
    arena_done(&arena);
    return 0;
}

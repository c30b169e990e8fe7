#include "bash_parse.h"

#include "bash_lex.h"

int bash_parse(struct arena *arena, const char *text, size_t len, struct bash_result *result) {
    struct bash_state st = {.arena = arena, .s = text, .len = len};
    struct bash_node *tree = NULL;

    *result = (struct bash_result){0};
    if (len > BASH_TEXT_MAX) {
        result->why = "it is too long";
        return -1;
    }
    result->why = bash_visible(text, len, &result->at);
    if (result->why != NULL)
        return -1;
    if (bash_list(&st, &tree) == 0 && st.pos < st.len)
        bash_lex_fail(&st, "there is something that cannot stand there");
    if (st.why == NULL && st.pending != NULL)
        bash_lex_fail(&st, "a here-document has no body");
    result->why = st.why;
    result->at = st.at;
    result->commands = st.commands;
    result->tree = st.why == NULL ? tree : NULL;
    return st.why == NULL ? 0 : -1;
}

/* JUnit's XML: <testsuites><testsuite><testcase><failure|error|skipped>. Parsed by expat; a
 * document type, and with it every entity of its own, is refused: nothing of a report needs one,
 * and a few of them can expand to gigabytes. */
#include <errno.h>
#include <expat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "str.h"
#include "verify_kinds.h"
#include "verify_lines.h"

#define VERIFY_JUNIT_DEPTH_MAX 64u

struct verify_junit_parse {
    XML_Parser parser;
    struct verify_report *report;
    unsigned depth;
    bool known, in_case, in_problem, failed, skipped, doctype, deep;
    char name[512], file[VERIFY_LINES_PATH_SIZE], message[VERIFY_TEXT_MAX], body[VERIFY_TEXT_MAX];
    size_t body_len;
    uint64_t line;
};

static const char *verify_junit_attribute(const char *const *attributes, const char *name) {
    for (size_t i = 0; attributes[i] != NULL; i += 2)
        if (strcmp(attributes[i], name) == 0)
            return attributes[i + 1];
    return NULL;
}

static void verify_junit_case(struct verify_junit_parse *p, const char *const *attributes) {
    const char *name = verify_junit_attribute(attributes, "name");
    const char *group = verify_junit_attribute(attributes, "classname");
    const char *file = verify_junit_attribute(attributes, "file");
    const char *line = verify_junit_attribute(attributes, "line");
    p->in_case = true;
    p->failed = p->skipped = false;
    p->line = 0;
    p->body_len = 0;
    p->message[0] = p->body[0] = '\0';
    snprintf(p->name, sizeof(p->name), "%s%s%s", group != NULL ? group : "",
             group != NULL && group[0] != '\0' ? "." : "", name != NULL ? name : "?");
    snprintf(p->file, sizeof(p->file), "%s", file != NULL ? file : "");
    if (line != NULL)
        (void)str_u64(line, 1, UINT32_MAX, &p->line, NULL);
}

static void verify_junit_start(void *arg, const char *element, const char **attributes) {
    struct verify_junit_parse *p = arg;
    if (++p->depth > VERIFY_JUNIT_DEPTH_MAX) {
        p->deep = true;
        XML_StopParser(p->parser, XML_FALSE);
    } else if (p->depth == 1) {
        p->known = strcmp(element, "testsuites") == 0 || strcmp(element, "testsuite") == 0;
        if (!p->known)
            XML_StopParser(p->parser, XML_FALSE);
    } else if (strcmp(element, "testcase") == 0) {
        verify_junit_case(p, attributes);
    } else if (p->in_case && (strcmp(element, "failure") == 0 || strcmp(element, "error") == 0)) {
        const char *message = verify_junit_attribute(attributes, "message");
        p->failed = p->in_problem = true;
        if (message != NULL && p->message[0] == '\0')
            snprintf(p->message, sizeof(p->message), "%s", message);
    } else if (p->in_case && strcmp(element, "skipped") == 0) {
        p->skipped = true;
    }
}

/* What the attributes do not say: the first line of the text is the message, and the first line of
 * it that begins with "file:12:" is the place. */
static void verify_junit_report(struct verify_junit_parse *p) {
    const char *message = p->message;
    for (const char *at = p->body; p->line == 0 && *at != '\0'; at += *at == '\n') {
        char path[VERIFY_LINES_PATH_SIZE];
        uint64_t line;
        if (verify_lines_place(at, path, &line)) {
            snprintf(p->file, sizeof(p->file), "%s", path);
            p->line = line;
            break;
        }
        at += strcspn(at, "\n");
    }
    if (message[0] == '\0') {
        message = p->body + strspn(p->body, " \t\r\n");
        p->body[strcspn(message, "\n") + (size_t)(message - p->body)] = '\0';
    }
    verify_fail(p->report, p->name, p->file[0] != '\0' ? p->file : NULL, p->line, "%s",
                message[0] != '\0' ? message : "failed");
}

static void verify_junit_end(void *arg, const char *element) {
    struct verify_junit_parse *p = arg;
    p->depth--;
    if (strcmp(element, "failure") == 0 || strcmp(element, "error") == 0) {
        p->in_problem = false;
    } else if (strcmp(element, "testcase") == 0 && p->in_case) {
        p->in_case = false;
        if (p->failed)
            verify_junit_report(p);
        else if (p->skipped)
            p->report->skipped++;
        else
            p->report->passed++;
    }
}

static void verify_junit_text(void *arg, const char *text, int len) {
    struct verify_junit_parse *p = arg;
    size_t room = sizeof(p->body) - 1 - p->body_len;
    size_t n = (size_t)len < room ? (size_t)len : room;
    if (!p->in_problem)
        return;
    memcpy(p->body + p->body_len, text, n);
    p->body_len += n;
    p->body[p->body_len] = '\0';
}

static void verify_junit_doctype(void *arg, const char *name, const char *system,
                                 const char *public, int subset) {
    struct verify_junit_parse *p = arg;
    (void)name;
    (void)system;
    (void)public;
    (void)subset;
    p->doctype = true;
    XML_StopParser(p->parser, XML_FALSE);
}

static int verify_junit_parse(const char *file, const struct buf *text,
                              struct verify_report *report, struct err *err) {
    struct verify_junit_parse *p = calloc(1, sizeof(*p));
    int rc = -1;
    if (p != NULL)
        p->parser = XML_ParserCreate(NULL);
    if (p == NULL || p->parser == NULL) {
        free(p);
        return err_set(err, ERR_SYSTEM, ENOMEM, "reading %s: out of memory", file);
    }
    p->report = report;
    XML_SetUserData(p->parser, p);
    XML_SetElementHandler(p->parser, verify_junit_start, verify_junit_end);
    XML_SetCharacterDataHandler(p->parser, verify_junit_text);
    XML_SetStartDoctypeDeclHandler(p->parser, verify_junit_doctype);
    if (XML_Parse(p->parser, text->data != NULL ? text->data : "", (int)text->len, 1) !=
        XML_STATUS_ERROR)
        rc = 0;
    else if (p->doctype)
        err_set(err, ERR_INVALID, 0, "%s has a document type, which a report has no use for", file);
    else if (p->deep)
        err_set(err, ERR_LIMIT, 0, "%s is nested more than %u deep", file, VERIFY_JUNIT_DEPTH_MAX);
    else if (p->depth == 1 && !p->known)
        err_set(err, ERR_INVALID, 0, "%s is no JUnit report: it does not begin with testsuites",
                file);
    else
        err_set(err, ERR_INVALID, 0, "%s is no whole XML (line %lu): %s", file,
                (unsigned long)XML_GetCurrentLineNumber(p->parser),
                XML_ErrorString(XML_GetErrorCode(p->parser)));
    XML_ParserFree(p->parser);
    free(p);
    return rc;
}

static int verify_junit_file(const struct verify_args *args, const char *file,
                             struct verify_report *report, struct err *err) {
    struct buf text;
    int rc = verify_read(args, file, &text, err);
    if (rc == 0)
        rc = verify_junit_parse(file, &text, report, err);
    buf_done(&text);
    return rc;
}

static int verify_junit_run(const struct verify_args *args, struct verify_report *report,
                            struct err *err) {
    const char *pattern;
    for (size_t n = 0; (pattern = verify_arg_nth(args, "file", n)) != NULL; n++) {
        char **names = NULL;
        size_t count = 0;
        int rc = 0;
        if (strpbrk(pattern, "*?[") == NULL) {
            if (verify_junit_file(args, pattern, report, err) < 0)
                return -1;
            continue;
        }
        if (verify_glob(args, pattern, &names, &count, err) < 0)
            return -1;
        if (count == 0)
            rc = err_set(err, ERR_INVALID, 0, "no file matches %s", pattern);
        for (size_t i = 0; rc == 0 && i < count; i++)
            rc = verify_junit_file(args, names[i], report, err);
        verify_names_done(names, count);
        if (rc < 0)
            return -1;
    }
    return 0;
}

static const struct verify_key verify_junit_keys[] = {
    {"file", true, true, "reports, or patterns such as reports/**/TEST-*.xml"},
    {0},
};

const struct verifier verify_junit = {
    .name = "junit",
    .about = "JUnit XML reports: every test case passed",
    .keys = verify_junit_keys,
    .run = verify_junit_run,
};

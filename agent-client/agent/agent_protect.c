/* What a model must not change: tests that are there, the verifier, and what steers them. */
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent.h"

/* Names of files that tests have by the customs of their languages. */
static const char *const agent_protect_tests[] = {
    "test_*",       "test-*",       "*_test.*",    "*-test.*",     "*_tests.*",    "*.test.*",
    "*.tests.*",    "*.spec.*",     "*_spec.*",    "*.cy.*",       "*.e2e.*",      "*Test.java",
    "*Tests.java",  "*IT.java",     "Test*.java",  "*Test.kt",     "*Tests.kt",    "*Spec.kt",
    "*Test.php",    "*Tests.swift", "*Test.swift", "*Test.cs",     "*Tests.cs",    "*Spec.scala",
    "*Suite.scala", "*Test.scala",  "*Spec.hs",    "*Test.groovy", "*Spec.groovy", "*.bats",
    "*.snap",       "*.feature",    "*.t",         "test.*",       "tests.*",
};
static const char *const agent_protect_dirs[] = {
    "test",
    "tests",
    "spec",
    "specs",
    "__tests__",
    "testdata",
    "e2e",
    "cypress",
    "t",
    "unittests",
    "integration_tests",
    "*.tests",
    "*.test",
    "__snapshots__",
    "fixtures",
    "androidTest",
    "golden",
};

/* Files that decide which tests are run, or what runs them, for the verifier's programs; NULL = for
 * every verifier. A name that ends with a slash is a directory, at the top. */
static const struct agent_protect_steer {
    const char *programs[8], *names[14];
} agent_protect_steers[] = {
    {{NULL},
     {"conftest.py", "pytest.ini", ".pytest.ini", "tox.ini", "sitecustomize.py", "usercustomize.py",
      "pytest.py", "unittest.py", "unittest/", "pytest/", "_pytest/", "*.pth"}},
    {{NULL},
     {"jest.config.*", "jest.setup.*", "vitest.config.*", "vitest.workspace.*", ".mocharc*",
      "karma.conf.*", "playwright.config.*", "phpunit.xml*", ".rspec", "*.runsettings",
      "CTestTestfile.cmake", "__mocks__/"}},
    {{"python*", "pytest*", "py.test", "tox", "nox", "uv", "poetry"},
     {"setup.cfg", "pyproject.toml", "noxfile.py", "setup.py"}},
    {{"make", "gmake"}, {"Makefile", "makefile", "GNUmakefile", "*.mk"}},
    {{"npm", "npx", "yarn", "pnpm", "bun", "node", "jest", "vitest"},
     {"package.json", ".npmrc", ".yarnrc*", ".babelrc*", "babel.config.*", "vite.config.*",
      "node_modules/"}},
    {{"cargo"}, {"Cargo.toml", ".cargo/", "build.rs", "rust-toolchain*"}},
    {{"go"}, {"go.mod", "go.work", "vendor/"}},
    {{"ctest", "cmake"}, {"CMakeLists.txt", "CMakePresets.json", "*.cmake"}},
    {{"just"}, {"justfile", "Justfile", ".justfile"}},
    {{"mvn", "mvnw", "gradle", "gradlew"},
     {"pom.xml", "build.gradle*", "settings.gradle*", "gradle.properties", "gradlew", "mvnw",
      ".mvn/", "gradle/"}},
    {{"rake", "rspec", "bundle"}, {"Rakefile", "Gemfile"}},
    {{"composer", "php", "phpunit"}, {"composer.json"}},
    {{"dotnet"}, {"*.csproj", "*.sln", "Directory.Build.*", "nuget.config"}},
    {{"mix"}, {"mix.exs"}},
};

static const char *agent_protect_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static bool agent_protect_is_dir(const char *name, size_t len) {
    char part[256];
    if (len >= sizeof(part))
        return false;
    memcpy(part, name, len);
    part[len] = '\0';
    for (size_t i = 0; i < sizeof(agent_protect_dirs) / sizeof(agent_protect_dirs[0]); i++)
        if (fnmatch(agent_protect_dirs[i], part, FNM_CASEFOLD) == 0)
            return true;
    return false;
}

static bool agent_protect_is_test(const char *path, bool link) {
    const char *name = agent_protect_name(path);
    for (size_t i = 0; i < sizeof(agent_protect_tests) / sizeof(agent_protect_tests[0]); i++)
        if (fnmatch(agent_protect_tests[i], name, 0) == 0)
            return true;
    for (const char *p = path; p < name; p += strcspn(p, "/") + 1)
        if (agent_protect_is_dir(p, strcspn(p, "/")))
            return true;
    return link && agent_protect_is_dir(name, strlen(name));
}

/* The next word of the verifier's command, without "./" in front; NULL at the end. */
static const char *agent_protect_word(const char **at, size_t *len) {
    *at += strspn(*at, " \t\n;&|()'\"=`$<>");
    const char *word = *at;
    *at += strcspn(*at, " \t\n;&|()'\"=`$<>");
    while (*at - word > 2 && word[0] == '.' && word[1] == '/')
        word += 2;
    *len = (size_t)(*at - word);
    return *len > 0 ? word : NULL;
}

static bool agent_protect_is_named(const char *command, const char *path) {
    size_t n = strlen(path), len;
    for (const char *at = command, *word; (word = agent_protect_word(&at, &len)) != NULL;)
        if (len == n && strncmp(word, path, n) == 0)
            return true;
    return false;
}

static bool agent_protect_runs(const char *command, const char *const *programs, size_t count) {
    size_t len;
    for (const char *at = command, *word; (word = agent_protect_word(&at, &len)) != NULL;) {
        char text[256];
        if (len >= sizeof(text))
            continue;
        memcpy(text, word, len);
        text[len] = '\0';
        for (size_t i = 0; i < count && programs[i] != NULL; i++)
            if (fnmatch(programs[i], agent_protect_name(text), 0) == 0)
                return true;
    }
    return programs[0] == NULL;
}

/* "python3 -m check": check.py, or the directory check, at the top. */
static bool agent_protect_is_module(const char *command, const char *path) {
    size_t len, n = strcspn(path, "/");
    bool flag = false;
    if (path[n] == '\0' && n > 3 && strcmp(path + n - 3, ".py") == 0)
        n -= 3;
    for (const char *at = command, *word; (word = agent_protect_word(&at, &len)) != NULL;) {
        const char *dot = memchr(word, '.', len);
        size_t first = dot != NULL ? (size_t)(dot - word) : len;
        if (flag && first == n && strncmp(word, path, n) == 0)
            return true;
        flag = len == 2 && strncmp(word, "-m", 2) == 0;
    }
    return false;
}

static bool agent_protect_is_steering(const char *command, const char *path) {
    const char *name = agent_protect_name(path);
    if (agent_protect_is_module(command, path))
        return true;
    for (size_t i = 0; i < sizeof(agent_protect_steers) / sizeof(agent_protect_steers[0]); i++) {
        const struct agent_protect_steer *s = &agent_protect_steers[i];
        if (!agent_protect_runs(command, s->programs, 8))
            continue;
        for (size_t k = 0; k < 14 && s->names[k] != NULL; k++) {
            size_t n = strlen(s->names[k]);
            if (s->names[k][n - 1] == '/'
                    ? strncmp(path, s->names[k], n) == 0 ||
                          (strncmp(path, s->names[k], n - 1) == 0 && path[n - 1] == '\0')
                    : fnmatch(s->names[k], name, 0) == 0)
                return true;
        }
    }
    return false;
}

static bool agent_protect_is_listed(const struct agent *a, const char *path) {
    for (size_t i = 0; i < a->o.protect.count; i++)
        if (ws_ignore_glob(a->o.protect.item[i], path))
            return true;
    return false;
}

static bool agent_protect_has(const struct agent *a, const char *path) {
    for (size_t i = 0; i < a->protected_count; i++)
        if (strcmp(a->protected[i], path) == 0)
            return true;
    return false;
}

int agent_protect(struct agent *a, struct err *err) {
    const struct ws_tree *t = &a->project.tree;
    char **more = reallocarray(a->protected, a->protected_count + t->count + 1, sizeof(char *));
    if (more == NULL)
        return err_set(err, ERR_SYSTEM, ENOMEM, "out of memory");
    a->protected = more;
    for (size_t i = 0; i < t->count; i++) {
        const struct ws_entry *e = &t->entries[i];
        const char *path = e->path;
        bool own = !a->o.allow_tests && (agent_protect_is_test(path, e->type == WS_LINK) ||
                                         agent_protect_is_named(a->o.verify, path) ||
                                         agent_protect_is_steering(a->o.verify, path));
        if (e->type == WS_DIR || e->withheld || !(own || agent_protect_is_listed(a, path)) ||
            agent_protect_has(a, path))
            continue;
        a->protected[a->protected_count] = strdup(path);
        if (a->protected[a->protected_count] == NULL)
            return err_set(err, ERR_SYSTEM, ENOMEM, "out of memory");
        a->protected_count++;
    }
    return 0;
}

const char *agent_protect_lost(const struct agent *a) {
    for (size_t i = 0; i < a->protected_count; i++) {
        const struct ws_entry *e = ws_tree_find(&a->project.tree, a->protected[i]);
        if (e == NULL || e->type == WS_DIR || e->withheld)
            return a->protected[i];
    }
    return NULL;
}

/* The file itself, a directory that holds one, or something below one (which would need it to be a
 * directory). */
bool agent_protect_may_write(void *agent, const char *path, char *why, size_t size) {
    const struct agent *a = agent;
    size_t n = strlen(path);
    for (size_t i = 0; i < a->protected_count; i++) {
        const char *one = a->protected[i];
        size_t len = strlen(one);
        size_t less = n < len ? n : len;
        if (strncmp(one, path, less) != 0 || (n < len && one[n] != '/') ||
            (n > len && path[len] != '/'))
            continue;
        /* A directory by itself may be written into; only a change of what stands there counts. */
        if (n < len) {
            const struct ws_entry *e = ws_tree_find(&a->project.tree, path);
            if (e != NULL && e->type == WS_DIR)
                continue;
        }
        snprintf(why, size,
                 "%.150s is a test or part of the verifier, and write-protected (--allow-tests "
                 "lifts that)",
                 one);
        return false;
    }
    /* Where there is nothing yet that could be weakened, it may all be made. */
    if (a->o.allow_tests || a->protected_count == 0 ||
        (!agent_protect_is_named(a->o.verify, path) &&
         !agent_protect_is_steering(a->o.verify, path)))
        return true;
    snprintf(why, size,
             "%.150s would steer the tests that are there, and is write-protected (--allow-tests "
             "lifts that)",
             path);
    return false;
}

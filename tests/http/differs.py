"""What is different in containers of a Docker engine: a reason per test that cannot be the same, and
the table that the README shows."""

import re

# (what, in a native jail, in a container, pattern of the titles of tests that are skipped, or None)
ROWS = [
    (
        "image `host`",
        "the programs of the machine",
        "what `--host-image` named when the runner started",
        None,
    ),
    (
        "user ids outside",
        "a range for each jail",
        "the engine's: 1000, or its `userns-remap`",
        None,
    ),
    (
        "`/proc/self/mountinfo`",
        "names nothing of the host",
        "names the engine's directories",
        None,
    ),
    (
        "32-bit system calls",
        "all end with cause `syscall`",
        "those that the filter allows to 64-bit programs do; others fail",
        None,
    ),
    (
        "the engine restarts",
        "nothing happens",
        "its containers end, unless it keeps them (`live-restore`)",
        None,
    ),
]


def why(title):
    """The reason to skip this test on containers, or None."""
    for what, _, there, pattern in ROWS:
        if pattern and re.search(pattern, title):
            return "%s: %s" % (what, there)
    return None


def table():
    lines = ["| | native | container |", "|---|---|---|"]
    lines += ["| %s | %s | %s |" % row[:3] for row in ROWS]
    return "\n".join(lines) + "\n"

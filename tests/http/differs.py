"""What is different in containers of a Docker engine: a reason per test that cannot be the same, and
the table that the README shows."""

import re

# (what, in a native jail, in a container, pattern of the titles of tests that are skipped, or None)
ROWS = []


def why(title):
    """The reason to skip this test on containers, or None."""
    for what, _, there, pattern in ROWS:
        if pattern and re.search(pattern, title):
            return "%s: %s" % (what, there)
    return None


def table():
    lines = ["| | native jail | Docker container |", "|---|---|---|"]
    lines += ["| %s | %s | %s |" % row[:3] for row in ROWS]
    return "\n".join(lines) + "\n"

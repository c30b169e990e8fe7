"""What the programs in this directory print."""

import sys

SHOWN = 5  # problems of one test


class Tap:
    def __init__(self):
        self.number = self.passed = self.failed = 0

    def plan(self, most):
        print("1..%d" % most, flush=True)

    def line(self, name, problems):
        """One test; `problems` is a list, empty when it passed."""
        self.number += 1
        good = not problems
        self.passed += good
        self.failed += not good
        print("%s %d - %s" % ("ok" if good else "not ok", self.number, name))
        for problem in problems[:SHOWN]:
            for line in str(problem).splitlines():
                print("#   " + line)
        if len(problems) > SHOWN:
            print("#   … and %d more" % (len(problems) - SHOWN))
        sys.stdout.flush()

    def end(self):
        """The last line -> exit code"""
        print("%d passed, %d failed, 0 skipped" % (self.passed, self.failed))
        return 1 if self.failed or not self.passed else 0

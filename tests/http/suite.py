"""The list of tests. A test module registers what it has with @test or add(); run.py runs them.

A test is a function of one argument, the shared server pair (harness.Server). It passes by
returning, fails by raising (AssertionError from check.py, mostly) and is skipped by raising Skip
with a reason."""

DEFAULT_DEADLINE = 15


class Skip(Exception):
    """The test cannot run on this machine; the text says why and is printed."""


class Deadline(BaseException):
    """Raised in a test that took too long. Not an Exception, so that no test swallows it."""


class Test:
    def __init__(self, module, name, function, case, deadline, slow, own, alone=False, waits=False):
        self.module = module
        self.name = name
        self.function = function
        self.case = case
        self.deadline = deadline
        self.slow = slow
        self.own = own
        self.alone = alone
        self.waits = waits

    def title(self):
        # A "#" in a TAP line starts a directive.
        text = "%s: %s" % (self.module, self.name)
        if self.case is not None:
            text += " (case %s)" % self.case
        return text.replace("#", "no.").replace("\n", " ")


TESTS = []


def add(
    name, function, case=None, deadline=DEFAULT_DEADLINE, slow=False, own=False, alone=False, waits=False
):
    """Registers one test. `slow` ones run after all quick ones; `own` ones bring their own
    servers; `alone` ones measure time or CPU shares, so no other suite runs beside them; `waits`
    ones wait for a deadline of the runner's and do nothing meanwhile, so that they disturb nobody."""
    module = function.__module__.removeprefix("test_")
    TESTS.append(Test(module, name, function, case, deadline, slow, own, alone, waits))


def test(name, **options):
    """The decorator form of add()."""

    def register(function):
        add(name, function, **options)
        return function

    return register


def table(rows, function, **options):
    """One test per row: row[0] is the name, row[1] the case number or None, the rest the
    arguments."""
    for row in rows:
        add(row[0], _bind(function, row[2:]), case=row[1], **options)


def _bind(function, arguments):
    def bound(server):
        return function(server, *arguments)

    bound.__module__ = function.__module__
    return bound

"""Parts of a list of tests. A share is every Nth of them, so that several machines divide what is too
long for one, and each share has some of every kind. A group is of whole modules, whose tests may use the
same things, so that two groups can be run at once on one machine."""

import argparse
import collections


def parse(text):
    """"K/N" -> (K, N); for argparse."""
    first, _, count = text.partition("/")
    if not (first.isdigit() and count.isdigit() and 1 <= int(first) <= int(count)):
        raise argparse.ArgumentTypeError("%r is no share such as 1/4" % text)
    return int(first), int(count)


def of(tests, share):
    first, count = share
    return tests[first - 1 :: count]


# About how many seconds the tests with servers of their own take, by module; others take one each.
# That it is roughly right is enough: PINFOLD_TEST_TIMES=1 tells.
SECONDS = {
    "sandbox_days": 140,
    "sandbox_restart": 75,
    "faults": 55,
    "recovery": 50,
    "queue": 50,
    "attack": 30,
    "store": 28,
    "loop": 23,
    "image": 21,
    "tls": 17,
    "drain": 14,
    "privilege": 13,
    "metrics": 12,
    "sandbox_gone": 11,
    "processors": 11,
    "kills": 11,
    "policy": 3,
}


def group(tests, share):
    """Those of the Kth of N groups of modules, none of which takes much longer than another."""
    first, count = share
    taken = [0] * count
    chosen = set()
    number = collections.Counter(one.module for one in tests)
    seconds = {module: SECONDS.get(module, n) for module, n in number.items()}
    for module in sorted(seconds, key=lambda one: (-seconds[one], one)):
        least = taken.index(min(taken))
        taken[least] += seconds[module]
        if least == first - 1:
            chosen.add(module)
    return [one for one in tests if one.module in chosen]

"""A share of a list of tests: every Nth of them, so that several machines divide what is too long for
one, and each share has some of every kind."""

import argparse


def parse(text):
    """"K/N" -> (K, N); for argparse."""
    first, _, count = text.partition("/")
    if not (first.isdigit() and count.isdigit() and 1 <= int(first) <= int(count)):
        raise argparse.ArgumentTypeError("%r is no share such as 1/4" % text)
    return int(first), int(count)


def of(tests, share):
    first, count = share
    return tests[first - 1 :: count]

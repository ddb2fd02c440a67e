"""Patterns of suites: what they cost each time they are asked for."""

import re

from skillforge.core.patterns import safe_pattern


def test_a_pattern_is_compiled_and_examined_once():
    """Asked for again, also long after, it is the same one; other flags make another."""
    first = safe_pattern("rate limit|overloaded")
    re.purge()

    assert safe_pattern("rate limit|overloaded") is first
    assert safe_pattern("rate limit|overloaded", ignore_case=True) is not first

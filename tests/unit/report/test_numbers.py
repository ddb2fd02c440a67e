"""How numbers look, decided case by case."""

import pytest

from skillforge.report.numbers import e_value, interval, money, signed

SIGNED = [
    (0.25, "+0.25"),
    (-0.25, "-0.25"),
    (1, "+1.00"),
    (0.0, "0.00"),
    (-0.0, "0.00"),
    (0.004, "0.00"),
    (-0.004, "0.00"),
    (-0.006, "-0.01"),
    (None, "-"),
]
E_VALUES = [
    (1.0, "1"),
    (20.04, "20"),
    (0.0031, "0.0031"),
    (19.96, "20"),
    (999.6, "1e+03"),
    (123456.0, "1.23e+05"),
    (None, "-"),
]
MONEY = [
    (0, "$0.00"),
    (0.0, "$0.00"),
    (1.234, "$1.23"),
    (1234.5, "$1234.50"),
    (0.01, "$0.01"),
    (0.0099, "$0.0099"),
    (0.0012, "$0.0012"),
    (0.00000123, "$1.2e-06"),
]


@pytest.mark.parametrize(("value", "shown"), SIGNED)
def test_differences_carry_their_sign(value, shown):
    """A difference shows its sign, one that rounds to nothing shows none, a missing one a dash."""
    assert signed(value) == shown


@pytest.mark.parametrize(("value", "shown"), E_VALUES)
def test_evidence_is_shown_with_three_digits(value, shown):
    """Three significant digits, large values in powers of ten."""
    assert e_value(value) == shown


@pytest.mark.parametrize(("usd", "shown"), MONEY)
def test_small_amounts_never_look_like_nothing(usd, shown):
    """Only an amount of zero is shown as zero."""
    assert money(usd) == shown


def test_intervals_show_both_bounds():
    """Both bounds are shown with their signs, and a missing interval as a dash."""
    assert interval((-0.1, 0.5)) == "[-0.10, +0.50]"
    assert interval([0.0, 0.0]) == "[0.00, 0.00]"
    assert interval(None) == "-"

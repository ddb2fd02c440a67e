"""How numbers are shown. How a number looks is a decision, and tested as one."""

from __future__ import annotations

from collections.abc import Sequence


def signed(value: float | None) -> str:
    """Show a difference with its sign, or a dash where there is none.

    >>> signed(0.25), signed(-0.0), signed(None)
    ('+0.25', '0.00', '-')
    """
    if value is None:
        return "-"
    text = f"{value:+.2f}"
    return "0.00" if text in ("+0.00", "-0.00") else text


def interval(bounds: Sequence[float] | None) -> str:
    """Show an interval.

    >>> interval([-0.1, 0.5]), interval(None)
    ('[-0.10, +0.50]', '-')
    """
    return "-" if bounds is None else f"[{signed(bounds[0])}, {signed(bounds[1])}]"


def e_value(value: float | None) -> str:
    """Show evidence with three digits; large values in powers of ten.

    >>> e_value(20.04), e_value(0.0031), e_value(123456.0), e_value(None)
    ('20', '0.0031', '1.23e+05', '-')
    """
    return "-" if value is None else f"{value:.3g}"


def money(usd: float) -> str:
    """Show USD: cents above a cent, more digits below.

    >>> money(0), money(1.234), money(0.0012)
    ('$0.00', '$1.23', '$0.0012')
    """
    return f"${usd:.2f}" if usd == 0 or usd >= 0.01 else f"${usd:.2g}"

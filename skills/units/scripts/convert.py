"""Convert one customary quantity to metric units.

Run as `python scripts/convert.py 12 mile`, which prints 19, or with 50 F, which prints 10.
"""

from __future__ import annotations

import sys

FACTORS = {
    "foot": 30.48,
    "inch": 2.54,
    "pound": 453.59237,
    "ounce": 28.349523125,
    "mile": 1.609344,
    "gallon": 3.785411784,
    "quart": 0.946352946,
    "yard": 0.9144,
    "acre": 4046.8564224,
}


def convert(amount: float, unit: str) -> int:
    """Return the metric figure: cm, g, km, l, m, square metres or degrees Celsius."""
    if unit == "F":
        return round((amount - 32) / 1.8)
    return round(amount * FACTORS[unit])


def main() -> None:
    """Read an amount and a unit from the command line and print the figure."""
    usage = f"usage: convert.py AMOUNT UNIT, with UNIT one of F, {', '.join(FACTORS)}"
    if len(sys.argv) != 3 or sys.argv[2] not in {"F", *FACTORS}:
        sys.exit(usage)
    try:
        amount = float(sys.argv[1])
    except ValueError:
        sys.exit(f"{sys.argv[1]!r} is not a number; {usage}")
    sys.stdout.write(f"{convert(amount, sys.argv[2])}\n")


if __name__ == "__main__":
    main()

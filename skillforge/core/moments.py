"""Dates and times as people write them, in UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?P<time>[T ]\d{2}:\d{2}(?P<seconds>:\d{2})?)?")


def end_of_moment(text: str) -> float | None:
    """Return the first instant after a day, minute or second, in seconds since the epoch.

    A time without an offset is UTC; a fraction of a second is dropped, so that a time as `history`
    and `log` print it takes in the event that it stands beside. None if the text is no such date.

    >>> end_of_moment("1970-01-02") == 2 * 86_400
    True
    >>> end_of_moment("1970-01-01T01:00+01:00"), end_of_moment("1970-01-01 00:00:09.5Z")
    (60.0, 10.0)
    >>> end_of_moment("3f2a9c") is end_of_moment("1970-02-31") is None
    True
    """
    shape = _DATE.match(text)
    if shape is None:
        return None
    try:
        start = datetime.fromisoformat(text).replace(microsecond=0)
    except ValueError:
        return None
    start = start if start.tzinfo else start.replace(tzinfo=UTC)
    if shape["time"] is None:
        length = timedelta(days=1)
    else:
        length = timedelta(seconds=1) if shape["seconds"] else timedelta(minutes=1)
    try:
        return (start + length).timestamp()
    except OverflowError:
        return None

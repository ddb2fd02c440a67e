"""Rollouts in the ledger: which of them are found again."""

import pytest

from skillforge.core.records import reusable_key


@pytest.mark.parametrize(
    ("arm", "subject", "stands"),
    [
        ("base", "v0", False),
        ("augmented", "v1", True),
        ("none", "", False),
        ("description", "v1", True),
        ("full", "v1", True),
        ("base", "with:v1", True),
        ("augmented", "without:v1", False),
    ],
)
def test_an_outage_stands_where_what_is_under_test_was_shown(arm, subject, stands):
    """Where nothing of it was, nobody gains by saying it, and the attempt is made again."""
    data = {"key": "k", "arm": arm, "subject": subject, "failure": {"cause": "outage"}}

    assert reusable_key("rollout.failed", data) == ("k" if stands else None)

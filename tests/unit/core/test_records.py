"""Rollouts in the ledger: which of them are found again."""

import pytest

from skillforge.core.records import reusable_key


@pytest.mark.parametrize("subject", ["", "v0", "v1", "with:v1", "without:v1"])
def test_an_outage_stands_where_any_side_of_a_comparison_was_shown(subject):
    """Where no skill was, nobody gains by saying it, and the attempt is made again."""
    data = {"key": "k", "subject": subject, "failure": {"cause": "outage"}}

    assert reusable_key("rollout.failed", data) == ("k" if subject else None)

"""The order of the tests: what is fast, and says most closely what is wrong, comes first."""

from pathlib import Path

TESTS = Path(__file__).parent
ORDER = ("unit", "property", "contract", "reference", "calibration", "cli")
"""Folders; documentation examples of the package come before them, whatever else is here after."""


def pytest_collection_modifyitems(items):
    """Sort the tests by folder; within one they stay as they were."""
    items.sort(key=lambda item: rank(item.path))


def rank(path):
    """Return the place of a file's tests."""
    if not path.is_relative_to(TESTS):
        return -1
    folder = path.relative_to(TESTS).parts[0]
    return ORDER.index(folder) if folder in ORDER else len(ORDER)

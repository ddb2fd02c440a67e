"""Pointers between files of a skill: no edit leaves a file or a pointer in the air."""

from __future__ import annotations

import pytest

from skillforge.core.edits import Edit, apply_edit
from skillforge.core.package import Package, PackageFile
from skillforge.core.pointers import broken_pointers, orphans, pointed
from skillforge.errors import EditError

TEXT = """---
name: a
description: does b
---
# Title

## Forms

See [the forms](references/forms.md) and run `python scripts/fill.py`.

## Data

Templates are in `assets/`.

## Notes

Words about references and scripts.
"""


def make(text: str = TEXT) -> Package:
    """Return a skill with files that point to each other."""
    files = {
        "SKILL.md": text,
        "references/forms.md": "Fields: see fields.md, or ../scripts/fill.py.",
        "references/fields.md": "Fields.",
        "scripts/fill.py": "import helper\n",
        "scripts/helper.py": "x = 1\n",
        "assets/one.txt": "1",
    }
    return Package(name="a", files={p: PackageFile(data=t.encode()) for p, t in files.items()})


def test_links_code_running_text_and_folders_point():
    """Paths count from the root and from the file's own folder, plain words do not."""
    package = make()
    expected = {"references/forms.md", "scripts/fill.py", "assets/one.txt"}
    assert pointed(package, "SKILL.md") == expected
    assert pointed(package, "references/forms.md") == {"references/fields.md", "scripts/fill.py"}
    assert pointed(package, "scripts/helper.py") == frozenset()
    binary = package.replace_file("assets/one.txt", b"\xff references/forms.md")
    assert pointed(binary, "assets/one.txt") == frozenset()


def test_an_edit_that_orphans_a_file_is_refused_until_it_takes_the_file_along():
    """The message says which files to name; what others point to is no orphan."""
    prune = Edit(op="PRUNE", unit="section:forms")
    with pytest.raises(EditError, match=r"points to references/forms\.md; .*file:references/forms"):
        apply_edit(make(), prune)
    update = Edit(op="UPDATE", unit="section:data", content="No templates.")
    with pytest.raises(EditError, match=r"points to assets/one\.txt"):
        apply_edit(make(), update)
    with pytest.raises(EditError, match=r"points to references/fields\.md, scripts/fill\.py"):
        apply_edit(make(), Edit(op="PRUNE", units=("section:forms", "file:references/forms.md")))
    gone = ("forms", "references/forms.md", "references/fields.md", "scripts/fill.py")
    whole = Edit(op="PRUNE", units=(f"section:{gone[0]}", *(f"file:{path}" for path in gone[1:])))
    assert set(apply_edit(make(), whole).package.files) == {
        "SKILL.md",
        "scripts/helper.py",
        "assets/one.txt",
    }


def test_a_file_that_is_still_pointed_to_is_not_removed_alone():
    """The message names the file that points there."""
    with pytest.raises(EditError, match=r"removes 'scripts/fill\.py' .*SKILL\.md still points"):
        apply_edit(make(), Edit(op="PRUNE", unit="file:scripts/fill.py"))
    pruned = apply_edit(make(), Edit(op="PRUNE", unit="file:scripts/helper.py"))
    assert "scripts/helper.py" not in pruned.package.files


def test_pointers_that_were_broken_before_are_not_the_edits():
    """Only what the change removes counts."""
    package = make(TEXT.replace("scripts/fill.py", "scripts/none.py"))
    changed = package.replace_file("SKILL.md", package.files["SKILL.md"].data + b"\nMore.\n")
    assert broken_pointers(package, changed) == ()
    assert orphans(package, changed) == ()


def test_a_replaced_pointer_keeps_its_file():
    """Content that still names the file is fine."""
    update = Edit(op="UPDATE", unit="section:data", content="Use assets/one.txt.")
    assert b"Use assets/one.txt." in apply_edit(make(), update).package.files["SKILL.md"].data

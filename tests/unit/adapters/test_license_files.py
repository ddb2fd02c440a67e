"""The licence of a skill: the nearest file, from its folder up to the root of the source."""

from skillforge.adapters.license_files import nearest_license
from skillforge.core.digest import sha256


def test_the_nearest_file_counts(tmp_path):
    """A skill's own file comes before its collection's; nothing above the source is looked at."""
    (tmp_path / "LICENSE").write_text("outside")
    root = tmp_path / "source"
    deep = root / "skills" / "ask"
    deep.mkdir(parents=True)
    assert nearest_license(root, "skills/ask") == {}
    (root / "LICENSE-APACHE").write_text("long name")
    (root / "Licence").write_text("ours")
    found = {"file": "Licence", "sha256": sha256(b"ours")}
    assert nearest_license(root, "skills/ask") == found
    assert nearest_license(root, ".") == found
    (deep / "COPYING.md").write_text("mine")
    (deep / "licensing-notes.md").write_text("no licence")
    mine = {"file": "skills/ask/COPYING.md", "sha256": sha256(b"mine")}
    assert nearest_license(root, "skills/ask") == mine


def test_links_and_folders_are_no_licence(tmp_path):
    """A link out of the source is not followed, one inside it is; a folder of that name is none."""
    (tmp_path / "secret").write_text("secret")
    root = tmp_path / "source"
    (root / "ask" / "LICENSE").mkdir(parents=True)
    (root / "ask" / "COPYING").symlink_to(tmp_path / "secret")
    (root / "text").write_text("ours")
    (root / "LICENSE.txt").symlink_to("text")
    assert nearest_license(root, "ask") == {"file": "LICENSE.txt", "sha256": sha256(b"ours")}

"""The stat cache: what it spares, what it never trusts, and that losing it only costs time."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from skillforge.adapters.files import FolderLibrary
from skillforge.adapters.stat_cache import GRAIN_NS, StatCache
from skillforge.core.digest import json_digest

LATER = 10 * GRAIN_NS


def later() -> int:
    """Return a time at which all files of a test were touched long ago."""
    return time.time_ns() + LATER


def look(cache: StatCache, folder: Path) -> str | None:
    """Return what the cache knows of a folder of plain files; let it remember `v1` if nothing."""
    with os.scandir(folder) as entries:
        stamp = cache.stamp([(entry.name, entry) for entry in entries])
    known = cache.get(str(folder), stamp)
    if known is None:
        cache.put(str(folder), stamp, "v1")
    return known


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with two files."""
    folder = tmp_path / "skill"
    folder.mkdir()
    (folder / "SKILL.md").write_bytes(b"one")
    (folder / "x.md").write_bytes(b"two")
    return folder


def saved(tmp_path: Path, folder: Path) -> Path:
    """Return the file of a cache that knows the folder."""
    path = tmp_path / "stats.json"
    cache = StatCache(path, later)
    assert look(cache, folder) is None
    cache.save()
    return path


def test_an_unchanged_folder_is_known_again(tmp_path: Path, folder: Path):
    """Across saving and opening, and as often as one likes."""
    path = saved(tmp_path, folder)
    for _ in range(2):
        cache = StatCache(path, later)
        assert look(cache, folder) == "v1"
        cache.save()


def same_size(folder: Path) -> None:
    """Change a byte and put the old time of the file back."""
    file = folder / "SKILL.md"
    before = file.stat()
    file.write_bytes(b"ONE")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(
    "change",
    [
        same_size,
        lambda folder: (folder / "SKILL.md").chmod(0o755),
        lambda folder: (folder / "x.md").rename(folder / "y.md"),
        lambda folder: (folder / "x.md").unlink(),
        lambda folder: (folder / "z.md").write_bytes(b""),
        lambda folder: (folder / "x.md").replace(folder / "SKILL.md"),
    ],
)
def test_any_change_is_read_again(tmp_path: Path, folder: Path, change: Callable[[Path], object]):
    """Also one that keeps size and mtime, as `cp -p` and `touch -r` do."""
    path = saved(tmp_path, folder)
    change(folder)
    assert look(StatCache(path, later), folder) is None


def test_what_was_touched_just_now_is_neither_kept_nor_trusted(tmp_path: Path, folder: Path):
    """Within the grain of the times a second change could go unseen; a future time is no better."""
    path = saved(tmp_path, folder)
    newest = max(max(s.st_mtime_ns, s.st_ctime_ns) for s in map(Path.stat, folder.iterdir()))
    fresh = StatCache(path, lambda: newest + GRAIN_NS)
    assert look(fresh, folder) is None
    fresh.save()
    assert look(StatCache(path, later), folder) is None
    os.utime(folder / "x.md", ns=(later() + LATER, later() + LATER))
    assert look(StatCache(saved(tmp_path, folder), later), folder) is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: text.replace("v1", "v2"),
        lambda text: "[]",
        lambda text: json.dumps({"folders": [], "digest": 3}),
        lambda text: "\ud800",
    ],
)
def test_a_torn_or_foreign_file_is_no_cache(tmp_path: Path, folder: Path, damage):
    """Nothing of it is believed, and the next save mends it."""
    path = saved(tmp_path, folder)
    text = damage(path.read_text(encoding="utf-8"))
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    cache = StatCache(path, later)
    assert look(cache, folder) is None
    cache.save()
    assert look(StatCache(path, later), folder) == "v1"


def test_what_is_gone_is_forgotten_and_a_refusing_disk_is_no_matter(tmp_path: Path, folder: Path):
    """The file holds what the last look saw; where it cannot be written, nothing happens."""
    path = saved(tmp_path, folder)
    cache = StatCache(path, later)
    cache.save()
    assert json.loads(path.read_bytes())["folders"] == {}
    nowhere = StatCache(tmp_path / "no" / "folder" / "stats.json", later)
    look(nowhere, folder)
    nowhere.save()
    assert [p.name for p in tmp_path.iterdir() if "stats" in p.name] == ["stats.json"]


def test_a_library_opened_twice_reads_what_changed_and_nothing_else(tmp_path: Path):
    """The versions are those of the bytes, with the cache, without it, and after an edit."""
    root, stats = tmp_path / "skills", tmp_path / "stats.json"
    for name in ("a", "b"):
        (root / name).mkdir(parents=True)
        (root / name / "SKILL.md").write_bytes(f"---\nname: {name}\n---\n".encode())
    first = FolderLibrary(root, stats=StatCache(stats, later)).versions()
    folders = json.loads(stats.read_bytes())["folders"]
    assert {Path(folder).name: row[1] for folder, row in folders.items()} == first
    # versions that no bytes have show that none were read
    marked = {folder: [row[0], f"kept {Path(folder).name}"] for folder, row in folders.items()}
    text = json.dumps({"folders": marked, "digest": json_digest(marked)})
    stats.write_text(text, encoding="utf-8")
    opened = FolderLibrary(root, stats=StatCache(stats, later))
    assert opened.versions() == {"a": "kept a", "b": "kept b"}
    stats.unlink()
    (root / "b" / "x.md").write_bytes(b"new")
    found = FolderLibrary(root, stats=StatCache(stats, later)).versions()
    assert found == FolderLibrary(root).versions()
    assert found["a"] == first["a"]
    assert found["b"] != first["b"]

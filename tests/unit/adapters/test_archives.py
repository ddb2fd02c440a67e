"""Archives: what is sound is read byte for byte, what is not costs the whole archive."""

import gzip
import os
import stat
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest
from support.archives import FORMATS, Member, pack, skill, tar_bytes

from skillforge.adapters.archives import archive_stem, read_archive, read_tar, write_tree
from skillforge.core.digest import sha256
from skillforge.core.file_tree import Limits
from skillforge.errors import SkillError

GOOD = [
    Member("tools/", kind="folder"),
    skill("ask", "tools/ask"),
    Member("./tools/ask/scripts/run.sh", b"#!/bin/sh\n", executable=True),
    Member("tools/ask/caf\u00e9.md", b"\r\n\xff"),
    Member("tools/tell", kind="link", target="ask"),
]


@pytest.mark.parametrize("name", ["a.zip", "a.skill", "a.tar", "a.tar.gz", "A.TGZ"])
def test_a_sound_archive_is_unpacked_byte_for_byte(tmp_path, name):
    """Content, executable bits and links inside come out as they went in, for every ending."""
    path = pack(tmp_path / name, GOOD)
    archive = read_archive(path)
    write_tree(archive.tree, tmp_path / "out")
    ask = tmp_path / "out" / "tools" / "ask"
    assert (ask / "SKILL.md").read_bytes() == GOOD[1].data
    assert (ask / "caf\u00e9.md").read_bytes() == b"\r\n\xff"
    assert stat.S_IMODE((ask / "scripts" / "run.sh").stat().st_mode) == 0o755
    assert stat.S_IMODE((ask / "SKILL.md").stat().st_mode) == 0o644
    assert (tmp_path / "out" / "tools" / "tell").readlink() == Path("ask")
    assert archive.sha256 == sha256(path.read_bytes())
    assert archive_stem(name) in ("a", "A")


def test_a_hard_link_inside_is_a_copy(tmp_path):
    """Tar keeps a second name of a file as a hard link; it becomes a file of its own."""
    members = [skill("ask"), Member("ask/copy.md", kind="hardlink", target="ask/SKILL.md")]
    tree = read_archive(pack(tmp_path / "a.tar.gz", members)).tree
    assert tree.files["ask/copy.md"] == tree.files["ask/SKILL.md"]


HOSTILE = {
    "traversal": ([Member("../evil")], "../evil", "leads out"),
    "inner traversal": ([Member("a/../../evil")], "a/../../evil", "leads out"),
    "absolute": ([Member("/tmp/evil")], "/tmp/evil", "absolute"),
    "drive": ([Member("C:/evil")], "C:/evil", "drive letter"),
    "drive below": ([Member("./c:evil")], "./c:evil", "drive letter"),
    "backslash": ([Member("..\\evil")], "evil", "backslash"),
    "no name": ([Member(".")], "'.'", "names no file"),
    "deep": ([Member("a/" * 64 + "b")], "a/a/a", "65 names"),
    "link out": ([Member("x", kind="link", target="../evil")], "'x'", "leads out"),
    "absolute link": ([Member("x", kind="link", target="/etc/passwd")], "'x'", "absolute"),
    "link by link": (
        [Member("a/b", kind="link", target=".."), Member("x", kind="link", target="a/b/../y")],
        "'x'",
        "leads out",
    ),
    "link loop": (
        [Member("x", kind="link", target="y"), Member("y", kind="link", target="x")],
        "'x'",
        "at most 8 links",
    ),
    "below a link": (
        [Member("x", kind="link", target="a"), Member("x/evil", b"!")],
        "x/evil",
        "lies below 'x'",
    ),
    "below a file": ([Member("x"), Member("x/evil")], "x/evil", "lies below 'x'"),
    "twice": ([Member("a", b"1"), Member("./a", b"2")], "./a", "occurs twice"),
    "file and folder": ([Member("a/b"), Member("a")], "'a'", "occurs twice"),
    "case": ([Member("a/Skill.md"), Member("a/SKILL.md")], "a/SKILL.md", "in case alone"),
    "case of folders": ([Member("Ab/x"), Member("aB/y")], "aB/y", "in case alone"),
    "composed": ([Member("caf\u00e9"), Member("cafe\u0301")], "caf", "in case alone"),
    "fifo": ([Member("x", kind="fifo")], "'x'", "pipe"),
    "device": ([Member("x", kind="device")], "'x'", "device"),
}


def refused(path, *words, limits=None):
    """Assert that reading is refused in one line that holds these words; return the line."""
    with pytest.raises(SkillError) as caught:
        read_archive(path, limits)
    message = str(caught.value)
    assert "\n" not in message
    for word in (path.name, *words):
        assert word in message
    return message


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_entry_costs_the_whole_archive(tmp_path, case, ending):
    """The error names the archive, the entry and what was found, and says nothing was taken."""
    members, entry, found = HOSTILE[case]
    path = pack(tmp_path / f"bad.{ending}", [skill("ask"), *members])
    refused(path, "entry", entry, found, "expected", "nothing was taken")


@pytest.mark.parametrize("target", ["/etc/passwd", "../ask/SKILL.md", "ask/absent", "x"])
def test_a_hard_link_leads_to_an_earlier_file(tmp_path, target):
    """An absolute, escaping or dangling one is refused."""
    members = [skill("ask"), Member("x", kind="hardlink", target=target)]
    refused(pack(tmp_path / "bad.tar", members), "'x'", target)


def test_a_hard_link_counts_as_the_copy_that_it_becomes(tmp_path):
    """A few kilobytes of links cannot make gigabytes on disk."""
    links = [Member(f"l{i}", kind="hardlink", target="big") for i in range(9)]
    path = pack(tmp_path / "bad.tar.gz", [Member("big", os.urandom(4000)), *links])
    refused(path, "'l4'", "24000 bytes", "at most 20000", limits=Limits(total=20_000))


ZEROS = Member("zeros.bin", bytes(3 * 2**20))


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (Limits(links=1), ["'l1'", "is link 2", "at most 1 symbolic"]),
        (Limits(entries=2), ["'l0'", "number 3", "at most 2 entries"]),
        (Limits(file=1000), ["'zeros.bin'", "at most 1000 in one file"]),
        (Limits(total=100_000, ratio=10**6), ["'zeros.bin'", "at most 100000"]),
        (Limits(), ["'zeros.bin'", "at most 1048576", "from an archive of"]),
    ],
)
def test_a_bomb_is_stopped_at_the_limit(tmp_path, limits, words, ending):
    """Entries, one file, the sum, and the ratio to the archive's size each have a limit."""
    links = [Member(f"l{i}", kind="link", target="a") for i in range(2)]
    many = limits.entries == 2 or limits.links == 1
    members = [Member("a"), Member("b"), *links, Member("c")] if many else [ZEROS]
    refused(pack(tmp_path / f"bomb.{ending}", members), *words, limits=limits)


def test_an_archive_that_is_too_large_itself_is_not_read(tmp_path):
    """Its size on disk is looked at first."""
    path = pack(tmp_path / "big.tar", [Member("a", bytes(5000))])
    refused(path, "10240 bytes", "at most 5000", limits=Limits(total=5000))


@pytest.mark.parametrize("nested", [100, 3000])
def test_the_headers_of_a_tar_are_counted_too(tmp_path, nested):
    """A long name, or a row of them without end, is read within the limits as well."""
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 600 * 2**10
    one = header.tobuf() + b"a" * header.size
    small = tarfile.TarInfo("././@LongLink")
    small.type, small.size = tarfile.GNUTYPE_LONGNAME, 1
    raw = one * 3 if nested == 100 else (small.tobuf() + bytes(512)) * nested
    path = tmp_path / "bad.tar.gz"
    path.write_bytes(gzip.compress(raw))
    refused(path)


def test_declared_sizes_are_not_believed(tmp_path):
    """A zip whose directory understates a file is refused, not cut."""
    path = pack(tmp_path / "lie.zip", [Member("a.txt", b"x" * 1000)])
    raw = bytearray(path.read_bytes())
    at = raw.index(b"PK\x01\x02") + 24
    raw[at : at + 4] = struct.pack("<I", 10)
    path.write_bytes(raw)
    refused(path, "no sound archive")


def test_encrypted_entries_are_refused(tmp_path):
    """The flag alone is enough."""
    path = pack(tmp_path / "secret.zip", [Member("a.txt", b"x")])
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(raw)
    refused(path, "'a.txt'", "encrypted")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compression_without_a_bound_is_refused(tmp_path, method):
    """Some methods of zip give back megabytes for one byte, and cannot be undone in pieces."""
    path = tmp_path / "odd.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("a.txt", b"x" * 1000)
    refused(path, "'a.txt'", f"method {method}")


def test_a_directory_of_a_zip_that_lists_too_much_is_not_read(tmp_path):
    """The size that the end of the file states is checked before that much is read."""
    path = pack(tmp_path / "long.zip", [Member("a" * 60_000) for _ in range(300)])
    refused(path, "directory of the zip", "at most")


def test_a_sparse_file_is_refused(tmp_path):
    """It could claim any size."""
    info = tarfile.TarInfo("hole")
    info.type = tarfile.GNUTYPE_SPARSE
    path = tmp_path / "sparse.tar"
    path.write_bytes(info.tobuf(format=tarfile.GNU_FORMAT) + bytes(1024))
    refused(path, "'hole'", "sparse")


@pytest.mark.parametrize("name", ["a.zip", "a.skill", "a.tar", "a.tar.gz"])
@pytest.mark.parametrize("data", [b"", b"no archive", b"\x1f\x8b", b"PK\x05\x06", bytes(600)])
def test_what_is_no_archive_is_said(tmp_path, name, data):
    """Empty and foreign files are refused, or hold nothing."""
    path = tmp_path / name
    path.write_bytes(data)
    if name == "a.tar" and data == bytes(600):
        assert not read_archive(path).tree.files
    else:
        refused(path, "no sound archive")


def test_a_cut_archive_is_not_half_read(tmp_path):
    """Where the end is missing, nothing of the beginning is taken."""
    for ending in FORMATS:
        path = pack(tmp_path / f"a.{ending}", [skill("ask"), Member("b", os.urandom(5000))])
        path.write_bytes(path.read_bytes()[:-200])
        refused(path, "no sound archive")


def test_a_damaged_header_does_not_end_a_tar_early(tmp_path):
    """The standard reader takes a bad header for the end; here it is an error."""
    raw = bytearray(tar_bytes([skill("ask"), Member("b", b"x" * 600), Member("c", b"y")]))
    raw[1024 + 5] ^= 1
    path = tmp_path / "bad.tar"
    path.write_bytes(raw)
    refused(path, "no entry")


def test_a_stream_is_read_by_the_same_rules(tmp_path):
    """What another program streams is trusted no more than a file."""
    path = pack(tmp_path / "a.tar", GOOD)
    with path.open("rb") as stream:
        assert set(read_tar(stream, "somewhere").files) >= {"tools/ask/SKILL.md"}
    pack(path, [Member("../evil")])
    with path.open("rb") as stream, pytest.raises(SkillError, match="somewhere: entry"):
        read_tar(stream, "somewhere")


def test_nothing_is_written_over(tmp_path):
    """A folder that is there already is left alone."""
    tree = read_archive(pack(tmp_path / "a.zip", GOOD)).tree
    (tmp_path / "out").mkdir()
    with pytest.raises(SkillError, match="unpacked"):
        write_tree(tree, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []

"""Packs on disk: written whole, verified byte by byte, never at the cost of someone's files."""

import json
import os

import pytest

from skillforge.adapters.packs import verify_pack, write_pack
from skillforge.core.digest import canonical_json, sha256
from skillforge.core.package import Package, PackageFile
from skillforge.core.packs import EVIDENCE, HARNESS_FOLDERS, MANIFEST, manifest, pack_files
from skillforge.errors import PackError

HOME = HARNESS_FOLDERS["agents"]
HEAD = b"---\nname: ask\ndescription: Asks.\n---\n"


def package(name="ask", **files):
    """Return a skill with a script and some more files, by path with __ for / and _ for a dot."""
    return Package(
        name=name,
        files={
            "SKILL.md": PackageFile(data=HEAD + b"\r\n# Ask\xc3\xa9\n"),
            "scripts/run.sh": PackageFile(data=b"#!/bin/sh\necho hi\n", executable=True),
            "assets/data.bin": PackageFile(data=bytes(range(256))),
            **files,
        },
    )


FILES = pack_files([package()], {"ask": {"version": "v1", "evidence": "promoted"}}, HOME)


@pytest.fixture
def out(tmp_path):
    """Return the folder of a pack that has just been written."""
    write_pack(tmp_path / "pack", FILES)
    return tmp_path / "pack"


def tree(root):
    """Return every file below a folder with its bytes."""
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_a_pack_holds_the_skill_byte_for_byte_with_its_evidence(out):
    """Each file lies in the harness's folder, evidence beside SKILL.md, the manifest on top."""
    home = f"{HOME}/ask"
    found = tree(out)

    assert set(found) == {
        MANIFEST,
        *(f"{home}/{p}" for p in ("SKILL.md", "scripts/run.sh", "assets/data.bin", EVIDENCE)),
    }
    assert found[f"{home}/SKILL.md"] == package().files["SKILL.md"].data
    assert json.loads(found[f"{home}/{EVIDENCE}"]) == {
        "schema": 1,
        "skill": "ask",
        "version": "v1",
        "evidence": "promoted",
    }


def test_a_skill_without_evidence_says_so():
    """What was never measured is exported as unmeasured, not as nothing."""
    files = pack_files([package()], {}, HOME)

    assert json.loads(files[f"{HOME}/ask/{EVIDENCE}"].data)["evidence"] == "unmeasured"


def test_the_executable_bit_travels(out):
    """Scripts can be run, other files cannot."""
    assert (out / HOME / "ask" / "scripts" / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (out / HOME / "ask" / "SKILL.md").stat().st_mode & 0o777 == 0o644
    assert out.stat().st_mode & 0o777 == 0o755


def test_a_fresh_pack_verifies(out):
    """What was written is what the manifest says, and the digest is that of the hashes."""
    found = verify_pack(out)

    assert found["ok"]
    assert found["changed"] == found["missing"] == found["added"] == []
    assert found["digest"] == found["stated"] == manifest(FILES)["digest"]
    hashes = {path: sha256(file.data) for path, file in sorted(FILES.items())}
    assert found["digest"] == sha256(canonical_json(hashes).encode())


def test_the_digest_does_not_depend_on_where_or_in_which_order(tmp_path):
    """The same skills give the same digest in every folder."""
    backwards = dict(reversed(FILES.items()))

    assert write_pack(tmp_path / "a", FILES) == write_pack(tmp_path / "b" / "c", backwards)


@pytest.mark.parametrize("trusted", [True, False])
def test_a_digest_from_elsewhere_is_compared(out, trusted):
    """A digest learnt from a trusted place must be the pack's own."""
    digest = manifest(FILES)["digest"] if trusted else "0" * 64

    assert verify_pack(out, digest)["ok"] is trusted


def test_a_changed_file_is_found(out):
    """One byte more is a change, and the pack is not ok."""
    with (out / HOME / "ask" / "SKILL.md").open("ab") as file:
        file.write(b"!")
    found = verify_pack(out)

    assert (found["ok"], found["changed"]) == (False, [f"{HOME}/ask/SKILL.md"])


def test_a_missing_and_an_added_file_are_found(out):
    """A moved file is missing here and added there."""
    home = out / HOME / "ask"
    (home / "assets" / "data.bin").rename(home / "assets" / "other.bin")
    found = verify_pack(out)

    assert not found["ok"]
    assert found["missing"] == [f"{HOME}/ask/assets/data.bin"]
    assert found["added"] == [f"{HOME}/ask/assets/other.bin"]


def test_a_rewritten_manifest_is_found_by_the_digest(out):
    """Whoever changes a file and the manifest too passes only without a digest to compare."""
    (out / HOME / "ask" / "SKILL.md").write_bytes(HEAD + b"do evil\n")
    listing = json.loads((out / MANIFEST).read_text())
    listing["files"][f"{HOME}/ask/SKILL.md"] = sha256(HEAD + b"do evil\n")
    (out / MANIFEST).write_text(json.dumps(listing))
    assert not verify_pack(out)["ok"]
    listing["digest"] = sha256(canonical_json(listing["files"]).encode())
    (out / MANIFEST).write_text(json.dumps(listing))

    assert verify_pack(out)["ok"]
    assert not verify_pack(out, manifest(FILES)["digest"])["ok"]


def test_links_are_no_files_of_a_pack(out, tmp_path):
    """A link in the place of a file, or to a folder of more skills, does not pass."""
    skill = out / HOME / "ask" / "SKILL.md"
    skill.rename(tmp_path / "moved.md")
    skill.symlink_to(tmp_path / "moved.md")
    (tmp_path / "more").mkdir()
    (out / HOME / "more").symlink_to(tmp_path / "more", target_is_directory=True)
    found = verify_pack(out)

    assert not found["ok"]
    assert found["changed"] == [f"{HOME}/ask/SKILL.md"]
    assert found["added"] == [f"{HOME}/more"]


@pytest.mark.parametrize(
    "text", [None, "", "not json", "[]", "{}", '{"files": {}}', '{"files": 3, "digest": ""}']
)
def test_a_pack_without_a_readable_manifest(out, text):
    """Missing or broken, the manifest is named and there is advice."""
    (out / MANIFEST).unlink() if text is None else (out / MANIFEST).write_text(text)
    with pytest.raises(PackError, match=rf"{MANIFEST}: no readable manifest .*export"):
        verify_pack(out)


# --- Where a pack may be written ----------------------------------------------------------------


def test_an_older_pack_is_replaced_whole(out):
    """Files of the older pack do not stay behind."""
    digest = write_pack(out, pack_files([package("other")], {}, HOME))

    assert verify_pack(out, digest)["ok"]
    assert not (out / HOME / "ask").exists()
    assert [p.name for p in out.parent.iterdir()] == ["pack"]


def test_a_tampered_pack_is_replaced_as_well(out):
    """Exporting again is the cure for a pack whose files were changed or lost."""
    (out / HOME / "ask" / "SKILL.md").write_bytes(b"changed")
    (out / HOME / "ask" / EVIDENCE).unlink()

    assert verify_pack(out, write_pack(out, FILES))["ok"]


def test_an_empty_folder_is_taken(tmp_path):
    """A folder that was made for the pack is no obstacle."""
    (tmp_path / "pack").mkdir()

    assert verify_pack(tmp_path / "pack", write_pack(tmp_path / "pack", FILES))["ok"]


def test_a_folder_of_someone_else_is_refused(tmp_path):
    """A folder that holds anything but a pack is left exactly as it is."""
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(PackError, match=f"not empty and holds no {MANIFEST}.*--out"):
        write_pack(tmp_path, FILES)

    assert tree(tmp_path) == {"notes.txt": b"mine"}


def test_a_pack_that_someone_put_files_into_is_refused(out):
    """What no pack put there is not deleted, but litter of running scripts may go."""
    (out / HOME / "ask" / "scripts" / "__pycache__").mkdir()
    (out / HOME / "ask" / "scripts" / "__pycache__" / "x.pyc").write_bytes(b"")
    write_pack(out, FILES)
    (out / "mine.txt").write_text("mine")
    with pytest.raises(PackError, match=r"no pack put there \(mine\.txt\).*move them away"):
        write_pack(out, FILES)

    assert (out / "mine.txt").read_text() == "mine"


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    """A regular file of that name is an error, not a crash, and stays."""
    (tmp_path / "pack").write_text("mine")
    with pytest.raises(PackError, match=r"no folder.*--out"):
        write_pack(tmp_path / "pack", FILES)

    assert (tmp_path / "pack").read_text() == "mine"


def test_a_parent_that_cannot_be(tmp_path):
    """Below a regular file nothing can be written; the error says that nothing was."""
    (tmp_path / "file").touch()
    with pytest.raises(PackError, match="nothing was half written"):
        write_pack(tmp_path / "file" / "pack", FILES)


def test_a_failure_leaves_the_old_pack(out):
    """A pack that cannot be written whole replaces nothing and leaves no litter."""
    before = tree(out)
    too_long = {**FILES, "x" * 300: PackageFile(data=b"")}
    with pytest.raises(PackError, match="nothing was half written, mend it and repeat"):
        write_pack(out, too_long)

    assert tree(out) == before
    assert [p.name for p in out.parent.iterdir()] == ["pack"]


def test_an_export_cut_off_between_its_two_renames_is_mended(out):
    """If a crash left the old pack aside and no new one, the next export starts from it."""
    out.rename(out.with_name(".pack.old"))
    with pytest.raises(PackError):
        write_pack(out, {"x" * 300: PackageFile(data=b"")})
    assert verify_pack(out)["ok"]

    assert verify_pack(out, write_pack(out, FILES))["ok"]
    assert [p.name for p in out.parent.iterdir()] == ["pack"]


def test_a_read_only_folder(tmp_path):
    """Where nothing may be written, the export says so."""
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    if os.access(folder, os.W_OK):
        pytest.skip("this user may write anywhere")
    with pytest.raises(PackError, match="nothing was half written"):
        write_pack(folder / "pack", FILES)


# --- Evidence files -----------------------------------------------------------------------------


def test_an_evidence_file_of_the_skills_own_is_not_overwritten():
    """A skill that ships its own evidence.json is refused by name rather than altered."""
    own = package(**{EVIDENCE: PackageFile(data=b'{"rows": []}')})
    with pytest.raises(PackError, match=r"ask holds an evidence\.json of its own.*rename"):
        pack_files([own], {}, HOME)


def test_evidence_of_an_earlier_pack_is_replaced():
    """A skill that was imported from a pack carries that pack's evidence; ours takes its place."""
    old = FILES[f"{HOME}/ask/{EVIDENCE}"]
    again = pack_files([package(**{EVIDENCE: old})], {"ask": {"evidence": "probation"}}, HOME)

    assert json.loads(again[f"{HOME}/ask/{EVIDENCE}"].data)["evidence"] == "probation"

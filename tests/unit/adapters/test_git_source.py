"""Git as a source: the right commit, byte for byte, and nothing of the repository's is run."""

import http.server
import os
import shutil
import socket
import threading
from contextlib import contextmanager, suppress
from subprocess import CalledProcessError

import pytest
from support.repositories import bare_copy, commit_all, git

from skillforge.adapters.archives import read_tar
from skillforge.adapters.git_source import (
    checkout_root,
    fetch,
    is_address,
    is_bare,
    read_checkout,
)
from skillforge.errors import SkillError

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not here")


@pytest.fixture
def repository(tmp_path):
    """Return a checkout with two commits, the first one tagged and branched."""
    root = tmp_path / "work"
    (root / "skills").mkdir(parents=True)
    (root / "skills" / "a.txt").write_text("one")
    commit_all(root)
    git(root, "tag", "v1")
    git(root, "branch", "old")
    (root / "skills" / "a.txt").write_text("two")
    commit_all(root)
    return root


def fetched(address, ref, scratch, **options):
    """Return commit and files of one fetch."""
    scratch.mkdir()
    with fetch(str(address), ref, scratch, **options) as (commit, stream):
        return commit, read_tar(stream, "git").files


def test_a_ref_is_a_branch_a_tag_or_a_commit(repository, tmp_path):
    """HEAD by default; a bare repository, a checkout and a file URL are read alike."""
    bare = bare_copy(repository, tmp_path / "bare.git")
    first, second = git(repository, "rev-parse", "v1"), git(repository, "rev-parse", "main")
    cases = [(None, second), ("main", second), ("v1", first), ("old", first), (first, first)]
    for number, (ref, commit) in enumerate(cases):
        found, files = fetched(bare, ref, tmp_path / f"s{number}")
        assert found == commit
        assert files["skills/a.txt"].data == (b"one" if commit == first else b"two")
    assert fetched(bare.as_uri(), "v1", tmp_path / "uri")[0] == first
    assert fetched(repository, "v1", tmp_path / "checkout")[0] == first
    history = git(tmp_path / "s0" / "repository", "rev-list", "--all", "--count", "FETCH_HEAD")
    assert history == "1"


@pytest.mark.parametrize("ref", ["absent", "--upload-pack=touch evil", "a:b", "+main", "", "a b"])
def test_a_ref_that_is_none_is_refused(repository, tmp_path, ref):
    """An unknown one is git's to say; what could be an option or a mapping never reaches it."""
    with pytest.raises(SkillError, match=r"absent|no name of a branch"):
        fetched(repository, ref, tmp_path / "s")
    assert not list(tmp_path.rglob("evil"))


def test_bytes_are_those_that_were_committed(tmp_path):
    """Attributes of the commit neither leave files out nor rewrite them, and modes are kept."""
    root = tmp_path / "work"
    root.mkdir()
    (root / ".gitattributes").write_text(
        "hidden.txt export-ignore\nsubst.txt export-subst\n*.bat text eol=crlf\n"
        "*.up filter=shout\nlatin.txt working-tree-encoding=UTF-16\n*.id ident\n"
    )
    stored = {
        "hidden.txt": b"here",
        "subst.txt": b"$Format:%H$",
        "run.bat": b"a\nb\n",
        "x.up": b"low",
        "k.id": b"$Id$",
    }
    for name, data in stored.items():
        (root / name).write_bytes(data)
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("run.sh")
    commit_all(root)
    _, files = fetched(root, None, tmp_path / "s")
    assert {name: files[name].data for name in stored} == stored
    assert [name for name, file in files.items() if file.executable] == ["run.sh"]


def test_nothing_that_a_repository_configures_is_run(repository, tmp_path):
    """Hooks, filters, monitors and helpers of a checkout stay silent, by fetch and by status."""
    marker = tmp_path / "ran"
    script = tmp_path / "evil.sh"
    script.write_text(f"#!/bin/sh\ntouch '{marker}'\ncat\n")
    script.chmod(0o755)
    hooks = repository / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for hook in ("post-checkout", "post-index-change", "reference-transaction", "fsmonitor-watch"):
        shutil.copy(script, hooks / hook)
    (repository / ".gitattributes").write_text("*.txt filter=evil\n")
    commit_all(repository)
    marker.unlink(missing_ok=True)
    for key in ("filter.evil.clean", "filter.evil.smudge", "filter.evil.process"):
        git(repository, "config", key, str(script))
    git(repository, "config", "filter.evil.required", "true")
    for key in ("core.fsmonitor", "uploadpack.packObjectsHook", "core.sshCommand"):
        git(repository, "config", key, str(script))
    git(repository, "config", "remote.origin.url", f"ext::{script}")
    (repository / "skills" / "a.txt").write_text("six")
    assert read_checkout(repository).dirty
    assert fetched(repository, "main", tmp_path / "s")[1]
    assert not marker.exists()
    with suppress(CalledProcessError):
        git(repository, "status")
    assert marker.exists()  # the trap works


def test_transports_that_run_programs_are_refused(tmp_path):
    """`ext::` and the like are no addresses, and git is told to know none of them."""
    assert not is_address("ext::sh -c touch% evil")
    with pytest.raises(SkillError, match="not allowed"):
        fetched("ext::sh -c touch% evil", None, tmp_path / "s")
    assert not list(tmp_path.rglob("evil"))


def test_submodules_are_not_fetched(repository, tmp_path):
    """Another repository that one names is not asked for."""
    outer = tmp_path / "outer"
    outer.mkdir()
    (outer / "own.txt").write_text("own")
    commit_all(outer)
    allow = ("-c", "protocol.file.allow=always")
    git(outer, *allow, "submodule", "--quiet", "add", repository.as_uri(), "sub")
    commit_all(outer)
    assert set(fetched(outer, None, tmp_path / "s")[1]) == {".gitmodules", "own.txt"}


def test_a_checkout_says_where_it_stands(repository, tmp_path):
    """Commit, place inside the repository, remote without password, and whether it is clean."""
    git(repository, "remote", "add", "origin", "https://me:secret@example.org/x.git?token=1")
    head = git(repository, "rev-parse", "HEAD")
    index = (repository / ".git" / "index").read_bytes()
    clean = read_checkout(repository / "skills")
    assert (clean.commit, clean.prefix, clean.dirty) == (head, "skills/", False)
    assert clean.remote == "https://example.org/x.git"
    (repository / "other.txt").write_text("beside")
    assert not read_checkout(repository / "skills").dirty
    assert read_checkout(repository).dirty
    (repository / "skills" / "a.txt").write_text("changed")
    assert read_checkout(repository / "skills").dirty
    assert (repository / ".git" / "index").read_bytes() == index
    (repository / "ignored").mkdir()
    assert read_checkout(repository / "ignored") is None
    assert checkout_root(repository / "skills") == repository.resolve()


def test_a_repository_without_a_commit_says_so(tmp_path):
    """There is nothing to record yet, and nothing is made up."""
    git(tmp_path, "init", "--quiet")
    (tmp_path / "a").write_text("a")
    git(tmp_path, "add", "a")
    with pytest.raises(SkillError, match="rev-parse failed"):
        read_checkout(tmp_path)


def test_bare_repositories_and_addresses_are_told_from_folders(repository, tmp_path):
    """What decides is the form of the source alone."""
    assert is_bare(bare_copy(repository, tmp_path / "b.git"))
    assert not is_bare(repository)
    for address in ("https://h/x", "file:///x", "ssh://git@h/x", "git@h:x", "host:team/x.git"):
        assert is_address(address)
    for path in ("skills", "./a:b", "/x/y", "C:\\skills", "../x.zip"):
        assert not is_address(path)


@contextmanager
def silent_server():
    """Serve an address that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/x.git"


def test_a_server_that_never_answers_is_given_up(tmp_path):
    """The time limit ends git and what it has started."""
    with silent_server() as address, pytest.raises(SkillError, match="stopped after 1 seconds"):
        fetched(address, None, tmp_path / "s", seconds=1)


class Closed(http.server.BaseHTTPRequestHandler):
    """Wants a password of everybody."""

    def do_GET(self):
        """Refuse."""
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="x"')
        self.end_headers()

    def log_message(self, *_):
        """Say nothing."""


def test_nobody_is_asked_for_a_password_and_none_is_shown(tmp_path):
    """A private repository is an error in one go; credentials of the address stay out of it."""
    with http.server.HTTPServer(("127.0.0.1", 0), Closed) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            address = f"http://me:hunter2@127.0.0.1:{server.server_port}/x.git?key=hunter2"
            with pytest.raises(SkillError, match="fetch failed") as caught:
                fetched(address, None, tmp_path / "s")
        finally:
            server.shutdown()
            thread.join()
    assert "hunter2" not in str(caught.value)


def test_a_fetch_that_brings_too_much_is_stopped(repository, tmp_path):
    """What cannot be unpacked within the limits is not stored on disk either."""
    (repository / "big.bin").write_bytes(os.urandom(2**20))
    commit_all(repository)
    with pytest.raises(SkillError, match="fetch failed"):
        fetched(repository, None, tmp_path / "s", most=2**19)
    assert "big.bin" in fetched(repository, None, tmp_path / "again", most=2**21)[1]

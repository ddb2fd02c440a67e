"""Where a skill came from: addresses that can be kept, and files that state a licence."""

from __future__ import annotations

import re

_USER = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.-]*://)(?P<user>[^/\s]*)@", re.I)
_SCP_PASSWORD = re.compile(r"^(?P<user>[\w.+-]+):[^/\s]*@")
_QUERY = re.compile(r"(?P<url>\b[a-z][a-z0-9+.-]*://[^\s'\"?#]*)[?#][^\s'\"]*", re.I)
_LICENSE = re.compile(r"(licen[cs]e|copying)([-_.].*)?", re.I)


def without_credentials(text: str) -> str:
    """Return text without user, password, query and fragment of every URL in it.

    The user of an ssh address is part of the address and stays.

    >>> without_credentials("https://me:secret@host/a.git?token=x"), without_credentials("git@h:a")
    ('https://host/a.git', 'git@h:a')
    """

    def keep(found: re.Match[str]) -> str:
        user = found["user"].split(":")[0]
        ssh = "ssh" in found["scheme"].lower()
        return found["scheme"] + (f"{user}@" if ssh and user else "")

    return _QUERY.sub(r"\g<url>", _USER.sub(keep, _SCP_PASSWORD.sub(r"\g<user>@", text)))


def repository_name(address: str) -> str:
    """Return the last name of an address, without ``.git``; a folder can bear it.

    >>> repository_name("https://host/team/skills.git/"), repository_name("git@host:pdf")
    ('skills', 'pdf')
    """
    last = re.split(r"[/:\\]", without_credentials(address).rstrip("/"))[-1]
    return folder_name(last.removesuffix(".git"))


def folder_name(name: str) -> str:
    """Return a name that one folder can bear; ``source`` where nothing is left.

    >>> folder_name("pdf-tools"), folder_name("..")
    ('pdf-tools', 'source')
    """
    return name.strip(". ") or "source"


def is_license_file(name: str) -> bool:
    """Tell whether a file name is one under which licences are kept.

    >>> [is_license_file(n) for n in ("LICENSE", "Licence.txt", "COPYING.md", "licensing.md")]
    [True, True, True, False]
    """
    return bool(_LICENSE.fullmatch(name))

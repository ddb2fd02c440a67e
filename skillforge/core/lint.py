"""The whole Agent Skills specification as one check: every problem is listed, none stops another.

``error`` is what the specification forbids, ``warning`` what works but badly. Whether a skill has
any error agrees with the reference validator, ``skills-ref`` 0.1.1, but for these differences:

===============================  ==========  ==========  ==========================================
in the file                      here        skills-ref  reason
===============================  ==========  ==========  ==========================================
``---`` inside a value           as it is    cuts there  only a line that is ``---`` is a fence
a fence such as ``---x``         error       accepts     clients look for a line that is ``---``
a tab after the opening fence    accepts     error       white space at a line's end says nothing
byte order mark                  warning     error       UTF-8 allows it, editors add it
U+0085, U+2028, U+2029           as it is    ends line   they end no line in YAML 1.2
``<<``, ``=`` as key or value    plain text  special     they are special in YAML 1.1 only
a key that is empty              error       accepts     no client can ask for it
empty ``compatibility``          error       accepts     the specification says 1 to 500 characters
a file called ``Skill.md``       warning     not found   any case but two is lost there
comments that make it crash      accepts     crashes     it fails on some comments beside values
===============================  ==========  ==========  ==========================================
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

from skillforge.core.document import Document
from skillforge.core.mend import quote
from skillforge.core.package import Package
from skillforge.core.problem import Level, Problem
from skillforge.core.rewrite import MAX_DESCRIPTION

__all__ = ["Problem", "has_errors", "lint", "lint_library"]

FIELDS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
"""Every top-level key of the specification."""
MAX_NAME = 64
MAX_COMPATIBILITY = 500
MAX_BODY_LINES = 500
MAX_BODY_TOKENS = 5000
_CHARACTERS_PER_TOKEN = 4

_Finding = tuple[int, str, Level, str]
_CODE = re.compile(r"^(?P<fence>`{3,}|~{3,}).*?(?:^(?P=fence)|\Z)|`[^`\n]+`", re.M | re.S)
_LINK = re.compile(r"\]\(<?(?![a-z][a-z0-9+.-]*:|[#/])([^)>\s]+)", re.I)


def lint(package: Package) -> tuple[Problem, ...]:
    """Return everything that is wrong with the package, ordered by file and line."""
    document, path = package.document, package.skill_file
    found = [
        *_check_files(package),
        *_check_fields(document),
        *_check_name(package.name, document),
        *_check_description(document),
        *_check_optional(document),
        *_check_body(package),
    ]
    problems = [
        Problem(path=path, line=line, code=code, level=level, message=message)
        for line, code, level, message in found
    ]
    return tuple(sorted([*document.problems, *problems], key=lambda p: (p.path, p.line)))


def lint_library(packages: Mapping[str, Package]) -> tuple[Problem, ...]:
    """Return names that two folders claim, and packages that are byte-identical copies.

    Args:
        packages: Folder to package, in the order in which the first one counts.
    """
    names: dict[str, str] = {}
    versions: dict[str, str] = {}
    problems: list[Problem] = []

    def report(folder: str, code: str, level: Level, message: str) -> None:
        problems.append(Problem(path=folder, line=0, code=code, level=level, message=message))

    for folder, package in packages.items():
        first = names.setdefault(package.name.casefold(), folder)
        if first != folder:
            message = f"{first} has the same name; a library holds a name once: rename one."
            report(folder, "name-twice", "error", message)
        first = versions.setdefault(package.version, folder)
        if first != folder:
            message = f"this is a byte-identical copy of {first}; delete one of them."
            report(folder, "copy", "warning", message)
    return tuple(problems)


def has_errors(problems: tuple[Problem, ...]) -> bool:
    """Tell whether any of the problems is an error."""
    return any(problem.level == "error" for problem in problems)


def _check_files(package: Package) -> Iterator[_Finding]:
    if package.skill_file != "SKILL.md":
        yield (
            0,
            "skill-file-case",
            "warning",
            (
                f"the file is called {package.skill_file}; most clients on a case-sensitive disk "
                "look for exactly SKILL.md: rename it."
            ),
        )
    folded: dict[str, str] = {}
    for path in package.files:
        other = folded.setdefault(path.casefold(), path)
        if other != path:
            message = f"{other} and {path} are one file where case does not count; rename one."
            yield 0, "path-case", "warning", message


def _check_fields(document: Document) -> Iterator[_Finding]:
    if document.frontmatter_span == (0, 0):
        return
    for key in document.frontmatter:
        if key not in FIELDS:
            yield (
                document.key_lines.get(key, 0),
                "field-unknown",
                "error",
                (
                    f"`{key}` is no field of the format ({', '.join(FIELDS)}); move it below "
                    "`metadata:` or delete it."
                ),
            )
    for key in ("name", "description"):
        if key not in document.frontmatter:
            yield 1, f"{key}-missing", "error", f"`{key}` is required; add it to the frontmatter."


def _check_name(folder: str, document: Document) -> Iterator[_Finding]:
    value = document.frontmatter.get("name")
    if value is None:
        return
    line = document.key_lines.get("name", 0)
    if not isinstance(value, str) or not value.strip():
        yield line, "name-blank", "error", f"`name` must be one word: write `name: {folder}`."
        return
    name = unicodedata.normalize("NFKC", value.strip())
    bad = sorted({char for char in name if not (char.isalnum() or char == "-")})
    rules = [
        (len(name) > MAX_NAME, "name-long", f"has {len(name)} characters, at most {MAX_NAME}"),
        (name != name.lower(), "name-case", "must be lower case"),
        (name.strip("-") != name, "name-hyphen", "may not start or end with a hyphen"),
        ("--" in name, "name-hyphen", "may not hold two hyphens in a row"),
        (bool(bad), "name-characters", f"holds {' '.join(map(repr, bad))}; use a-z, 0-9, -"),
    ]
    for broken, code, rule in rules:
        if broken:
            yield line, code, "error", f"the name {name!r} {rule}."
    if unicodedata.normalize("NFKC", folder) != name:
        yield (
            line,
            "name-mismatch",
            "error",
            f"the name is {name!r} but the folder is {folder!r}; they must be equal: rename one.",
        )
    elif not name.isascii():
        message = f"the name {name!r} is not ASCII, which some clients refuse."
        yield line, "name-ascii", "warning", message


def _check_description(document: Document) -> Iterator[_Finding]:
    value = document.frontmatter.get("description")
    if value is None:
        return
    line = document.key_lines.get("description", 0)
    if not isinstance(value, str) or not value.strip():
        cure = _one_text("description", value) or "say what the skill does and when to use it."
        yield line, "description-blank", "error", f"`description` must be one text: {cure}"
        return
    if len(value) > MAX_DESCRIPTION:
        message = f"the description has {len(value)} characters, at most {MAX_DESCRIPTION}."
        yield line, "description-long", "error", message
    if "<" in value or ">" in value:
        message = "the description holds `<` or `>`, which some validators refuse."
        yield line, "description-angle", "warning", message


def _check_optional(document: Document) -> Iterator[_Finding]:
    def text_rule(key: str, level: Level) -> Iterator[_Finding]:
        if key in document.frontmatter and not isinstance(document.frontmatter[key], str):
            line = document.key_lines.get(key, 0)
            cure = _one_text(key, document.frontmatter[key]) or "found a mapping."
            yield line, f"{key}-type", level, f"`{key}` must be one text: {cure}"

    yield from text_rule("license", "warning")
    yield from text_rule("allowed-tools", "warning")
    yield from text_rule("compatibility", "error")
    value = document.frontmatter.get("compatibility", "-")
    if isinstance(value, str) and not 1 <= len(value) <= MAX_COMPATIBILITY:
        yield (
            document.key_lines.get("compatibility", 0),
            "compatibility-long" if value else "compatibility-blank",
            "error",
            f"`compatibility` has {len(value)} characters, expected 1 to {MAX_COMPATIBILITY}.",
        )
    if not _is_flat(document.frontmatter.get("metadata", {})):
        line = document.key_lines.get("metadata", 0)
        message = "`metadata` must map keys to texts, one `key: value` a line."
        yield line, "metadata-type", "warning", message


def _one_text(key: str, value: Any) -> str:
    """Return the line that says in one text what a list says; empty if it is none of texts."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        return ""
    text = (" " if key == "allowed-tools" else ", ").join(value)
    return f"found a list; write `{key}: {quote(text)}`." if text.strip() else ""


def _is_flat(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())


def _check_body(package: Package) -> Iterator[_Finding]:
    body = package.body
    if not body.strip():
        yield 0, "body-empty", "warning", "there is no text below the frontmatter; write it."
        return
    lines, tokens = body.count("\n") + 1, len(body) // _CHARACTERS_PER_TOKEN
    if lines > MAX_BODY_LINES or tokens > MAX_BODY_TOKENS:
        yield (
            0,
            "body-long",
            "warning",
            (
                f"the body has {lines} lines, about {tokens} tokens; at most {MAX_BODY_LINES} and "
                f"{MAX_BODY_TOKENS} are advised: move parts to references/."
            ),
        )
    yield from _check_links(package, body)


def _check_links(package: Package, body: str) -> Iterator[_Finding]:
    before = package.document.data[: package.document.body_start]
    first = before.count(b"\n") or before.count(b"\r")
    prose = ""
    for found in _LINK.finditer(body) if "](" in body else ():
        target = found.group(1).split("#")[0].split("?")[0].removeprefix("./")
        if ".." in target.split("/"):
            code = "link-outside"
            fault = f"the link {target!r} leaves the skill, which is copied alone; move it inside."
        elif target and target.rstrip("/") not in package.files and not _is_folder(package, target):
            code = "link-missing"
            fault = f"the link {target!r} leads to no file of the skill; add it or mend the link."
        else:
            continue
        if not prose:  # blanked out only in the few skills that need it: it takes longest
            prose = _CODE.sub(lambda code: " " * len(code.group()), body)
        if prose[found.start()] == "]":
            yield first + 1 + body.count("\n", 0, found.start()), code, "warning", fault


def _is_folder(package: Package, target: str) -> bool:
    return any(path.startswith(target.rstrip("/") + "/") for path in package.files)

"""Globs: `*`, `?`, `[a-z]`, `[!a]`, `{a,b}`, `**` and `\\` before a character that is meant as it stands."""

from __future__ import annotations

import re

_MAGIC = re.compile(r"[*?\[\\]")
_HIDDEN = (".", "_")  # Spark never reads files so named, and writers use such names for what is unfinished


def is_magic(part: str) -> bool:
    return _MAGIC.search(part) is not None


def is_hidden(name: str) -> bool:
    return name.startswith(_HIDDEN)


def expand_braces(pattern: str) -> list[str]:
    """`a/{b,c}/*.csv` means `a/b/*.csv` and `a/c/*.csv`."""
    found = re.search(r"(?<!\\)\{([^{}]*,[^{}]*)\}", pattern)
    if not found:
        return [pattern]
    before, after = pattern[: found.start()], pattern[found.end() :]
    return [
        expanded for choice in found[1].split(",") for expanded in expand_braces(f"{before}{choice}{after}")
    ]


def split_fixed(pattern: str) -> tuple[str, list[str]]:
    """The folder before the first part with a wildcard, and the parts below it.

    Without any wildcard the last part is below, so that a folder always comes first.
    """
    parts = pattern.split("/")
    fixed = next((i for i, part in enumerate(parts[:-1]) if is_magic(part)), len(parts) - 1)
    return "/".join(parts[:fixed]) or ("/" if pattern.startswith("/") else "."), parts[fixed:]


def part_regex(part: str) -> re.Pattern[str]:
    return re.compile(_translate(part), re.DOTALL)


def path_regex(pattern: str) -> re.Pattern[str]:
    """For a whole path. Hidden names below the fixed folder never match."""
    folder, parts = split_fixed(pattern)
    regex = re.escape(folder.rstrip("/"))
    for i, part in enumerate(parts):
        if part == "**":
            last = i == len(parts) - 1
            regex += "(?:/[^./_][^/]*)+" if last else "(?:/[^./_][^/]*)*"
        else:
            regex += f"/(?![._]){_translate(part)}"
    return re.compile(regex, re.DOTALL)


def _translate(part: str) -> str:
    out, i = [], 0
    while i < len(part):
        char = part[i]
        i += 1
        if char == "*":
            out.append("[^/]*")
        elif char == "?":
            out.append("[^/]")
        elif char == "\\" and i < len(part):
            out.append(re.escape(part[i]))
            i += 1
        elif char == "[" and (end := part.find("]", i + 2 if part[i : i + 1] in ("!", "^") else i + 1)) > 0:
            out.append(_character_set(part[i:end]))
            i = end + 1
        else:
            out.append(re.escape(char))
    return "".join(out)


def _character_set(inside: str) -> str:
    negated = inside[:1] in ("!", "^")
    body = re.sub(r"([\\\[\]^&~|])", r"\\\1", inside[1:] if negated else inside)
    return f"[{'^' if negated else ''}{body}]"

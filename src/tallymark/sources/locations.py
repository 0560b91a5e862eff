"""How one file is spelled: in Tallymark (absolute path or URL), for Spark's readers, and by Spark."""

from __future__ import annotations

import re
import unicodedata

# What java.net.URI leaves as it is in a path; with it Spark spells `_metadata.file_path`.
_LEGAL = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789" + "_-!.~'()*" + ":@&=+$,;/"
)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//[^/]*)?(.*)", re.DOTALL)


def is_local(path: str) -> bool:
    return path.startswith("/")


def has_scheme(path: str) -> bool:
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", path) is not None


def for_reader(path: str) -> str:
    """The path for `load`: Spark takes it for a glob, so what looks like one is escaped."""
    escaped = re.sub(r"([\\\[\]{}*?])", r"\\\1", path)
    # Without the scheme, a cluster would look on its default file system.
    return f"file:{escaped}" if is_local(path) else escaped


def as_reported(path: str) -> str:
    """The path as `_metadata.file_path` has it: an encoded URL. Rows are matched to files by it."""
    if is_local(path):
        return "file:" + _encode(path)
    found = _SCHEME.fullmatch(path)
    if not found:
        return _encode(path)
    return f"{found[1]}:{found[2] or ''}{_encode(found[3])}"


def spellings(path: str) -> list[str]:
    """Every form in which an error message of Spark may name the file."""
    forms = []
    for form in (as_reported(path), f"file:{path}" if is_local(path) else path):
        forms.append(form)
        if re.match(r"file:/[^/]", form):
            forms.append("file://" + form.removeprefix("file:"))
    return [*forms, path]


def _encode(path: str) -> str:
    return "".join(char if _stays(char) else _percent(char) for char in path)


def _stays(char: str) -> bool:
    if char < "\x80":
        return char in _LEGAL
    return unicodedata.category(char) not in ("Zs", "Zl", "Zp", "Cc")


def _percent(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))

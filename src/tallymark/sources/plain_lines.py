"""Whether each line of a delimited file is one record, so that several tasks can read parts of it.

A quoted value may hold line breaks, so Spark must read a file from its start to be right, in one task. A file
without quotes has none. Looking costs a small part of what the second core saves.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import BinaryIO

from tallymark.model.batch import SourceFile
from tallymark.sources.encodings import has_ascii_bytes
from tallymark.sources.heads import COMPRESSIONS
from tallymark.sources.locations import is_local

_WORTH_A_LOOK = 8 << 20  # bytes; Spark does not split smaller files on two cores
_AT_ONCE = 4 << 20
_LONGEST_LINE = 64 << 20
_QUOTE = b'"'
# Spark drops a line of blanks when it reads by lines, and takes it for a row otherwise.
_BLANK_LINE = re.compile(rb"\n[\x00-\x09\x0b\x0c\x0e-\x20]+\r?(?:\n|\Z)")


def has_plain_lines(file: SourceFile, encoding: str) -> bool:
    """False for whatever was not looked at: small, compressed and remote files."""
    if file.size < _WORTH_A_LOOK or not is_local(file.path) or file.path.endswith(COMPRESSIONS):
        return False
    if not has_ascii_bytes(encoding):
        return False
    with Path(file.path).open("rb") as opened:
        return _are_plain(opened)


def _are_plain(opened: BinaryIO) -> bool:
    windows: bool | None = None
    while lines := opened.read(_AT_ONCE):
        lines += opened.readline(_LONGEST_LINE)
        if _QUOTE in lines or _BLANK_LINE.search(b"\n" + lines):
            return False
        here = b"\r" in lines
        if windows not in (None, here) or (here and not _ends_as_on_windows(lines)):
            return False  # line ends of several kinds
        windows = here
    return True


def _ends_as_on_windows(lines: bytes) -> bool:
    return lines.count(b"\r\n") == lines.count(b"\r") == lines.count(b"\n")

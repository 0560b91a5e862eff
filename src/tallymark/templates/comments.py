"""Takes the comments out of a query: Spark would look into them for `${…}`, and sqlglot and Spark do not
agree on where each ends (Spark goes on after a backslash at the end of a line)."""

from __future__ import annotations

import re

from tallymark.templates.faults import Fault

_PARTS = re.compile(
    r"""(?P<line>--[^\n]*)|(?P<block>/\*(?!\+))|\b[rR](?P<raw>'[^']*+'?|"[^"]*+"?)
      |'(?:[^'\\]|\\.?)*+'?|"(?:[^"\\]|\\.?)*+"?|`[^`]*+`?""",
    re.DOTALL | re.VERBOSE,
)
_BLOCK_MARK = re.compile(r"/\*|\*/")
_NOT_LINE_END = re.compile(r"[^\n]")


class NotClosed(Fault):
    def __init__(self, offset: int):
        super().__init__("a quote or comment is not closed")
        self.offset = offset


def without_comments(sql: str) -> str:
    """With spaces in their place, so that every offset and line stays. Hints (`/*+ … */`) stay, too."""
    kept: list[str] = []
    at = 0
    while found := _PARTS.search(sql, at):
        start, end = found.span()
        if found["block"]:
            end = _block_end(sql, start)
        elif found["line"] is None and not _is_closed(found["raw"] or found[0]):
            raise NotClosed(start)
        kept.append(sql[at:start])
        is_comment = found["line"] is not None or found["block"] is not None
        kept.append(_NOT_LINE_END.sub(" ", sql[start:end]) if is_comment else found[0])
        at = end
    kept.append(sql[at:])
    return "".join(kept)


def _is_closed(quoted: str) -> bool:
    return len(quoted) > 1 and quoted[-1] == quoted[0]


def _block_end(sql: str, start: int) -> int:
    """Comments in comments count, as Spark has it."""
    depth = 0
    for mark in _BLOCK_MARK.finditer(sql, start):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    raise NotClosed(start)

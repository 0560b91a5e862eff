"""A pipeline whose rows come from a query: the file `pipeline.sql` or `pipeline.py` in its folder."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

MAX_TRANSFORM_BYTES = 1024 * 1024

# Jinja's own idea of a line end, so that lines are counted alike everywhere.
_LINE_END = re.compile(r"\r\n|\r|\n")


class Language(StrEnum):
    SQL = "sql"
    PYTHON = "python"


TRANSFORM_FILES = {"pipeline.sql": Language.SQL, "pipeline.py": Language.PYTHON}


@dataclass(frozen=True)
class Transform:
    language: Language
    path: Path
    text: str  # with \n at the end of every line, whatever the file has
    file: str  # how problems call it: relative to the project

    def __repr__(self) -> str:
        return f"Transform({self.file!r})"


def with_plain_line_ends(text: str) -> str:
    return _LINE_END.sub("\n", text)

"""Names and strings in Spark SQL text. A projection as text is one call of Spark; built of Column objects it
is several calls for each column, and takes most of the time of a small load.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

# A session's settings change how backslashes and doubled quotes are read, and replace ${name}.
_NEEDS_NO_ESCAPE = re.compile(r"[^\\'$\x00-\x1f\x7f-\x9f\u2028\u2029]*")


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def quoted_list(names: Iterable[str]) -> str:
    return ", ".join(map(quoted, names))


def literal(text: str) -> str:
    if _NEEDS_NO_ESCAPE.fullmatch(text):
        return f"'{text}'"
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


def literals(texts: Iterable[str]) -> str:
    return ", ".join(map(literal, texts))


def options(pairs: Mapping[str, str]) -> str:
    """A map, as functions such as to_json take it."""
    return f"map({literals(text for pair in pairs.items() for text in pair)})"


def named(expression: str, name: str) -> str:
    return f"{expression} AS {quoted(name)}"


def exact_timestamp(moment: datetime) -> str:
    """A literal that means the same in every session time zone, to the microsecond."""
    return f"TIMESTAMP '{moment.astimezone(UTC).isoformat(timespec='microseconds')}'"

"""Names and texts inside of Spark SQL. A projection written as text is one call of Spark; built of Column
objects it is several for each of them, and a small load then waits for little else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

# A session may read backslashes and doubled quotes either way, and replaces ${name} before anything else.
_AS_IT_IS = re.compile(r"[^\\'$\x00-\x1f\x7f-\x9f\u2028\u2029]*")


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    if _AS_IT_IS.fullmatch(text):
        return f"'{text}'"
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


def literals(texts: Iterable[str]) -> str:
    return ", ".join(map(literal, texts))


def options(pairs: Mapping[str, str]) -> str:
    """As functions like to_json take them."""
    return f"map({literals(text for pair in pairs.items() for text in pair)})"


def named(expression: str, name: str) -> str:
    return f"{expression} AS {quoted(name)}"

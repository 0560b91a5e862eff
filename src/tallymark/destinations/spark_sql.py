"""Names and errors of Spark SQL, shared by the destinations that Spark itself writes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.errors import PySparkException


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def quoted_list(names: Sequence[str]) -> str:
    return ", ".join(quoted(name) for name in names)


def condition(error: BaseException) -> str:
    """Spark's name of the error, such as TABLE_OR_VIEW_NOT_FOUND; empty if it has none."""
    if isinstance(error, PySparkException):
        named = error.getCondition()
        if named:
            return str(named)
    match = re.search(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]", str(error))
    return match[1] if match else ""


def reason(error: BaseException) -> str:
    """One line that says what went wrong: the innermost cause, else the first line."""
    lines = str(error).splitlines()
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    text = causes[-1] if causes else next((line for line in lines if line.strip()), type(error).__name__)
    return re.sub(r"^(?:[a-z]+\.)+([A-Z]\w+): ", r"\1: ", text.strip())[:500]


def lost_connection(error: BaseException) -> bool:
    """Whether the answer got lost, so that the statement may have succeeded."""
    if isinstance(error, ConnectionError | EOFError):
        return True
    kind = f"{type(error).__module__}.{type(error).__name__}"
    return kind.startswith("grpc.") or "Py4JNetworkError" in kind or "UNAVAILABLE" in str(error)[:300]

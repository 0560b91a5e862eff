"""Character sets: Python's names, Java's names, and what Spark takes without further ado."""

from __future__ import annotations

import codecs
import difflib

from pyspark.sql import SparkSession

from tallymark.errors import SourceError

_JAVA_NAMES = {
    "utf-8": "UTF-8",
    "utf-8-sig": "UTF-8",
    "ascii": "US-ASCII",
    "iso8859-1": "ISO-8859-1",
    "utf-16": "UTF-16",
    "utf-16-le": "UTF-16LE",
    "utf-16-be": "UTF-16BE",
    "utf-32": "UTF-32",
}
_COMMON = ["utf-8", "latin-1", "windows-1252", "utf-16", "utf-16le", "utf-16be", "utf-32", "iso-8859-15"]


def python_name(encoding: str) -> str:
    try:
        return codecs.lookup(encoding).name
    except LookupError:
        close = difflib.get_close_matches(encoding.lower(), _COMMON, n=1)
        raise SourceError(
            f"source.encoding: {encoding} is not known",
            hint=f"did you mean {close[0]}?" if close else f"such as {', '.join(_COMMON)}",
        ) from None


def is_utf8(encoding: str) -> bool:
    return python_name(encoding) in ("utf-8", "utf-8-sig")


def is_wide(encoding: str) -> bool:
    """A line break is more than the byte 10, so that lines cannot be found before decoding."""
    return python_name(encoding).startswith(("utf-16", "utf-32"))


def has_ascii_bytes(encoding: str) -> bool:
    """A byte below 128 is that character of ASCII, wherever it stands."""
    return python_name(encoding).startswith(("utf-8", "ascii", "iso8859", "cp125"))


def java_name(encoding: str, spark: SparkSession) -> str:
    """Spark 4 takes seven character sets only; the session is told when another is wanted."""
    name = python_name(encoding)
    if name not in _JAVA_NAMES:
        spark.conf.set("spark.sql.legacy.javaCharsets", "true")
    return _JAVA_NAMES.get(name, name)

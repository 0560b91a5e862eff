"""From Spark's failures while reading to errors that name the file.

Classic Spark and Spark Connect raise different classes; the text of their messages is the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from tallymark.errors import SourceError, TallymarkError, UnreadableFile
from tallymark.model.batch import SourceFile
from tallymark.sources.stores import spellings

UNREADABLE_MARK = "TALLYMARK_UNREADABLE_FILE"  # precedes the file in errors of the reader of workbooks

_NAMES_A_FILE = re.compile(
    r"(?:while reading file|Could not read file:|Path does not exist:|is not a Parquet file|"
    rf"Malformed ORC file|Could not read footer for file:(?: FileStatus\{{path=)?|{UNREADABLE_MARK}:?)\s*"
)
_NOISE = re.compile(
    r"Job aborted|awaitResult|FAILED_READ_FILE|Driver stacktrace|Error reading from input|^\s*$|"
    r"^An error occurred while calling|Multiple failures"
)


def unreadable_from(
    error: BaseException, files: Iterable[SourceFile] | Sequence[str]
) -> UnreadableFile | None:
    """The file at fault, or None if the failure is not about reading one of `files`."""
    if isinstance(error, UnreadableFile):
        return error
    text = _text(error)
    paths = [file if isinstance(file, str) else file.path for file in files]
    known = {form: path for path in paths for form in spellings(path)}
    for found in _NAMES_A_FILE.finditer(text):
        named = [form for form in known if text.startswith(form, found.end())]
        if named:
            return _unreadable(known[max(named, key=len)], text)  # a.csv.gz begins with a.csv
    return None


def spark_failure(error: Exception, files: Iterable[SourceFile] | Sequence[str]) -> TallymarkError:
    """Any failure of Spark as a TallymarkError."""
    if isinstance(error, TallymarkError):
        return error
    return unreadable_from(error, files) or SourceError(
        f"Spark cannot read the source: {_cause(_text(error))}",
        hint="check source.format and source.options against the files",
    )


def blame(
    error: Exception, files: Sequence[SourceFile], probe: Callable[[SourceFile], object]
) -> TallymarkError:
    """The error with the file at fault. If Spark names none, every file is read alone by `probe`."""
    failure = spark_failure(error, files)
    if isinstance(failure, UnreadableFile):
        return failure
    for file in files:
        try:
            probe(file)
        except Exception as alone:
            return unreadable_from(alone, [file]) or _unreadable(file.path, _text(alone))
    return failure


def _unreadable(path: str, text: str) -> UnreadableFile:
    if "FILE_NOT_EXIST" in text or "Path does not exist" in text:
        return UnreadableFile(path, "the file is gone, or Java cannot read its name in this locale")
    return UnreadableFile(path, f"cannot be read: {_cause(text)}")


def _text(error: BaseException) -> str:
    """Spark Connect has the causes in the stack trace, not in the message."""
    trace = getattr(error, "getStackTrace", None)
    try:
        return f"{error}\n{trace() or ''}" if trace else str(error)
    except Exception:
        return str(error)


def _cause(text: str) -> str:
    """The innermost cause that is not noise, in one line."""
    causes = [
        line for line in re.findall(r"^\s*(?:Caused by: )?(.+)$", text, re.MULTILINE) if _is_telling(line)
    ]
    named = re.findall(r"^Caused by: (.+)$", text, re.MULTILINE)
    best = next((line for line in reversed(named) if _is_telling(line)), causes[0] if causes else text[:300])
    plain = re.sub(r"^(?:: )?(?:[a-z][\w$]*\.)+(?=[A-Z])", "", best.strip())
    return plain.split(" SQLSTATE")[0][:300].rstrip(". ")


def _is_telling(line: str) -> bool:
    return not line.lstrip().startswith(("at ", "...")) and not _NOISE.search(line)

"""Turns an exception into an answer: code, message, hint and exit code. The user sees no traceback."""

from __future__ import annotations

import logging
import platform
import tempfile
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tallymark.cli.screen import INTERRUPTED, LOAD_FAILED, WRONG_USE, Answer, Block, Line, Tone
from tallymark.errors import ConfigError, TallymarkError
from tallymark.model.report import Failure

log = logging.getLogger(__name__)

USAGE = "TM101"
INTERRUPT = "TM130"
BUG = "TM999"


def as_failure(error: TallymarkError) -> Failure:
    return Failure(error.code, error.message, error.hint, error.retry_safe, error.facts)


def failure_blocks(failure: Failure, before: str = "") -> list[Block]:
    """`before` is an indent, or names what failed."""
    blocks: list[Block] = [Line(f"{before}error {failure.code}: {failure.message}", Tone.BAD)]
    if failure.hint:
        indent = before if before.isspace() else ""
        blocks.append(Line(f"{indent}  → {failure.hint}"))
    return blocks


def refused(error: TallymarkError) -> Answer:
    log.debug("the command failed", exc_info=error)
    return _answer(as_failure(error), WRONG_USE if isinstance(error, ConfigError) else LOAD_FAILED)


def wrong_use(message: str, hint: str) -> Answer:
    return _answer(Failure(USAGE, message, hint), WRONG_USE)


def no_command(help_text: str) -> Answer:
    failure = Failure(USAGE, "no command was given", "see `tallymark --help`")
    return Answer(blocks=(Line(help_text),), failure=failure, exit_code=WRONG_USE, on_stderr=True)


def interrupted() -> Answer:
    hint = "run the same command again: committed content is not applied twice"
    return _answer(Failure(INTERRUPT, "interrupted", hint, retry_safe=True), INTERRUPTED)


def bug(error: Exception, argv: Sequence[str], project: Path, version: str) -> Answer:
    log.debug("unexpected exception", exc_info=error)
    kind = type(error).__name__
    log_file = _write_crash_log(error, argv, project, version)
    kept = f"details are in {log_file}; please attach this file to a bug report" if log_file else ""
    failure = Failure(
        BUG,
        f"this is a bug in Tallymark: {kind}: {error}",
        kept or "run again with --verbose and report the output",
        facts={"exception": kind, "log": str(log_file) if log_file else None},
    )
    return _answer(failure, LOAD_FAILED)


def _answer(failure: Failure, exit_code: int) -> Answer:
    blocks = tuple(failure_blocks(failure))
    return Answer(blocks=blocks, failure=failure, exit_code=exit_code, on_stderr=True)


def _write_crash_log(error: Exception, argv: Sequence[str], project: Path, version: str) -> Path | None:
    from tallymark.model.private_files import open_private, private_folder
    from tallymark.model.section import redact

    now = datetime.now(UTC)
    text = "\n".join(
        [
            f"tallymark {version}, Python {platform.python_version()}, {platform.platform()}",
            f"{now.isoformat()}  tallymark {' '.join(argv)}",
            "",
            *traceback.format_exception(error),
        ]
    )
    folders = [project / ".tallymark" / "logs"] if (project / "tallymark.yaml").is_file() else []
    for folder in [*folders, Path(tempfile.gettempdir())]:
        path = folder / f"tallymark-crash-{now:%Y%m%dT%H%M%S%f}.log"
        try:
            private_folder(folder)
            # "x" never follows a link that another user put into a shared temporary folder
            with open_private(path, "x", errors="backslashreplace") as file:
                file.write(redact(text))
        except OSError:
            continue
        return path
    return None

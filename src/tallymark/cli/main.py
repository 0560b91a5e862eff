"""Runs a command and returns its exit code. Every error ends here and leaves in one shape."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

import typer
from typer.main import get_command

from tallymark import __version__
from tallymark.cli import failure, progress, screen
from tallymark.cli.arguments import command_name, has_flag, hoist, project_folder
from tallymark.cli.commands import app
from tallymark.cli.screen import INTERRUPTED, LOAD_FAILED, Answer
from tallymark.errors import TallymarkError


def main(argv: Sequence[str] | None = None) -> int:
    args = hoist(sys.argv[1:] if argv is None else argv)
    as_json = has_flag("--json", args)
    try:
        with progress.logged(has_flag("--verbose", args)), _own_stdout(as_json) as stdout:
            answer = _answer(args)
            if as_json:
                _write_document(answer, args, stdout)
            else:
                screen.show(answer.blocks, sys.stderr if answer.on_stderr else stdout)
            stdout.flush()
        return answer.exit_code
    except BrokenPipeError:
        _forget_stdout()
        return LOAD_FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _answer(args: list[str]) -> Answer:
    try:
        outcome = get_command(app).main(args, prog_name="tallymark", standalone_mode=False)
    except TallymarkError as error:
        return failure.refused(error)
    except typer.TyperException as error:
        context: typer.Context | None = getattr(error, "ctx", None)
        path = context.command_path if context else "tallymark"
        return failure.wrong_use(error.format_message(), f"see `{path} --help`")
    except (KeyboardInterrupt, typer.Abort):
        return failure.interrupted()
    except BrokenPipeError:
        raise
    except Exception as error:
        return failure.bug(error, args, project_folder(args), __version__)
    if isinstance(outcome, Answer):
        return outcome
    # Help and completion print their own text and return an exit code, and so does Ctrl-C inside typer.
    return failure.interrupted() if outcome == INTERRUPTED else Answer(exit_code=outcome or 0)


def _write_document(answer: Answer, args: list[str], stdout: TextIO) -> None:
    from tallymark.model.documents import as_text, document

    content = document(command_name(args), answer.result, answer.failure, ok=answer.ok, version=__version__)
    stdout.write(as_text(content))


@contextmanager
def _own_stdout(as_json: bool) -> Iterator[TextIO]:
    """With `--json`, everything else that prints on stdout (a JVM, for example) is sent to stderr, so that
    stdout holds exactly one document."""
    ours = sys.stdout
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a file name must not fail on the encoding of a terminal
            stream.reconfigure(errors="backslashreplace")
    if not as_json:
        yield ours
        return
    shared = _has_descriptor(ours, 1) and _has_descriptor(sys.stderr, 2)
    saved = os.dup(1) if shared else None
    try:
        sys.stdout = sys.stderr
        if saved is None:
            yield ours
        else:
            os.dup2(2, 1)
            with os.fdopen(os.dup(saved), "w", encoding="utf-8") as document:
                yield document
    finally:
        sys.stdout = ours
        if saved is not None:
            os.dup2(saved, 1)
            os.close(saved)


def _has_descriptor(stream: TextIO, number: int) -> bool:
    try:
        return stream.fileno() == number
    except (OSError, ValueError):
        return False


def _forget_stdout() -> None:
    """The reader has closed the pipe, as `| head` does. Python's flush at exit must not fail on it."""
    if _has_descriptor(sys.stdout, 1):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main())

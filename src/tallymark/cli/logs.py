"""Python logging of `tallymark.*` on stderr, for the time of one command."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tallymark.cli.screen import clean

_QUERY_LOG = "DataFrameQueryContextLogger"


class CleanFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return clean(super().format(record))


@contextmanager
def on_stderr(verbose: bool) -> Iterator[None]:
    """Warnings are in the reports already, so the log is silent unless `--verbose` asks for it. PySpark's own
    log of wrong queries, pages of JSON, says no more than the errors that we show."""
    logger = logging.getLogger("tallymark")
    level = logger.level
    logging.getLogger(_QUERY_LOG).setLevel(logging.ERROR if verbose else logging.CRITICAL + 1)
    handler: logging.Handler = logging.NullHandler()
    if verbose:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(CleanFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.setLevel(logging.DEBUG)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)

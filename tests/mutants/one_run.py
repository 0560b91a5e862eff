"""One run of tests on a copy of the source, in a process that has loaded what is not ours already: loading it
takes longer than most tests. So nothing here may import Tallymark before the copy is on the path."""

from __future__ import annotations

import multiprocessing
import os
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LONGEST_SECONDS = 240
_LOADED_BEFORE = (
    "pytest",
    "xdist.plugin",
    "hypothesis",
    "pyspark.sql",
    "pyspark.sql.connect.session",
    "pandas",
    "pyarrow.dataset",
    "sqlalchemy.dialects.postgresql",
    "sqlglot",
    "pydantic",
    "duckdb",
    "psycopg",
    "deltalake",
)


@dataclass(frozen=True)
class Ended:
    code: int | None  # None: it did not come to an end
    output: str


@dataclass(frozen=True)
class TestRun:
    copy: Path  # of the source
    tests: tuple[str, ...]

    __test__ = False

    def wait(self) -> Ended:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(_LOADED_BEFORE))
        log = self.copy / "pytest.log"
        process = context.Process(target=_run, args=(self, str(log), dict(os.environ)))
        process.start()
        process.join(LONGEST_SECONDS)
        ended = process.exitcode
        if ended is None:
            os.killpg(process.pid or 0, 9)
            process.join()
        return Ended(ended, log.read_text(errors="replace"))


def _run(run: TestRun, log: str, environment: dict[str, str]) -> None:
    os.setsid()
    output = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    source = str(run.copy / "src")
    os.environ.update(environment)
    os.environ |= {"PYTHONPATH": source, "HYPOTHESIS_STORAGE_DIRECTORY": str(run.copy / "hypothesis")}
    sys.path.insert(0, source)
    sys.dont_write_bytecode = True  # a mutant's bytecode is of no use to the next
    os.chdir(ROOT)
    sys.argv = ["pytest"]
    import tallymark

    if not Path(tallymark.__file__).is_relative_to(run.copy):
        print(f"{tallymark.__file__} is imported, not the copy")
        os._exit(3)
    import pytest

    options = ["-x", "-p", "no:cacheprovider", "--hypothesis-seed=0", "--timeout=200", "--tb=line", "-rfE"]
    # PostgreSQL takes seconds to start, and its ledger is tested as SQLite's.
    options += [f"--basetemp={run.copy / 'temporary'}", "-m", "not big", "-k", "not postgres"]
    ended = pytest.main([*options, *run.tests])
    sys.stdout.flush()
    os._exit(int(ended))

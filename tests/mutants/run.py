"""`make mutants`: breaks one line of the source at a time, and sees whether the tests notice.

1. The named tests of all chosen mutants pass on the source as it is.
2. Each mutant is applied to a copy of the source, and its tests run, fast ones first, until one fails.
3. A mutant that no test notices survives: that is a missing test, or the mutant is equivalent to the source.
4. The score is written into docs/explanation/how-it-is-tested.md.
"""

from __future__ import annotations

import argparse
import compileall
import os
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from py_compile import PycInvalidationMode
from queue import SimpleQueue

from mutants.listed import MUTANTS
from mutants.mutant import Mutant, Stale
from mutants.one_run import ROOT, TestRun

PAGE = ROOT / "docs/explanation/how-it-is-tested.md"
BEGIN, END = "<!-- The mutants, written by `make mutants` -->", "<!-- End of the mutants -->"
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
_NOTHING_FOUND = (4, 5)  # exit codes of pytest: wrong use, such as a test that is not there; nothing to run


class Fate(StrEnum):
    CAUGHT = "caught"
    SURVIVED = "survived"
    EQUIVALENT = "equivalent"
    STALE = "stale"


@dataclass(frozen=True)
class Result:
    mutant: Mutant
    fate: Fate
    said: str  # the test that noticed it, or what is wrong with the mutant
    seconds: float = 0.0


@dataclass(frozen=True)
class Copy:
    """Of the source. Its compiled files are checked by the content of their source: by time and size, a mutant
    of the same length would go unnoticed within the same second."""

    folder: Path

    @classmethod
    def made(cls, folder: Path) -> Copy:
        shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
        compileall.compile_dir(folder / "src", quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
        return cls(folder)

    @contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[None]:
        module = self.folder / "src/tallymark" / mutant.module
        source = module.read_text()
        module.write_text(mutant.applied(source))
        try:
            yield
        finally:
            module.write_text(source)


def fate_of(mutant: Mutant, copy: Copy) -> Result:
    started = time.monotonic()

    def result(fate: Fate, said: str) -> Result:
        return Result(mutant, fate, said, time.monotonic() - started)

    try:
        with copy.mutated(mutant):
            ended = TestRun(copy.folder, mutant.tests).wait()
    except Stale as stale:
        return result(Fate.STALE, str(stale))
    failed = _FAILED.findall(ended.output)
    if ended.code is None:
        return result(Fate.CAUGHT, "its tests do not come to an end")
    if ended.code == 0:
        if mutant.equivalent:
            return result(Fate.EQUIVALENT, mutant.equivalent)
        return result(Fate.SURVIVED, " ".join(mutant.tests))
    if ended.code == 1 and failed:
        if mutant.equivalent:
            return result(Fate.STALE, f"is not equivalent: {failed[0]} notices it")
        return result(Fate.CAUGHT, failed[0])
    why = "a test is not there" if ended.code in _NOTHING_FOUND else "cannot be tested"
    return result(Fate.STALE, f"{why}:\n{ended.output[-2000:]}")


def results_of(chosen: Sequence[Mutant], folder: Path, workers: int) -> Iterator[Result]:
    free: SimpleQueue[Copy] = SimpleQueue()
    for number in range(workers):
        free.put(Copy.made(folder / str(number)))

    def result(mutant: Mutant) -> Result:
        copy = free.get()
        try:
            return fate_of(mutant, copy)
        finally:
            free.put(copy)

    with ThreadPoolExecutor(workers) as pool:
        for done in pool.map(result, chosen):
            mark = "" if done.fate in (Fate.CAUGHT, Fate.EQUIVALENT) else "  <──"
            print(f"{done.fate:10} {done.seconds:5.0f} s  {done.mutant.name}: {done.said}{mark}", flush=True)
            yield done


def refuse_red_tests(chosen: Sequence[Mutant], folder: Path, workers: int) -> None:
    """A test that fails anyway notices nothing."""
    tests = sorted({test for mutant in chosen for test in mutant.tests})
    whole = {test for test in tests if "::" not in test}
    tests = [test for test in tests if test in whole or test.partition("::")[0] not in whole]
    started = time.monotonic()

    def ended(part: int) -> None:
        run = TestRun(Copy.made(folder / f"source {part}").folder, tuple(tests[part::workers]))
        if tests[part::workers] and (done := run.wait()).code != 0:
            raise SystemExit(f"the tests fail without any mutant:\n{done.output[-4000:]}")

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(ended, range(workers)))
    print(f"{len(tests)} tests and files pass on the source ({time.monotonic() - started:.0f} s)", flush=True)


def write_page(results: Sequence[Result]) -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{score(results)}\n{END}{after}")


def score(results: Sequence[Result]) -> str:
    number = Counter(result.fate for result in results)
    caught, equivalent = number[Fate.CAUGHT], number[Fate.EQUIVALENT]
    lines = [
        f"**{caught} of {len(results) - equivalent} mutants are caught**"
        + (f", {equivalent} are equivalent to the source" if equivalent else "")
        + ".",
        "",
        "| what is broken | in | what goes wrong | noticed by |",
        "|---|---|---|---|",
    ]
    for result in sorted(results, key=lambda result: (result.mutant.module, result.mutant.name)):
        mutant = result.mutant
        said = f"`{result.said.rpartition('::')[2]}`" if "::" in result.said else result.said
        noticed = said if result.fate is Fate.CAUGHT else f"**{result.fate}**: {said}"
        lines.append(f"| {mutant.name} | `{mutant.module}` | {mutant.why} | {noticed} |")
    return "\n".join(lines)


@contextmanager
def _spark(home: Path) -> Iterator[None]:
    """One for all runs. Imported here only: the processes of the runs import this module, and must not have
    our code from anywhere but the copy."""
    from shared_spark import WARM, shared_spark

    if WARM in os.environ:
        yield
        return
    with shared_spark(home):
        os.environ[WARM] = str(home)
        yield


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutants")
    parser.add_argument("names", nargs="*", help="only mutants whose name or module contains one of these")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--trust", action="store_true", help="do not run the tests on the source first")
    asked = parser.parse_args()
    chosen = [m for m in MUTANTS if not asked.names or any(n in f"{m.module} {m.name}" for n in asked.names)]
    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="tallymark-mutants-", ignore_cleanup_errors=True) as folder,
        _spark(Path(folder)) if any(mutant.spark for mutant in chosen) else nullcontext(),
    ):
        if not asked.trust:
            refuse_red_tests(chosen, Path(folder), asked.workers)
        results = list(results_of(chosen, Path(folder), asked.workers))
    number = Counter(result.fate for result in results)
    print(", ".join(f"{count} {fate}" for fate, count in number.items()), end="")
    print(f" of {len(results)} mutants, {(time.monotonic() - started) / 60:.0f} minutes")
    if not asked.names:
        write_page(results)
    return 1 if number[Fate.SURVIVED] or number[Fate.STALE] else 0


if __name__ == "__main__":
    sys.exit(main())

"""What a run costs when almost everything was loaded before: 1,000 to 1,000,000 known files.

.venv/bin/python bench/known_files.py [number of known files ...]

One file is loaded by a real run. All others are written as real files, into one folder per day, and recorded
in the ledger as that run would have left them. Every measurement is a process of its own.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from itertools import islice
from pathlib import Path

import sqlalchemy as sa

import tallymark as tm
from tallymark.ledger.schema import batch_members as batch_files
from tallymark.ledger.schema import contents as files
from tallymark.model.report import Event, Outcome, Step

SIZES = (1_000, 10_000, 100_000, 1_000_000)
NEW = 100
RUNS = 3  # of the short command; the median counts
FILES_PER_DAY = 1_000
ROWS_AT_A_TIME = 20_000
CONFIG = """
source: {files: 'landing/*/*.csv'}
columns: [{name: id, type: bigint}, {name: value, type: string}]
merge_strategy: append_only
"""


@dataclass(frozen=True)
class Command:
    """`tallymark run` with nothing new, from the start of its process to its end."""

    seconds: float
    cpu_seconds: float
    starts_java: bool
    imports_pyspark: bool


@dataclass(frozen=True)
class Discovery:
    """Of NEW files: opening the project, listing, asking the ledger, hashing, registering."""

    seconds: float
    cpu_seconds: float
    peak_mib: float


@dataclass(frozen=True)
class KnownFiles:
    known: int
    nothing_new: Command
    all_there: Discovery  # in a landing zone that holds all known files too
    moved_away: Discovery  # in a landing zone that holds nothing else


def main(sizes: Sequence[int]) -> None:
    for found in measure(sizes):
        java = "Java starts" if found.nothing_new.starts_java else "no Java"
        pyspark = "pyspark imported" if found.nothing_new.imports_pyspark else "no pyspark"
        print(f"{found.known:,} known files")
        command = found.nothing_new
        print(
            f"  nothing new: {command.seconds:.2f} s ({command.cpu_seconds:.2f} s of CPU), {java}, {pyspark}"
        )
        for label, one in (("all there", found.all_there), ("moved away", found.moved_away)):
            taken = f"{one.seconds:.2f} s ({one.cpu_seconds:.2f} s of CPU), {one.peak_mib:.0f} MiB"
            print(f"  {NEW} new, others {label}: {taken}", flush=True)


def measure(sizes: Sequence[int] = SIZES) -> Iterator[KnownFiles]:
    """One project that grows, so `sizes` grow too."""
    with tempfile.TemporaryDirectory(prefix="tallymark-bench-") as folder:
        root = Path(folder)
        make_project(root)
        known = 1
        for size in sizes:
            add_known(root, range(known, size))
            known = size
            yield KnownFiles(
                known=size,
                nothing_new=measure_command(root),
                all_there=measure_discovery(root),
                moved_away=measure_moved_away(root),
            )


def measure_command(root: Path) -> Command:
    words = [sys.executable, "-m", "tallymark.cli.main", "run", "--project", str(root)]
    taken = []
    for _ in range(RUNS):
        started, cpu = time.perf_counter(), _cpu_of_children()
        subprocess.run(words, check=True, capture_output=True)
        taken.append((time.perf_counter() - started, _cpu_of_children() - cpu))
    seen = _in_own_process("run", root)
    return Command(*sorted(taken)[RUNS // 2], bool(seen["java"]), bool(seen["pyspark"]))


def measure_discovery(root: Path) -> Discovery:
    with new_files(root):
        seen = _in_own_process("discover", root)
        if seen["new"] != NEW:
            raise RuntimeError(f"{seen['new']} new files were found instead of {NEW}")
        return Discovery(seen["seconds"], seen["cpu_seconds"], seen["peak_mib"])


def measure_moved_away(root: Path) -> Discovery:
    landing, away = root / "landing", root / "away"
    landing.rename(away)
    try:
        return measure_discovery(root)
    finally:
        shutil.rmtree(landing)
        away.rename(landing)


# The project


def make_project(root: Path) -> None:
    (root / "tallymark.yaml").touch()
    (root / "pipelines/many").mkdir(parents=True)
    (root / "pipelines/many/config.yaml").write_text(CONFIG)
    list(write_files(root, range(1)))
    with tm.Project(root) as project:
        report = project.run().pipelines[0]
    if report.outcome is not Outcome.LOADED:
        raise RuntimeError(f"the first load ended with {report.outcome}: {report.failures}")


def write_files(
    root: Path, numbers: range, first_day: date = date(2020, 1, 1)
) -> Iterator[dict[str, object]]:
    """Tiny files, and what the ledger keeps of each."""
    folder = ""
    for number in numbers:
        day = first_day + timedelta(days=number // FILES_PER_DAY)
        if not folder.endswith(f"/{day}"):
            folder = f"{root.absolute()}/landing/{day}"
            os.makedirs(folder, exist_ok=True)  # noqa: PTH103
        path, content = f"{folder}/orders_{number:08}.csv", b"id,value\n%d,a\n" % number
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.write(handle, content)
        modified_ns = os.fstat(handle).st_mtime_ns
        os.close(handle)
        yield {
            "path": path,
            "size": len(content),
            "modified_ns": modified_ns,
            "content_hash": sha256(content).hexdigest(),
        }


def add_known(root: Path, numbers: range) -> None:
    """As further files of the batch that the first load has committed."""
    written = write_files(root, numbers)
    with _ledger(root) as ledger:
        same = dict(
            ledger.execute(
                sa.select(files.c.pipeline, files.c.table_key, files.c.kind, files.c.batch_id)
                .where(files.c.state == "COMMITTED")
                .limit(1)
            )
            .one()
            ._mapping
        )
        same |= {"state": "COMMITTED", "attempts": 0, "error": "", "registered_at": datetime.now(UTC)}
        last = ledger.execute(sa.select(sa.func.max(files.c.id))).scalar_one()
        while some := list(islice(written, ROWS_AT_A_TIME)):
            ids = range(last + 1, last + 1 + len(some))
            ledger.execute(
                files.insert(), [same | file | {"id": i} for i, file in zip(ids, some, strict=True)]
            )
            members = [{"batch_id": same["batch_id"], "position": i, "file_id": i} for i in ids]
            ledger.execute(batch_files.insert(), members)
            last = ids[-1]


@contextmanager
def new_files(root: Path) -> Iterator[None]:
    """They are gone afterwards, from the landing zone and from the ledger."""
    numbers = range(10**8, 10**8 + NEW)
    paths = [str(file["path"]) for file in write_files(root, numbers, first_day=date(1800, 1, 1))]
    try:
        yield
    finally:
        shutil.rmtree(Path(paths[0]).parent)
        with _ledger(root) as ledger:
            ledger.execute(files.delete().where(files.c.state == "PENDING"))


@contextmanager
def _ledger(root: Path) -> Iterator[sa.Connection]:
    engine = sa.create_engine(f"sqlite:///{root}/.tallymark/ledger.db")
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


# In a process of its own


def _in_own_process(task: str, root: Path) -> dict[str, float]:
    done = subprocess.run([sys.executable, __file__, task, str(root)], check=True, capture_output=True)
    seen: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return seen


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_and_tell(root: Path) -> None:
    from tallymark.cli.main import main as command

    started: list[object] = []
    sys.addaudithook(lambda event, args: started.append(args[1]) if event == "subprocess.Popen" else None)
    command(["run", "--project", str(root)])
    print(json.dumps({"java": bool(started), "pyspark": "pyspark" in sys.modules}))


def discover_and_tell(root: Path) -> None:
    """A run that ends when it is about to take the table."""
    started, cpu = time.perf_counter(), time.process_time()

    def end_after_discovery(event: Event) -> None:
        if event.step is Step.CLAIM:
            seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
            told = {"seconds": seconds, "cpu_seconds": cpu_seconds, "peak_mib": peak_mib()}
            with _ledger(root) as ledger:
                waiting = sa.select(sa.func.count()).where(files.c.state == "PENDING")
                told["new"] = ledger.execute(waiting).scalar_one()
            print(json.dumps(told), flush=True)
            os._exit(0)

    with tm.Project(root, on_event=end_after_discovery) as project:
        print(project.run().pipelines[0])
    sys.exit("no new files were found")


def peak_mib() -> float:
    """Not from `getrusage`: that remembers the process which started this one."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["run", project]:
            run_and_tell(Path(project))
        case ["discover", project]:
            discover_and_tell(Path(project))
        case sizes:
            main([int(size.replace(",", "").replace("_", "")) for size in sizes] or SIZES)

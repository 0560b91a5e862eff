"""What loads did: `run`, `recover`, `quarantine replay`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tallymark.cli import screen as wording
from tallymark.cli.failure import failure_blocks
from tallymark.cli.screen import ALL_GOOD, LOAD_FAILED, Answer, Block, Grid, Line, Tone
from tallymark.model.report import Failure, Outcome, PipelineReport, RunReport

ALWAYS_SHOWN = ("inserted", "updated")
OUTCOME_WORDS = {
    Outcome.LOADED: "loaded",
    Outcome.NOTHING_NEW: "nothing new",
    Outcome.FAILED: "failed",
    Outcome.BUSY: "busy",
    Outcome.CANCELLED: "cancelled",
}


def run(report: RunReport) -> Answer:
    return _answer(report, report.pipelines, f" in {wording.seconds(report.seconds)}")


def recover(reports: Sequence[PipelineReport]) -> Answer:
    return _answer(list(reports), reports)


def replay(report: PipelineReport) -> Answer:
    return _answer(report, [report])


def _answer(result: object, reports: Sequence[PipelineReport], took: str = "") -> Answer:
    failure = first_failure(reports)
    failed = any(report.outcome in (Outcome.FAILED, Outcome.CANCELLED) for report in reports)
    return Answer(
        result=result,
        blocks=(*load_blocks(reports), _summary(reports, took)),
        failure=failure if failed else None,
        exit_code=LOAD_FAILED if failed else ALL_GOOD,
    )


def first_failure(reports: Iterable[PipelineReport]) -> Failure:
    for report in reports:
        if report.outcome in (Outcome.FAILED, Outcome.CANCELLED) and report.failures:
            return report.failures[0]
    return Failure("TM000", "a pipeline failed without a reason")


def load_blocks(reports: Sequence[PipelineReport]) -> Iterator[Block]:
    if not reports:
        yield Line("no pipelines: add one with `tallymark init --from FILE --pipeline NAME`", Tone.WARN)
        return
    yield _grid(reports)
    for report in reports:
        yield from _notes(report)


def _grid(reports: Sequence[PipelineReport]) -> Grid:
    """Counts that are zero in every row get no column."""
    counts = [report.counts.as_dict() for report in reports]
    shown = [n for n in wording.LABELS if n in ALWAYS_SHOWN or any(c[n] for c in counts)]
    rows = [
        (
            report.pipeline,
            OUTCOME_WORDS[report.outcome],
            wording.number(report.discovery.new),
            wording.number(count["total"]),
            *(wording.number(count[label]) for label in shown),
            wording.seconds(report.seconds),
        )
        for report, count in zip(reports, counts, strict=True)
    ]
    numbers = ("new files", "read", *shown, "time")
    return Grid(("pipeline", "outcome", *numbers), tuple(rows), frozenset(numbers))


def _notes(report: PipelineReport) -> Iterator[Block]:
    name = report.pipeline
    for failure in report.failures:
        yield from failure_blocks(failure, f"{name}: ")
    if report.outcome is Outcome.BUSY:
        yield Line(f"{name}: another worker is writing this table; run again when it is done", Tone.WARN)
    for warning in report.warnings:
        yield Line(f"{name}: warning: {warning}", Tone.WARN)
    if report.recovered:
        done = wording.plural(len(report.recovered), "commit")
        yield Line(f"{name}: recorded {done} that an earlier run made but did not record", Tone.GOOD)
    if report.undone:
        lost = wording.plural(len(report.undone), "batch")
        yield Line(
            f"{name}: the table went back (restored, recreated, or commits lost, as in a power loss) and no "
            f"longer holds {lost}; unless this run did, the next one loads the files again: "
            f"{wording.names(report.undone)}",
            Tone.WARN,
        )
    if report.still_open:
        left = wording.plural(len(report.still_open), "batch")
        yield Line(
            f"{name}: {left} not committed; the next run retries first: {wording.names(report.still_open)}",
            Tone.WARN,
        )
    for repeated in report.discovery.duplicates:
        copy, original = wording.path(repeated.path), wording.path(repeated.repeats)
        yield Line(f"{name}: {copy} has the same content as {original}: recorded, not loaded", Tone.DIM)
    for deferred in report.discovery.waiting:
        text = f"{name}: {wording.path(deferred.path)} left for the next run: {deferred.reason}"
        yield Line(text, Tone.DIM)
    if report.held_back:
        files = wording.names(report.held_back)
        yield Line(f"{name}: held back until the failed file is fixed: {files}", Tone.WARN)
    if report.counts.rejected:
        bad = wording.plural(report.counts.rejected, "bad row")
        yield Line(f"{name}: {bad} quarantined; to see them: tallymark quarantine show {name}", Tone.WARN)


def _summary(reports: Sequence[PipelineReport], took: str) -> Line:
    outcomes = {outcome: sum(report.outcome is outcome for report in reports) for outcome in Outcome}
    parts = [f"{count} {OUTCOME_WORDS[outcome]}" for outcome, count in outcomes.items() if count]
    tone = Tone.BAD if outcomes[Outcome.FAILED] else Tone.GOOD
    return Line(
        f"{wording.plural(len(reports), 'pipeline')}: {', '.join(parts) or 'nothing to do'}{took}", tone
    )

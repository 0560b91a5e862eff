"""Quality gates between plan and commit: the rules of config.yaml and the queries below tests/quality."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import sqlglot
from sqlglot import exp

from tallymark.checks.quality_gates import Quality, rule_gates
from tallymark.config.load_project import LoadedProject
from tallymark.config.query_files import QualityTest
from tallymark.config.yaml_file import Problem, config_error
from tallymark.destinations.contract import PreparedLoad
from tallymark.errors import ConfigError, GateFailed
from tallymark.flow.job import Job, quality_of
from tallymark.model.gate import AFTER, Gate, GateResult, QueryCheck
from tallymark.model.plan import Plan
from tallymark.model.report import Step
from tallymark.model.types import quoted
from tallymark.templates import Rendered, Template, render_quality_test

_SHOWN = 3  # rules in the message; all are in the facts


def refuse_wrong_tests(project: LoadedProject) -> None:
    """Raises ConfigError with everything that is wrong with quality tests and shows without data."""
    problems: list[Problem] = []
    for test in project.quality_tests:
        pipeline = project.pipelines[test.pipeline]
        if pipeline.is_view:
            message = f"{pipeline.name} is a view, which keeps no rows, so there is no load to check"
            problems.append(Problem(test.file, 0, 0, "pipeline", message, "remove the test"))
        try:
            _rendered(quality_of(project, pipeline), test, datetime.now(UTC))
        except ConfigError as error:
            problems += _problems(test, error)
    if problems:
        raise config_error(problems)


def check_gates(job: Job, plan: Plan, prepared: PreparedLoad) -> tuple[GateResult, ...]:
    """What the gates of the pipeline say about the table as it would be. Without gates this costs nothing."""
    quality = job.task.quality
    gates = [*rule_gates(quality, plan), *(_test_gate(quality, test, plan) for test in quality.tests)]
    if not gates:
        return ()
    job.tell(Step.CHECK, f"checking {len(gates)} quality rules")
    return prepared.check(gates)


def refuse_failed(table: str, results: Sequence[GateResult]) -> None:
    failed = [result for result in results if result.stops]
    if not failed:
        return
    rules = "1 quality rule" if len(failed) == 1 else f"{len(failed)} quality rules"
    more = f"; and {len(failed) - _SHOWN} more" if len(failed) > _SHOWN else ""
    raise GateFailed(
        f"{table}: the load would break {rules}; nothing was written: "
        f"{'; '.join(str(result) for result in failed[:_SHOWN])}{more}",
        hint="repair the data, or change the rule; `tallymark plan` shows what the rules say",
        facts={"quality": [result.as_dict() for result in results]},
    )


def gate_warnings(table: str, results: Iterable[GateResult]) -> tuple[str, ...]:
    return tuple(f"{table}: {result}" for result in results if not result.passed and not result.stops)


def _test_gate(quality: Quality, test: QualityTest, plan: Plan) -> Gate:
    rendered = _rendered(quality, test, plan.as_of)
    query = sqlglot.parse_one(rendered.sql, dialect="spark")
    if not isinstance(query, exp.Query):
        raise ConfigError(f"{test.file}: is not a SELECT", hint="write a SELECT of the rows that are wrong")
    return Gate(test.file, test.severity, QueryCheck(query, rendered.sql), test.description)


def _rendered(quality: Quality, test: QualityTest, as_of: datetime) -> Rendered:
    return render_quality_test(
        Template(test.file, test.text),
        this=quoted(AFTER),
        run_started_at=as_of,
        variables=quality.variables,
    )


def _problems(test: QualityTest, error: ConfigError) -> list[Problem]:
    told = error.facts.get("problems")
    if not isinstance(told, list):
        return [Problem(test.file, 0, 0, "", error.message, error.hint)]
    return [Problem(**facts) for facts in told]

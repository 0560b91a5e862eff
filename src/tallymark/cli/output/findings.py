"""What is right and wrong: `doctor`, `validate`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tallymark.cli.blocks import LOAD_FAILED, WRONG_USE, Answer, Block, Line, Tone
from tallymark.cli.output import words
from tallymark.errors import ConfigError, TallymarkError
from tallymark.model.report import Failure, Finding


def doctor(findings: Sequence[Finding]) -> Answer:
    return _answer(findings, TallymarkError.code, LOAD_FAILED)


def validate(findings: Sequence[Finding]) -> Answer:
    return _answer(findings, ConfigError.code, WRONG_USE)


def _answer(findings: Sequence[Finding], code: str, exit_code: int) -> Answer:
    wrong = [finding for finding in findings if not finding.ok]
    if not wrong:
        line = Line(f"{words.plural(len(findings), 'check')}: all good", Tone.GOOD)
        return Answer(list(findings), (*_blocks(findings), line))
    text = f"{words.plural(len(wrong), 'problem')} in {words.plural(len(findings), 'check')}"
    failure = Failure(code, f"{text}; the first: {wrong[0].subject}: {wrong[0].detail}", wrong[0].fix)
    return Answer(
        result=list(findings),
        blocks=(*_blocks(findings), Line(text, Tone.BAD)),
        failure=failure,
        exit_code=exit_code,
    )


def _blocks(findings: Sequence[Finding]) -> Iterator[Block]:
    for finding in findings:
        if finding.ok:
            yield Line(f"ok     {finding.subject}: {finding.detail}")
        else:
            yield Line(f"WRONG  {finding.subject}: {finding.detail}", Tone.BAD)
            if finding.fix:
                yield Line(f"       → {finding.fix}")

"""The rows that a table would hold after a load, as a query: for a plan, which changes nothing.

A load applies its effect first and looks at the table itself. The conformance suite holds both to the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from tallymark.destinations.warehouse.engine import quoted, quoted_list
from tallymark.destinations.warehouse.labels import Effect
from tallymark.destinations.warehouse.work import DUPLICATES, LABELS, STAGED, SURVIVORS, Matching, Work
from tallymark.model.plan import LABEL, Append, Label, Merge, ReplaceSlices, ReplaceTable

_BROUGHT = (Label.INSERT, Label.UPDATE, Label.CLOSE)
_REPLACED = (Label.UPDATE, Label.CLOSE, Label.DELETE)


def rows_after(work: Work, effect: Effect) -> str:
    return " UNION ALL ".join(_parts(work, effect))


def _parts(work: Work, effect: Effect) -> Iterator[str]:
    brought = f"SELECT {work.written_values} FROM {quoted(STAGED)}"
    match work.plan.shape:
        case Append():
            yield from _staying(work)
            yield brought
        case ReplaceTable():
            yield brought
        case ReplaceSlices(columns=columns):
            yield from _staying(work, Matching(work, STAGED, columns))
            yield brought
        case Merge(match=match, anew=anew):
            replaced = Matching(work, LABELS, match, _labelled(*_REPLACED))
            names = quoted_list([c.name for c in work.written])
            if anew:
                pass
            elif effect.duplicates is None:
                yield from _staying(work, replaced)
            else:
                yield from _staying(work, replaced, Matching(work, DUPLICATES, match))
                yield _rows(work, quoted(SURVIVORS), replaced)
            yield f"SELECT {names} FROM {quoted(LABELS)} AS o WHERE {_labelled(*_BROUGHT)}"


def _staying(work: Work, *going: Matching) -> Iterator[str]:
    if work.relation is not None:
        yield _rows(work, work.name.sql, *going)


def _rows(work: Work, table: str, *going: Matching) -> str:
    """A NULL in the table's columns makes a condition neither true nor false: such a row stays."""
    held = {column.name for column in work.held}
    values = ", ".join(
        f"t.{quoted(c.name)}" if c.name in held else work.engine.coerced("NULL", c.native)
        for c in work.written
    )
    stays = [f"({condition}) IS NOT TRUE" for matching in going for condition in matching.conditions("t")]
    return f"SELECT {values} FROM {table} AS t WHERE {' AND '.join(stays) or 'TRUE'}"


def _labelled(*labels: Label) -> str:
    listed = ", ".join(f"'{label}'" for label in labels)
    return f"o.{quoted(LABEL)} IN ({listed})"

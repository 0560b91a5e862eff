"""Which files make a batch: pure, so every corner is cheap to ask."""

from __future__ import annotations

from tallymark.flow.batching import Choice, choose
from tallymark.ledger.contents import WaitingContent
from tallymark.model.batch import Files, FileState, Pin, QueryResult, SourceFile


def waiting(
    name: str, state: FileState = FileState.PENDING, attempts: int = 0, size: int = 1
) -> WaitingContent:
    return WaitingContent(SourceFile(name, size, 0, name), state, attempts, "")


def chosen(entries: list[WaitingContent], ordered: bool = True, files: int = 10, size: int = 100, aside: set[str] | None = None) -> tuple[list[str], list[str]]:  # fmt: skip
    choice: Choice = choose(
        entries, ordered=ordered, max_files=files, max_bytes=size, max_attempts=3, set_aside=aside or set()
    )
    chosen_files = choice.contents.files if isinstance(choice.contents, Files) else ()
    return [file.path for file in chosen_files], list(choice.held_back)


FAILED = FileState.FAILED


def test_all_that_fit() -> None:
    assert chosen([waiting("a"), waiting("b")]) == (["a", "b"], [])
    assert chosen([]) == ([], [])


def test_limits_end_a_batch_but_one_file_always_fits() -> None:
    assert chosen([waiting("a"), waiting("b"), waiting("c")], files=2) == (["a", "b"], [])
    assert chosen([waiting("a", size=60), waiting("b", size=60)]) == (["a"], [])
    assert chosen([waiting("a", size=1000), waiting("b")]) == (["a"], [])


def test_a_file_that_failed_for_good_stops_the_ordered_ones_after_it() -> None:
    entries = [waiting("a"), waiting("b", FAILED, 3), waiting("c")]
    assert chosen(entries) == (["a"], ["c"])
    assert chosen(entries[1:]) == ([], ["c"])
    assert chosen(entries, ordered=False) == (["a", "c"], [])


def test_a_file_that_failed_in_this_run_is_left_for_the_next() -> None:
    assert chosen([waiting("a"), waiting("b")], aside={"a"}) == ([], ["b"])
    assert chosen([waiting("a"), waiting("b")], aside={"a"}, ordered=False) == (["b"], [])


def test_a_file_that_failed_before_is_tried_alone() -> None:
    entries = [waiting("a"), waiting("b", FAILED, 1), waiting("c")]
    assert chosen(entries) == (["a"], [])
    assert chosen(entries[1:]) == (["b"], [])


def test_the_result_of_a_query_is_a_batch_of_its_own() -> None:
    result = QueryResult.of(Pin("first"), 1)
    first, second = (
        WaitingContent(one, FileState.PENDING, 0, "") for one in (result, QueryResult.of(Pin("second"), 2))
    )
    choice = choose([first, second], ordered=True, max_files=10, max_bytes=100, max_attempts=3)
    assert choice == Choice(result)
    behind = choose([waiting("a"), first], ordered=True, max_files=10, max_bytes=100, max_attempts=3)
    assert behind == Choice(Files((SourceFile("a", 1, 0, "a"),)))

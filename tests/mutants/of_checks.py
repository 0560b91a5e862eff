"""Of what is looked at before anything is written: files, casts, limits, guards, balance."""

from __future__ import annotations

from mutants.mutant import Mutant

NEW_FILES = "tests/unit/sources/test_sources_new_files.py"
CASTS = "tests/unit/checks/test_checks_casts.py"
SPLIT = "tests/unit/checks/test_checks_split.py"
CONFORM = "tests/unit/checks/test_checks_conform.py"
QUARANTINE = "tests/unit/checks/test_checks_quarantine.py"
GUARDS = "tests/unit/flow/test_flow_guards.py"

TEXTS = f"{CASTS}::test_text_is_read_without_loss"
NATIVE = f"{CASTS}::test_native_types_are_cast_without_loss"

OF_CHECKS = (
    # Files
    Mutant(
        "files are not looked at again before the commit",
        "flow/load.py",
        "recheck(batch.files_read, job.task.root, lambda: job.spark)",
        "pass",
        ("tests/unit/flow/test_flow_failures.py::test_content_that_changes_before_the_commit",),
        "a marker names a content that is not the one that was loaded",
        after="job.quarantine.write(batch, fence, checked)",
        spark=True,
    ),
    Mutant(
        "a rewrite within the clock's resolution is not seen",
        "sources/new_files.py",
        "if content_hash != expected[path].content_hash:",
        "if False:",
        ("tests/unit/sources/test_sources_new_files.py::test_recheck_refuses_what_changed",),
        "a marker names a content that is not the one that was loaded",
    ),
    Mutant(
        "a file that changed its size is not seen",
        "sources/new_files.py",
        "if found[path] != expected[path].stat:",
        "if False:",
        (NEW_FILES,),
        "a large file that still grows is loaded in part",
    ),
    Mutant(
        "a file that changes while it is hashed is taken",
        "sources/new_files.py",
        "elif after[file.path] != file:",
        "elif False:",
        ("tests/unit/sources/test_sources_new_files.py::test_a_file_that_changes_while_it_is_hashed_waits",),
        "its hash is of a content that never was",
    ),
    Mutant(
        "only the beginning of a hash counts",
        "sources/stores.py",
        'return hashlib.file_digest(stream, "sha256").hexdigest()',
        'return hashlib.file_digest(stream, "sha256").hexdigest()[:8]',
        ("tests/unit/sources/test_sources_stores.py::test_hashes_and_stats_files_with_odd_names",),
        "two contents are taken for one",
    ),
    Mutant(
        "the hash is of the beginning of a file",
        "sources/stores.py",
        'return hashlib.file_digest(stream, "sha256").hexdigest()',
        "return hashlib.sha256(stream.read(1)).hexdigest()",
        ("tests/unit/sources/test_sources_stores.py::test_hashes_and_stats_files_with_odd_names",),
        "two contents are taken for one",
    ),
    Mutant(
        "files apply in the order of their times",
        "sources/new_files.py",
        'if order == "name":',
        'if order != "name":',
        ("tests/unit/sources/test_sources_new_files.py::test_new_files_come_hashed_and_in_order",),
        "an old file overwrites a newer one",
    ),
    # Casts and bad rows
    Mutant(
        "a cast that loses something is accepted",
        "checks/casts.py",
        'return f"CASE WHEN {value} IS NOT NULL AND {lost} THEN {literal(reason)} END"',
        'return f"CASE WHEN FALSE THEN {literal(reason)} END"',
        (NATIVE,),
        "numbers are rounded, clamped or cut",
        spark=True,
    ),
    Mutant(
        "a clamped double is accepted",
        "checks/casts.py",
        'lost = f"({lost} OR {value} >= {double(_TWO_TO_63)})"',
        "pass",
        (NATIVE,),
        "2^63 becomes 2^63-1",
        spark=True,
    ),
    Mutant(
        "a decimal is rounded",
        "checks/casts.py",
        'f"WHEN {suspect} AND {_digits_behind_point(text)} > {target.scale} "',
        'f"WHEN {suspect} AND {_digits_behind_point(text)} > {target.scale + 1} "',
        (TEXTS,),
        "1.239 becomes 1.24",
        spark=True,
    ),
    Mutant(
        "an odd date is accepted",
        "checks/casts.py",
        'more = "" if strange is None else f" WHEN {strange(text, typed)} THEN {literal(reason)}"',
        'more = ""',
        (TEXTS,),
        "a time of day gets today's date, a zone is dropped",
        spark=True,
    ),
    Mutant(
        "a NULL key is a good row",
        "checks/conform.py",
        "found.append(f\"CASE WHEN {missing} THEN 'null key' END\")",
        "pass",
        (CONFORM,),
        "rows that no key finds pile up in the table",
        spark=True,
    ),
    Mutant(
        "a required value may be missing",
        "checks/conform.py",
        "found.append(f\"CASE WHEN {missing} THEN 'required value is missing' END\")",
        "pass",
        (CONFORM,),
        "declared rules are not kept",
        spark=True,
    ),
    Mutant(
        "too many bad rows pass",
        "checks/split.py",
        "if not too_many and fraction <= limits.max_fraction:",
        "if not too_many or fraction <= limits.max_fraction:",
        (f"{SPLIT}::test_too_many_bad_rows_stop_the_batch",),
        "a broken file is loaded without its rows",
        spark=True,
    ),
    Mutant(
        "good rows are rejected with the bad ones",
        "checks/split.py",
        'kept = rows.filter(f"NOT ({IS_BAD})") if rejected else rows',
        "kept = rows",
        (f"{SPLIT}::test_rows_are_split_and_counted",),
        "bad rows go into the table",
        spark=True,
    ),
    # Guards and balance
    Mutant(
        "rows that were planned do not balance with those read",
        "flow/load.py",
        "if planned.total + checked.rejected != checked.total:",
        "if False:",
        (GUARDS,),
        "rows vanish between file and table",
    ),
    Mutant(
        "the delete guard is not asked",
        "flow/load.py",
        "refuse_deletes(plan, prepared, allowed=job.task.allow_deletes)",
        "pass",
        ("tests/unit/flow/test_flow_failures.py::test_a_forgotten_key_never_wipes_a_table",),
        "a typo replaces a table",
        spark=True,
    ),
    Mutant(
        "the guard allows one row too few",
        "flow/load.py",
        "if limit is None or rows == 0 or deleted / rows <= limit:",
        "if limit is None or rows == 0 or deleted / rows < limit:",
        ("tests/unit/flow/test_flow_guards.py::test_the_guard",),
        "a load that is just allowed is stopped",
    ),
    Mutant(
        "repaired duplicates trip the guard",
        "flow/load.py",
        "return prepared.counts.deleted - (prepared.duplicates.rows if prepared.duplicates else 0)",
        "return prepared.counts.deleted",
        ("tests/unit/flow/test_flow_guards.py::test_the_guard",),
        "a legacy table cannot be loaded",
    ),
    Mutant(
        "failed quality rules do not stop the load",
        "flow/load.py",
        "refuse_failed(plan.table, quality)",
        "pass",
        ("tests/unit/flow/test_flow_quality.py::test_a_broken_rule_fails_the_batch_and_repaired_data_loads",),
        "wrong data is in the table",
        spark=True,
    ),
    Mutant(
        "a cancelled run writes its batch",
        "flow/load.py",
        "job.stop_if_cancelled()",
        "pass",
        (
            "tests/model/test_model_schedules.py::test_a_run_that_is_cancelled_before_its_commit_writes_nothing",
        ),
        "what was stopped goes on",
    ),
)

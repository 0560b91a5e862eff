"""Variables of the environment: put in where asked, and never shown again."""

from __future__ import annotations

import json
import logging
import traceback

import pytest
from pydantic import ValidationError

from tallymark.config.pipeline_file import PipelineConfig
from tallymark.config.project_file import ProjectConfig
from tallymark.errors import DestinationError
from tallymark.flow.claim import failure_of
from tallymark.model.section import Redactor, redact, remember
from unit.config.project_folder import Folder, Problems, source_of

SOURCE = "source: {files: in/*.csv}\n"
SECRET = "hunter2-s3cret"


def test_variables_in_any_value(folder: Folder) -> None:
    folder.write(
        {
            "tallymark.yaml": (
                "ledger: postgresql://me:${PGPASSWORD}@${HOST:-localhost}/db\n"
                "spark:\n"
                "  conf: {spark.key: '${KEY}', literal: '$${KEY} $5 $', empty: '${EMPTY}${EMPTY:-none}'}\n"
                "parallel: ${PARALLEL}\n"
            ),
            "pipelines/a/config.yaml": "source:\n  files:\n    - ${BUCKET}/in/*.csv\n",
        }
    )
    project = folder.load(PGPASSWORD=SECRET, KEY="${PGPASSWORD}", EMPTY="", PARALLEL="7", BUCKET="s3a://b")
    assert project.ledger_url == f"postgresql://me:{SECRET}@localhost/db"
    assert project.config.spark.conf == {
        "spark.key": "${PGPASSWORD}",  # what a variable holds is not searched again
        "literal": "${KEY} $5 $",
        "empty": "none",
    }
    assert project.config.parallel == 7
    assert source_of(project.pipelines["a"]).files == ["s3a://b/in/*.csv"]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("${NOT_SET}", "environment variable NOT_SET is not set"),
        ("a${NOT_SET}b", "environment variable NOT_SET is not set"),
        ("'${}'", "${} is not a variable; write ${NAME} or ${NAME:-default}"),
        ("'${A-b}'", "${A-b} is not a variable; write ${NAME} or ${NAME:-default}"),
        ("'${A'", "${ without }; a literal ${ is written $${"),
        ("'${A:-${B}}'", "the default of ${A} holds a variable itself; that is not supported"),
    ],
)
def test_wrong_variables(orders: Problems, value: str, problem: str) -> None:
    assert orders(f"{SOURCE}\nwatermark_column: {value}\n") == [f"3: watermark_column: {problem}"]


def test_a_variable_that_is_not_set_is_the_only_problem_of_its_key(orders: Problems) -> None:
    assert orders(SOURCE + "batch:\n  max_files: ${N}\ndestination: ${D}\ntable: ${T}\n") == [
        "3: batch.max_files: environment variable N is not set",
        "4: destination: environment variable D is not set",
        "5: table: environment variable T is not set",
    ]


def test_a_default_destination_that_is_not_set(project_file: Problems) -> None:
    assert project_file("defaults:\n  destination: ${D}\n") == [
        "2: defaults.destination: environment variable D is not set"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "merge_strategy: ${SECRET}",
        "destination: ${SECRET}",
        "table: ${SECRET}",
        "batch: {max_files: '${SECRET}'}",
        "batch: {max_bytes: '${SECRET}'}",
        "provenance: ${SECRET}",
        "columns: '${SECRET}'",
        "columns: [{name: a, type: '${SECRET}'}]",
        "unique_key: ['${SECRET}', '${SECRET}']",
        "columns: [{name: '${SECRET}'}, {name: '${SECRET}'}]",
        "batch: '${SECRET}'",
    ],
)
@pytest.mark.parametrize("secret", [SECRET, "Päss word/ü"])
def test_no_error_shows_a_secret(folder: Folder, text: str, secret: str) -> None:
    folder.write({"pipelines/a/config.yaml": SOURCE + text})
    error = folder.error(SECRET=secret)
    told = "\n".join(
        [
            str(error),
            repr(error),
            json.dumps(error.as_dict()),
            json.dumps(error.as_dict(), ensure_ascii=False),
            *traceback.format_exception(error),
        ]
    )
    assert "pipelines/a/config.yaml:2" in told
    assert secret not in told
    assert json.dumps(secret)[1:-1] not in told


def test_two_pipelines_on_one_table_do_not_show_it(folder: Folder) -> None:
    folder.write({f"pipelines/{name}/config.yaml": SOURCE + "table: ${T}" for name in "ab"})
    assert "secret_table" not in str(folder.error(T="secret_table"))


def test_an_error_shows_what_was_written(orders: Problems) -> None:
    (line,) = orders(SOURCE + "batch: {max_files: '${N}'}", N="many-many")
    assert line == '2: batch.max_files: expected a whole number, found the text "${N}"'


def test_no_repr_shows_a_secret(folder: Folder) -> None:
    folder.write(
        {
            "tallymark.yaml": (
                "ledger: postgresql://me:${S}@h/db\n"
                "spark: {conf: {k: '${S}'}}\n"
                "destinations: {lake: {path: 's3a://${S}/w'}, pg: {type: postgres, url: 'postgresql://u:${S}@h/d'}}\n"
            ),
            "pipelines/a/config.yaml": SOURCE + "description: ${S}\nunique_key: ['${S}']\n",
        }
    )
    project = folder.load(S=SECRET)
    pipeline = project.pipelines["a"]
    shown = [project, project.config, project.config.spark, project.pipelines, pipeline, pipeline.config]
    for thing in shown:
        assert SECRET not in repr(thing)
        assert SECRET not in str(thing)
        assert SECRET not in f"{thing!s}"
    assert SECRET not in repr(list(pipeline.config.__repr_args__()))
    assert "spark=SparkConfig(master='local[*]', conf={'k': '***'}, packages=[])" in repr(project.config)
    assert SECRET not in redact(project.config.model_dump_json())


def test_pydantic_errors_do_not_echo_values() -> None:
    with pytest.raises(ValidationError) as caught:
        ProjectConfig.model_validate({"parallel": SECRET})
    assert SECRET not in str(caught.value)
    with pytest.raises(ValidationError) as caught:
        PipelineConfig.model_validate({"source": {"files": {SECRET: SECRET}}})
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:pa:ss@wo@host:5432/db failed", "postgresql://me:***@host:5432/db failed"),
        ("two: a://u:p@h/x b://v:q@i", "two: a://u:***@h/x b://v:***@i"),
        ("redis://:pw@h", "redis://:***@h"),
        ("host=h password=pw user=u", "host=h password=*** user=u"),
        ("http://h/?sslPassword=pw&x=1", "http://h/?sslPassword=***&x=1"),
        ("postgresql://me:${PW}@host/db", "postgresql://me:${PW}@host/db"),
        ("http://host:8080/a, mail me@host", "http://host:8080/a, mail me@host"),
        ("pg://me:p@/w:x@host/db failed", "pg://me:***@host/db failed"),
        ("password = geheim", "password = ***"),
        ("PASSWORD='two words' x", "PASSWORD='***' x"),
        ('{"password": "a\\"b", "x": 1}', '{"password": "***", "x": 1}'),
        ("https://a.blob/x?sv=1&sig=ab%2Fc%3D&se=2", "https://a.blob/x?sv=1&sig=***&se=2"),
        ("sc://h:443/;use_ssl=true;token=abc;x=1", "sc://h:443/;use_ssl=true;token=***;x=1"),
        ("AccountKey=ab+/c==;Suffix=x", "AccountKey=***;Suffix=x"),
        ("fs.azure.account.key.a.dfs = ab==", "fs.azure.account.key.a.dfs = ***"),
        ("unique_key=id design=x the password is wrong", "unique_key=id design=x the password is wrong"),
        ("password=${PW} token='${T}'", "password=${PW} token='${T}'"),
    ],
)
def test_passwords_in_urls(text: str, shown: str) -> None:
    assert redact(text) == shown


def test_every_spelling_of_a_value_is_hidden() -> None:
    redactor = Redactor()
    secret = "a'b\"c\\d/e f@ü%41"
    redactor.remember(secret)
    for spelling in (
        secret,
        repr(secret),
        json.dumps(secret),
        json.dumps(secret, ensure_ascii=False),
        "a%27b%22c%5Cd%2Fe%20f%40%C3%BC%2541",
        "a'b\"c\\d/e f@üA",  # as a driver would decode it
    ):
        assert redactor.redact(f"[{spelling.strip(chr(34))}]") in {"[***]", "['***']"}


def test_a_secret_of_many_lines_is_hidden_line_by_line() -> None:
    redactor = Redactor()
    redactor.remember("-----BEGIN KEY-----\nMIIEvQIBADANBg\nabc\n-----END KEY-----\n")
    assert redactor.redact("bad line: MIIEvQIBADANBg") == "bad line: ***"


def test_a_secret_within_a_longer_one() -> None:
    redactor = Redactor()
    redactor.remember("abcd")
    redactor.remember("abcdefgh")
    assert redactor.redact("abcdefgh abcd abc") == "*** *** abc"


def test_short_values_and_defaults_are_not_secrets(folder: Folder) -> None:
    folder.write({"tallymark.yaml": "name: ${N:-warehouse}\nparallel: ${P}\n"})
    folder.load(P="3")
    assert redact("3 pipelines into warehouse") == "3 pipelines into warehouse"


def test_loading_logs_no_secret(
    folder: Folder, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    folder.write({"tallymark.yaml": "name: ${S}\nspark: {mster: '${S}'}\n"})
    folder.error(S=SECRET)
    written = capfd.readouterr()
    assert SECRET not in caplog.text + written.out + written.err


@pytest.mark.parametrize("value", ["", "1", "eu", "true", "FALSE", "null", "8080", "12345", "----", "  "])
def test_trivial_values_hide_nothing(value: str) -> None:
    redactor = Redactor()
    redactor.remember(value)
    text = '{"ok": true, "rows": 12345, "port": 8080, "gone": null} FALSE eu ----  1'
    assert redactor.redact(text) == text


def test_a_short_value_is_hidden_where_it_stands_alone() -> None:
    redactor = Redactor()
    redactor.remember("prod")
    assert redactor.redact("products of prod, me:prod@host, prod_x") == "products of ***, me:***@host, prod_x"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("postgresql://me:p%40s%2Fs-long@host/db", "auth of p@s/s-long failed"),
        ("DefaultEndpoints=https;AccountKey=abc/def+ghi==;x=1", "key abc%2Fdef%2Bghi%3D%3D is wrong"),
        ("DefaultEndpoints=https;AccountKey=abc/def+ghi==;x=1", "key abc%2fdef%2bghi%3d%3d is wrong"),
    ],
)
def test_secrets_inside_a_value_are_hidden_on_their_own(value: str, shown: str) -> None:
    redactor = Redactor()
    redactor.remember(value)
    assert "***" in redactor.redact(shown)


def test_numbers_among_the_facts_of_an_error_stay_numbers() -> None:
    """A secret of digits must not break the JSON of the ledger."""
    remember("7300915")
    error = DestinationError(
        "refused 7300915", facts={"rows": 7300915, "names": ["7300915", None], "ok": True}
    )
    failure = failure_of(error)
    assert (failure.message, failure.facts) == (
        "refused ***",
        {"rows": 7300915, "names": ["***", None], "ok": True},
    )

"""config.load: file, environment, arguments; and errors that name the place and never the value."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from headrace.config.connection import PgConnectionConfig
from headrace.config.load import load_pipeline_config
from headrace.config.pipeline import PipelineConfig
from headrace.errors import ConfigError

SECRET = "do-not-show-me"
MINIMAL = """
    id: 1
    publication_name: p
    pg_connection: {host: db, name: shop, username: u}
"""
ARGUMENTS: dict[str, Any] = {
    "id": 1,
    "publication_name": "p",
    "pg_connection": {"host": "db", "name": "shop", "username": "u"},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "headrace.yaml"


def load(file: Path, text: str, environ: dict[str, str] | None = None, **overrides: Any) -> PipelineConfig:
    file.write_text(textwrap.dedent(text), encoding="utf-8")
    return load_pipeline_config(file, environ or {}, **overrides)


def problems(file: Path, text: str, environ: dict[str, str] | None = None, **overrides: Any) -> list[str]:
    """The problems of a configuration, with the file's name cut short."""
    with pytest.raises(ConfigError) as caught:
        load(file, text, environ, **overrides)
    assert SECRET not in str(caught.value)
    head, *lines = caught.value.message.splitlines()
    assert head.startswith("the configuration has ")
    return [line.removeprefix("- ").replace(str(file), "FILE") for line in lines]


def from_environment(**variables: str) -> PipelineConfig:
    return load_pipeline_config(None, {f"HEADRACE__{name}": value for name, value in variables.items()}, **ARGUMENTS)


def test_arguments_alone() -> None:
    assert load_pipeline_config(None, {}, **ARGUMENTS).slot_name == "headrace_1"


def test_arguments_win_over_the_environment_and_that_over_the_file(file: Path) -> None:
    text = MINIMAL + "    batch: {max_fill_ms: 1, max_bytes: 100000}\n    log: {level: error}\n"
    variables = {"HEADRACE__BATCH__MAX_FILL_MS": "2", "HEADRACE__LOG__LEVEL": "debug"}
    it = load(file, text, variables, log={"level": "warning"})
    assert (it.batch.max_fill_ms, it.batch.max_bytes, it.log.level) == (2, 100_000, "warning")


def test_the_process_environment_is_read_unless_another_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE__METRICS__PORT", "1234")
    assert load_pipeline_config(**ARGUMENTS).metrics.port == 1234
    assert load_pipeline_config(environ={}, **ARGUMENTS).metrics.port == 9000


def test_a_model_as_argument() -> None:
    connection = PgConnectionConfig(host="other", name="n", username="u")
    assert load_pipeline_config(None, {}, **{**ARGUMENTS, "pg_connection": connection}).pg_connection == connection


def test_variables_are_read_in_either_case_and_by_the_type_of_the_setting() -> None:
    it = from_environment(
        pg_connection__PASSWORD=SECRET,
        METRICS__enabled="true",
        MEMORY_BACKPRESSURE="null",
        INITIAL_COPY__KEY_RANGES_OVER_BYTES="null",
        DATA_DIR="null",
        TABLE_SYNC_COPY__TYPE="skip_tables",
        TABLE_SYNC_COPY__TABLES="public.a, public.b",
        SPARK__PACKAGES='["g:a:1"]',
        SPARK__CONF='{"spark.x.camelCase": "1"}',
        PG_CONNECTION__PARAMETERS__SSLCERT="/c.crt",
        DESTINATION__KIND="iceberg",
        DESTINATION__WAREHOUSE="12",
        BATCH='{"max_fill_ms": 5, "max_bytes": 70000}',
        BATCH__MAX_BYTES="80000",
    )
    assert it.pg_connection.password == SecretStr(SECRET)
    assert it.pg_connection.parameters == {"sslcert": "/c.crt"}
    assert it.metrics.enabled
    assert it.memory_backpressure is None
    assert it.initial_copy.key_ranges_over_bytes is None
    assert it.data_dir == Path("null")
    assert it.table_sync_copy.tables == ("public.a", "public.b")
    assert it.spark.packages == ("g:a:1",)
    assert it.spark.conf == {"spark.x.camelCase": "1"}
    assert it.destination is not None
    assert it.destination.options == {"warehouse": "12"}
    assert (it.batch.max_fill_ms, it.batch.max_bytes) == (5, 80_000)


def test_other_variables_are_left_alone() -> None:
    load_pipeline_config(None, {"HEADRACE_HOME": "x", "PATH": "y", "HEADRACE": "z"}, **ARGUMENTS)


@pytest.mark.parametrize(("in_file", "variable"), [("password_file", "PASSWORD"), ("password", "PASSWORD_FILE")])
def test_a_secret_above_replaces_its_file_below_and_the_other_way_round(
    file: Path, in_file: str, variable: str
) -> None:
    text = MINIMAL.replace("username: u", f"username: u, {in_file}: below")
    it = load(file, text, {f"HEADRACE__PG_CONNECTION__{variable}": "above"}).pg_connection
    assert [
        str(value.get_secret_value() if isinstance(value, SecretStr) else value)
        for value in (it.password, it.password_file)
        if value is not None
    ] == ["above"]


def test_a_secret_and_its_file_in_one_place_are_one_too_many(file: Path) -> None:
    variables = {"HEADRACE__PG_CONNECTION__PASSWORD": SECRET, "HEADRACE__PG_CONNECTION__PASSWORD_FILE": "/f"}
    assert problems(file, MINIMAL, variables) == ["pg_connection (FILE:4): give password or password_file, not both"]


def test_every_problem_is_told_with_its_line_and_no_value(file: Path) -> None:
    text = f"""
        id: {SECRET}
        pg_connection:
          host: db
          prt: 1
          password: 12345
        batch: {SECRET}
        max_fill_ms: 1
        zzz: {SECRET}
        table_sync_copy: {{type: skip_tables, tables: [a.b, 7]}}
        memory_backpressure:
          activate_threshold: 0.5
        store:
          kind: {SECRET}
    """
    told = problems(file, text)
    assert told[:-1] == [
        "id (FILE:2): input should be a valid integer, unable to parse string as an integer",
        "publication_name: is missing",
        "pg_connection.name (FILE:3): is missing",
        "pg_connection.username (FILE:3): is missing",
        "pg_connection.password (FILE:6): must be text: put it in quotes",
        "pg_connection.prt (FILE:5): unknown setting; did you mean pg_connection.port?",
        "store.kind (FILE:14): input should be 'sqlite', 'postgres' or 'memory'",
        "batch (FILE:7): must be a section with settings of its own",
        "table_sync_copy.tables.1 (FILE:10): must be text: put it in quotes",
        "memory_backpressure (FILE:11): resume_threshold must be below activate_threshold",
        "max_fill_ms (FILE:8): unknown setting; did you mean batch.max_fill_ms?",
    ]
    assert told[-1].startswith("zzz (FILE:9): unknown setting; known here: batch, data_dir, ")


def test_the_nearest_setting_is_named_at_any_depth(file: Path) -> None:
    text = (
        MINIMAL
        + """
    transforms:
      tables:
        public.x:
          colums: {exclude: [a]}
          columns:
            exlude: [b]
            mask:
              email: {kind: "null", vlaue: x}
        public.y:
          mask: {a: {kind: "null"}}
          zzz: 1
    schema_changes:
      tables:
        public.x: {polcy: error}
    """
    )
    x, y = "transforms.tables.public.x", "transforms.tables.public.y"
    assert sorted(problems(file, text)) == [
        "schema_changes.tables.public.x.polcy (FILE:19): unknown setting; "
        "did you mean schema_changes.tables.public.x.policy?",
        f"{x}.columns.exlude (FILE:11): unknown setting; did you mean {x}.columns.exclude?",
        f"{x}.columns.mask.email.vlaue (FILE:13): unknown setting; did you mean {x}.columns.mask.email.value?",
        f"{x}.colums (FILE:9): unknown setting; did you mean {x}.columns?",
        f"{y}.mask (FILE:15): unknown setting; did you mean {y}.columns.mask?",
        f"{y}.zzz (FILE:16): unknown setting; known here: columns, filter, transform",
    ]


def test_the_binary_format_is_an_unknown_setting(file: Path) -> None:
    (problem,) = problems(file, MINIMAL + "    receiver: {binary: true}\n")
    assert re.match(r"receiver\.binary \(FILE:\d+\): unknown setting; known here: ", problem)


def test_a_problem_of_the_whole_names_the_settings(file: Path) -> None:
    text = MINIMAL + "    store_pg_connection: {host: h, name: n, username: u}\n"
    assert problems(file, text) == ["store_pg_connection must be left out, or store.kind be postgres"]


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("BATCH__MAX_FILL", "1", "batch.max_fill ({}): unknown setting; did you mean batch.max_fill_ms?"),
        ("BATHC__MAX_FILL_MS", "1", "bathc.max_fill_ms ({}): unknown setting; did you mean batch?"),
        ("DATA_DIR__X", "1", "data_dir.x ({}): unknown setting; data_dir has no settings inside"),
        ("LOG", SECRET, "log ({}): must be a JSON object"),
        ("SPARK__PACKAGES", f"[{SECRET}", "spark.packages ({}): must be a JSON list"),
        ("METRICS__ENABLED", SECRET, "metrics.enabled ({}): must be true or false"),
        (
            "SPOOL__SEGMENT_BYTES",
            "3000000000",
            "spool.segment_bytes ({}): input should be less than or equal to 1073741824",
        ),
        ("BATCH", '{"max_bytes": 1}', "batch.max_bytes ({}): input should be greater than or equal to 65536"),
    ],
)
def test_a_wrong_variable_is_named(file: Path, variable: str, value: str, told: str) -> None:
    name = f"HEADRACE__{variable}"
    text = MINIMAL + "    batch: {max_bytes: 100000}\n"
    assert problems(file, text, {name: value}) == [told.format(name)]


def test_a_name_without_a_setting_is_unknown(file: Path) -> None:
    (found,) = problems(file, MINIMAL, {"HEADRACE__": "1"})
    assert found.startswith("HEADRACE__: unknown setting; known here: ")


def test_variables_that_differ_in_case_only_are_refused(file: Path) -> None:
    found = problems(file, MINIMAL, {"HEADRACE__ID": "1", "HEADRACE__id": "2"})
    assert found == [
        "id (HEADRACE__ID): is given by several variables that differ in case only",
        "id (HEADRACE__id): is given by several variables that differ in case only",
    ]


def test_a_wrong_argument_is_told_as_such(file: Path) -> None:
    text = MINIMAL + "    metrics: {port: 1}\n"
    (found,) = problems(file, text, metrics={"port": 70_000})
    assert found == "metrics.port (argument): input should be less than or equal to 65535"


def test_a_setting_given_twice_is_an_error(file: Path) -> None:
    text = (
        MINIMAL
        + f"    batch:\n      max_bytes: 70000\n      max_bytes: 80000\n    data_dir: {SECRET}\n    data_dir: x\n"
    )
    assert problems(file, text) == [
        "batch.max_bytes (FILE:7): is given twice; first at FILE:6",
        "data_dir (FILE:9): is given twice; first at FILE:8",
    ]


def test_merged_and_shared_sections_are_no_duplicates(file: Path) -> None:
    text = """
        id: 1
        publication_name: p
        pg_connection: &source {host: db, name: shop, username: u}
        store: {kind: postgres}
        store_pg_connection:
          <<: *source
          name: other
    """
    it = load(file, text)
    assert it.store_pg_connection is not None
    assert (it.store_pg_connection.host, it.store_pg_connection.name) == ("db", "other")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("id: 1\nbatch: {max_bytes: 1\nlog: x", "FILE:3:4: expected ',' or '}', but got ':'"),
        ("id: 1\n  log: x", "FILE:2:6: mapping values are not allowed here"),
        ("a:\n\tb: 1", "FILE:2:1: found character '\\t' that cannot start any token"),
        (
            f"a: 1\npassword: *{SECRET}",
            "FILE:2:11: found undefined alias (not shown) (put a value in quotes if it begins with * or !)",
        ),
        (
            f"a: 1\npassword: !{SECRET} x",
            "FILE:2:11: could not determine a constructor for the tag (not shown) "
            "(put a value in quotes if it begins with * or !)",
        ),
        (f"a: {SECRET}\x00", "FILE: has a character that YAML does not allow"),
        (f"- {SECRET}", "FILE: must hold settings, each as `name: value`"),
        (SECRET, "FILE: must hold settings, each as `name: value`"),
        ("a: 0x_", "FILE: has a number that cannot be read: put text in quotes"),
    ],
)
def test_what_is_not_a_configuration_file(file: Path, text: str, told: str) -> None:
    assert problems(file, text) == [told]


def test_a_name_that_is_not_text(file: Path) -> None:
    assert problems(file, MINIMAL + "    on: 1\n") == ["FILE:5: a name must be text: put it in quotes"]


def test_a_date_stays_text(file: Path) -> None:
    text = MINIMAL.replace("username: u", "username: u, password: 2026-02-31")
    assert load(file, text).pg_connection.password == SecretStr("2026-02-31")


def test_an_empty_file_misses_what_is_required(file: Path) -> None:
    required = ["id: is missing", "publication_name: is missing", "pg_connection: is missing"]
    assert problems(file, "# nothing\n") == required


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.yaml: cannot be read: No such file") as caught:
        load_pipeline_config(tmp_path / "missing.yaml", {}, **ARGUMENTS)
    # No setting of it is wrong.
    assert caught.value.hint.startswith("check the path")
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe9")
    with pytest.raises(ConfigError, match=r"latin\.yaml: is not UTF-8 text"):
        load_pipeline_config(tmp_path / "latin.yaml", {})


def test_a_file_that_refers_to_itself_ends(file: Path) -> None:
    aliases = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    found = problems(file, f"a0: &a0 [x]\n{aliases}")
    assert len([line for line in found if "unknown setting" in line]) == 12

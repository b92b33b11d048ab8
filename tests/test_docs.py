"""The documents say what the code does: generated pages are current, tables match the code, links lead somewhere."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest

from headrace.config.known import section_of
from headrace.config.load import load_pipeline_config
from headrace.config.pipeline import PipelineConfig
from headrace.pgoutput.changes import CHANGE_FIELDS
from headrace.pgtypes.contract import Conversion
from headrace.pgtypes.registry import builtin_type, conversion_for
from headrace.postgres.preflight import ALL_CHECKS
from headrace.postgres.preflight.schema_changes import NOT_KNOWN
from headrace.schema import PgType
from headrace.telemetry.metric_table import ALL_METRICS, CONSTANT_LABELS, LABELS

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
TYPES = (ROOT / "docs" / "concepts" / "types.md").read_text(encoding="utf-8")

INT4 = PgType(23, "int4")
MADE_TYPES: dict[str, Conversion] = {
    "`numeric(p, s)` with `p` up to 38 and `s` from 0 to `p`": conversion_for(
        PgType(1700, "numeric"), (10 << 16 | 2) + 4
    ),
    "any other `numeric`": conversion_for(PgType(1700, "numeric"), (39 << 16 | 2) + 4),
    "`T[]`": conversion_for(PgType(20_001, "_widget", element=INT4)),
    "a domain": conversion_for(PgType(20_002, "positive", kind="d", base=INT4)),
    "an enum": conversion_for(PgType(20_003, "mood", kind="e")),
    "`hstore`": conversion_for(PgType(20_004, "hstore", schema="public")),
    "`citext`, `ltree`, `lquery`, `ltxtquery`": conversion_for(PgType(20_005, "ltxtquery", schema="public")),
    "composite types, ranges you created, types of other extensions": conversion_for(PgType(20_006, "pair", kind="c")),
}
MADE_ARROW = {
    "`decimal128(p, s)`": pa.decimal128(10, 2),
    "`list` of what T has": pa.list_(pa.int32()),
    "what its base type has": pa.int32(),
    "`map<string, string>`": pa.map_(pa.string(), pa.string()),
    "`string`": pa.string(),
}


def page_id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def table(page: str, heading: str) -> Iterator[list[str]]:
    """The rows of the first table under a heading."""
    lines = iter(page.split(f"\n## {heading}\n")[1].splitlines())
    for line in lines:
        if line.startswith("|---"):
            break
    for line in lines:
        if not line.startswith("|"):
            return
        yield [cell.strip() for cell in line.strip("|").split("|")]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@pytest.mark.parametrize(
    "name",
    ["error_reference", "configuration_reference", "metrics_reference", "cli_reference", "support_matrix"],
)
def test_a_generated_page_is_current(name: str) -> None:
    made = tool(name)
    assert made.PAGE.read_text(encoding="utf-8") == made.page(), f"run: .venv/bin/python tools/{name}.py"


def test_every_command_teaches() -> None:
    commands = tool("cli_reference").commands()
    assert len(commands) > 8
    assert [name for name, command in commands.items() if "Exit codes: 0 " not in command.help] == []
    undescribed = [(name, it.name) for name, command in commands.items() for it in command.params if not it.help]
    assert undescribed == []


def test_the_tree_of_errors_names_every_error() -> None:
    made = tool("error_reference")
    classes = [cls.__name__ for cls in made.error_classes()]
    assert list(made.told_in_tree()) == classes
    assert [name for name in classes if f"| `{name}` |" not in made.page()] == []


def test_every_setting_says_what_it_means() -> None:
    models = tool("configuration_reference").MODELS
    fields = [(model.__name__, name, field) for model in models for name, field in model.model_fields.items()]
    assert len(fields) > 20
    assert [(model, name) for model, name, field in fields if not field.description] == []


def test_every_section_of_a_pipeline_is_listed() -> None:
    models = tool("configuration_reference").MODELS
    reachable = [PipelineConfig]
    for model in reachable:
        sections = [section_of(field.annotation) for field in model.model_fields.values()]
        reachable += [section for section in sections if section is not None and section not in reachable]
    assert len(reachable) > 10
    assert [model.__name__ for model in reachable if model not in models] == []


def test_the_configuration_in_the_page_loads(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")
    file = tmp_path / "headrace.yaml"
    file.write_text(page.split("```yaml\n")[1].split("```")[0], encoding="utf-8")
    assert load_pipeline_config(file, environ={}).batch.max_fill_ms == 500


def test_every_label_of_a_metric_is_explained() -> None:
    used = {*CONSTANT_LABELS, *(label for metric in ALL_METRICS for label in metric.labels)}
    assert used == LABELS.keys()


def test_every_built_in_type_is_listed_with_what_it_becomes() -> None:
    told = {name: quoted(arrow) for names, arrow, _ in table(TYPES, "Built-in types") for name in quoted(names)}
    known = {t.name: conversion_for(t) for t in map(builtin_type, range(16_384)) if t is not None and t.element is None}
    assert told == {name: [str(conversion.arrow_type)] for name, conversion in known.items()}


def test_types_made_of_others_are_what_the_page_says() -> None:
    told = dict(table(TYPES, "Types made of others"))
    assert told.keys() == MADE_TYPES.keys()
    assert {names: MADE_ARROW[arrow] for names, arrow in told.items()} == {
        names: conversion.arrow_type for names, conversion in MADE_TYPES.items()
    }


def test_the_columns_of_a_change_are_listed() -> None:
    told = [(*quoted(name), *quoted(arrow)) for name, arrow, _ in table(TYPES, "The columns of a change")]
    assert told == [*((field.name, str(field.type)) for field in CHANGE_FIELDS), ("row",), ("old",)]


def test_every_preflight_check_is_explained() -> None:
    page = (ROOT / "docs" / "guides" / "configure-postgres.md").read_text(encoding="utf-8")
    assert [quoted(row[0]) for row in table(page, "The checks")] == [[check.name] for check in ALL_CHECKS]


@pytest.mark.parametrize("page", ["guides/configure-postgres.md", "concepts/schema-changes.md"])
def test_what_is_not_known_without_the_event_trigger_is_listed(page: str) -> None:
    text = " ".join((ROOT / "docs" / page).read_text(encoding="utf-8").replace("`", "").split())
    assert " - ".join(f"{item}," for item in NOT_KNOWN).removesuffix(",") in text


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (page.parent / target).exists()] == []


def test_the_index_names_every_page() -> None:
    def is_named(page: Path, index: Path) -> bool:
        return f"({page.relative_to(index.parent)})" in index.read_text(encoding="utf-8")

    top = ROOT / "docs" / "README.md"
    pages = [page for page in ROOT.glob("docs/**/*.md") if page != top]
    assert len(pages) > 5
    # A folder may have an index of its own, which the top one names.
    own = {page: page.with_name("README.md") for page in pages if page.with_name("README.md").exists()}
    assert [page for page in pages if not is_named(page, top) and not (page in own and is_named(page, own[page]))] == []


def test_the_guide_to_contributing_names_every_make_target() -> None:
    targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert len(targets) > 10
    assert [target for target in targets if target != "help" and f"`make {target}`" not in page] == []


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"(?:`|^[ $]*)make ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE))
    assert named - targets == set()

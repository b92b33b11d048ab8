"""The public API, pinned; and importing it stays light."""

from __future__ import annotations

import subprocess
import sys

import headrace

HEAVY = ("numpy", "psycopg", "pyarrow", "pydantic", "fsspec", "structlog", "typer", "rich", "yaml", "pyspark")


def test_public_names() -> None:
    assert sorted(headrace.__all__) == [
        "HeadraceError", "Lsn", "Pipeline", "PipelineConfig", "ReplicatedTableSchema", "TableName", "TableSchema",
        "load_pipeline_config",
    ]  # fmt: skip
    assert all(hasattr(headrace, name) for name in headrace.__all__)


def test_importing_the_words_loads_no_library() -> None:
    script = (
        "import sys, headrace, headrace.events, headrace.table_state\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from receiving import Source


@pytest.fixture
def source(conninfo: str, connection: psycopg.Connection[Any], tmp_path: Path) -> Source:
    return Source(conninfo, connection, tmp_path)

"""Where the demo may write to: each with its settings, another's reader for the proof, and a query to try."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .proof import Lakehouse

__all__ = ["LAKEHOUSES", "DemoLakehouse"]

_SUMMARY = "SELECT status, count(*), sum(total) FROM {} GROUP BY ALL"


@dataclass(frozen=True, slots=True)
class DemoLakehouse:
    """One of them. All functions are given the demo's directory."""

    settings: Callable[[Path], dict[str, Any]]
    """The section `destination`, without its kind."""
    reader: Callable[[Path], Lakehouse]
    read_by: str
    where: Callable[[Path], str]
    query: Callable[[Path], str]
    """A command for a shell."""


def _warehouse(directory: Path) -> Path:
    return directory / "warehouse"


def _python(code: str) -> str:
    return shlex.join([sys.executable, "-c", code])


def _text(value: object) -> str:
    """A string in Python, in the quotes that a shell leaves alone."""
    return json.dumps(str(value))


def _literal(value: object) -> str:
    """A string in SQL."""
    return "'" + str(value).replace("'", "''") + "'"


def _iceberg(directory: Path) -> Lakehouse:
    """The tables of a warehouse with its catalog beside them in `catalog.db`."""
    from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - an extra of the package

    catalog = load_catalog("headrace", type="sql", uri=f"sqlite:///{_warehouse(directory) / 'catalog.db'}")
    return lambda table: catalog.load_table(table).scan().to_arrow()


def _iceberg_query(directory: Path) -> str:
    uri = f"sqlite:///{_warehouse(directory) / 'catalog.db'}"
    return _python(
        "from pyiceberg.catalog import load_catalog; "
        f'catalog = load_catalog("headrace", type="sql", uri={_text(uri)}); '
        'orders = catalog.load_table("shop.orders").scan().to_duckdb("orders"); '
        f'orders.sql("{_SUMMARY.format("orders")}").show()'
    )


def _duckdb(
    extensions: tuple[str, ...], attached: Callable[[Path], str], relation: Callable[[Path, str], str]
) -> Callable[[Path], Lakehouse]:
    """A reader by a DuckDB of its own, which knows nothing of the one that wrote."""

    def reader(directory: Path) -> Lakehouse:
        import duckdb  # noqa: PLC0415 - an extra of the package

        engine = duckdb.connect()
        engine.execute("SET TimeZone = 'UTC'")
        for name in extensions:
            # From an installed package: DuckDB would fetch it.
            from ..destinations.duckdb.extensions import load_extension  # noqa: PLC0415

            load_extension(engine, name)
        if attach := attached(directory):
            engine.execute(attach)
        return lambda table: engine.execute(f"SELECT * FROM {relation(directory, table)}").to_arrow_table()

    return reader


def _in_lake(_: Path, table: str) -> str:
    return "lake." + ".".join(f'"{part}"' for part in table.split("."))


def _file(directory: Path) -> Path:
    return directory / "shop.duckdb"


def _lake_catalog(directory: Path) -> Path:
    return _warehouse(directory) / "lake.sqlite"


def _delta_table(directory: Path, table: str) -> str:
    return f"delta_scan({_literal(_warehouse(directory) / table.replace('.', '/'))})"


def _attach_lake(directory: Path) -> str:
    return f"ATTACH {_literal(f'ducklake:sqlite:{_lake_catalog(directory)}')} AS lake"


def _load(*extensions: str) -> str:
    loads = "; ".join(f'load_extension(c, "{name}")' for name in extensions)
    package = "headrace.destinations.duckdb.extensions"
    return f"import duckdb; from {package} import load_extension; c = duckdb.connect(); {loads}; "


LAKEHOUSES: dict[str, DemoLakehouse] = {
    "iceberg": DemoLakehouse(
        settings=lambda directory: {"warehouse": str(_warehouse(directory))},
        reader=_iceberg,
        read_by="pyiceberg",
        where=lambda directory: f"The tables are in {_warehouse(directory)}, their catalog is catalog.db there.",
        query=_iceberg_query,
    ),
    "delta": DemoLakehouse(
        settings=lambda directory: {"warehouse": str(_warehouse(directory))},
        reader=_duckdb(("delta",), lambda _: "", _delta_table),
        read_by="DuckDB's reader of Delta tables",
        where=lambda directory: f"The tables are in {_warehouse(directory)}, each in a directory.",
        query=lambda directory: _python(
            _load("delta") + f"c.sql({_text(_SUMMARY.format(_delta_table(directory, 'shop.orders')))}).show()"
        ),
    ),
    "duckdb": DemoLakehouse(
        settings=lambda directory: {"database": str(_file(directory))},
        reader=_duckdb((), lambda directory: f"ATTACH {_literal(_file(directory))} AS lake (READ_ONLY)", _in_lake),
        read_by="a DuckDB of its own",
        where=lambda directory: f"The tables are in the DuckDB database {_file(directory)}.",
        query=lambda directory: _python(
            # The file's database is called shop, as the schema in it is.
            f"import duckdb; c = duckdb.connect({_text(_file(directory))}); "
            f'c.sql("{_SUMMARY.format("shop.shop.orders")}").show()'
        ),
    ),
    "ducklake": DemoLakehouse(
        settings=lambda directory: {
            "catalog": {"type": "sqlite", "uri": str(_lake_catalog(directory))},
            "data_path": str(_warehouse(directory) / "data"),
        },
        reader=_duckdb(
            ("sqlite_scanner", "ducklake"),
            lambda directory: f"{_attach_lake(directory)} (READ_ONLY)",
            _in_lake,
        ),
        read_by="a DuckDB of its own",
        where=lambda directory: f"The tables are in {_warehouse(directory)}, their catalog is lake.sqlite there.",
        query=lambda directory: _python(
            _load("sqlite_scanner", "ducklake")
            + f"c.execute({_text(_attach_lake(directory))}); "
            + f'c.sql("{_SUMMARY.format("lake.shop.orders")}").show()'
        ),
    ),
}
"""By the kind of destination."""

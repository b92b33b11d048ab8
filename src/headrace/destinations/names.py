"""Names at the destination: from patterns and exceptions in the settings, checked before anything is written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from string import Formatter

from ..errors import ConfigError
from ..schema import TableName

__all__ = ["case_twins", "destination_names", "names_of"]

_WORDS = frozenset({"schema", "table"})


def destination_names(
    tables: Iterable[TableName], namespace: str, table_name: str, named: Mapping[str, str | None]
) -> dict[TableName, tuple[str, ...]]:
    """The name of each table at the destination, as namespace parts and table.

    Patterns hold `{schema}` and `{table}`; `named` are the settings of single tables, by name at the source. Raises
    ConfigError for two tables of one name, also if only case tells them apart: many catalogs do not.
    """
    names = names_of(tables, namespace, table_name, named)
    taken: dict[tuple[str, ...], TableName] = {}
    for table, name in names.items():
        other = taken.setdefault(tuple(part.casefold() for part in name), table)
        if other != table:
            msg = f"tables {other} and {table} have the same name at the destination: {'.'.join(name)}"
            raise ConfigError(
                msg,
                hint=f'give one another name, for example destination.tables."{table}".name, or change the patterns',
            )
    return names


def names_of(
    tables: Iterable[TableName], namespace: str, table_name: str, named: Mapping[str, str | None]
) -> dict[TableName, tuple[str, ...]]:
    """As `destination_names`, without looking for two tables of one name."""
    for pattern in (namespace, table_name):
        _check(pattern)
    return {table: _name(table, namespace, table_name, named.get(str(table))) for table in sorted(tables)}


def case_twins(names: Mapping[TableName, tuple[str, ...]], known: Collection[TableName]) -> set[TableName]:
    """Return the tables to leave out so that no two names differ in case only.

    Of several, one in `known`, or else the first, is kept. Equal names are not looked at: those are a wrong setting.
    """
    kept: dict[tuple[str, ...], TableName] = {}
    twins = set()
    for table in sorted(names, key=lambda table: (table not in known, table)):
        other = kept.setdefault(tuple(part.casefold() for part in names[table]), table)
        if other != table and names[other] != names[table]:
            twins.add(table)
    return twins


def _name(table: TableName, namespace: str, table_name: str, given: str | None) -> tuple[str, ...]:
    if given is not None:
        return tuple(given.split("."))
    words = {"schema": table.schema, "table": table.name}
    parts = (*namespace.split("."), table_name)
    return tuple(part.format(**words) for part in parts)


def _check(pattern: str) -> None:
    try:
        words = {word for _, word, _, _ in Formatter().parse(pattern) if word is not None}
    except ValueError as error:
        msg = f"the name pattern {pattern!r} cannot be read: {error}"
        raise ConfigError(msg, hint="write {schema} and {table} where the source's names go") from None
    if not words <= _WORDS:
        msg = f"the name pattern {pattern!r} has unknown words: {', '.join(sorted(words - _WORDS))}"
        raise ConfigError(msg, hint="write {schema} and {table} where the source's names go")

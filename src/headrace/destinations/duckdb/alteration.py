"""How a table comes to look like its source: from any state of it, by attnum, repeatably.

Everything is altered before any row of the batch is written: DuckDB does not commit a transaction that changed rows and
altered their table afterwards. So what is computed is the way to the batch's last version, and rows of earlier versions
are written in its columns (`batch_columns`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..change_log import BEFORE
from .columns import WantedColumn, is_nested, quoted, widens
from .record import RecordedColumn

__all__ = ["Alteration", "CannotAlter", "altered_log", "altered_table"]

_ASIDE = "_headrace_aside_"


class CannotAlter(Exception):
    """The table must be copied again; the message says why."""


@dataclass(frozen=True, slots=True)
class Alteration:
    """Statements, after `ALTER TABLE name`, and the columns that they leave.

    `filled`: what is to be set, after `UPDATE name SET`, once they have run: of lists and the like DuckDB writes a
    default into the rows there are, and does not commit if the table is altered further.
    """

    statements: tuple[str, ...]
    columns: tuple[RecordedColumn, ...]
    filled: tuple[str, ...] = ()


def altered_table(
    there: Sequence[RecordedColumn],
    wanted: Sequence[WantedColumn],
    default: Callable[[WantedColumn], str | None],
    kept: Iterable[int] = (),
) -> Alteration:
    """For a table of current rows. Raises CannotAlter.

    `default` has what rows that are there show in a column that is new, as SQL. Columns `kept`, by attnum, stay though
    they are not wanted, last and under names of their own.
    """
    found = {column.attnum: column for column in there}
    final = {column.attnum: column for column in wanted}
    spared = set(kept)
    for column in wanted:
        was = found.get(column.attnum)
        if was is not None and was.type != column.type and not widens(was.type, column.type):
            msg = f"column {column.name} cannot become {column.type} from {was.type}"
            raise CannotAlter(msg)
    names = {attnum: column.name for attnum, column in final.items()}
    names |= {attnum: f"{_ASIDE}{attnum}" for attnum in spared if attnum in found and attnum not in final}
    leaving = [column for column in there if column.attnum not in names]
    statements = [_rename(*pair) for pair in _renamed({c.attnum: c.name for c in there}, names)]
    taken = {name.casefold() for name in names.values()}
    statements += [
        f"ALTER COLUMN {quoted(column.name)} SET DATA TYPE {column.type}"
        for column in wanted
        if column.attnum in found and found[column.attnum].type != column.type
    ]
    filled = []
    for column in wanted:
        if column.attnum not in found:
            name, value = quoted(column.name), default(column)
            if value is not None and is_nested(column.type):
                filled.append(f"{name} = {value}")
                value = None
            statements += _added(name, column.type, value)
    statements += [f"DROP COLUMN {quoted(_left(column, taken))}" for column in leaving]
    columns = [RecordedColumn(column.attnum, column.name, column.type) for column in wanted]
    aside = [replace(found[a], name=names[a], live=False) for a in names if a not in final]
    return Alteration(tuple(statements), (*columns, *aside), tuple(filled))


def altered_log(there: Sequence[RecordedColumn], wanted: Sequence[WantedColumn]) -> Alteration:
    """For a change log, which keeps every column it ever had, and each of them in `_headrace_before` too."""
    placed = {column.attnum: _place(there, column) for column in wanted}
    going_on = {place: column for column in wanted if (place := placed[column.attnum]) is not None}
    names = {place: column.name for place, column in going_on.items()} | _out_of_the_way(there, wanted, going_on)
    renames = list(_renamed({place: column.name for place, column in enumerate(there)}, names))
    statements = [_rename(*pair) for pair in renames]
    statements += [f"RENAME {quoted(BEFORE, old)} TO {quoted(new)}" for old, new in renames]
    columns = [
        RecordedColumn(column.attnum, names[place], going_on[place].type)
        if place in going_on
        else replace(column, name=names[place], live=False)
        for place, column in enumerate(there)
    ]
    widened = [new for old, new in zip(there, columns, strict=True) if old.type != new.type]
    statements += [f"ALTER COLUMN {quoted(column.name)} SET DATA TYPE {column.type}" for column in widened]
    for column in wanted:
        if placed[column.attnum] is None:
            for name in (quoted(column.name), quoted(BEFORE, column.name)):
                statements += _added(name, column.type, None)
            columns.append(RecordedColumn(column.attnum, column.name, column.type))
    if widened:
        fields = ", ".join(f"{quoted(column.name)} {column.type}" for column in columns)
        statements.append(f"ALTER COLUMN {quoted(BEFORE)} SET DATA TYPE STRUCT({fields})")
    return Alteration(tuple(statements), tuple(columns))


def _place(there: Sequence[RecordedColumn], column: WantedColumn) -> int | None:
    """The column's place, if it can go on there. It may have been away for a while."""
    fitting = [
        place
        for place, found in enumerate(there)
        if found.attnum == column.attnum and (found.type == column.type or widens(found.type, column.type))
    ]
    return max(fitting, key=lambda place: (there[place].live, place), default=None)


def _out_of_the_way(
    there: Sequence[RecordedColumn], wanted: Sequence[WantedColumn], going_on: Collection[int]
) -> dict[int, str]:
    """The names of columns that only stay, by place. One whose name another needs gets a name of its own."""
    names = {place: column.name for place, column in enumerate(there) if place not in going_on}
    needed = {column.name.casefold() for column in wanted}
    taken = needed | {name.casefold() for name in names.values()}
    for place, name in names.items():
        if name.casefold() in needed:
            names[place] = _free(f"{name}_{there[place].attnum}", taken)
    return names


def _renamed(now: Mapping[int, str], then: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    """From names to names, by number. What must make room for another, or goes, steps aside first."""
    wanted = {name.casefold() for name in then.values()}
    aside = {
        number: f"{_ASIDE}{number}"
        for number, name in now.items()
        if then.get(number) != name and name.casefold() in wanted
    }
    for number, name in aside.items():
        yield now[number], name
    for number, name in then.items():
        if number in now and now[number] != name and aside.get(number) != name:
            yield aside.get(number, now[number]), name


def _rename(old: str, new: str) -> str:
    return f"RENAME COLUMN {quoted(old)} TO {quoted(new)}"


def _left(column: RecordedColumn, taken: set[str]) -> str:
    """What a column that goes is called by now."""
    return f"{_ASIDE}{column.attnum}" if column.name.casefold() in taken else column.name


def _free(name: str, taken: set[str]) -> str:
    while name.casefold() in taken:
        name = f"{name}_"
    taken.add(name.casefold())
    return name


def _added(name: str, kind: str, default: str | None) -> list[str]:
    if default is None:
        return [f"ADD COLUMN {name} {kind}"]
    # For rows that are there only: those that come have their own values.
    return [f"ADD COLUMN {name} {kind} DEFAULT {default}", f"ALTER COLUMN {name} DROP DEFAULT"]

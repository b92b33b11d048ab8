"""What Spark's plan tells of a transform: that it works row by row, and from what each of its columns is made.

A plan of nothing but projections gives a row for a row, whatever the columns come to. So columns that the transform
does not know of can be carried along, past a `select` that leaves them out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

__all__ = ["NotRowByRow", "Origin", "carrying", "origins", "require_row_by_row"]

_PLANS = "org.apache.spark.sql.catalyst.plans.logical."
_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
_PROJECT, _ALIAS, _ATTRIBUTE = f"{_PLANS}Project", f"{_EXPRESSIONS}Alias", f"{_EXPRESSIONS}AttributeReference"
_TRANSPARENT = (f"{_PLANS}SubqueryAlias", f"{_PLANS}ResolvedHint")
"""Names and hints: neither rows nor columns."""


class NotRowByRow(Exception):
    """What the plan does that cannot be done to a row alone."""


@dataclass(frozen=True, slots=True)
class Origin:
    """From what a column is made."""

    same_as: str | None
    """The given column whose values it has, under whatever name."""
    reads: frozenset[str]
    """The given columns that its values depend on."""


def origins(given: DataFrame, result: DataFrame) -> tuple[Origin, ...]:
    """Of the result's columns; the result was made of `given`. Raises NotRowByRow."""
    plan, top = _plan(given), _plan(result)
    known = {
        _id(attribute): Origin(attribute.name(), frozenset([attribute.name()])) for attribute in _each(plan.output())
    }
    found = _Reading(_jvm(given), plan, known).of(top)
    return tuple(found[_id(attribute)] for attribute in _each(top.output()))


def require_row_by_row(given: DataFrame, result: DataFrame) -> None:
    """Raises NotRowByRow for a result that is not made of `given` by selecting columns."""
    plan, bottom = _plan(result), _plan(given)
    while not plan.fastEquals(bottom):
        if _kind(plan) != _PROJECT and _kind(plan) not in _TRANSPARENT:
            raise _refused(plan)
        plan = plan.child()


def carrying(base: DataFrame, given: DataFrame, result: DataFrame) -> DataFrame:
    """The result with the columns of `base` behind its own; `given` is a selection of `base`. Raises NotRowByRow."""
    jvm, session = _jvm(base), base.sparkSession
    carried, bottom = _plan(base).output(), _plan(given)

    def built(plan: Any) -> Any:
        if _kind(plan) in _TRANSPARENT:
            return built(plan.child())
        if _kind(plan) != _PROJECT:
            raise _refused(plan)
        below = plan.child() if plan.fastEquals(bottom) else built(plan.child())
        return jvm.org.apache.spark.sql.catalyst.plans.logical.Project(plan.projectList().appendedAll(carried), below)

    java_session = session._jsparkSession
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(java_session, built(_plan(result))), session)


@dataclass(frozen=True, slots=True)
class _Reading:
    jvm: Any
    given: Any
    known: Mapping[int, Origin]

    def of(self, plan: Any) -> Mapping[int, Origin]:
        if plan.fastEquals(self.given):
            return self.known
        if _kind(plan) in _TRANSPARENT:
            return self.of(plan.child())
        if _kind(plan) != _PROJECT:
            raise _refused(plan)
        below = self.of(plan.child())
        return {_id(expression): self._origin(expression, below) for expression in _each(plan.projectList())}

    def _origin(self, expression: Any, below: Mapping[int, Origin]) -> Origin:
        bare = expression.child() if _kind(expression) == _ALIAS else expression
        if _kind(bare) == _ATTRIBUTE:
            return below[_id(bare)]
        if not expression.deterministic():
            raise NotRowByRow(f"its column {expression.name()} has another value each time it is computed")
        if self.jvm.org.apache.spark.sql.catalyst.expressions.SubqueryExpression.hasSubquery(expression):
            raise NotRowByRow(f"its column {expression.name()} asks another table")
        reads = (below[_id(attribute)].reads for attribute in _each(expression.references().toSeq()))
        return Origin(None, frozenset[str]().union(*reads))


def _refused(plan: Any) -> NotRowByRow:
    return NotRowByRow(f"it does more than select columns: {plan.nodeName()}")


def _plan(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _jvm(frame: DataFrame) -> Any:
    return frame.sparkSession._jvm


def _kind(thing: Any) -> str:
    return str(thing.getClass().getName())


def _id(expression: Any) -> int:
    return int(expression.exprId().id())


def _each(sequence: Any) -> Iterator[Any]:
    """The elements of a Scala sequence."""
    return (sequence.apply(i) for i in range(sequence.size()))

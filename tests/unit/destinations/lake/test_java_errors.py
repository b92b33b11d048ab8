"""What Iceberg and its catalogs throw, as errors with advice."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from py4j.protocol import Py4JError, Py4JJavaError

from headrace.destinations.lake.java_errors import CommitStateUnknown, TableGone, java_errors
from headrace.errors import (
    DestinationConflict,
    DestinationConnectionFailed,
    DestinationError,
    DestinationRejected,
)


@dataclass
class Thrown:
    """A Java exception, as far as py4j shows it."""

    name: str
    message: str | None = None
    cause: Thrown | None = None

    def getClass(self) -> Thrown:
        return self

    def getName(self) -> str:
        return self.name

    def getMessage(self) -> str | None:
        return self.message

    def getCause(self) -> Thrown | None:
        return self.cause


class FromJava(Py4JJavaError):
    """What py4j raises for it; there is no Java to ask for its text."""

    def __init__(self, thrown: Thrown) -> None:
        Exception.__init__(self, thrown.name)
        self.java_exception = thrown

    def __str__(self) -> str:
        return str(self.java_exception)


def _raised(thrown: Thrown) -> DestinationError:
    with pytest.raises(DestinationError) as raised, java_errors("commit"):
        raise FromJava(thrown)
    assert str(raised.value).startswith("cannot commit")
    return raised.value


REFUSED = Thrown(
    "org.apache.hadoop.hive.metastore.api.InvalidOperationException",
    "The following columns have types incompatible with the existing columns in their respective positions :\na,b",
)


@pytest.mark.parametrize(
    ("thrown", "kind"),
    [
        (Thrown("o.a.i.exceptions.CommitFailedException", "x"), DestinationConflict),
        (
            Thrown("o.a.i.exceptions.CommitStateUnknownException", "x", Thrown("java.io.IOException")),
            CommitStateUnknown,
        ),
        (Thrown("o.a.i.exceptions.CommitStateUnknownException", "x", REFUSED), DestinationRejected),
        (Thrown("o.a.i.exceptions.NoSuchTableException", "x"), TableGone),
        (Thrown("o.a.i.exceptions.ForbiddenException", "x"), DestinationRejected),
        (Thrown("s.a.a.S3Exception", "no (Service: S3, Status Code: 403, Request ID: 1)"), DestinationRejected),
        (Thrown("java.lang.RuntimeException", None, Thrown("java.net.ConnectException")), DestinationConnectionFailed),
        (
            Thrown("o.a.i.hive.RuntimeMetaException", "x", Thrown("MetaException", "Could not connect to meta store")),
            DestinationConnectionFailed,
        ),
        (Thrown("java.lang.IllegalStateException", "x"), DestinationError),
    ],
)
def test_exceptions_of_java(thrown: Thrown, kind: type[DestinationError]) -> None:
    error = _raised(thrown)
    assert type(error) is kind
    assert thrown.name.rpartition(".")[2] in str(error.detail)


def test_a_metastore_that_goes_by_the_place_of_columns() -> None:
    error = _raised(Thrown("o.a.i.exceptions.CommitStateUnknownException", "x", REFUSED))
    assert "hive.metastore.disallow.incompatible.col.type.changes" in str(error.hint)


def test_a_java_that_is_gone() -> None:
    with pytest.raises(DestinationConnectionFailed, match="cannot commit"), java_errors("commit"):
        raise Py4JError("Answer from Java side is empty")

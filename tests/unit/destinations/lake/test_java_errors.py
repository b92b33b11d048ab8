"""What Iceberg and its catalogs throw, as errors with advice."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

from headrace.destinations.lake.java_errors import (
    CommitStateUnknown,
    TableGone,
    commit_error,
    commit_errors,
    java_errors,
    may_be_committed,
)
from headrace.errors import (
    DestinationConflict,
    DestinationConnectionFailed,
    DestinationError,
    DestinationRejected,
    RetryPolicy,
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


@pytest.mark.parametrize(
    ("thrown", "retry"),
    [
        (Thrown("o.a.i.exceptions.NotAuthorizedException", "Token has expired"), RetryPolicy.TIMED),
        (Thrown("s.a.a.S3Exception", "The provided token has expired. (Status Code: 403)"), RetryPolicy.TIMED),
        (Thrown("s.a.a.S3Exception", "Access Denied (Service: S3, Status Code: 403)"), RetryPolicy.MANUAL),
    ],
)
def test_credentials_that_expired_are_tried_again(thrown: Thrown, retry: RetryPolicy) -> None:
    """An operator renews them; wrong ones need a change of the settings."""
    error = _raised(thrown)
    assert type(error) is DestinationRejected
    assert error.retry is retry


def test_a_metastore_that_goes_by_the_place_of_columns() -> None:
    error = _raised(Thrown("o.a.i.exceptions.CommitStateUnknownException", "x", REFUSED))
    assert "hive.metastore.disallow.incompatible.col.type.changes" in str(error.hint)


def test_a_java_that_is_gone() -> None:
    with pytest.raises(DestinationConnectionFailed, match="cannot commit"), java_errors("commit"):
        raise Py4JError("Answer from Java side is empty")


def _iceberg(name: str, cause: Thrown | None = None) -> FromJava:
    return FromJava(Thrown(f"org.apache.iceberg.exceptions.{name}", "x", cause))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (_iceberg("CommitFailedException"), DestinationConflict),
        (_iceberg("ValidationException"), DestinationConflict),
        (_iceberg("NotAuthorizedException"), DestinationRejected),
        (_iceberg("ForbiddenException"), DestinationRejected),
        (_iceberg("BadRequestException"), DestinationRejected),
        (_iceberg("NoSuchTableException"), TableGone),
        # Hive's metastore refuses an alteration before it does anything.
        (_iceberg("CommitStateUnknownException", REFUSED), DestinationRejected),
    ],
)
def test_errors_that_prove_that_nothing_was_committed(error: Exception, kind: type[DestinationError]) -> None:
    found = commit_error(error, "cannot commit")
    assert type(found) is kind
    assert not may_be_committed(found)


class DeadJava(FromJava):
    """An exception of a JVM that died before it could be asked what it is."""

    @property
    def java_exception(self) -> Thrown:
        raise Py4JNetworkError("Answer from Java side is empty")

    @java_exception.setter
    def java_exception(self, thrown: Thrown) -> None:
        pass


@pytest.mark.parametrize(
    "error",
    [
        Py4JNetworkError("Answer from Java side is empty"),
        Py4JError("An error occurred while calling o1.commitTransaction"),
        ConnectionRefusedError(111, "Connection refused"),
        ConnectionResetError(),
        TimeoutError(),
        KeyError("path"),
        DeadJava(Thrown("CommitFailedException")),
        _iceberg("CommitStateUnknownException"),
        _iceberg("CommitFailedException", Thrown("org.apache.iceberg.exceptions.CommitStateUnknownException")),
        _iceberg("ServiceFailureException"),
        _iceberg("ServiceUnavailableException"),
        _iceberg("RESTException", Thrown("org.apache.hc.core5.http.NoHttpResponseException")),
        _iceberg("RuntimeIOException"),
        _iceberg("NotFoundException"),
        _iceberg("AlreadyExistsException"),
        FromJava(Thrown("org.apache.iceberg.jdbc.UncheckedSQLException", "Unknown failure")),
        FromJava(Thrown("java.lang.RuntimeException", "x", Thrown("o.a.i.exceptions.CommitFailedException"))),
        FromJava(Thrown("java.lang.OutOfMemoryError")),
        FromJava(Thrown("software.amazon.awssdk.services.glue.model.GlueException", "Status Code: 500")),
        FromJava(Thrown("org.apache.thrift.transport.TTransportException")),
    ],
    ids=lambda error: type(error).__name__ if not isinstance(error, FromJava) else None,
)
def test_every_other_error_leaves_the_commit_unknown(error: Exception) -> None:
    found = commit_error(error, "cannot commit")
    assert type(found) is CommitStateUnknown
    assert may_be_committed(found)
    assert found.detail


def test_a_request_of_a_commit() -> None:
    with pytest.raises(CommitStateUnknown, match="cannot commit"), commit_errors("commit"):
        raise ConnectionRefusedError
    # An interrupt stays one, and says nothing of the commit.
    with pytest.raises(KeyboardInterrupt) as raised, commit_errors("commit"):
        raise KeyboardInterrupt
    assert may_be_committed(raised.value)
    assert not may_be_committed(DestinationError("cannot plan"))

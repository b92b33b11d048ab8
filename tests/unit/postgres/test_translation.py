"""postgres.translation: psycopg's errors as ours, by SQLSTATE or by the server's words."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors as pg

from headrace import errors
from headrace.postgres.translation import translate, translated_errors


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('FATAL:  password authentication failed for user "a"', errors.SourceAuthenticationFailed),
        ("fe_sendauth: no password supplied", errors.SourceAuthenticationFailed),
        ('FATAL:  no pg_hba.conf entry for host "::1", user "a"', errors.SourceAuthenticationFailed),
        ('FATAL:  role "a" does not exist', errors.SourceAuthenticationFailed),
        ('FATAL:  role "a" is not permitted to log in', errors.SourceAuthenticationFailed),
        ("FATAL:  must be superuser or replication role to start walsender", errors.SourcePermissionDenied),
        ("FATAL:  permission denied to start WAL sender", errors.SourcePermissionDenied),
        ('FATAL:  permission denied for database "shop"', errors.SourcePermissionDenied),
        ('FATAL:  database "shop" does not exist', errors.SourceSchemaError),
        ("FATAL:  the database system is starting up", errors.SourceInRecovery),
        ("FATAL:  the database system is shutting down", errors.SourceShutdown),
        ("FATAL:  sorry, too many clients already", errors.SourceConnectionFailed),
        ("FATAL:  remaining connection slots are reserved for roles with SUPERUSER", errors.SourceConnectionFailed),
        ("FATAL:  unsupported startup parameter: options", errors.SourceUnsupported),
        ("Connection refused", errors.SourceConnectionFailed),
        ("server closed the connection unexpectedly", errors.SourceConnectionFailed),
    ],
)
def test_a_refused_connection_by_its_words(text: str, kind: type[errors.SourceError]) -> None:
    error = translate(psycopg.OperationalError(f"connection failed: {text}"))
    assert type(error) is kind
    assert error.sqlstate is None
    assert error.detail is not None
    assert text.rsplit(maxsplit=1)[-1] in error.detail


@pytest.mark.parametrize(
    ("original", "kind"),
    [
        (pg.InsufficientPrivilege, errors.SourcePermissionDenied),
        (pg.LockNotAvailable, errors.SourceLockTimeout),
        (pg.QueryCanceled, errors.SourceCanceled),
        (pg.AdminShutdown, errors.SourceShutdown),
        (pg.UndefinedTable, errors.SourceSchemaError),
        (pg.UniqueViolation, errors.SourceDataError),
    ],
)
def test_by_sqlstate(original: type[psycopg.Error], kind: type[errors.SourceError]) -> None:
    error = translate(original("text"), "cannot do this")
    assert type(error) is kind
    assert error.sqlstate == original.sqlstate
    assert error.message == "cannot do this"


@pytest.mark.parametrize(
    "said", ["failed to resolve host 'db.invalid': [Errno -2]", 'could not translate host name "db" to address']
)
def test_a_host_that_nobody_knows_is_perhaps_misspelt(said: str) -> None:
    error = translate(psycopg.OperationalError(said))
    assert type(error) is errors.SourceConnectionFailed
    assert "spelled" in error.hint


def test_a_database_that_is_not_there_is_no_table() -> None:
    error = translate(psycopg.OperationalError('connection failed: FATAL:  database "shop" does not exist'))
    assert error.hint == "check the name of the database, or create it"


def test_a_pooler_that_refuses_our_settings_is_named() -> None:
    error = translate(psycopg.OperationalError("connection failed: FATAL:  unsupported startup parameter: options"))
    assert "pooler" in error.hint


def test_within_the_block_and_no_other_exceptions() -> None:
    with pytest.raises(errors.SourceLockTimeout, match="cannot lock") as caught, translated_errors("cannot lock"):
        raise pg.LockNotAvailable("x")
    assert isinstance(caught.value.__cause__, pg.LockNotAvailable)
    with pytest.raises(KeyError), translated_errors():
        raise KeyError("x")


def test_a_misuse_of_the_driver_is_no_connection_failure() -> None:
    assert type(translate(psycopg.ProgrammingError("x"))) is errors.SourceError

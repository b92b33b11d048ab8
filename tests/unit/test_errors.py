"""errors: every class of the tree pickles, has a hint and a retry rule; SQLSTATEs lead to the right one."""

from __future__ import annotations

import inspect
import pickle

import pytest

from headrace import errors
from headrace.errors import HeadraceError, IllegalTransition, RetryPolicy, SourceError
from headrace.sqlstate import error_for_sqlstate

CLASSES = [cls for cls in vars(errors).values() if inspect.isclass(cls) and issubclass(cls, HeadraceError)]


def make(cls: type[HeadraceError]) -> HeadraceError:
    if cls is IllegalTransition:
        return IllegalTransition("ready", "catchup")
    more = {"sqlstate": "08006"} if issubclass(cls, SourceError) else {}
    return cls("it broke", detail="the other side said so", hint="own hint", retry=RetryPolicy.TIMED, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("cls", CLASSES)
def test_an_error_pickles_whole(cls: type[HeadraceError]) -> None:
    original = make(cls)
    original.__cause__ = OSError("a cause")
    copy = pickle.loads(pickle.dumps(original))
    assert type(copy) is cls
    assert (str(copy), copy.__dict__, copy.args) == (str(original), original.__dict__, original.args)


@pytest.mark.parametrize("cls", CLASSES)
def test_an_error_knows_what_to_do(cls: type[HeadraceError]) -> None:
    assert cls.hint
    assert isinstance(cls.retry, RetryPolicy)
    assert cls.kind == cls.kind.lower()
    assert cls.kind.strip("_") == cls.kind


def test_kinds_are_unique_and_all_are_exported() -> None:
    assert len({cls.kind for cls in CLASSES}) == len(CLASSES)
    assert {cls.__name__ for cls in CLASSES} <= set(errors.__all__)
    assert errors.SourceConnectionFailed.kind == "source_connection_failed"
    assert errors.ConfigError.kind == "config"


def test_every_class_is_drawn_in_the_modules_docstring() -> None:
    drawn = errors.__doc__ or ""
    assert [cls.__name__ for cls in CLASSES if cls.__name__ not in drawn] == []


def test_only_these_are_tried_again_by_themselves() -> None:
    timed = {cls.__name__ for cls in CLASSES if cls.retry is RetryPolicy.TIMED}
    assert timed == {
        "SlotDropTimeout", "SlotInUse", "SourceCanceled", "SourceConflict", "SourceConnectionFailed",
        "SourceInRecovery", "SourceLockTimeout", "SourceShutdown", "SpoolInUse",
        "SpoolIoError",
        "StoreInUse", "StoreIoError", "DestinationError", "DestinationConnectionFailed", "DestinationTimeout",
        "DestinationConflict", "KeyRangesOvertaken", "SparkError", "SparkGone",
    }  # fmt: skip


def test_message_detail_and_own_hint() -> None:
    error = HeadraceError("it broke", detail="because")
    assert (str(error), error.hint) == ("it broke: because", HeadraceError.hint)
    assert str(HeadraceError("it broke")) == "it broke"
    own = errors.SourceConflict("x", hint="own", retry=RetryPolicy.NONE, sqlstate="40001")
    assert (own.hint, own.retry, own.sqlstate) == ("own", RetryPolicy.NONE, "40001")
    assert errors.SourceConflict.retry is RetryPolicy.TIMED


@pytest.mark.parametrize(
    ("sqlstate", "expected"),
    [
        (None, "SourceConnectionFailed"),
        ("08006", "SourceConnectionFailed"),
        ("53300", "SourceConnectionFailed"),
        ("57P05", "SourceConnectionFailed"),
        ("28P01", "SourceAuthenticationFailed"),
        ("28000", "SourceAuthenticationFailed"),
        ("23505", "SourceDataError"),
        ("22P02", "SourceDataError"),
        ("42P01", "SourceSchemaError"),
        ("42703", "SourceSchemaError"),
        ("42883", "SourceSchemaError"),
        ("3F000", "SourceSchemaError"),
        ("3D000", "SourceSchemaError"),
        ("57P04", "SourceSchemaError"),
        ("42601", "SourceQueryFailed"),
        ("42501", "SourcePermissionDenied"),
        ("XX000", "SourceQueryFailed"),
        ("58000", "SourceQueryFailed"),
        ("54000", "SourceQueryFailed"),
        ("40001", "SourceConflict"),
        ("40P01", "SourceConflict"),
        ("55000", "SourceConflict"),
        ("55006", "SourceConflict"),
        ("55P03", "SourceLockTimeout"),
        ("57014", "SourceCanceled"),
        ("57000", "SourceCanceled"),
        ("57P01", "SourceShutdown"),
        ("57P02", "SourceShutdown"),
        ("57P03", "SourceInRecovery"),
        ("53100", "SourceIoError"),
        ("58030", "SourceIoError"),
        ("53400", "SourceLimitExceeded"),
        ("72000", "SourceSnapshotTooOld"),
        ("P0001", "SourceError"),
    ],
)
def test_sqlstates(sqlstate: str | None, expected: str) -> None:
    assert error_for_sqlstate(sqlstate).__name__ == expected

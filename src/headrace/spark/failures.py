"""How an error gets from a task to the driver: a HeadraceError arrives as itself, anything else as a SparkError.

Spark hands the driver nothing but a text, the traceback in the worker. A task therefore appends the error as JSON to
the message of the exception that it raises, behind a random mark that the driver chose for this job. The driver parses
nothing but the last line of our own exception with that mark: all other text, which may quote row values and names, is
never interpreted. Of an error that is not ours only the class and the place travel: its message may quote a row.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
import tempfile
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import TaskContext
from pyspark.errors import AnalysisException, PySparkException

from .. import errors
from ..errors import HeadraceError, RetryPolicy, SparkError
from ..remedies import is_disk_full, make_room, places

__all__ = ["MARK_PROPERTY", "TaskFailure", "as_headrace_error", "from_spark", "new_mark"]

MARK_PROPERTY: Final = "headrace.error.mark"
"""The local property of Spark by which the driver tells a job's tasks their mark."""

# The only classes that text can become, and the only attributes, with their types.
_CLASSES: Final[dict[str, type[HeadraceError]]] = {
    kind.__name__: kind
    for kind in (getattr(errors, name) for name in errors.__all__)
    if isinstance(kind, type) and issubclass(kind, HeadraceError)
}
_ATTRIBUTES: Final[dict[str, type]] = {
    "message": str, "detail": str, "hint": str, "sqlstate": str, "table_id": int, "current": str, "to": str,
    "columns": list,
}  # fmt: skip
# Not anywhere: a row value may be in brackets, too.
_CONDITION = re.compile(r"(?:Exception|Error): \[([A-Z][A-Z0-9_.]+)\]")
_JAVA_CLASS = re.compile(r"^(?:Caused by: )?((?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error))\b", re.MULTILINE)
_PYTHON_CLASS = re.compile(r"^((?:\w+\.)*[A-Z]\w*)(?::|$)", re.MULTILINE)
_MISSING_MODULE = re.compile(r"^ModuleNotFoundError: No module named '([A-Za-z_][\w.]{0,99})'$", re.MULTILINE)
_EXECUTOR = re.compile(r"Lost task [\d.]+ in stage [\d.]+ \(TID \d+\) \(([\w.:-]+ executor [\w-]+)\)")
# What a worker's Python writes when it cannot even start our daemon module.
_WORKER_START = re.compile(
    r"^Error from python worker:\n.*?ModuleNotFoundError: No module named '([A-Za-z_][\w.]{0,99})'\)?\nPYTHONPATH was:",
    re.MULTILINE | re.DOTALL,
)
_NO_PYTHON = re.compile(r'executor [\w-]+\): java\.io\.IOException: Cannot run program "([^"\n]{1,300})"')
_FRAMES = 3
# Their messages name files, modules and hosts, never rows.
_SPEAKING = (OSError, ImportError, MemoryError, NotImplementedError)


class TaskFailure(Exception):
    """Raised in a worker in place of any error; its text is all that the driver gets."""

    def __init__(self, error: HeadraceError, mark: str | None = None) -> None:
        mark = mark or _task_mark()
        readable = " ".join(f"{error.kind}: {error}".split())
        super().__init__(f"{readable} <<headrace:{mark}:{_encode(error)}>>" if mark else readable)


def new_mark() -> str:
    """Choose a mark that no text can contain by chance or by intent."""
    return secrets.token_hex(16)


def as_headrace_error(error: Exception, description: str) -> HeadraceError:
    """The error itself if it is ours; else a SparkError that says what it was and where, without its message."""
    if isinstance(error, HeadraceError):
        return error
    name = type(error).__name__
    if isinstance(error, _SPEAKING):
        name = f"{name}: {error}"
    where = places(error, _FRAMES)
    detail = f"{name} at {where}" if where else name
    return SparkError(f"{description} failed in a task", detail=detail, hint=_task_hint(error))


def _task_hint(error: Exception) -> str | None:
    if isinstance(error, ModuleNotFoundError) and error.name:
        return _install(error.name)
    if isinstance(error, OSError) and is_disk_full(error):
        # Here, where the task runs.
        return make_room(error.filename) if error.filename else "free space on the disk of the warehouse and of Spark"
    return None


def _install(module: str) -> str:
    return (
        f"install the Python package that has the module {module} where tasks run, for the Python that "
        "spark.pyspark.python names; or ship it with spark.submit.pyFiles or spark.archives, under spark.conf"
    )


def from_spark(error: Exception, description: str, mark: str | None = None) -> HeadraceError:
    """Translate an exception raised by a Spark action: the error a task sent behind the job's mark, or a SparkError."""
    if isinstance(error, HeadraceError):
        return error
    text = _text(error)
    sent = None if mark is None else _sent(text, mark)
    return sent or SparkError(f"{description} failed in Spark", detail=_detail(error, text), hint=_spark_hint(text))


def _spark_hint(text: str) -> str | None:
    """Return what to do about errors that tasks meet outside of our code, where their text names no row."""
    if found := _NO_PYTHON.search(text):
        return (
            f"there is no Python at {found[1]} where tasks run: set spark.pyspark.python, under spark.conf, to one "
            "that exists there and has Headrace installed"
        )
    if found := _WORKER_START.search(text):
        return _install(found[1])
    if "Traceback (most recent call last)" in text:
        modules = _MISSING_MODULE.findall(_python_part(text))
        if modules:
            return _install(modules[-1])
    if "java.io.IOException: No space left on device" in text:
        return f"{make_room(tempfile.gettempdir())}; Spark writes there unless spark.local.dir names another place"
    return None


def _task_mark() -> str | None:
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(MARK_PROPERTY)


def _sent(text: str, mark: str) -> HeadraceError | None:
    line = rf"^{re.escape(TaskFailure.__module__)}\.TaskFailure: .*<<headrace:{re.escape(mark)}:([A-Za-z0-9+/=]+)>>$"
    found = re.search(line, text, re.MULTILINE)
    return None if found is None else _decode(found.group(1))


def _encode(error: HeadraceError) -> str:
    known = next(kind.__name__ for kind in type(error).__mro__ if _CLASSES.get(kind.__name__) is kind)
    values = {name: getattr(error, name) for name in _ATTRIBUTES if hasattr(error, name)}
    sent = {"class": known, "retry": error.retry.value, **values}
    return base64.b64encode(json.dumps(sent, default=str).encode()).decode("ascii")


def _decode(encoded: str) -> HeadraceError | None:
    """Rebuild the error, or return None if this is not what `_encode` writes."""
    try:
        sent: dict[str, Any] = json.loads(base64.b64decode(encoded, validate=True))
        kind, retry = _CLASSES[sent["class"]], RetryPolicy(sent["retry"])
        values = {name: sent[name] for name in _ATTRIBUTES if name in sent}
        message = values["message"]
    except (ValueError, KeyError, TypeError):
        return None
    if any(value is not None and type(value) is not _ATTRIBUTES[name] for name, value in values.items()):
        return None
    # Without __init__, whose arguments differ from class to class.
    error = kind.__new__(kind, message)
    error.args = (message,)
    error.__dict__.update(values, retry=retry)
    return error


def _text(error: Exception) -> str:
    if isinstance(error, Py4JJavaError):
        return str(error)
    if isinstance(error, PySparkException):
        # str() of a captured exception leaves the causes out unless the session is set to show them.
        return f"{error}\n{getattr(error, '_stackTrace', '') or ''}"
    return str(error)


def _detail(error: Exception, text: str) -> str:
    """Enough to find the cause by, and no row: analysis quotes names only, what fails at run time may quote values."""
    if isinstance(error, AnalysisException):
        return text.partition("\n\nJVM stacktrace:")[0].partition(";\n")[0].strip()[:500]
    if not isinstance(error, (PySparkException, Py4JError)):
        return type(error).__name__
    if "cancelled" in text and "SparkException" in text:
        return "the job was cancelled"
    parts = [type(error).__name__]
    if isinstance(error, PySparkException):
        parts += filter(None, [error.getCondition()])
    for pattern in (_CONDITION, _JAVA_CLASS):
        parts += [name for name in dict.fromkeys(pattern.findall(text)) if name not in parts]
    parts += [f"last on {executor}" for executor in _EXECUTOR.findall(text)[:1]]
    if _WORKER_START.search(text) or _NO_PYTHON.search(text):
        parts.append("no Python worker could be started")
    if "Python worker exited unexpectedly" in text or "Python worker failed to connect back" in text:
        parts.append("a Python worker died: out of memory, or killed")
    if "Traceback (most recent call last)" in text:
        parts += [name for name in dict.fromkeys(_PYTHON_CLASS.findall(_python_part(text))) if name not in parts]
    return ", ".join(parts[:8])


def _python_part(text: str) -> str:
    return text[text.rindex("Traceback (most recent call last)") :].partition("\n\n")[0].partition("\tat ")[0]

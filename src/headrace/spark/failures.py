"""How an error gets from a task to the driver: a HeadraceError arrives as itself, anything else as a SparkError.

Spark hands the driver nothing but a text, the traceback in the worker. So a task puts the pickled error between marks
in the message of the exception it raises, and the driver rebuilds it from there. Of an error that is not ours only the
class and the place travel: its message may quote a row.
"""

from __future__ import annotations

import base64
import pickle
import re
import traceback
from pathlib import PurePath

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException

from ..errors import HeadraceError, SparkError

__all__ = ["TaskFailure", "as_headrace_error", "from_spark"]

_MARKED = re.compile(r"<<headrace:([A-Za-z0-9+/=]+)>>")
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]")
_JAVA_CLASS = re.compile(r"^(?:Caused by: )?((?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error))\b", re.MULTILINE)
_PYTHON_CLASS = re.compile(r"^((?:\w+\.)*[A-Z]\w*)(?::|$)", re.MULTILINE)
_FRAMES = 3
# Their messages name files, modules and hosts, never rows.
_SPEAKING = (OSError, ImportError, MemoryError, NotImplementedError)


class TaskFailure(Exception):
    """Raised in a worker in place of any error; its text is all that the driver gets."""

    def __init__(self, error: HeadraceError) -> None:
        pickled = base64.b64encode(pickle.dumps(error)).decode("ascii")
        super().__init__(f"{error.kind}: {error} <<headrace:{pickled}>>")


def as_headrace_error(error: Exception, description: str) -> HeadraceError:
    """The error itself if it is ours; else a SparkError that says what it was and where, without its message."""
    if isinstance(error, HeadraceError):
        return error
    name = type(error).__name__
    if isinstance(error, _SPEAKING):
        name = f"{name}: {error}"
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    places = " < ".join(f"{PurePath(f.filename).name}:{f.lineno} {f.name}" for f in reversed(frames))
    return SparkError(f"{description} failed in a task", detail=f"{name} at {places}" if places else name)


def from_spark(error: Exception, description: str) -> HeadraceError:
    """What an exception raised by a Spark action means: the error a task sent, or a SparkError."""
    if isinstance(error, HeadraceError):
        return error
    text = _text(error)
    found = _MARKED.search(text)
    if found is not None:
        sent = pickle.loads(base64.b64decode(found.group(1)))  # noqa: S301 (written by our own task)
        if isinstance(sent, HeadraceError):
            return sent
    return SparkError(f"{description} failed in Spark", detail=_detail(error, text))


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
    for pattern in (_CONDITION, _JAVA_CLASS):
        parts += [name for name in dict.fromkeys(pattern.findall(text)) if name not in parts]
    if "Python worker exited unexpectedly" in text or "Python worker failed to connect back" in text:
        parts.append("a Python worker died: out of memory, or killed")
    if "Traceback (most recent call last)" in text:
        parts += [name for name in dict.fromkeys(_PYTHON_CLASS.findall(_python_part(text))) if name not in parts]
    return ", ".join(parts[:6])


def _python_part(text: str) -> str:
    return text[text.rindex("Traceback (most recent call last)") :].partition("\n\n")[0].partition("\tat ")[0]

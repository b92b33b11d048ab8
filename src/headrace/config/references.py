"""What settings name as `module:name`, as Python imports it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from ..errors import ConfigError

__all__ = ["named_class", "named_function"]

_HINT = "write module:{}, as Python imports it, and see that it is on the path (PYTHONPATH) or installed"


def named_class(reference: str, what: str) -> type[Any]:
    """The class. Raises ConfigError, which calls it `what`, if there is none."""
    found = _named(reference, what, "Class")
    if not isinstance(found, type):
        raise _missing(reference, "class", "Class")
    return found


def named_function(reference: str, what: str) -> Callable[..., Any]:
    """The function. Raises ConfigError, which calls it `what`, if there is none."""
    found = _named(reference, what, "function")
    if not callable(found):
        raise _missing(reference, "function", "function")
    function: Callable[..., Any] = found
    return function


def _named(reference: str, what: str, form: str) -> Any:
    module, _, name = reference.partition(":")
    if not (module and name) or module.startswith("."):
        raise ConfigError(f"{what} must be given as module:{form}", hint=_HINT.format(form))
    try:
        return getattr(import_module(module), name, None)
    except ImportError as error:
        msg = f"{what} cannot be imported"
        raise ConfigError(msg, detail=f"{type(error).__name__}: {error}", hint=_HINT.format(form)) from None


def _missing(reference: str, what: str, form: str) -> ConfigError:
    module, _, name = reference.partition(":")
    return ConfigError(f"the module {module} has no {what} {name}", hint=_HINT.format(form))

"""How a command says that it failed: what happened, where, what to do. On standard error, without a traceback."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.markup import escape
from yaml import MarkedYAMLError, YAMLError

from ..errors import (
    ConfigError,
    DestinationFenced,
    HeadraceError,
    SourceAuthenticationFailed,
    SourceConnectionFailed,
    SourceInRecovery,
    SourceShutdown,
    StoreCorrupt,
    StoreFenced,
    StoreInUse,
    StoreIoError,
    StoreVersionError,
    TableNotFound,
)
from ..remedies import file_named, is_disk_full, make_room, name_file, places, sql_on_one_line
from ..telemetry.redaction import escape_unprintable, redact_text
from .entry import without_password
from .exit_code import ExitCode
from .terminal import SafeConsole

__all__ = ["as_advice", "errors_shown", "exit_code", "fail", "show"]

_USAGE = (ConfigError, TableNotFound)
_UNREACHABLE = (
    SourceConnectionFailed,
    SourceShutdown,
    SourceInRecovery,
    SourceAuthenticationFailed,
    StoreIoError,
    StoreInUse,
    StoreCorrupt,
    StoreVersionError,
)
_FENCED = (DestinationFenced, StoreFenced)
_PLACES = "settings that name places are data_dir, store.path, spool.uri and the destination's, such as its warehouse"
_NOT_WRITABLE = f"make it writable for this user, or name another place; {_PLACES}"
_WHAT_TO_DO = {
    errno.EACCES: _NOT_WRITABLE,
    errno.EPERM: _NOT_WRITABLE,
    errno.EROFS: _NOT_WRITABLE,
    errno.ENOENT: f"check the path: a relative one starts at the working directory; {_PLACES}",
    errno.ENOTDIR: f"check the path: a part of it is a file, not a directory; {_PLACES}",
    errno.EISDIR: "name a file, not a directory",
    errno.EEXIST: "name another place, or move away what is there",
    errno.ENOSPC: "make room on that disk, then start again",
    errno.EDQUOT: "make room within the disk quota, then start again",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.EADDRINUSE: "end what listens on that port, or choose another",
}
_BUG = "this is a bug in headrace; please report it with this line and the log before it"


def exit_code(error: BaseException) -> ExitCode:
    """The code of a command that ended by this error."""
    if isinstance(error, KeyboardInterrupt):
        return ExitCode.CUT_OFF
    known = as_advice(error)
    if isinstance(known, _FENCED):
        return ExitCode.FENCED
    if isinstance(known, _USAGE):
        return ExitCode.USAGE
    return ExitCode.CANNOT_CONNECT if isinstance(known, _UNREACHABLE) else ExitCode.PIPELINE_FAILED


def show(error: BaseException, console: Console | None = None) -> None:
    """Print the error as advice, on standard error unless a console is given."""
    advice = as_advice(error)
    out = console or SafeConsole(stderr=True)
    lines = [f"[bold red]error[/] {_message(advice)}"]
    if advice.detail:
        lines.append(f"[dim]detail[/] {_text(advice.detail)}")
    if advice.hint:
        lines.append(f"[green]what to do[/] {_text(sql_on_one_line(name_file(advice.hint)))}")
    # Paths and SQL are there to be copied: no breaks of ours in them.
    out.print("\n".join(lines), highlight=False, soft_wrap=True)


def fail(error: BaseException, code: ExitCode | None = None) -> NoReturn:
    """Show the error and end the command, with the error's own exit code unless one is given."""
    show(error)
    raise typer.Exit(exit_code(error) if code is None else code) from None


@contextmanager
def errors_shown(file: Path | None = None, source: str | None = None) -> Iterator[None]:
    """Run a command's body; show an error that it raises, with a hint, and exit with the matching code.

    Hints name the configuration file that the command was given, or else the source.
    """
    with file_named(file, without_password(source)[0] if source else None):
        try:
            yield
        except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
            # typer and click know what to do with these.
            raise
        except Exception as error:  # noqa: BLE001 - a user gets advice, never a traceback
            fail(error)


def as_advice(error: BaseException) -> HeadraceError:
    """The error itself if it is ours; else one of ours that says the same."""
    if isinstance(error, HeadraceError):
        return error
    if isinstance(error, OSError):
        return _system(error)
    if isinstance(error, ValidationError):
        return _validation(error)
    if isinstance(error, YAMLError):
        return _yaml(error)
    return _unexpected(error)


def _system(error: OSError) -> HeadraceError:
    said = error.strerror or type(error).__name__
    place = "" if error.filename is None else f"{error.filename}: "
    hint = _WHAT_TO_DO.get(error.errno or 0, "look at the path or address named in the message")
    if is_disk_full(error) and isinstance(error.filename, str):
        hint = make_room(error.filename, "then start again")
    # What the system refuses is a place that was named wrongly, as a wrong setting is.
    return ConfigError(f"{place}{said[:1].lower()}{said[1:]}", hint=hint)


def _validation(error: ValidationError) -> ConfigError:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [f"- {'.'.join(map(str, problem['loc'])) or error.title}: {problem['msg']}" for problem in problems]
    count = "a problem" if len(lines) == 1 else f"{len(lines)} problems"
    return ConfigError("\n".join([f"the settings have {count}:", *lines]), hint=ConfigError.hint)


def _yaml(error: YAMLError) -> ConfigError:
    mark = error.problem_mark if isinstance(error, MarkedYAMLError) else None
    where = "" if mark is None else f"{mark.name}, line {mark.line + 1}, column {mark.column + 1}: "
    hint = "correct the file there; mind the indentation, and quotes around text with : or #"
    # Not what the parser says: it quotes what it found, which may be a password.
    return ConfigError(f"{where}this is not YAML", hint=hint)


def _unexpected(error: BaseException) -> HeadraceError:
    # Its message may quote a row, so only its class and place are shown.
    return HeadraceError(f"unexpected {type(error).__name__}", detail=places(error, 3) or None, hint=_BUG)


def _message(error: HeadraceError) -> str:
    # Wrong settings are listed a line each. Other texts have names of the source in them, which may have line breaks.
    lines = error.message.split("\n- ") if isinstance(error, ConfigError) else [error.message]
    return "\n- ".join(map(_text, lines))


def _text(text: str) -> str:
    return escape(escape_unprintable(redact_text(text)))

"""`headrace new-destination`: a package to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..scaffold import NewPackage, write_package
from .failing import errors_shown

__all__ = ["new_destination"]


def new_destination(
    name: Annotated[str, typer.Argument(help="The destination's kind, as a configuration will name it: my_queue.")],
    directory: Annotated[Path, typer.Option(help="Where the new directory goes.")] = Path(),
) -> None:
    r"""Write a package for a destination of your own, with Headrace's tests for destinations wired in.

    It works as it is, and keeps tables as files: replace those by what you
    write to, until the tests pass again.

    For example:

        headrace new-destination my_queue

        cd headrace-my-queue && pip install -e '.\[test]' && pytest

    Exit codes: 0 written; 2 wrong usage, or there is such a directory.
    """
    with errors_shown():
        package = NewPackage(name)
        for file in write_package(package, directory):
            typer.echo(file)
        typer.echo(f"\nNow: cd {directory / package.directory} && pip install -e '.[test]' && pytest")

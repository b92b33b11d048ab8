"""Fills the templates in. A template is a file of this package; its name and its text hold `$words`."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template

from .. import __version__
from ..errors import ConfigError

__all__ = ["NewPackage", "write_package"]

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_TEMPLATES = {
    "pyproject.toml": "pyproject.toml.template",
    "README.md": "README.md.template",
    "pipeline.yaml": "pipeline.yaml.template",
    "src/$package/__init__.py": "package.py.template",
    "src/$package/destination.py": "destination.py.template",
    "tests/conftest.py": "conftest.py.template",
    "tests/test_$name.py": "test_destination.py.template",
}


@dataclass(frozen=True, slots=True)
class NewPackage:
    """The names of a package for one destination."""

    name: str
    """The kind, as a pipeline's configuration will name it."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or keyword.iskeyword(self.name):
            msg = f"{self.name!r} cannot be the name of a destination"
            raise ConfigError(msg, hint="use small letters, digits and _, beginning with a letter: my_queue")

    @property
    def directory(self) -> str:
        return f"headrace-{self.name.replace('_', '-')}"

    @property
    def words(self) -> dict[str, str]:
        camel = "".join(part.capitalize() for part in self.name.split("_"))
        return {
            "name": self.name,
            "distribution": self.directory,
            "package": f"headrace_{self.name}",
            "cls": f"{camel}Destination",
            "settings": f"{camel}Settings",
            "version": __version__,
        }


def write_package(package: NewPackage, above: Path) -> list[Path]:
    """Write the package into a new directory; returns its files. Raises ConfigError if the directory is there."""
    root = above / package.directory
    try:
        root.mkdir()
    except FileExistsError:
        raise ConfigError(f"{root} exists", hint="choose another name, or another --directory") from None
    except OSError as error:
        msg = f"the directory {root} cannot be made"
        raise ConfigError(msg, detail=error.strerror, hint="give a --directory that is there and writable") from None
    written = []
    for path, template in _TEMPLATES.items():
        text = (files(__package__) / "destination" / template).read_text(encoding="utf-8")
        file = root / Template(path).substitute(package.words)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(Template(text).substitute(package.words), encoding="utf-8")
        written.append(file)
    return written

"""Reads a YAML file and remembers the line of every setting. Nothing it says quotes what stands in the file."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from .layer import Layer, Problem, SettingPath

__all__ = ["read_yaml"]

_QUOTED = re.compile(r"""'[^']*'|"[^"]*\"""")
_MERGE = "tag:yaml.org,2002:merge"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"


class _Loader(yaml.SafeLoader):
    """YAML's dates are left as text: no setting is a date, and a password may look like one."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_yaml(path: Path) -> Layer:
    """The settings of a file. What is wrong with it is in `problems`."""
    layer = Layer()
    try:
        _read(path, layer)
    except OSError as error:
        layer.problems.append(Problem((), f"cannot be read: {error.strerror}", str(path)))
    except UnicodeDecodeError:
        layer.problems.append(Problem((), "is not UTF-8 text", str(path)))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        layer.problems.append(Problem((), _unquoted(error.problem or error.context or "is not YAML"), where))
    except yaml.YAMLError:
        layer.problems.append(Problem((), "has a character that YAML does not allow", str(path)))
    except ValueError:
        layer.problems.append(Problem((), "has a number that cannot be read: put text in quotes", str(path)))
    return layer


def _read(path: Path, layer: Layer) -> None:
    loader = _Loader(path.read_text(encoding="utf-8-sig"))
    try:
        root = loader.get_single_node()
        if root is None:
            return
        _Walk(path, layer).over(root, ())
        values = loader.construct_document(root)
    finally:
        loader.dispose()
    if isinstance(values, dict):
        layer.values.update({name: value for name, value in values.items() if isinstance(name, str)})
    else:
        layer.problems.append(Problem((), "must hold settings, each as `name: value`", str(path)))


class _Walk:
    """Notes lines and double keys. A node is visited once: aliases may make a small file endless."""

    def __init__(self, path: Path, layer: Layer) -> None:
        self._path = path
        self._layer = layer
        self._seen: set[int] = set()

    def over(self, node: Node, above: SettingPath) -> None:
        if id(node) in self._seen:
            return
        self._seen.add(id(node))
        if isinstance(node, MappingNode):
            self._mapping(node, above)
        elif isinstance(node, SequenceNode):
            for position, item in enumerate(node.value):
                self._layer.origins.setdefault((*above, str(position)), self._line(item))
                self.over(item, (*above, str(position)))

    def _mapping(self, node: MappingNode, above: SettingPath) -> None:
        here: set[str] = set()
        for key, value in node.value:
            if key.tag == _MERGE:
                continue
            if not isinstance(key, ScalarNode) or not key.tag.endswith(":str"):
                self._layer.problems.append(Problem(above, "a name must be text: put it in quotes", self._line(key)))
                continue
            name: SettingPath = (*above, key.value)
            if key.value in here:
                first = self._layer.origins[name]
                self._layer.problems.append(Problem(name, f"is given twice; first at {first}", self._line(key)))
            here.add(key.value)
            self._layer.origins.setdefault(name, self._line(key))
            self.over(value, name)

    def _line(self, node: Node) -> str:
        return f"{self._path}:{node.start_mark.line + 1}"


def _unquoted(problem: str) -> str:
    """The parser's words without what it found in the file: an unquoted password may begin with * or !."""

    def shorten(match: re.Match[str]) -> str:
        inner = match[0][1:-1]
        # A single character (also as an escape, '\\t') or one of YAML's own words, '<block end>'.
        return match[0] if len(inner.lstrip("\\")) <= 1 or inner.startswith("<") else "(not shown)"

    hint = " (put a value in quotes if it begins with * or !)" if re.search("alias|tag", problem) else ""
    return _QUOTED.sub(shorten, problem) + hint

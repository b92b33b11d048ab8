"""Jars by Maven coordinates and hash, in a cache. Ivy does the fetching, with its own defaults: Spark brings it."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from ..spark.java import find_java
from .binaries import cache_directory

__all__ = ["Jar", "maven_jars", "spark_jars"]

_PATTERN = "[artifact]-[revision](-[classifier]).[ext]"


@dataclass(frozen=True, slots=True)
class Jar:
    """One file: `group:artifact:version`, a classifier if it has one, and what it must hash to."""

    coordinates: str
    sha256: str
    classifier: str = ""

    @property
    def file_name(self) -> str:
        _, artifact, version = self.coordinates.split(":")
        return f"{artifact}-{version}{'-' + self.classifier if self.classifier else ''}.jar"

    def ivy_artifact(self) -> str:
        name = quoteattr(self.coordinates.split(":")[1])
        classifier = f" m:classifier={quoteattr(self.classifier)}" if self.classifier else ""
        return f'<artifact name={name} type="jar" ext="jar"{classifier}/>'


def spark_jars() -> Path:
    """The directory of the jars that pyspark brings."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        msg = "pyspark is not installed"
        raise RuntimeError(msg)
    return Path(found.origin).parent / "jars"


def maven_jars(name: str, jars: Sequence[Jar]) -> Path:
    """A directory of the cache, called `name`, with these jars and no others; fetched the first time."""
    directory = cache_directory() / "jars" / name
    if not directory.exists():
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory.parent) as temporary:
            fetched = _fetch(jars, Path(temporary))
            try:
                fetched.rename(directory)
            except OSError:
                if not directory.exists():  # another process may have been quicker; its copy is as good
                    raise
    return directory


def _fetch(jars: Sequence[Jar], place: Path) -> Path:
    wanted = place / "jars"
    (place / "ivy.xml").write_text(_ivy_file(jars))
    ivy = next(spark_jars().glob("ivy-*.jar"))
    subprocess.run(
        [
            *(str(find_java().path), "-jar", str(ivy), "-error", "-cache", str(place / "cache")),
            *("-ivy", str(place / "ivy.xml"), "-retrieve", f"{wanted}/{_PATTERN}"),
        ],
        stdout=subprocess.DEVNULL,
        check=True,
    )
    for jar in jars:
        found = hashlib.sha256((wanted / jar.file_name).read_bytes()).hexdigest()
        if found != jar.sha256:
            msg = f"{jar.file_name} is not the file that was asked for: its sha256 is {found}, not {jar.sha256}"
            raise RuntimeError(msg)
    return wanted


def _ivy_file(jars: Sequence[Jar]) -> str:
    modules = dict.fromkeys(jar.coordinates for jar in jars)
    dependencies = []
    for module in modules:
        group, artifact, version = map(quoteattr, module.split(":"))
        artifacts = "".join(jar.ivy_artifact() for jar in jars if jar.coordinates == module)
        place = f"org={group} name={artifact} rev={version}"
        dependencies.append(f'<dependency {place} transitive="false">{artifacts}</dependency>')
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="headrace" module="jars"/>'
        f"<dependencies>{''.join(dependencies)}</dependencies></ivy-module>"
    )

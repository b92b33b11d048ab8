"""Jars by Maven coordinates: found in the local cache or fetched by Ivy, and verified before Java gets to see them.

`jars.sha256` pins every jar of the packages that the built-in destinations need, those included that they depend on.
Such packages are not left to Spark, which would put whatever it finds on the classpath: their jars are hashed at every
start, and handed over as files. That protects from a repository, mirror or cache that serves other files than those
this version was tested with; not from someone who can change files of the user who runs this.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

import structlog

from ..errors import SparkUnavailable
from .java import find_java

__all__ = ["ASKED_FOR", "Jar", "fetch_jars", "jar_settings", "pinned_packages", "spark_jars", "verify_jar"]

ASKED_FOR = "spark.headrace.packages"
"""The Spark setting that keeps which packages a session was started with."""

_FILE_NAME = "[organization]_[artifact]-[revision](-[classifier]).[ext]"
_CHUNK = 1 << 20
_NOT_FOUND = re.compile(r"unresolved dependency|: not found|Server access error|download failed", re.IGNORECASE)
_DETAIL = 500

_log = structlog.get_logger("headrace.spark")


@dataclass(frozen=True, slots=True)
class Jar:
    """One file: `group:artifact:version`, a classifier if it has one, and its SHA-256."""

    coordinates: str
    sha256: str
    classifier: str = ""

    @property
    def module(self) -> str:
        """Return `group:artifact`, of which a classpath should have one version."""
        return self.coordinates.rpartition(":")[0]

    @property
    def file_name(self) -> str:
        """Return the name of the file in the cache, the same that Spark gives it."""
        group, artifact, version = self.coordinates.split(":")
        return f"{group}_{artifact}-{version}{'-' + self.classifier if self.classifier else ''}.jar"

    def ivy_artifact(self) -> str:
        """Return the element of an Ivy file that names it."""
        name = quoteattr(self.coordinates.split(":")[1])
        classifier = f" m:classifier={quoteattr(self.classifier)}" if self.classifier else ""
        return f'<artifact name={name} type="jar" ext="jar"{classifier}/>'


def spark_jars() -> Path:
    """Return the directory of the jars that pyspark brings."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        msg = "pyspark is not installed"
        raise RuntimeError(msg)
    return Path(found.origin).parent / "jars"


@cache
def pinned_packages() -> Mapping[str, tuple[Jar, ...]]:
    """Return the jars of each package whose hashes are known, by the package's coordinates."""
    packages: dict[str, list[Jar]] = {}
    package = ""
    for line in (resources.files(__package__) / "jars.sha256").read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        digest, _, coordinates = line.partition(" ")
        if not coordinates.startswith(" "):
            package = coordinates
        packages.setdefault(package, []).append(Jar(coordinates.strip(), digest))
    return {package: tuple(jars) for package, jars in packages.items()}


def jar_settings(packages: Sequence[str], conf: Mapping[str, str]) -> dict[str, str]:
    """Return the Spark settings that load these packages; `conf` are the user's own, some of which concern jars.

    Raises:
        SparkUnavailable: a jar is not the one that is pinned, or cannot be fetched.
    """
    versions: dict[str, str] = {}
    for package in packages:
        # Of two versions the first is the user's own.
        versions.setdefault(":".join(package.split(":")[:2]), package)
    known = pinned_packages()
    pinned = [package for package in versions.values() if package in known]
    others = [package for package in versions.values() if package not in known]
    if not pinned:
        return {"spark.jars.packages": ",".join(others), ASKED_FOR: ",".join(packages)} if others else {}
    excluded = set(filter(None, conf.get("spark.jars.excludes", "").split(",")))
    needed = dict.fromkeys(jar for package in pinned for jar in known[package])
    jars = [jar for jar in needed if jar.module not in excluded]
    files = _verified(jars, conf)
    given = [conf["spark.jars"]] if conf.get("spark.jars") else []
    settings = {"spark.jars": ",".join([*given, *map(str, files)]), ASKED_FOR: ",".join(packages)}
    # Spark looks for what is left. It must not bring another version of a jar that is there.
    settings["spark.jars.packages"] = ",".join(others)
    if others:
        _log.info("these packages are not pinned: their jars are not verified", packages=others)
        settings["spark.jars.excludes"] = ",".join(sorted(excluded | {jar.module for jar in jars}))
    return settings


def _verified(jars: Sequence[Jar], conf: Mapping[str, str]) -> list[Path]:
    """Return the files of these jars, fetched if they are not in the cache, once each has its hash."""
    place = Path(conf.get("spark.jars.ivy") or Path.home() / ".ivy2.5.2") / "jars"
    missing = [jar for jar in jars if not (place / jar.file_name).exists()]
    if missing:
        _log.info("fetching jars", count=len(missing), to=str(place))
        _fetch_into(place, missing, conf)
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # hashing releases the interpreter
        return list(pool.map(lambda jar: verify_jar(jar, place / jar.file_name), jars))


def verify_jar(jar: Jar, path: Path) -> Path:
    """Return the path of a file that is this jar. Raises SparkUnavailable for any other."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except OSError as error:
        msg = f"cannot read the jar {path}"
        raise SparkUnavailable(msg, detail=error.strerror, hint="make it readable for this user") from error
    if digest.hexdigest() == jar.sha256:
        return path
    raise SparkUnavailable(
        f"the jar {path} is not {jar.coordinates} as it was published: it was damaged or replaced",
        detail=f"its SHA-256 is {digest.hexdigest()}, expected {jar.sha256}",
        hint=f"find out who wrote it, then remove it, and the next start fetches it again: rm {shlex.quote(str(path))}",
    )


def _fetch_into(place: Path, jars: Sequence[Jar], conf: Mapping[str, str]) -> None:
    """Add jars to the cache, each whole and with its hash, or not at all."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix="fetching-") as temporary:
            fetched = fetch_jars(jars, Path(temporary), conf)
            for jar in jars:
                _verify_fetched(jar, fetched / jar.file_name)
            for jar in jars:
                os.replace(fetched / jar.file_name, place / jar.file_name)
    except OSError as error:
        msg = f"cannot write jars to {place}"
        hint = "make it writable and see that its disk has space, or name another directory as spark.jars.ivy"
        raise SparkUnavailable(msg, detail=error.strerror or str(error), hint=hint) from error


def _verify_fetched(jar: Jar, path: Path) -> None:
    try:
        verify_jar(jar, path)
    except SparkUnavailable as error:
        msg = f"the repository has another file for {jar.coordinates} than the one that was published"
        hint = "do not use that repository or mirror: name another in spark.jars.repositories or spark.jars.ivySettings"
        raise SparkUnavailable(msg, detail=error.detail, hint=f"{hint}, under spark.conf") from None


def fetch_jars(jars: Sequence[Jar], place: Path, conf: Mapping[str, str] | None = None) -> Path:
    """Fetch jars, and nothing that they depend on, to a directory below `place`, with Ivy, which Spark brings.

    Raises:
        SparkUnavailable: one cannot be had.
    """
    wanted = place / "jars"
    (place / "ivy.xml").write_text(_ivy_file(jars), encoding="utf-8")
    ivy = next(spark_jars().glob("ivy-*.jar"))
    result = subprocess.run(
        [
            *(str(find_java().path), *_java_options(conf or {}), "-jar", str(ivy), "-warn"),
            *("-cache", str(place / "cache"), *_ivy_settings(conf or {}, place)),
            *("-ivy", str(place / "ivy.xml"), "-retrieve", f"{wanted}/{_FILE_NAME}"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line.strip(" \t:") for line in (result.stdout + result.stderr).splitlines()]
    if result.returncode or any(not (wanted / jar.file_name).exists() for jar in jars):
        problems = [line for line in lines if _NOT_FOUND.search(line)] or lines[-1:]
        msg = "jars that Spark needs cannot be fetched"
        hint = "the first start needs the network, or a mirror of Maven Central named by spark.jars.ivySettings"
        raise SparkUnavailable(msg, detail="; ".join(dict.fromkeys(problems))[:_DETAIL], hint=hint)
    return wanted


def _java_options(conf: Mapping[str, str]) -> Iterator[str]:
    """Yield the properties, such as those of a proxy, that Spark's own Java would get too."""
    for options in (os.environ.get("SPARK_SUBMIT_OPTS", ""), conf.get("spark.driver.extraJavaOptions", "")):
        yield from (option for option in shlex.split(options) if option.startswith("-D"))


def _ivy_settings(conf: Mapping[str, str], place: Path) -> tuple[str, ...]:
    if conf.get("spark.jars.ivySettings"):
        return "-settings", conf["spark.jars.ivySettings"]
    repositories = [one.strip() for one in conf.get("spark.jars.repositories", "").split(",") if one.strip()]
    if not repositories:
        return ()
    resolvers = "".join(
        f'<ibiblio name="repository-{number}" m2compatible="true" root={quoteattr(root)}/>'
        for number, root in enumerate(repositories)
    )
    path = place / "ivysettings.xml"
    path.write_text(
        '<ivysettings><settings defaultResolver="all"/><resolvers><chain name="all">'
        f'{resolvers}<ibiblio name="central" m2compatible="true"/></chain></resolvers></ivysettings>',
        encoding="utf-8",
    )
    return "-settings", str(path)


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

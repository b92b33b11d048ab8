"""tools/java.sh: a Java is found, or installed where the user may do that, or one line says what to install."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "tools" / "java.sh"
NEEDED = ("bash", "dirname", "env", "grep", "ln", "mkdir", "readlink", "true")
ADVICE = (
    "headrace: Spark needs Java 17 or 21: install it (Debian: apt-get install openjdk-17-jre-headless) or set "
    "JAVA_HOME\n"
)


class Machine:
    """One whose programs are all known: those that the script needs, and fakes."""

    def __init__(self, root: Path, *, user: int) -> None:
        self.programs, self.jvms, self.link, self.calls = root / "bin", root / "jvms", root / "link", root / "calls"
        self.programs.mkdir()
        self.jvms.mkdir()
        for name in NEEDED:
            program = shutil.which(name)
            assert program is not None
            (self.programs / name).symlink_to(program)
        self.fake("id", f"echo {user}")

    def fake(self, name: str, script: str) -> None:
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def java(self, home: Path, version: str) -> Path:
        (home / "bin").mkdir(parents=True)
        (home / "bin" / "java").write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        (home / "bin" / "java").chmod(0o755)
        return home

    def manager(self, name: str, package: str, version: str) -> None:
        """A package manager that has one package."""
        self.java(self.jvms.parent / "packaged", version)
        self.fake(
            name,
            f"""echo "{name} $*" >> {self.calls}
case "$*" in
    *update*) exit 0 ;;
    *" {package}") {shutil.which("cp")} -r {self.jvms.parent}/packaged {self.jvms}/installed ;;
    *) echo "no such package" >&2; exit 1 ;;
esac""",
        )

    def run(self, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.programs / "bash", SCRIPT, self.link],
            env={"PATH": str(self.programs), "JVMS": str(self.jvms), **environment},
            capture_output=True, text=True, check=False,
        )  # fmt: skip


def test_a_java_that_is_there_is_linked(tmp_path: Path) -> None:
    machine = Machine(tmp_path, user=0)
    machine.manager("apt-get", "openjdk-17-jre-headless", "17.0.1")
    named, listed = machine.java(tmp_path / "home", "21.0.2"), machine.java(machine.jvms / "java-17", "17.0.1")
    too_new = machine.java(tmp_path / "new", "25")
    for home, wanted in (({"JAVA_HOME": str(named)}, named), ({"JAVA_HOME": str(too_new)}, listed), ({}, listed)):
        result = machine.run(**home)
        assert (result.returncode, result.stderr) == (0, "")
        assert machine.link.resolve() == wanted
    machine.programs.joinpath("java").symlink_to(named / "bin" / "java")
    assert machine.run().returncode == 0
    assert machine.link.resolve() == named
    assert not machine.calls.exists()


@pytest.mark.parametrize(
    ("manager", "package", "version"),
    [
        ("apt-get", "openjdk-17-jre-headless", "17.0.1"),
        ("apt-get", "openjdk-21-jre-headless", "21"),
        ("dnf", "java-21-openjdk-headless", "21.0.4"),
        ("zypper", "java-17-openjdk-headless", "17.0.1"),
        ("apk", "openjdk17-jre-headless", "17.0.1"),
    ],
)
@pytest.mark.parametrize("user", [0, 1000])
def test_one_is_installed_where_the_user_may(
    tmp_path: Path, manager: str, package: str, version: str, user: int
) -> None:
    machine = Machine(tmp_path, user=user)
    machine.manager(manager, package, version)
    machine.fake("sudo", 'test "$1" = -n && shift && exec "$@"')
    result = machine.run()
    assert result.returncode == 0, result.stderr
    assert f"installing one with {manager}" in result.stderr
    assert package in machine.calls.read_text()
    assert machine.link.resolve() == machine.jvms / "installed"


@pytest.mark.parametrize("sudo", [None, "echo 'sudo: a password is required' >&2; exit 1"])
def test_who_may_not_install_is_told_in_one_line(tmp_path: Path, sudo: str | None) -> None:
    machine = Machine(tmp_path, user=1000)
    machine.manager("dnf", "java-17-openjdk-headless", "17.0.1")
    if sudo is not None:
        machine.fake("sudo", sudo)
    machine.java(machine.jvms / "java-11", "11.0.9")
    result = machine.run()
    assert (result.returncode, result.stdout, result.stderr) == (1, "", ADVICE)
    assert not machine.calls.exists()
    assert not machine.link.exists()


def test_what_cannot_be_installed_is_told(tmp_path: Path) -> None:
    machine = Machine(tmp_path, user=0)
    machine.manager("apk", "openjdk8", "1.8.0")
    result = machine.run()
    assert result.returncode == 1
    assert result.stderr.endswith(ADVICE)

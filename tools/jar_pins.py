"""Write src/headrace/spark/jars.sha256: the SHA-256 of every jar that the built-in destinations need.

Run it after a change of a version, and compare the file with the hashes that the projects publish. The jars are
fetched into an empty cache, so that nothing that was replaced here is pinned.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

from pyspark import SparkConf, SparkContext

from headrace.destinations.delta.java import PACKAGES as DELTA
from headrace.destinations.iceberg.catalog import AWS, SQLITE
from headrace.destinations.iceberg.java import PACKAGES as ICEBERG

PINS = Path(__file__).parent.parent / "src/headrace/spark/jars.sha256"
HEAD = "# SHA-256 of every jar of a package, by Maven coordinates: the package, and indented what it depends on.\n"


def main() -> None:
    package = sys.argv[1] if len(sys.argv) > 1 else None
    if package is not None:
        sys.stdout.write(_lines(package))
        return
    # One process for each: a JVM keeps the jars that it was started with.
    pins = [
        subprocess.run([sys.executable, __file__, package], check=True, stdout=subprocess.PIPE, text=True).stdout
        for package in sorted((*DELTA, *ICEBERG, AWS, SQLITE))
    ]
    PINS.write_text(HEAD + "".join(pins), encoding="utf-8")


def _lines(package: str) -> str:
    with tempfile.TemporaryDirectory() as cache:
        conf = SparkConf().setMaster("local[1]").set("spark.jars.packages", package).set("spark.jars.ivy", cache)
        conf.set("spark.driver.bindAddress", "127.0.0.1").set("spark.driver.host", "127.0.0.1")
        with SparkContext(conf=conf.set("spark.ui.enabled", "false")) as context:
            names = {Path(url).name for url in context.getConf().get("spark.jars", "").split(",")}
        pins = {}
        for path in Path(cache, "cache").glob("*/*/*s/*.jar"):  # group, artifact, jars or bundles
            artifact = path.parent.parent
            if f"{artifact.parent.name}_{path.name}" in names:
                version = path.stem.removeprefix(f"{artifact.name}-")
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                pins[f"{artifact.parent.name}:{artifact.name}:{version}"] = digest
    depended_on = "".join(f"{digest}  {jar}\n" for jar, digest in sorted(pins.items()) if jar != package)
    return f"{pins[package]} {package}\n{depended_on}"


if __name__ == "__main__":
    main()

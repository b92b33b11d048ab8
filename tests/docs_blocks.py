"""The code in the documents: found, run, and put into files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
_FILE = re.compile(r"# (\w+\.py)\n")


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def run(code: str, names: dict[str, Any]) -> dict[str, Any]:
    """Run a block where these names are known; it may add to them."""
    exec(compile(code, "<block>", "exec"), names)
    return names


def write_modules(page: str, directory: Path) -> None:
    """Blocks that begin with the name of a file, as such files."""
    directory.mkdir(exist_ok=True)
    for block in blocks(page, "python"):
        named = _FILE.match(block)
        if named:
            (directory / named.group(1)).write_text(block, encoding="utf-8")

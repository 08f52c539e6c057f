"""The code of README and docs runs, and prints what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .document_blocks import blocks_of, run_page

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RUN = [page for page in PAGES if any(not block.skipped for block in blocks_of(page))]
TWICE = ("README.md", "tutorial.md")
"""Pages that are run a second time where they ran before."""


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_each_block_of_a_page_prints_what_the_page_says(page: Path, tmp_path: Path, spark: object) -> None:
    run_page(page, tmp_path)
    if page.name in TWICE:
        run_page(page, tmp_path)


def test_few_blocks_are_not_run_and_each_says_why() -> None:
    skipped = [block for page in PAGES for block in blocks_of(page) if block.skipped]
    assert all(len(block.text.splitlines()[0]) > len("# not run: ") + 5 for block in skipped)
    assert len(skipped) <= 4, [f"{block.path.name}:{block.line}" for block in skipped]


def test_each_command_that_a_page_shows_is_run_and_what_it_prints_compared() -> None:
    bare = re.compile(r"^```(?:text|bash|sh)?\n(?:\$ |>>> )?(?:holdfast |>>> )", re.M)
    found = [page.name for page in PAGES if bare.search(page.read_text())]
    assert found == ["metrics.md"], "that one serves until it is stopped: tests/terminal/test_commands.py runs it"

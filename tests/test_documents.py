"""Documents name files and functions that are there."""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src/holdfast"
ARCHITECTURE = (ROOT / "docs/architecture.md").read_text()
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]

_PATH = r"`(?P<path>[\w./-]+\.(?:py|md|toml|sh|txt|yml|yaml|json))`"
_NAMED = re.compile(rf"`(?P<name>\w+)`(?: of the `\w+`)?,?\s+(?:\()?in\s+{_PATH}")


@cache
def defined(path: Path) -> frozenset[str]:
    """The functions, methods and classes of a file."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return frozenset(node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds))


def _walk() -> str:
    return ARCHITECTURE.split("## From flow.step() to the sink", 1)[1].split("\n## ", 1)[0]


def test_each_function_of_the_walk_is_in_the_file_that_it_names() -> None:
    found = [(match["name"], match["path"]) for match in _NAMED.finditer(_walk())]
    assert len(found) > 40, "the walk has lost its form: `function` in `room/file.py`"
    wrong = [pair for pair in found if pair[0] not in defined(SOURCES / pair[1])]
    assert not wrong


def test_each_step_of_the_walk_names_a_function_and_a_file() -> None:
    steps = re.split(r"^\d+\. ", _walk(), flags=re.M)[1:]
    assert len(steps) == 18
    assert all(_NAMED.search(step) for step in steps)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_each_file_that_a_document_names_is_there(document: Path) -> None:
    text = document.read_text()
    named = {match["path"] for match in re.finditer(_PATH, text)} - _OF_USERS
    linked = {link for link in re.findall(r"\]\(([^)#:]+)\)", text) if "://" not in link} - _MADE
    missing = [path for path in sorted(named) if not _is_there(path)]
    missing += [link for link in sorted(linked) if not (document.parent / link).exists()]
    assert not missing


_MADE = frozenset(["reference/cli.md"])
"""Pages that are made when the site is built."""

_OF_USERS = frozenset(
    ("app.py", "holdfast.json", "collections.json", "members.json", "clock.json", "rates.json", "verified.json")
)
"""Files of a user's program, and of a log."""


def _is_there(path: str) -> bool:
    if "/" not in path:  # a file of the room that the sentence speaks of
        return bool(
            next(ROOT.glob(path), None) or next(SOURCES.rglob(path), None) or next((ROOT / "docs").glob(path), None)
        )
    return any((root / path).exists() for root in (ROOT, SOURCES, SOURCES / "plan"))


def test_each_room_is_in_the_picture() -> None:
    picture = ARCHITECTURE.split("## The rooms", 1)[1].split("```", 2)[1]
    rooms = {path.parent.name for path in SOURCES.glob("*/__init__.py")}
    assert rooms == {room for room in re.findall(r"(\w+)/", picture)}


def test_each_dependency_has_its_line() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(each for some in project["optional-dependencies"].values() for each in some)]
    names = {re.match(r"[\w-]+", each)[0] for each in wanted}  # type: ignore[index]  # each begins with its name
    lines = {name for name in re.findall(r"^\| ([\w-]+)", (ROOT / "docs/dependencies.md").read_text(), re.M)}
    assert names <= lines


def test_the_site_has_each_page_and_the_reference_all_that_is_exported() -> None:
    import yaml

    import holdfast
    from holdfast import testing

    said = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    pages = set(re.findall(r"[\w/-]+\.md", str(said["nav"]))) - _MADE
    assert pages == {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    for page, names in (("api", holdfast.__all__), ("testing", testing.__all__)):
        text = (ROOT / f"docs/reference/{page}.md").read_text()
        assert sorted(re.findall(r"^::: holdfast\.(?:testing\.)?(\w+)$", text, re.M)) == sorted(names)


@pytest.mark.slow
def test_the_site_is_built_without_a_warning() -> None:
    done = subprocess.run(["make", "docs"], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all((ROOT / "site" / page).exists() for page in ("index.html", "reference/api.html", "reference/cli.html"))


def test_the_readme_is_short_says_its_limits_and_explains_a_term_where_it_first_occurs() -> None:
    text = (ROOT / "README.md").read_text()
    assert text.count("\n") <= 120
    assert "\nIts limits: " in text and "What it is for, and what not" in text
    prose = re.sub(r"^```.*?^```$", "", text.partition("## Read on")[0], flags=re.M | re.S)
    for term in ("flow", "epoch", "log", "partitions"):
        explained = [match.start() for match in re.finditer(rf"\*{term}\*", prose)]
        assert len(explained) == 1, f"{term} is explained {len(explained)} times"
        assert not re.search(rf"(?<![*\w`.]){term}\b(?![*(])", prose[: explained[0]]), f"{term} is used before"
    _, promised, rest = prose.partition("keeps SQL views over changing data up to date on Spark. ")
    assert promised and rest.startswith("A *view* is a query with a name, whose result is kept. ")


def test_the_cookbook_has_twenty_recipes() -> None:
    assert (ROOT / "docs/cookbook.md").read_text().count("\n## ") == 20


def test_a_file_of_more_than_400_lines_says_why() -> None:
    for path in sorted(SOURCES.rglob("*.py")):
        text = path.read_text()
        if text.count("\n") > 400:
            header = " ".join((ast.get_docstring(ast.parse(text)) or "").split())
            assert "The file is long because" in header, f"{path.relative_to(ROOT)} has {text.count(chr(10))} lines"

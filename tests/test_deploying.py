"""The image of docs/deploying.md: what it is made of is there, and its steps run, as far as they can without Docker."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCKERFILE = ROOT / "examples/docker/Dockerfile"


def instructions() -> list[tuple[str, str]]:
    """(INSTRUCTION, the rest), comments left out and lines joined."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(word, rest) for line in joined.splitlines() if line.strip() for word, _, rest in [line.partition(" ")]]


def test_the_image_has_a_python_that_holdfast_runs_on_and_a_java_that_spark_runs_on() -> None:
    steps = instructions()
    base = next(rest for word, rest in steps if word == "FROM")
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    version = re.match(r"python:(\d+)\.(\d+)", base)
    assert version and wanted == ">=3.11" and (int(version[1]), int(version[2])) >= (3, 11)
    assert any("openjdk-17-jre" in rest for word, rest in steps if word == "RUN")
    for word, rest in steps:
        if word == "COPY":
            assert (ROOT / shlex.split(rest)[0]).exists(), rest


@pytest.mark.slow
def test_the_steps_of_the_image_run_as_a_script(tmp_path: Path) -> None:
    """In a virtual environment and directories of its own. Java is this machine's; all else is installed as said."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    outside = {"/src": ROOT, "/app": tmp_path / "app", "/state": tmp_path / "state", "/data": tmp_path / "data"}

    def inside(text: str) -> str:
        return re.sub(r"(?<![\w.-])(/src|/app|/state|/data)\b", lambda found: str(outside[found[0]]), text)

    environment = {**os.environ, "PATH": f"{tmp_path}/venv/bin:{os.environ['PATH']}"}
    environment |= {"PYSPARK_PYTHON": f"{tmp_path}/venv/bin/python"}
    environment.pop("PYTHONPATH", None)
    (tmp_path / "data").mkdir()
    rows = [{"page": "a", "revenue": 1.5}, {"page": "a", "revenue": 2.0}, {"page": "b", "revenue": 1.0}]
    (tmp_path / "data" / "visits.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    where = tmp_path
    for word, rest in instructions():
        match word:
            case "COPY" if not rest.startswith(". "):
                source, target = shlex.split(rest)
                subprocess.run(["install", "-D", ROOT / source, inside(target)], check=True)
            case "RUN" if "apt-get" not in rest:
                subprocess.run(["sh", "-ec", inside(rest)], env=environment, cwd=where, check=True)
            case "WORKDIR":
                where = Path(inside(rest))
            case "ENV":
                environment |= dict(pair.split("=", 1) for pair in shlex.split(inside(rest)))
            case "ENTRYPOINT":
                command = [*json.loads(rest), "--until", "idle", "--json"]
                done = subprocess.run(command, env=environment, cwd=where, capture_output=True, text=True, timeout=300)
                assert done.returncode == 0, done.stderr
                assert '"pages": 2' in done.stdout
    read = ["holdfast", "read", str(tmp_path / "state"), "pages", "--format", "csv"]
    found = subprocess.run(read, env=environment, capture_output=True, text=True, check=True).stdout
    assert sorted(found.splitlines()[1:]) == ['"a",2,3.5', '"b",1,1']

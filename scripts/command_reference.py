"""Makes the page of the command line from the commands' own help, when the site is built (a hook of mkdocs)."""

from __future__ import annotations

from typing import Any

import click
import typer
from mkdocs.structure.files import File, Files

from holdfast.cli import app


def on_files(files: Files, *, config: Any) -> Files:
    files.append(File.generated(config, "reference/cli.md", content=page()))
    return files


def page() -> str:
    """Every command, with its help as the terminal shows it."""
    command = typer.main.get_command(app)
    lines = ["# The command line", "", "Made from `holdfast --help` and the help of each command.", ""]
    for name, each in _commands("holdfast", command):
        text = each.get_help(click.Context(each, info_name=name, max_content_width=100))
        lines += [f"## {name}", "", "```text", text, "```", ""]
    return "\n".join(lines)


def _commands(name: str, command: Any) -> list[tuple[str, Any]]:
    found = [(name, command)]
    for below, each in getattr(command, "commands", {}).items():
        found += _commands(f"{name} {below}", each)
    return found

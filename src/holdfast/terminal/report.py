"""How a log stands and what is wrong with it, as tables for people."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from holdfast.inspect.findings import AuditReport, Finding

_SHOWN = 50
"""So many findings fit a person's patience; ``--json`` gives all."""

_STYLES = {"damaged": "red", "missing": "red", "unreachable": "red", "behind": "yellow"}


def print_status(found: dict[str, Any], console: Console) -> None:
    """Show what `holdfast.inspect.describe.describe` found."""
    # Text, not str, for whatever a user named: rich takes brackets in a str for markup.
    at = f", at {_moment(found['at'])}" if found["at"] is not None else ""
    facts = _facts()
    facts.add_row("flow", Text(found["flow"]))
    facts.add_row("log", Text(found["log"]))
    facts.add_row("epoch", "none yet" if found["epoch"] < 0 else f"{found['epoch']:,}{at}")
    facts.add_row("running", _holder(found["running"]))
    if (claim := found["claim"]) is not None:
        facts.add_row("claimed", f"in term {claim['term']}, {_by(claim)}")
    facts.add_row("safe point", _safe(found))
    if found["at_risk"] is not None:
        facts.add_row("at risk", _at_risk(found["at_risk"]))
    for each in found["rewinds"]:
        why = f": {each['reason']}" if each["reason"] else ""
        facts.add_row("rewound", Text(f"in epoch {each['epoch']:,}, to epoch {each['to']:,}{why}"))
    if found["owed"]:
        facts.add_row("to take again", f"the input of {_count(found['owed'], 'epoch')}")
    layers = sum(trace["layers"] for trace in found["traces"])
    facts.add_row("state", f"{size(found['bytes'])} in {layers:,} layers of {len(found['traces']):,} traces")
    for each in found["crash_now"]:
        if each["title"] is not None:
            after = each["shown"] if each["seconds"] is None else f"first output after {each['shown']}"
            facts.add_row(Text(f"if {each['title']} is lost"), Text(after))
    console.print(facts)
    _print_levels(found, console)
    _print_collections(found, console)


def print_branches(found: Sequence[dict[str, Any]], console: Console) -> None:
    """Show the branches of a log."""
    if not found:
        console.print("no branches")
        return
    shown = Table("branch", "root", "made", "holds")
    for each in found:
        name = f"{each['name']} (until flow.repair())" if each["approximate"] else each["name"]
        shown.add_row(Text(name), _epoch(each["root"]), _moment(each["created"]), size(each["bytes"]))
    console.print(shown)


def _safe(found: dict[str, Any]) -> str:
    if found["safe"] is None:
        return "not known; give the log locations, too"
    return "none yet" if found["safe"] < 0 else f"epoch {found['safe']:,}"


def _at_risk(risk: dict[str, Any]) -> str:
    if not risk["epochs"]:
        return "nothing"
    amount = "" if risk["bytes"] is None else f", {size(risk['bytes'])} of local layers"
    return f"{_count(risk['epochs'], 'epoch')}{amount}: to be computed again if the working directory were lost"


def _print_levels(found: dict[str, Any], console: Console) -> None:
    levels = Table("level", "epoch", "behind", "layers", "size")
    for level in found["levels"]:
        name = f"{level['level']} ({level['place']})" if level["level"] == "local" else level["level"]
        behind = _count(level["behind"], "epoch") if level["behind"] else "-"
        levels.add_row(Text(name), _epoch(level["epoch"]), behind, f"{level['layers']:,}", size(level["bytes"]))
    console.print(levels)


def _print_collections(found: dict[str, Any], console: Console) -> None:
    if not found["collections"]:
        return
    kept = Table("name", "kind", "readable from", "up to", "columns")
    for name, entry in found["collections"].items():
        columns = ", ".join(f"{column} {kind}" for column, kind in entry["fields"])
        earliest = "-" if entry["earliest"] is None or found["epoch"] < 0 else f"epoch {entry['earliest']:,}"
        reach = sorted(set(entry["levels"].values()))
        # One number where all levels agree, else each with its level.
        upto = (
            _epoch(reach[0])
            if len(reach) == 1
            else "\n".join(f"{_epoch(epoch)}: {level}" for level, epoch in entry["levels"].items())
        )
        kind = "input" if entry["kind"] == "source" else entry["kind"]
        kept.add_row(Text(name), kind, earliest, Text(upto), Text(columns))
    console.print(kept)


def print_report(report: AuditReport, console: Console) -> None:
    """Show what `holdfast.inspect.verify.verify` found."""
    facts = _facts()
    facts.add_row("flow", Text(report.flow))
    facts.add_row("epoch", "none yet" if report.epoch < 0 else f"{report.epoch:,}")
    facts.add_row("running", _holder(report.running))
    console.print(facts)
    places = Table("place", "intact", "size", "damaged", "missing", "up to")
    if report.repair:
        places.add_column("repaired")
    for place in report.places:
        upto = min([place.lineage, *place.covered.values()])
        cells = [
            f"{place.checked:,} of {place.layers:,}",
            size(place.bytes),
            f"{len(place.damaged):,}",
            f"{len(place.missing):,}",
            _epoch(upto),
            *([f"{place.repaired:,}"] if report.repair else []),
        ]
        places.add_row(
            Text(f"{place.place} ({place.level})", overflow="fold"), *(Text(cell, no_wrap=True) for cell in cells)
        )
    console.print(places)
    for finding in report.findings[:_SHOWN]:
        console.print(_line(finding), soft_wrap=True)
    if len(report.findings) > _SHOWN:
        console.print(f"… and {len(report.findings) - _SHOWN:,} more findings (--json gives all)", highlight=False)
    console.print(_verdict(report), soft_wrap=True)


def _line(finding: Finding) -> Text:
    kind = "repaired" if finding.repaired else str(finding.kind)
    style = "green" if finding.repaired else _STYLES.get(finding.kind, "dim")
    where = f"{finding.place}/{finding.path}" if finding.path else f"{finding.place} ({finding.level})"
    was = f"{finding.kind}: " if finding.repaired else ""
    return Text.assemble((f"{kind:12}", style), f"{where}: {was}{finding.message}")


def _verdict(report: AuditReport) -> Text:
    wrong = sum(finding.wrong for finding in report.findings)
    repaired = sum(finding.repaired for finding in report.findings)
    if not wrong:
        return Text(f"all is well; {_count(repaired, 'finding')} repaired" if repaired else "all is well", "green")
    if report.repair:
        after = "no copy to repair them from was found; the flow computes again what it can when it opens"
    else:
        after = "--repair takes intact copies from the other places"
    return Text(f"{_count(wrong, 'finding')} wrong; {after}", "red")


def size(count: float) -> str:
    """Bytes, for people."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1000
    raise AssertionError


def _facts() -> Table:
    return Table(show_header=False, box=None, padding=(0, 2, 0, 0))


def _holder(holder: dict[str, Any] | None) -> str:
    if holder is None:
        return "no"
    return f"yes, {_by(holder)}" + (f", which leads by {holder['lease']}" if "lease" in holder else "")


def _by(said: dict[str, Any]) -> str:
    return f"by process {said.get('pid', '?')} on {said.get('host', '?')}"


def _epoch(epoch: int) -> str:
    return "-" if epoch < 0 else f"{epoch:,}"


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))

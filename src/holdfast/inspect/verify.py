"""Verifying a log, and repairing it.

Nothing is changed without ``repair`` (`repair.py`); after a repair a second audit reads the new files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from holdfast.errors import LogBusy
from holdfast.inspect.audit import Audit, Progress
from holdfast.inspect.findings import AuditReport, Finding, Kind
from holdfast.inspect.places import Named, find_places, running


def verify(places: Sequence[Named], repair: bool = False, progress: Progress | None = None) -> AuditReport:
    """Check the log at these places: working directories and log locations of one flow.

    With ``repair``, damaged files are set aside, and each place is filled up from the intact copies of the others; an
    empty location is filled, too. Raises `LogBusy` if the flow runs meanwhile. The working directory tells whether it
    runs: give that, too, or a location that is just being written to may look as if it had lost layers.
    """
    found = find_places(places)
    holder = running(found)
    if repair and holder is not None:
        raise LogBusy(
            f"log {places[0]}: process {holder.get('pid', '?')} on {holder.get('host', '?')} runs the flow; stop it "
            "before repairing its log. (A running flow repairs by itself what it meets.)",
            pid=holder.get("pid"),
            host=holder.get("host"),
        )
    audit = Audit(found, holder is not None, progress)
    report = audit.report(holder)
    if not repair:
        return report
    report.repair = True
    if any(finding.kind.wrong or finding.kind is Kind.BEHIND for finding in report.findings):
        # Imported here: unlike an audit, a repair needs the code that converts layers between their two forms.
        from holdfast.inspect.repair import Repair

        Repair(audit).run()
        after = Audit(find_places(places), False, progress, intact=audit.intact)
        report = _compared(report, after.report(None))
    return report


def _compared(before: AuditReport, after: AuditReport) -> AuditReport:
    """The second report, with those findings of the first that are gone, marked as repaired."""
    still = {_what(finding) for finding in after.findings}
    gone = [
        replace(finding, repaired=True)
        for finding in before.findings
        if _what(finding) not in still and (finding.kind.wrong or finding.kind is Kind.BEHIND)
    ]
    for checked in after.places:
        checked.repaired = sum((f.place, f.level) == (checked.place, checked.level) for f in gone)
    return replace(after, findings=[*gone, *after.findings], repair=True)


def _what(finding: Finding) -> tuple[object, ...]:
    return finding.place, finding.level, finding.kind, finding.path, finding.trace

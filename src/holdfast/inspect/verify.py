"""Verifying a log, and repairing it.

Nothing is changed unless ``repair`` is asked for (`repair.py`); then the audit is made again, over what is new.
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

    With ``repair``, what is damaged is set aside, and each place is filled up from the others' intact copies; that
    needs a flow that does not run, or `LogBusy` is raised. A location that is empty is filled, too. Whether the flow
    runs is known from its working directory: give that, too, or a copy at work may be taken for one that lost layers.
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
        # Repairing needs what checking does not: the way back from one form of layer to the other.
        from holdfast.inspect.repair import Repair

        Repair(audit).run()
        after = Audit(find_places(places), False, progress, intact=audit.intact)
        report = _compared(report, after.report(None))
    return report


def _compared(before: AuditReport, after: AuditReport) -> AuditReport:
    """The second report, with the findings of the first that are gone: they were repaired."""
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

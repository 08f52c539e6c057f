"""The log directory: the place of a flow's state, and the right to write to it.

    <log>/holdfast.json         {"format": 3, "flow": "revenue"}
    <log>/lock                  held (flock) while a flow runs; names the process that holds it
    <log>/collections.json      name → kind, sql, fields, fingerprint, key; for tools that only read
    <log>/lineage/              the lineage of every complete epoch
    <log>/members.json          on a cluster whose hosts have directories of their own: the members with layers
    <log>/rates.json            the measured rates of the flow, for forecasts
    <log>/clock.json            the difference of the two clocks of this host
    <log>/traces/<fingerprint>.<suffix>/      the layers of one trace; under a lease, see `fencing.py`
    <log>/rounds/               while an epoch runs rounds of loops as jobs: the state of the loops between jobs

Invariant: the process that holds the lock is the only writer of everything except layers. Layers need no lock, since
their names say what they hold; the lock ensures that no two drivers take the next epoch for theirs. A driver that leads
by a lease may take the lock from a driver that led by the same lease: that driver may be paused, and stops when it
wakes up (`check`). `fencing.py` says how the lock, leases and claims work together. Small files are replaced whole, so
a reader sees the old file or the new one.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, NoReturn

from holdfast.errors import Fenced, LogError
from holdfast.foundation.atomic_files import read_file, remove_temporary, replace_file
from holdfast.foundation.os_errors import fix
from holdfast.log import fencing, header

_OWN = (
    header.FILE, "lock", "collections.json", "members.json", "rates.json", "clock.json", "lineage", "traces", "rounds",
    # A log location is often the same directory.
    "claims", "damaged", "layers", "roster", "branches",
    # The directory of a branch has these, too.
    "branch.json", "references.json",
)  # fmt: skip


class LogDirectory:
    """An open log directory. Get one from `open`."""

    def __init__(self, path: Path, flow: str, lock: int | None) -> None:
        self.path = path
        self.flow = flow
        self.traces = fencing.traces_of_log(path)
        self.lineage = path / "lineage"
        self._lock = lock

    @staticmethod
    def open(
        path: str | os.PathLike[str],
        flow: str | None = None,
        *,
        create: bool = False,
        exclusive: bool = False,
        lease: str | None = None,
    ) -> LogDirectory:
        """Open the log at ``path``, which must belong to ``flow`` (None: to any flow).

        ``create`` makes a log if there is none. ``exclusive`` takes the lock, until `close`; the lock is also taken
        from a driver that holds it by the same ``lease``. Raises `LogBusy`, `LogForeign`, `LogFormat`, or `LogError`.
        """
        place = Path(os.path.abspath(os.path.expanduser(os.fspath(path))))
        _check_place(place, create)
        if not exclusive and not create:
            return LogDirectory(place, _read_header(place, flow), None)
        if create:
            _make(place)
        lock: int | None = None
        try:
            lock = fencing.take_lock(place, lease) if exclusive else None
            if create and not (place / header.FILE).exists():
                _write_json(place / header.FILE, header.header_of(flow))
            name = _read_header(place, flow)
            if exclusive:
                remove_temporary(place)
                remove_temporary(place / "lineage")
                shutil.rmtree(place / "rounds", ignore_errors=True)
                if (_read_json(place / header.FILE) or {}).get("format") != header.FORMAT:
                    _write_json(place / header.FILE, header.header_of(name))
            directory = LogDirectory(place, name, lock)
            if lease is not None:
                directory.traces = fencing.take_traces(place)
        except OSError as error:
            if lock is not None:
                os.close(lock)
            _refuse(place, error)
        except BaseException:
            if lock is not None:
                os.close(lock)
            raise
        return directory

    def trace_path(self, fingerprint: str, suffix: str) -> Path:
        """The directory of a trace's layers."""
        return self.traces / f"{fingerprint}.{suffix}"

    def write_collections(self, collections: dict[str, Any]) -> None:
        """Write the description of the flow's collections."""
        _write_json(self.path / "collections.json", collections)

    def read_collections(self) -> dict[str, Any]:
        """The description of the flow's collections; empty if the flow never ran."""
        return _read_json(self.path / "collections.json") or {}

    def write_rates(self, rates: dict[str, float]) -> None:
        """Keep the measured rates of the flow (`coordinator.forecast`)."""
        _write_json(self.path / "rates.json", rates)

    def read_rates(self) -> dict[str, Any]:
        """The rates that were kept last; empty if none were."""
        return _read_json(self.path / "rates.json") or {}

    def write_clock(self, start: str, difference: int) -> None:
        """Keep the difference of this host's two clocks, in microseconds (`coordinator.clock`)."""
        _write_json(self.path / "clock.json", {"start": start, "difference": difference})

    def read_clock(self) -> tuple[str, int] | None:
        """The machine start and the difference that were kept; None if there are none, or they cannot be read."""
        try:
            held = _read_json(self.path / "clock.json") or {}
        except (LogError, OSError):
            return None
        start, difference = held.get("start"), held.get("difference")
        return (start, difference) if isinstance(start, str) and isinstance(difference, int) else None

    def write_members(self, names: list[str]) -> None:
        """Keep the names of the members that have the flow's layers."""
        _write_json(self.path / "members.json", {"members": names})

    def read_members(self) -> list[str]:
        """The members that had the flow's layers when it last ran; none if the layers are in this directory."""
        return list((_read_json(self.path / "members.json") or {}).get("members", []))

    def holder(self) -> dict[str, Any] | None:
        """The process that runs the flow right now (``pid``, ``host``, ``since``); None if none does."""
        try:
            return fencing.lock_holder(self.path)
        except OSError as error:
            _refuse(self.path / "lock", error)

    def check(self) -> None:
        """Raise `Fenced` if another driver has taken the lock from this one."""
        if self._lock is not None and not fencing.is_lock(self.path, self._lock):
            holder = _read_json(self.path / "lock") or {}
            raise Fenced(
                f"log {self.path}: another driver has taken over (process {holder.get('pid', '?')} on "
                f"{holder.get('host', '?')}); this one has stopped, and nothing that it did since counts",
                path=str(self.path),
            )

    def close(self) -> None:
        """Release the lock. Everything else is on disk already."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def write_whole(path: Path, text: str) -> None:
    """Replace a small file in one step: readers, also after a crash, see the old file or the new one."""
    try:
        replace_file(path, text.encode())
    except OSError as error:
        _refuse(path, error)


def _check_place(place: Path, create: bool) -> None:
    try:
        if place.is_dir():
            entries = sorted(os.listdir(place))
        elif place.exists() or place.is_symlink():
            raise LogError(f"log {place}: it is a file; a log is a directory", path=str(place))
        elif create:
            return
        else:
            raise LogError(f"log {place}: it does not exist; is the path right, and has the flow run?", path=str(place))
    except OSError as error:
        _refuse(place, error)
    if header.FILE in entries:
        return
    if not create:
        raise LogError(f"log {place}: it is not a Holdfast log (there is no holdfast.json in it)", path=str(place))
    foreign = [name for name in entries if name not in _OWN and not name.startswith((".", "traces-"))]
    if foreign:
        some = ", ".join(foreign[:3]) + (", …" if len(foreign) > 3 else "")
        raise LogError(
            f"log {place}: the directory holds other things ({some}) and no log; give the flow a directory of its own",
            path=str(place),
        )


def _make(place: Path) -> None:
    try:
        (place / "lineage").mkdir(parents=True, exist_ok=True)
        fencing.traces_of_log(place).mkdir(exist_ok=True)
    except OSError as error:
        _refuse(place, error)


def _read_header(place: Path, flow: str | None) -> str:
    name = header.flow_of(_read_json(place / header.FILE) or {}, str(place))
    if flow is not None:
        header.check_flow(name, flow, str(place))
    return name


def _read_json(path: Path) -> dict[str, Any] | None:
    """The object in a file; None if there is no such file."""
    try:
        return header.from_text(read_file(path), str(path.parent), path.name)
    except FileNotFoundError:
        return None
    except OSError as error:
        _refuse(path, error)


def _write_json(path: Path, held: dict[str, Any]) -> None:
    write_whole(path, header.to_text(held))


def _refuse(path: Path, error: OSError) -> NoReturn:
    raise LogError(f"log {path}: {fix(error)}", path=str(path), errno=error.errno) from error

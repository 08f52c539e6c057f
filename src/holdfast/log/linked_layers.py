"""Local layers shared by two directories of traces, as hard links: nothing is copied, and neither needs the other.

A layer never changes, and each directory removes its own names: the bytes are freed when the last name is removed. A
layer that reaches beyond the epoch at which the second directory begins is linked under a name that ends at that epoch
(`LayerName.until`). If the filesystem has no links, files are copied.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from holdfast.log.host_paths import host_path
from holdfast.trace.layer import list_layers
from holdfast.trace.name import LayerName


def layers_until(names: Collection[LayerName], digests: Mapping[int, str], root: int) -> dict[LayerName, LayerName]:
    """The layers of a history (``digests``: epoch → digest) that hold epochs up to ``root``: name of the layer cut at
    ``root`` → name of the layer."""
    found = {}
    for name in names:
        if name.first <= root and digests.get(name.last) == name.digest:
            part = name.until(root, digests[root])
            if part is not None:
                found[part] = name
    return found


def link_traces(
    source: Path, target: Path, digests: Mapping[int, str], root: int, traces: Collection[str] | None = None
) -> None:
    """On a member: make ``target`` a directory of traces with the layers of ``source`` as of epoch ``root``.
    ``traces``: the traces to link (None: all). Anything that is in ``target`` before is removed."""
    own, other = host_path(source), host_path(target)
    shutil.rmtree(other, ignore_errors=True)
    other.mkdir(parents=True)
    for trace in sorted(own.iterdir()) if own.is_dir() else ():
        if trace.is_dir() and (traces is None or trace.name in traces):
            (other / trace.name).mkdir()
            while not _link_layers(trace, other / trace.name, digests, root):
                pass  # layers were merged in the meantime: list again, to find the layers that replace them


def hand_over(source: Path, target: Path, traces: Collection[str], digests: Mapping[tuple[int, str], str]) -> None:
    """On a member: link layers of some traces into the directory of another history that took the same input.
    ``digests``: epoch and its digest in the first history → its digest in the other."""
    own, other = host_path(source), host_path(target)
    for trace in traces:
        (other / trace).mkdir(parents=True, exist_ok=True)
        for name in list_layers(own / trace):
            digest = digests.get((name.last, name.digest))
            if digest is not None:
                with suppress(FileExistsError):
                    _link(own / trace / name.text(), other / trace / replace(name, digest=digest).text())


def _link_layers(source: Path, target: Path, digests: Mapping[int, str], root: int) -> bool:
    """Link the layers of a listing. Returns False if one of them was removed in the meantime."""
    for part, name in layers_until(list_layers(source), digests, root).items():
        try:
            _link(source / name.text(), target / part.text())
        except FileExistsError:
            continue
        except FileNotFoundError:
            return False
    return True


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except (FileExistsError, FileNotFoundError):
        raise
    except OSError:
        shutil.copyfile(source, target)  # a file system without links

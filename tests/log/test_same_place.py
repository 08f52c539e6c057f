"""One place is one copy, however it is spelled."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import DeclarationError
from holdfast.log.location import LocalLocation


def spellings(root: Path) -> list[Any]:
    (root / "x").mkdir()
    (root / "link").symlink_to(root / "x")
    (root / "above").symlink_to(root)
    return [
        f"{root}/x/",
        f"{root}/y/../x/.",
        root / "link",
        root / "above" / "x",
        os.path.relpath(root / "x"),
        (root / "x").as_uri(),
        f"file://localhost{root}/x/",
        f"local://{root}/x",
        LocalLocation(root / "x"),
    ]


def test_one_directory_is_one_copy_however_it_is_spelled(tmp_path: Path) -> None:
    for other in spellings(tmp_path):
        with pytest.raises(DeclarationError, match=r"log names the same place twice, as .* and as "):
            hf.Flow("revenue", log=[str(tmp_path / "x"), other], min_replicas=2)


@pytest.mark.parametrize(
    ("one", "other"),
    [("s3://bucket/log", "s3://bucket/log/"), ("s3://bucket/log", "s3a://bucket//log"), ("s3://me:pw@b/l", "s3://b/l")],
)
def test_one_bucket_and_path_is_one_copy(one: str, other: str) -> None:
    with pytest.raises(DeclarationError, match="the same place twice") as caught:
        hf.Flow("revenue", log=[one, other])
    assert "pw" not in f"{caught.value} {caught.value.fields}"


def test_different_places_are_different_copies(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    hf.Flow("revenue", log=[tmp_path / "x", tmp_path / "y", f"{tmp_path}/X", "s3://bucket/x", "s3://bucket/y"])

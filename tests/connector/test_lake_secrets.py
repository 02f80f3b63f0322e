"""What only a store or a catalog should be told stands in no text that people see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from connector.lake.copy import CopyRequest
from tests.support.golden import GOLDEN

if TYPE_CHECKING:
    from pathlib import Path

_HIDDEN = "SEKRET"
FOLDER = GOLDEN / "pulsar-4.0.7"


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_no_option_is_shown(kind: str, tmp_path: Path) -> None:
    """Neither by what was asked for, nor by a copy and its tables, as errors and logs show them."""
    options: dict[str, Any] = {
        "delta": {"table_options": {"AWS_SECRET_ACCESS_KEY": _HIDDEN}},
        "iceberg": {
            "table_options": {
                "type": "sql",
                "uri": f"sqlite:///{tmp_path}/catalog.db",
                "warehouse": tmp_path.as_uri(),
                "s3.secret-access-key": _HIDDEN,
            }
        },
        "parquet": {},
    }[kind]
    request = CopyRequest(
        url=str(FOLDER / "objects"),
        topic="json-orders",
        target="shop.t" if kind == "iceberg" else "s3://bucket/t",
        target_options={"key": "k", "secret": _HIDDEN},
        format=kind,  # type: ignore[arg-type]
        dead_letters=True,
        topic_options={"metadata": str(FOLDER), "storage_options": {"password": _HIDDEN}},
        **options,
    )
    assert _HIDDEN not in repr(request)
    for _, open_copy in request.copies():
        copy = open_copy()
        assert _HIDDEN not in repr(copy)
        assert _HIDDEN not in f"{copy.table} {copy.table!r} {copy.dead_letter_table!r}"
        if kind == "iceberg":
            copy.table.catalog.close()  # type: ignore[attr-defined]
            assert copy.dead_letter_table is not None
            copy.dead_letter_table.catalog.close()  # type: ignore[attr-defined]

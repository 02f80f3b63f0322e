"""JSON text spelled by hand, and what both builds make of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.payloads import json_text, shredded_alike

if TYPE_CHECKING:
    from arrow_io.payloads.shredding import Misfit


def rows_of_text(schema: object, *texts: str | bytes, **options: str) -> list[Any]:
    """The values of some texts, all of which fit."""
    payloads = [text.encode() if isinstance(text, str) else text for text in texts]
    found = shredded_alike(json_text(schema, **options), payloads)
    assert found.misfits == []
    return found.rows


def value_of_text(schema: object, text: str | bytes, **options: str) -> Any:  # noqa: ANN401
    """The value of one text, which fits."""
    (row,) = rows_of_text(schema, text, **options)
    return row


def misfit_of_text(schema: object, text: str | bytes, **options: str) -> Misfit:
    """What is wrong with a text."""
    payload = text.encode() if isinstance(text, str) else text
    (misfit,) = shredded_alike(json_text(schema, **options), [payload]).misfits
    return misfit


def code_of_text(schema: object, text: str | bytes, **options: str) -> int:
    """Why a text does not fit."""
    return misfit_of_text(schema, text, **options).code

"""Names of the objects of an offloaded ledger."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import OptionError
from arrow_io.format.object_names import (
    MAX_LEDGER_ID,
    LedgerObjectName,
    ShareName,
    offload_uuid,
    parse_object_name,
)
from tests.support.golden import golden_topics

TEXT = "0f8fad5b-d9cb-469f-a165-70867728950e"
UUID_ = UUID(TEXT)


@given(st.uuids(), st.integers(0, MAX_LEDGER_ID))
def test_names_are_parsed_back(uuid: UUID, ledger_id: int) -> None:
    """Both names of any offload attempt must give it back, and tell data from index."""
    name = LedgerObjectName(uuid, ledger_id)

    data, index = parse_object_name(name.data_name), parse_object_name(name.index_name)

    assert data is not None
    assert index is not None
    assert data.ledger_object_name == index.ledger_object_name == name
    assert (data.is_index, index.is_index) == (False, True)
    assert not data.is_streaming


def test_golden_names_are_known() -> None:
    """Every name that the broker gave must be parsed, and written alike."""
    for ledger in (ledger for topic in golden_topics() for ledger in topic.ledgers):
        parsed = parse_object_name(ledger.data_object.name)

        assert parsed is not None
        assert parsed.ledger_object_name == LedgerObjectName(UUID(ledger.uuid), ledger.ledger_id)
        assert parsed.ledger_object_name.data_name == ledger.data_object.name
        assert parsed.ledger_object_name.index_name == ledger.index_object.name


@pytest.mark.parametrize(("name", "is_index"), [(TEXT, False), (f"{TEXT}-index", True)])
def test_streaming_names_are_recognised(name: str, is_index: bool) -> None:
    """A name of streaming offload must be told apart, and must not become a ledger's."""
    parsed = parse_object_name(name)

    assert parsed is not None
    assert parsed.is_streaming
    assert (parsed.uuid, parsed.is_index) == (UUID_, is_index)
    with pytest.raises(OptionError, match=f"{TEXT} of streaming offload"):
        _ = parsed.ledger_object_name
    share = ShareName(UUID_, 42)
    assert name == (share.index_name if is_index else share.data_name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "backup.tar",
        TEXT.upper(),
        TEXT.replace("-", ""),
        f"{TEXT}-ledger-",
        f"{TEXT}-ledger-x",
        f"{TEXT}-ledger--1",
        f"{TEXT}-ledger-01",
        f"{TEXT}-ledger-1\n",
        f"{TEXT}-ledger-\u0661",
        f"{TEXT}-ledger-1-index-index",
        f"{TEXT}-ledger-1-INDEX",
        f"{TEXT}-ledger-{MAX_LEDGER_ID + 1}",
        f"{TEXT}-ledger-{'9' * 5000}",
        f"prefix/{TEXT}-ledger-1",
        f" {TEXT}-ledger-1",
        f"ledger-1-{TEXT}",
        f"ledger-1-{TEXT}-index",
        "public/default/persistent/orders/data/1",
    ],
)
def test_other_names_are_nothing(name: str) -> None:
    """A name that Pulsar's offloader does not give must be no object of a ledger."""
    assert parse_object_name(name) is None


@pytest.mark.parametrize("ledger_id", [-1, MAX_LEDGER_ID + 1])
def test_impossible_ledger_ids_are_refused(ledger_id: int) -> None:
    """A ledger id that BookKeeper cannot have must not get a name."""
    with pytest.raises(OptionError, match=str(ledger_id)):
        LedgerObjectName(UUID_, ledger_id)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_uuid_has_both_halves(msb: int, lsb: int) -> None:
    """The two signed halves must be the uuid's high and low 64 bits in two's complement."""
    expected = msb.to_bytes(8, signed=True) + lsb.to_bytes(8, signed=True)

    assert offload_uuid(msb, lsb).bytes == expected

"""The admin API's answers are read in every form, and written so that they are read back."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import CorruptMetadataError
from connector.catalog.metadata import admin_answers
from connector.catalog.metadata.admin_answers import (
    has_schemas,
    internal_info_json,
    internal_stats_json,
    managed_ledger_name_of,
    parse_internal_info,
    parse_internal_stats,
    read_answer,
    read_names,
)
from connector.catalog.metadata.merge import merge_metadata
from connector.catalog.metadata.topic_metadata import LedgerInfo, OffloadContext, TopicMetadata
from connector.inputs.topic_names import TopicName
from tests.support.golden import GOLDEN, GoldenTopic, golden_topic, golden_topics

if TYPE_CHECKING:
    from collections.abc import Callable

TOPIC: Final = TopicName.parse("orders")
UUID_TEXT: Final = "00000000-0000-0000-0000-0000000000aa"
_INT64: Final = st.integers(1, 2**63 - 1)
_SHARE: Final = st.integers(1, 2**60)
"""Of what the ledgers of a topic may have together."""
_TEXT: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def _answer(topic: GoldenTopic, file: str) -> Any:  # noqa: ANN401 - JSON
    return read_answer((topic.folder / file).read_bytes())


def _both(topic: GoldenTopic) -> tuple[TopicMetadata, TopicMetadata]:
    name = TopicName.parse(topic.name)
    info = parse_internal_info(_answer(topic, "internal-info.json"), name)
    stats = parse_internal_stats(_answer(topic, "internal-stats.json"), name)
    assert list(info) == list(stats) == [name]
    return info[name], stats[name]


def _info(ledgers: object, **fields: object) -> TopicMetadata:
    return parse_internal_info({"ledgers": ledgers, **fields}, TOPIC)[TOPIC]


def _stats(ledgers: object, **fields: object) -> TopicMetadata:
    return parse_internal_stats({"ledgers": ledgers, **fields}, TOPIC)[TOPIC]


@pytest.mark.parametrize("topic", golden_topics(), ids=str)
def test_golden_answers_tell_the_ledgers(topic: GoldenTopic) -> None:
    """Ids, entries, sizes and flags must be as the client saw them, and uuids as in the bucket."""
    listed = json.loads((GOLDEN / topic.set_name / "topics.json").read_text())[topic.name]
    expected = [
        (each["ledger"], each["entries"] or None, each["size"] or None, each["offloaded"])
        for each in listed["ledgers"]
    ]

    info, stats = _both(topic)
    for metadata, complete in ((info, None), (stats, True)):
        assert {each.offload.complete for each in metadata.ledgers if each.offload} <= {complete}
        assert [
            (each.ledger_id, each.entries, each.size_bytes, each.offload is not None)
            for each in metadata.ledgers
        ] == expected
    uuids = [str(each.offload.uuid) for each in info.ledgers if each.offload]
    assert uuids == [each.uuid for each in topic.ledgers]
    assert {each.offload.uuid for each in stats.ledgers if each.offload} <= {None}
    assert [each.timestamp_ms is None for each in info.ledgers] == [
        each.entries is None for each in info.ledgers
    ]


@pytest.mark.parametrize("topic", golden_topics(), ids=str)
def test_golden_stats_name_their_managed_ledger(topic: GoldenTopic) -> None:
    """The open ledger's BookKeeper metadata must tell which topic it is, odd characters too."""
    assert managed_ledger_name_of(_answer(topic, "internal-stats.json")) == topic.managed_ledger


@pytest.mark.parametrize("topic", golden_topics(), ids=str)
def test_golden_metadata_is_written_and_read_back(topic: GoldenTopic) -> None:
    """What both answers tell must be told again by the answers that are written of it."""
    info, stats = _both(topic)
    warnings: list[str] = []
    joined = merge_metadata(None, info, stats, warnings)
    assert joined is not None

    written = internal_info_json(joined), internal_stats_json(joined)

    again_info = parse_internal_info(read_answer(written[0].encode()), joined.topic)
    again_stats = read_answer(written[1].encode())
    assert again_info[joined.topic] == info
    assert parse_internal_stats(again_stats, joined.topic)[joined.topic] == stats
    assert managed_ledger_name_of(again_stats) == topic.managed_ledger
    assert warnings == []


def test_written_stats_have_the_fields_and_totals_of_a_broker() -> None:
    """Tools that read Pulsar's answers must find every field where it is, and right sums."""
    topic = golden_topic("multi-ledger")
    info, stats = _both(topic)
    joined = merge_metadata(None, info, stats, [])
    assert joined is not None
    broker = _answer(topic, "internal-stats.json")

    written = json.loads(internal_stats_json(joined))

    assert list(written) == list(broker)
    assert list(written["ledgers"][0]) == list(broker["ledgers"][0])
    for name in ("numberOfEntries", "totalSize", "lastConfirmedEntry", "state", "cursors"):
        assert written[name] == broker[name]


@given(
    st.lists(
        st.builds(
            LedgerInfo,
            ledger_id=st.integers(0, 2**63 - 1),
            entries=_SHARE,
            size_bytes=_SHARE,
            timestamp_ms=st.none() | _INT64,
            offload=st.none()
            | st.builds(OffloadContext, uuid=st.none() | st.uuids(), complete=st.booleans()),
            properties=st.dictionaries(_TEXT, _TEXT, max_size=2),
        ),
        max_size=5,
        unique_by=lambda ledger: ledger.ledger_id,
    ),
    st.none() | st.tuples(_INT64, st.integers(-1, 9)),
    st.dictionaries(_TEXT, _TEXT, max_size=2),
    st.dictionaries(_TEXT, st.just((-1, -1)) | st.tuples(_INT64, st.integers(-1, 9)), max_size=2),
)
def test_any_metadata_is_read_back(
    ledgers: list[LedgerInfo],
    position: tuple[int, int] | None,
    properties: dict[str, str],
    cursors: dict[str, tuple[int, int]],
) -> None:
    """The two answers together must tell all that the metadata has."""
    metadata = TopicMetadata(
        topic=TOPIC,
        ledgers=tuple(sorted(ledgers, key=lambda ledger: ledger.ledger_id)),
        terminated_position=position,
        properties=properties,
        cursors=cursors,
    )

    info = read_answer(internal_info_json(metadata).encode())
    stats = read_answer(internal_stats_json(metadata).encode())

    joined = merge_metadata(
        None, parse_internal_info(info, TOPIC)[TOPIC], parse_internal_stats(stats, TOPIC)[TOPIC], []
    )
    assert joined == metadata


def test_a_cursor_may_have_no_position() -> None:
    """The metadata store does not tell that of a cursor whose ledger has it."""
    info = {"ledgers": [], "cursors": {"sub": {"cursorsLedgerId": 5}}}
    stats = {"ledgers": [], "cursors": {"sub": {"state": "Open"}}}

    for answer, parse in ((info, parse_internal_info), (stats, parse_internal_stats)):
        assert parse(answer, TOPIC)[TOPIC].cursors == {}


@pytest.mark.parametrize(
    ("parse", "cursor"),
    [
        (parse_internal_info, {"markDelete": {"ledgerId": 1}}),
        (parse_internal_info, {"markDelete": {"ledgerId": 1, "entryId": -2}}),
        (parse_internal_info, {"markDelete": "1:2"}),
        (parse_internal_info, "sub"),
        (parse_internal_stats, {"markDeletePosition": "1"}),
        (parse_internal_stats, {"markDeletePosition": "1:-2"}),
        (parse_internal_stats, {"markDeletePosition": f"{2**63}:0"}),
        (parse_internal_stats, {"markDeletePosition": 7}),
        (parse_internal_stats, "sub"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_position_that_is_none_is_refused(
    parse: Callable[[dict[str, object], TopicName], object], cursor: object
) -> None:
    """A cursor's position is a ledger id and an entry id, or the one before all messages."""
    with pytest.raises(CorruptMetadataError):
        parse({"ledgers": [], "cursors": {"sub": cursor}}, TOPIC)


def test_json_within_a_json_string_is_read() -> None:
    """Java's admin client gives text, which is then a string in the JSON around it."""
    answer: dict[str, object] = {"ledgers": []}

    assert read_answer(json.dumps(answer).encode()) == answer
    assert read_answer(json.dumps(json.dumps(answer)).encode()) == answer


def test_answer_of_a_partitioned_topic_has_its_partitions() -> None:
    """Each partition must be a topic of its own, and the topic itself none."""
    name = "persistent://public/default/orders-partition-"
    answer = {"version": 1, "partitions": {f"{name}{i}": {"ledgers": []} for i in (1, 0)}}
    expected = {TopicName.parse(f"orders-partition-{i}") for i in range(2)}

    assert set(parse_internal_info(answer, TOPIC)) == expected
    assert set(parse_internal_stats(answer, TOPIC)) == expected


@pytest.mark.parametrize("name", ["other-partition-0", "orders", "persistent://a", ""])
def test_partitions_of_other_topics_are_refused(name: str) -> None:
    """An answer about another topic must not pass for this one's."""
    with pytest.raises(CorruptMetadataError, match="not a partition of it"):
        parse_internal_info({"partitions": {name: {"ledgers": []}}}, TOPIC)


def test_two_names_of_one_partition_are_refused() -> None:
    """It must not be a matter of luck which of the two answers counts."""
    names = ("orders-partition-0", "persistent://public/default/orders-partition-0")
    answer: dict[str, object] = {"partitions": {name: {"ledgers": []} for name in names}}

    for parse in (parse_internal_info, parse_internal_stats):
        with pytest.raises(CorruptMetadataError, match="has the partition 0 twice"):
            parse(answer, TOPIC)


@pytest.mark.parametrize("field", ["entries", "size"])
def test_ledgers_together_are_within_range(field: str) -> None:
    """What a topic has adds up to 2^63 - 1 at most, so that sums fit where numbers do."""
    for parse in (_info, _stats):
        parse([{"ledgerId": 1, field: 1}, {"ledgerId": 2, field: 2**63 - 2}])
        with pytest.raises(CorruptMetadataError, match=rf"at most 2\^63 - 1 \w+, not {1 << 63}"):
            parse([{"ledgerId": 1, field: 2}, {"ledgerId": 2, field: 2**63 - 2}])


def test_last_ledger_without_entries_is_open() -> None:
    """Its numbers are 0 or absent, and the time that a broker gives for it is the answer's."""
    first = {"ledgerId": 4, "entries": 2, "size": 9, "timestamp": 5}
    for last in ({"ledgerId": 6, "timestamp": 7}, {"ledgerId": 6, "entries": 0, "size": 0}):
        ledger = _info([first, last]).ledgers[-1]

        assert ledger == LedgerInfo(ledger_id=6)
        assert _stats([first, last]).ledgers[-1] == ledger


def test_last_ledger_of_a_terminated_topic_is_closed() -> None:
    """A topic that was terminated has no open ledger, even if its last one is empty."""
    ledger = {"ledgerId": 6, "entries": 0, "size": 0}
    closed = LedgerInfo(ledger_id=6, entries=0, size_bytes=0)

    info = _info([ledger], terminatedPosition={"ledgerId": 6, "entryId": -1})

    assert (info.ledgers, info.terminated_position) == ((closed,), (6, -1))
    assert _stats([ledger], state="Terminated").ledgers == (closed,)


def test_offload_that_was_begun_is_known_by_its_uuid_or_its_flag() -> None:
    """Old brokers tell no uuid; none tells in this answer whether the offload is complete."""
    flagged = _info([{"ledgerId": 1, "entries": 1, "isOffloaded": True}])
    named = _info([{"ledgerId": 1, "entries": 1, "offloadedContextUuid": UUID_TEXT}])

    assert flagged.ledgers[0].offload == OffloadContext(uuid=None, complete=None)
    assert named.ledgers[0].offload == OffloadContext(uuid=UUID(UUID_TEXT), complete=None)
    assert not flagged.ledgers[0].is_offloaded
    assert _info([{"ledgerId": 1, "entries": 1}]).ledgers[0].offload is None


@pytest.mark.parametrize(
    ("ledger", "words"),
    [
        pytest.param(None, "not a JSON object", id="null"),
        pytest.param({}, "ledgerId is missing", id="no-id"),
        pytest.param({"ledgerId": "1"}, "ledgerId is not a whole number", id="id-is-text"),
        pytest.param({"ledgerId": True}, "ledgerId is not a whole number", id="id-is-a-flag"),
        pytest.param({"ledgerId": 1.5}, "ledgerId is not a whole number", id="id-is-a-fraction"),
        pytest.param({"ledgerId": -1}, "ledger id", id="negative-id"),
        pytest.param({"ledgerId": 1 << 63}, "ledger id", id="great-id"),
        pytest.param({"ledgerId": 1, "entries": -1}, "entries", id="negative-entries"),
        pytest.param({"ledgerId": 1, "size": -1}, "size", id="negative-size"),
        pytest.param({"ledgerId": 1, "size": []}, "size", id="size-is-a-list"),
        pytest.param({"ledgerId": 1, "properties": [1]}, "properties", id="properties-are-a-list"),
        pytest.param({"ledgerId": 1, "properties": {"a": 1}}, "properties", id="number-property"),
    ],
)
def test_malformed_ledgers_are_refused(ledger: object, words: str) -> None:
    """Fields of the wrong type or out of range must give an error that names them."""
    for parse in (_info, _stats):
        with pytest.raises(CorruptMetadataError, match=words):
            parse([ledger])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"timestamp": -1}, "closing"),
        ({"isOffloaded": "yes"}, "isOffloaded"),
        ({"offloadedContextUuid": "x" * 1000}, "not a uuid"),
        ({"offloadedContextUuid": 7}, "not a uuid"),
    ],
)
def test_malformed_fields_of_internal_info_are_refused(
    fields: dict[str, object], words: str
) -> None:
    """What only this answer has is checked too."""
    with pytest.raises(CorruptMetadataError, match=words) as error:
        _info([{"ledgerId": 1, **fields}])
    assert len(str(error.value)) < 200


@pytest.mark.parametrize(
    "fields",
    [
        {"ledgers": None},
        {"ledgers": {}},
        {"ledgers": [{"ledgerId": 1}, {"ledgerId": 1}]},
        {"ledgers": [], "properties": 1},
        {"ledgers": [], "terminatedPosition": [1, 2]},
        {"ledgers": [], "terminatedPosition": {"ledgerId": 1}},
        {"ledgers": [], "terminatedPosition": {"ledgerId": -1, "entryId": 0}},
        {"ledgers": [], "terminatedPosition": {"ledgerId": 1, "entryId": -2}},
        {"ledgers": [], "terminatedPosition": {"ledgerId": 1 << 63, "entryId": 0}},
        {"ledgers": [], "terminatedPosition": {"ledgerId": 1, "entryId": 1 << 63}},
        {"partitions": []},
        {"partitions": {"orders-partition-0": 1}},
    ],
    ids=str,
)
def test_malformed_answers_are_refused(fields: dict[str, object]) -> None:
    """An answer that no broker gives must be a typed error."""
    with pytest.raises(CorruptMetadataError):
        parse_internal_info(fields, TOPIC)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"7",
        b"{",
        b"\xff{}",
        b"[" * 100_000,
        b'"[]"',
        b'"{"',
        json.dumps(json.dumps("{}")),
    ],
    ids=lambda data: repr(data[:10]),
)
def test_what_is_no_json_object_is_refused(data: bytes | str) -> None:
    """Bytes that hold no object, directly or in one string, must be a typed error."""
    with pytest.raises(CorruptMetadataError):
        read_answer(data if isinstance(data, bytes) else data.encode())


def test_long_answers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer beyond the bound must not be parsed."""
    monkeypatch.setattr(admin_answers, "MAX_METADATA_BYTES", 10)

    assert read_answer(b'{"a": 123}') == {"a": 123}
    with pytest.raises(CorruptMetadataError, match="11 bytes; 10 are allowed"):
        read_answer(b'{"a": 1234}')


@pytest.mark.parametrize("data", [b"{}", b"[1]", b'["a", null]', b"["])
def test_lists_of_names_are_checked(data: bytes) -> None:
    """Only a list of text is a list of names."""
    assert read_names(b'["a", "b"]') == ["a", "b"]
    with pytest.raises(CorruptMetadataError):
        read_names(data)


def test_stats_of_ledgers_that_are_not_in_bookkeeper_name_nothing() -> None:
    """Without metadata text, or with one of another kind, no name must be made up."""
    other = "LedgerMetadata{customMetadata={x-pulsar/managed-ledger=base64:YQ==}}"
    for metadata in (None, 7, "", other):
        assert managed_ledger_name_of({"ledgers": [{"metadata": metadata}]}) is None
    for ledgers in (None, [], [7]):
        assert managed_ledger_name_of({"ledgers": ledgers}) is None


@pytest.mark.parametrize("encoded", ["YQ", base64.b64encode(b"\xff").decode()])
def test_unreadable_managed_ledger_names_are_refused(encoded: str) -> None:
    """A name that is no Base64 or no UTF-8 must be a typed error."""
    text = f"LedgerMetadata{{customMetadata={{pulsar/managed-ledger=base64:{encoded}}}}}"
    with pytest.raises(CorruptMetadataError, match="cannot be decoded"):
        managed_ledger_name_of({"ledgers": [{"metadata": text}]})


def test_empty_list_of_schemas_is_none() -> None:
    """A topic whose schemas were deleted has an answer with none in it."""
    assert not has_schemas({"getSchemaResponses": []})
    assert has_schemas({"getSchemaResponses": [{"version": 0}]})
    # What is malformed is for the reader of schemas to say.
    assert has_schemas({})


@pytest.mark.parametrize(
    ("state", "confirmed", "position"),
    [
        ("Terminated", "7:4", (7, 4)),
        ("Terminated", "7:-1", (7, -1)),
        ("LedgerOpened", "7:4", None),
        ("Terminated", "-1:-1", None),
        ("Terminated", "7:4:1", None),
        ("Terminated", None, None),
    ],
)
def test_statistics_tell_where_a_terminated_topic_ends(
    state: str, confirmed: str | None, position: tuple[int, int] | None
) -> None:
    """Its last entry is the last confirmed one, though they say that its ledger has none."""
    ledger = {"ledgerId": 7, "entries": 0, "size": 0, "offloaded": False}
    answer = {"state": state, "lastConfirmedEntry": confirmed, "ledgers": [ledger]}
    topic = TopicName.parse("orders")

    assert parse_internal_stats(answer, topic)[topic].terminated_position == position


def test_position_that_no_topic_has_is_refused() -> None:
    """Numbers above 2^63 - 1 are none of a ledger."""
    answer = {"state": "Terminated", "lastConfirmedEntry": "9999999999999999999:0", "ledgers": []}

    with pytest.raises(CorruptMetadataError, match="cannot have the position"):
        parse_internal_stats(answer, TopicName.parse("orders"))

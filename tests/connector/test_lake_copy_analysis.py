"""What a copy learns in passing is what `analyze` would have learned of the same ledgers."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arrow_io.errors import (
    CorruptIndexError,
    OptionError,
    PulsarOffloadError,
    StorageError,
    UnusedStatisticsWarning,
)
from arrow_io.storage.location import Location
from connector import copy_topics
from connector.lake.copy_plan import CopySizes
from connector.statistics.store import open_statistics
from connector.tables.parquet import ParquetTable
from tests.support.buckets import (
    TOPIC,
    memory_bucket,
    offload,
    with_longer_ledger,
    with_lost_entries,
)
from tests.support.damage import Part, flipped, regions, woven_objects
from tests.support.entries import Message, encode_entry
from tests.support.golden import GOLDEN, golden_topic
from tests.support.lake_tables import table_of
from tests.support.statistics import analyzed, rows_of
from tests.support.topics import topics

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from connector.lake.table_copy import TableSummary
    from tests.support.golden import GoldenTopic
    from tests.support.topics import Topic

NAMES: Final = (
    "transactions", "transactions-open", "chunked", "multi-ledger", "multi-block", "encrypted",
    "small-transactions", "small-chunked",
)  # fmt: skip
SMALL: Final = CopySizes(task_bytes=1, commit_bytes=1)
"""A task for each data block; and a commit."""
TASKS: Final = CopySizes(task_bytes=1)
OPTIONS: Final[dict[str, Any]] = {
    "format": "parquet",
    "value": "raw",
    "analyze": True,
    "decryption_keys": GOLDEN / "keys",
}
pytestmark = pytest.mark.filterwarnings("ignore::arrow_io.errors.IncompleteReadWarning")

_Rows = dict[int, list[dict[str, Any]]]


def _copied(url: str, folder: str, topic: str = TOPIC, **options: Any) -> TableSummary:  # noqa: ANN401
    """What a copy to a new table did; each entry is a zone, unless it says otherwise."""
    zone_bytes = options.pop("zone_bytes", 1)
    with (
        TemporaryDirectory() as target,
        patch("connector.statistics.whole_ledgers.ZONE_BYTES", zone_bytes),
    ):
        [done] = copy_topics(url, topic, target, statistics=folder, **(OPTIONS | options))
    return done


def _known(folder: str, topic: str = TOPIC) -> _Rows:
    """The rows of each ledger that a folder knows."""
    rows = rows_of(open_statistics(folder), topic)
    return {key: list(mine) for key, mine in groupby(rows, itemgetter("ledger_id"))}


def _analyzed(url: str, topic: str = TOPIC, *, zone_bytes: int = 1) -> _Rows:
    with memory_bucket({}) as folder:
        analyzed(url, topic, folder.url, zone_bytes=zone_bytes)
        return _known(folder.url, topic)


def _entry(number: int) -> bytes:
    message = Message(payload=b"v" * 100, partition_key=f"key-{number}")
    return encode_entry([message], batched=False, publish_time=1_700_000_000_000 + number)


@pytest.fixture
def bucket() -> Iterator[str]:
    """Three ledgers, of several blocks each."""
    ledgers = [(ledger_id, [_entry(n) for n in range(9)]) for ledger_id in (3, 4, 5)]
    with memory_bucket(offload(ledgers, block_bytes=600)) as bucket:
        yield bucket.url


@pytest.mark.parametrize("sizes", [CopySizes(), TASKS, SMALL], ids=["one", "tasks", "commits"])
@pytest.mark.parametrize("topic", [golden_topic(each) for each in NAMES], ids=str)
def test_golden_topics_are_learned(topic: GoldenTopic, sizes: CopySizes) -> None:
    """However they are cut into tasks and commits; what no commit has whole is not known."""
    url, name = str(topic.objects_folder), topic.name
    with memory_bucket({}) as folder:
        done = _copied(url, folder.url, name, sizes=sizes, zone_bytes=1000)
        found = _known(folder.url, name)
    expected = _analyzed(url, name, zone_bytes=1000)

    assert found.keys() == {each for each in expected if each not in _open_ledgers(topic)}
    assert found == {each: expected[each] for each in found}
    assert done.analyzed_ledgers == len(found)


def _open_ledgers(topic: GoldenTopic) -> set[int]:
    """The ledgers that are not copied to their end: from an open transaction on."""
    if topic.name.endswith("/transactions-open"):
        return {max(each.ledger_id for each in topic.ledgers)}
    return set()


@settings(max_examples=15, deadline=None)
@given(
    topic=topics(max_threads=3),
    block_bytes=st.sampled_from((140, 300, 700, 1 << 20)),
    zone_bytes=st.sampled_from((1, 200, 600, 1 << 20)),
    sizes=st.builds(
        CopySizes,
        task_bytes=st.sampled_from((1, 500, 1 << 20)),
        commit_bytes=st.sampled_from((1, 500, 1 << 20)),
    ),
    options=st.fixed_dictionaries(
        {
            "verify_checksums": st.booleans(),
            "dead_letters": st.booleans(),
            "transactions": st.sampled_from(("committed", "all")),
            "on_corruption": st.sampled_from(("raise", "salvage")),
        },
        optional={
            "start": st.tuples(st.integers(1, 9), st.integers(0, 9), st.just(0)),
            "columns": st.just(["__entry_id__"]),
        },
    ),
    damage=st.none() | st.tuples(st.integers(0), st.integers(0), st.integers(1, 255)),
)
def test_whatever_is_learned_is_what_analyzing_gives(  # noqa: PLR0917 - hypothesis gives them
    topic: Topic,
    block_bytes: int,
    zone_bytes: int,
    sizes: CopySizes,
    options: dict[str, Any],
    damage: tuple[int, int, int] | None,
) -> None:
    """Of any topic, read in any way, with damage anywhere; without it all of it is learned."""
    objects = offload(topic.ledgers, block_bytes=block_bytes)
    if damage is not None:
        number, position, pattern = damage
        name = sorted(each for each in objects if not each.endswith("-index"))[
            number % len(topic.ledgers)
        ]
        objects[name] = flipped(objects[name], position % len(objects[name]), pattern)
    with memory_bucket(objects) as bucket, memory_bucket({}) as folder:
        is_copied = True
        try:
            _copied(bucket.url, folder.url, zone_bytes=zone_bytes, sizes=sizes, **options)
        except PulsarOffloadError:
            is_copied = False
        found = _known(folder.url)
        expected = _analyzed(bucket.url, zone_bytes=zone_bytes)

    assert found == {each: expected[each] for each in found}
    is_whole = is_copied and damage is None and "start" not in options
    if is_whole and (options["transactions"] == "all" or not topic.open_transactions):
        assert found.keys() == expected.keys()


def _is_learned_rightly(objects: dict[str, bytes]) -> set[int]:
    """What is learned of objects by who salvages; it must be what analyzing them gives."""
    with memory_bucket(objects) as bucket, memory_bucket({}) as folder:
        _copied(bucket.url, folder.url, sizes=TASKS, on_corruption="salvage")
        found, expected = _known(folder.url), _analyzed(bucket.url)
    assert found == {each: expected[each] for each in found}
    return set(found)


def test_what_is_damaged_around_entries_is_not_learned() -> None:
    """Analyzing calls all zones of such a ledger damaged; the other ledger is learned."""
    objects = woven_objects()
    names = [each for each in objects if not each.endswith("-index")]
    data = objects[names[0]]
    padding = next(each for each in regions(data) if each.part is Part.PADDING_START)
    assert _is_learned_rightly(objects | {names[0]: flipped(data, padding.start, 0x10)}) == {9}

    lost = objects | {f"{names[0]}-index": with_lost_entries(objects[f"{names[0]}-index"], 2)}
    assert _is_learned_rightly(lost) == {9}


def test_parts_that_are_not_as_long_as_their_ledger_are_not_learned() -> None:
    """Who reads a ledger in parts compares no length; who then reads it whole meets it."""
    objects = woven_objects()
    name = next(each for each in objects if each.endswith("-index"))
    objects[name] = with_longer_ledger(objects[name], -1)
    with memory_bucket(objects) as bucket, memory_bucket({}) as folder:
        _copied(bucket.url, folder.url, sizes=TASKS)
        assert _known(folder.url).keys() == {9}
        with pytest.raises(CorruptIndexError):
            _copied(bucket.url, folder.url)


def test_what_is_known_is_not_learned_again(bucket: str) -> None:
    """Neither are ledgers of which a part is copied."""
    with memory_bucket({}) as folder:
        assert _copied(bucket, folder.url, start=(4, 3, 0), sizes=SMALL).analyzed_ledgers == 1
        assert _known(folder.url).keys() == {5}
        assert _copied(bucket, folder.url).analyzed_ledgers == 2
        assert _copied(bucket, folder.url).analyzed_ledgers == 0
        assert len(open_statistics(folder.url).files) == 2
        assert _known(folder.url) == _analyzed(bucket)


def test_tables_share_a_file() -> None:
    """Files are few, however many topics have tables of their own."""
    folder_of = golden_topic("int8").objects_folder
    with memory_bucket({}) as folder, TemporaryDirectory() as target:
        done = copy_topics(
            str(folder_of), "int*", f"{target}/{{topic}}", statistics=folder.url, **OPTIONS
        )
        [file] = open_statistics(folder.url).files
    assert len(done) == len(set(file.ledgers.column("topic").to_pylist())) == 4


def test_a_copy_that_fails_leaves_whole_ledgers(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what was committed; the next one goes on behind it, and learns what it reads whole."""
    commit, commits = ParquetTable.commit, []

    def failing(*given: Any) -> None:  # noqa: ANN401 - as of what it stands for
        commits.append(1)
        if len(commits) == 5:
            raise StorageError("gone")
        commit(*given)

    monkeypatch.setattr(ParquetTable, "commit", failing)
    with memory_bucket({}) as folder, TemporaryDirectory() as target:
        given = OPTIONS | {"statistics": folder.url, "sizes": SMALL}
        with patch("connector.statistics.whole_ledgers.ZONE_BYTES", 1):
            with pytest.raises(StorageError):
                copy_topics(bucket, TOPIC, target, **given)
            assert _known(folder.url).keys() == {3}
            copy_topics(bucket, TOPIC, target, **given)
        found, expected = _known(folder.url), _analyzed(bucket)

    # The first of its blocks was copied by the run that failed.
    assert found == {each: expected[each] for each in (3, 5)}


def test_a_folder_that_fails_does_not_stop_a_copy(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warning tells why, once, and nothing more is learned."""
    target, folder = tmp_path / "t", tmp_path / "statistics"
    write = Location.write_object

    def failing(location: Location, *given: Any, **options: Any) -> None:  # noqa: ANN401
        if location.url.endswith("statistics"):
            raise StorageError("no space left")
        write(location, *given, **options)

    monkeypatch.setattr(Location, "write_object", failing)
    monkeypatch.setattr("connector.statistics.zone_writer._FILE_ROWS", 1)
    with pytest.warns(UnusedStatisticsWarning, match=": no space left") as told:
        [done] = copy_topics(
            bucket, TOPIC, str(target), statistics=str(folder), sizes=SMALL, **OPTIONS
        )

    assert len(told) == 1
    assert done.analyzed_ledgers == 0
    assert done.rows == table_of(ParquetTable(Location(str(target)))).num_rows == 27
    assert not folder.exists()


def test_a_folder_that_is_emptied_does_not_stop_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the copy of one topic learned is looked up for the next one."""
    statistics = tmp_path / "statistics"

    def emptied(_: TableSummary) -> None:
        for each in statistics.iterdir():
            each.unlink()

    monkeypatch.setattr("connector.statistics.zone_writer._FILE_ROWS", 1)
    given = OPTIONS | {"statistics": statistics, "on_table": emptied}
    url, target = str(golden_topic("int8").objects_folder), f"{tmp_path}/{{topic}}"
    with pytest.warns(UnusedStatisticsWarning, match="cannot write statistics") as told:
        done = copy_topics(url, "int*", target, **given)
    assert len(told) == 1
    assert [each.analyzed_ledgers for each in done] == [1, 0, 0, 0]


@pytest.mark.parametrize("options", [{}, {"statistics": "memory://a::file://b"}])
def test_what_cannot_be_learned_is_refused_before_anything_is_read(
    bucket: str, tmp_path: Path, options: dict[str, Any]
) -> None:
    """Without a folder, or with one that is not written to."""
    with pytest.raises(OptionError, match=r"statistics|cannot write"):
        copy_topics(bucket, TOPIC, str(tmp_path / "t"), **OPTIONS, **options)
    assert not (tmp_path / "t").exists()

"""What a snapshot says of a topic is read when it is asked for, and no sooner."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector import open_catalog, open_topic
from connector.catalog.ledger_pages import LedgerPages, MappedLedgers
from connector.catalog.snapshot.documents import Documents
from connector.catalog.topic_ledgers import LedgerState, TopicLedger, TopicLedgers
from connector.inputs.topic_names import TopicName
from tests.support.large_bucket import LargeBucket

if TYPE_CHECKING:
    from collections.abc import Callable

    from connector import Catalog

_BUCKET = LargeBucket.of(topics=3, ledgers=450)
_LEDGERS = 150
"""Of each topic: they take three pages."""


@pytest.fixture(scope="module", params=[True, False], ids=["metadata", "bare"])
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """A catalog that was saved, beside its snapshot."""
    folder = tmp_path_factory.mktemp("saved")
    metadata = _BUCKET.save_metadata(folder / "metadata") if request.param else None
    catalog = open_catalog(str(_BUCKET.save(folder / "bucket")), metadata=metadata)
    catalog.save(folder / "catalog.json.gz")
    return catalog


@pytest.fixture
def opened(saved: Catalog) -> Catalog:
    """The same, opened from its snapshot."""
    url = saved.location.url
    return open_catalog(url, metadata=url.replace("bucket", "catalog.json.gz"))


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Places of the documents that are read behind the head."""
    read: list[int] = []

    def noted(documents: Documents, place: int) -> object:
        read.append(place)
        return whole(documents, place)

    whole = Documents.read
    monkeypatch.setattr(Documents, "read", noted)
    return read


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(lambda catalog: catalog.ledgers(_BUCKET.topics[1]), id="ledgers"),
        pytest.param(
            lambda catalog: open_topic(catalog.location.url, "t1", catalog=catalog, value="raw"),
            id="open_topic",
        ),
    ],
)
def test_a_topic_is_opened_without_the_others_and_without_its_ledgers(
    opened: Catalog, places: list[int], use: Callable[[Catalog], object]
) -> None:
    """Its document, what belongs to no topic, and (for a schema, once more) its document."""
    assert len(opened.topics()) == 3
    assert repr(opened).startswith("Catalog(")
    assert places == []
    use(opened)
    assert len(places) <= 4
    assert set(places) <= {0, 5}


def test_a_ledger_is_read_with_its_page(saved: Catalog, opened: Catalog, places: list[int]) -> None:
    """The first, the last and some between are those that were saved."""
    topic = _BUCKET.topics[2]
    found, expected = opened.ledgers(topic), saved.ledgers(topic)

    assert len(found.ledgers) == len(found.states) == _LEDGERS
    assert found.ledgers[-1] == expected.ledgers[-1]
    assert places == [9, 12]
    assert found.ledgers[70:140] == expected.ledgers[70:140]
    assert places == [9, 12, 11]
    assert found.ledgers == expected.ledgers
    assert expected.states == found.states
    assert found.metadata == expected.metadata


def test_ledgers_of_a_topic_are_made_once_for_all_its_reads(
    opened: Catalog, places: list[int]
) -> None:
    """Each needs all of them; what is kept for that is not sent to other processes."""
    dataset = open_topic(opened.location.url, "t1", catalog=opened, value="raw")
    dataset.scan.plan()
    del places[:]
    dataset.filter(pc.field("__entry_id__") > 0).scan.plan()
    assert f"{_LEDGERS} ledgers" in repr(dataset)
    assert places == []
    again = open_topic(opened.location.url, "t1", catalog=opened, value="raw")
    assert again.scan.plan() == dataset.scan.plan()

    sent = pickle.loads(pickle.dumps(dataset))
    assert "data" not in vars(sent.scan.topics[0])
    assert sent.scan.plan() == dataset.scan.plan()


def _ledger(number: int) -> TopicLedger:
    return TopicLedger(number, LedgerState.OPEN)


@given(count=st.integers(0, 40), page=st.integers(1, 9), data=st.data())
def test_lazy_sequences_are_tuples(count: int, page: int, data: st.DataObject) -> None:
    """By places and slices, of either sign; and when they are compared, iterated and pickled."""
    left_out = sorted(data.draw(st.sets(st.integers(0, count - 1)))) if count else []
    pages = LedgerPages(
        count,
        page,
        lambda number: list(range(number * page, min(count, (number + 1) * page))),
        lambda value, place: _ledger(value) if value == place else pytest.fail("another ledger"),
    )
    whole = tuple(map(_ledger, range(count)))
    picked = MappedLedgers(pages, left_out, lambda ledger: ledger.ledger_id)
    kept = tuple(number for number in range(count) if number not in left_out)

    assert pages.pin(left_out) == tuple(whole[place] for place in left_out)
    for lazy, expected in ((pages, whole), (picked, kept)):
        assert len(lazy) == len(expected)
        assert tuple(lazy) == expected
        assert lazy == expected
        assert lazy != (*expected, "more")
        assert hash(lazy) == hash(expected)
        assert pickle.loads(pickle.dumps(lazy)) == expected
        key = data.draw(st.slices(len(expected)))
        assert lazy[key] == expected[key]
        for place in (-1, 0, len(expected) - 1):
            if expected:
                assert lazy[place] == expected[place]
        with pytest.raises(IndexError):
            lazy[len(expected)]


class _ReadByAnother(list[Any]):
    """A page of which another thread makes each ledger while it is asked for."""

    def __getitem__(self, row: Any) -> Any:  # noqa: ANN401 - as of any list
        value = super().__getitem__(row)
        self[row] = _ledger(row)
        return value


def test_ledgers_may_be_made_by_several_threads_at_once() -> None:
    """Each finds what it needs, whoever is quicker."""
    pages = LedgerPages(3, 3, lambda _: _ReadByAnother(range(3)), lambda value, _: _ledger(value))

    assert tuple(pages) == tuple(map(_ledger, range(3)))


def test_topic_that_is_not_in_the_snapshot_has_no_ledgers(saved: Catalog, opened: Catalog) -> None:
    """As in the catalog that was saved; it is not the snapshot that is at fault."""
    topic = TopicName.parse("persistent://public/default/other")

    assert opened.ledgers(topic) == saved.ledgers(topic) == TopicLedgers(topic, ())
    assert opened.metadata(topic) is saved.metadata(topic) is None
    assert opened.opening([topic]) == saved.opening([topic])

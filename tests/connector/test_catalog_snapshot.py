"""`connector.catalog.snapshot.snapshot`: a snapshot is the catalog; other files are errors."""

from __future__ import annotations

import copy
import gzip
import json
import os
import pickle
import shutil
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import fsspec
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arrow_io.errors import (
    CorruptSnapshotError,
    MissingObjectError,
    OptionError,
    PulsarOffloadError,
    StorageError,
    UnusedStatisticsWarning,
)
from arrow_io.format.object_names import LedgerObjectName
from connector import open_catalog, open_topic
from connector.catalog.snapshot import documents as snapshot_documents
from connector.catalog.snapshot import snapshot as snapshot_module
from connector.catalog.tables import TABLES
from connector.upkeep.audit.audit import audit
from tests.support.admin_server import running_admin_server
from tests.support.golden import GOLDEN, golden_topic
from tests.support.owned_bucket import (
    LONG_AGO,
    OTHER_UUID,
    SMALL,
    OwnedBucket,
    under_way,
    without_uuid,
)
from tests.support.s3_server import SECRET_KEY, running_s3_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from connector import Catalog
    from connector.catalog.bucket import BucketContents


CHUNKED: Final = golden_topic("small-chunked")
ENCRYPTED: Final = golden_topic("small-encrypted")
_KINDS: Final = 3
"""So many documents, from the first, are of different kinds: head, rest and a topic."""
_STREAMING: Final = "00000000-0000-0000-0000-0000000000ff"


@pytest.fixture(scope="module")
def unsound(tmp_path_factory: pytest.TempPathFactory) -> OwnedBucket:
    """A bucket with something of everything that can be wrong."""
    bucket = OwnedBucket.copied(tmp_path_factory.mktemp("unsound"))
    first, second, third, fourth, fifth, *_ = CHUNKED.ledgers
    bucket.copy_ledger(first)
    bucket.write(second.data_object.name, second.data_object.read_bytes()[:-9])
    bucket.delete(third.data_object.name)
    bucket.delete(fourth.index_object.name)
    bucket.write(fifth.index_object.name, b"\xde\x47\xde\x47" + bytes(60))
    bucket.delete(CHUNKED.ledgers[5].data_object.name, CHUNKED.ledgers[5].index_object.name)
    bucket.write("backup.tar", b"foreign")
    bucket.write(_STREAMING, b"streaming")
    for path in (first.index_object, first.data_object):
        bucket.write(path.name.replace("ledger-14", "ledger-999"), path.read_bytes())
    bucket.change(ENCRYPTED.name, {24: under_way, 25: without_uuid})
    return bucket


def _documents(path: Path) -> list[Any]:
    """The documents of a snapshot, one to a line."""
    return list(map(json.loads, gzip.decompress(path.read_bytes()).splitlines()))


@pytest.fixture(scope="module")
def saved(unsound: OwnedBucket, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The JSON of a snapshot of that bucket, and of another that has what is missing there."""
    path = tmp_path_factory.mktemp("saved") / "catalog.json.gz"
    other = tmp_path_factory.mktemp("other")
    for source in (CHUNKED.ledgers[5].data_object, CHUNKED.ledgers[5].index_object):
        shutil.copy(source, other)
    unsound.catalog(buckets={"goldensmall": str(other)}).save(path)
    documents = _documents(path)
    copies = [
        copy for ledger in _ledgers(documents) for copy in (ledger["copy"], *ledger["others"])
    ]
    assert [copy["bucket"] for copy in copies if copy and copy["bucket"]] == ["goldensmall"]
    # What differs from run to run would give each run other examples.
    text = json.dumps(documents)
    for differing, same in ((str(other), "/other"), (str(unsound.objects), "/bucket")):
        text = text.replace(differing, same)
    settled: list[Any] = json.loads(text)
    settled[0]["taken"] = "2026-11-21T00:00:00+00:00"
    return settled


def _ledgers(documents: list[Any]) -> list[dict[str, Any]]:
    """The ledgers of all topics."""
    return [ledger for each in documents if isinstance(each, list) for ledger in each]


def _described(contents: BucketContents) -> list[object]:
    """All that is known of a bucket, in values that can be compared."""
    return [
        [
            (
                each.name,
                each.index,
                each.data,
                each.topic,
                *(
                    ledger and (ledger, ledger.warnings, ledger.user_metadata)
                    for ledger in (each.ledger, each.cut)
                ),
                each.error and (type(each.error), vars(each.error)),
            )
            for each in contents.copies
        ],
        contents.location,
        contents.unfinished,
        contents.foreign,
    ]


def _check_same(opened: Catalog, catalog: Catalog) -> None:
    """Two catalogs know the same."""
    assert _described(opened.contents) == _described(catalog.contents)
    assert opened.listed_at == catalog.listed_at
    assert opened.topics() == catalog.topics()
    for topic in catalog.topics():
        assert opened.metadata(topic) == catalog.metadata(topic)
        found, expected = opened.ledgers(topic), catalog.ledgers(topic)
        assert found.ledgers == expected.ledgers
        assert [vars(each) for each in found.problems] == [vars(e) for e in expected.problems]
        assert [each.state for each in found.states] == [each.state for each in expected.states]
        assert opened.schema([topic]) == catalog.schema([topic])
    for table in TABLES.values():
        assert table(opened, None).equals(table(catalog, None))


@pytest.mark.parametrize("has_metadata", [True, False])
def test_round_trip(unsound: OwnedBucket, tmp_path: Path, *, has_metadata: bool) -> None:
    """Sound, unsound, cut and unfinished ledgers, foreign objects and metadata come back equal."""
    path = tmp_path / "catalog.json.gz"
    catalog = unsound.catalog(**({} if has_metadata else {"metadata": None}))
    kinds = {type(each.error).__name__ for each in catalog.contents.copies}
    assert kinds == {"NoneType", "TruncatedObjectError", "MissingObjectError", "CorruptIndexError"}
    catalog.save(path)

    opened = open_catalog(str(unsound.objects), metadata=path)

    assert (opened.source is None) == (not has_metadata)
    _check_same(opened, catalog)
    assert audit(opened).findings == audit(catalog).findings
    assert audit(opened).findings
    opened.save(tmp_path / "again.json.gz")
    _check_same(open_catalog(str(unsound.objects), metadata=tmp_path / "again.json.gz"), catalog)


def test_odd_names_round_trip(tmp_path: Path) -> None:
    """Names that no text encodes, such as those of files, are kept as they are."""
    bucket = OwnedBucket.copied(tmp_path)
    (bucket.objects / os.fsdecode(b"caf\xe9")).write_bytes(b"")
    (bucket.objects / "\N{SNOWMAN} ledger").write_bytes(b"")
    catalog = bucket.catalog()
    catalog.save(tmp_path / "catalog.json.gz")

    _check_same(bucket.catalog(metadata=tmp_path / "catalog.json.gz"), catalog)


def test_what_s3_says_is_kept(tmp_path: Path) -> None:
    """User metadata, among it the cluster's name, and no credentials."""
    path = tmp_path / "catalog.json.gz"
    with running_s3_server() as server:
        address = server.upload_golden(GOLDEN / SMALL)
        options = address.storage_options
        catalog = open_catalog(address.url, storage_options=options, metadata=GOLDEN / SMALL)
        catalog.save(path)
        opened = open_catalog(address.url, storage_options=options, metadata=path)
        _check_same(opened, catalog)

    clusters = TABLES["ledgers"](opened, CHUNKED.name)["cluster"].to_pylist()
    assert clusters == ["standalone"] * 8 + [None]
    text = gzip.decompress(path.read_bytes()).decode()
    assert SECRET_KEY not in text
    assert server.endpoint_url not in text


def test_no_secret_is_written(tmp_path: Path) -> None:
    """Neither options of any store nor tokens, nor what a URL has of a user."""
    path = tmp_path / "catalog.json.gz"
    bucket = OwnedBucket.copied(tmp_path)
    with running_admin_server(SMALL, token="t0ken") as server:
        open_catalog(
            f"file://{bucket.objects}",
            storage_options={"auto_mkdir": False, "secret": "s3cret"},
            metadata=server.url,
            metadata_options={"token": "t0ken"},
        ).save(path)

    text = gzip.decompress(path.read_bytes()).decode()
    assert "s3cret" not in text
    assert "t0ken" not in text
    assert "auto_mkdir" not in text


@pytest.mark.parametrize("place", ["folder", "memory"])
def test_snapshot_is_replaced_whole(place: str, tmp_path: Path, saved: list[Any]) -> None:
    """Whoever opens it meanwhile finds the old or the new one; nothing else is left behind."""
    folder = str(tmp_path / "new") if place == "folder" else f"memory://{tmp_path.name}"
    path = f"{folder}/catalog.json.gz"
    bucket = OwnedBucket.copied(tmp_path / "bucket")
    file_system, root = fsspec.url_to_fs(folder)
    file_system.makedirs(root, exist_ok=True)
    with fsspec.open(path, "wb") as file:
        file.write(_packed(saved))
    bucket.catalog().save(path)

    assert [name.rpartition("/")[2] for name in file_system.ls(root, detail=False)] == [
        "catalog.json.gz"
    ]
    assert len(bucket.catalog(metadata=path).contents.copies) == 29


def test_interrupted_save_leaves_the_old_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full takes nothing away."""
    bucket = OwnedBucket.copied(tmp_path)
    path = tmp_path / "saved" / "catalog.json.gz"
    bucket.catalog().save(path)
    before = path.read_bytes()

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError):
        bucket.catalog().save(path)

    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("path", ["catalog.json", "catalog", "folder/", "memory://catalog.json.gz"])
def test_name_of_no_snapshot_is_refused(path: str) -> None:
    """By its name a snapshot is told from a folder of metadata."""
    with pytest.raises(OptionError, match=r"must end with \.json\.gz"):
        open_catalog(str(GOLDEN / SMALL / "objects")).save(path)


@pytest.mark.parametrize(
    ("bound", "said"),
    [
        ("MAX_SNAPSHOT_BYTES", r"takes \d{5,} bytes, but a snapshot may have at most 100"),
        ("MAX_SNAPSHOT_VALUES", r"takes \d{4,} values, but a snapshot may have at most 100"),
    ],
)
def test_catalog_that_no_snapshot_can_hold_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, said: str
) -> None:
    """What could not be opened again is not written, and the error says what is too much."""
    monkeypatch.setattr(snapshot_documents, bound, 100)
    with pytest.raises(OptionError, match=said):
        open_catalog(str(GOLDEN / SMALL / "objects")).save(tmp_path / "catalog.json.gz")
    assert list(tmp_path.iterdir()) == []


def test_snapshot_that_is_not_there(tmp_path: Path) -> None:
    """It is missing, not corrupt."""
    with pytest.raises(MissingObjectError):
        open_catalog(str(tmp_path), metadata=tmp_path / "catalog.json.gz")


def _packed(documents: Sequence[object]) -> bytes:
    """A file of documents, with the sizes and the checksum that it should have."""
    head, *others = documents
    members = list(map(_member, others))
    if isinstance(head, dict):
        head = head | {"sizes": list(map(len, members)), "crc32": zlib.crc32(b"".join(members))}
    return b"".join([_member(head), *members])


def _member(document: object) -> bytes:
    # The time would be covered by the checksum, which would not be the same in two runs.
    return gzip.compress(json.dumps(document).encode(), compresslevel=1, mtime=0)


def _text(data: bytes) -> bytes | None:
    """What gzip has of it; None: an error. Some bits, as those that fill a byte, say nothing."""
    try:
        return gzip.decompress(data)
    except (EOFError, OSError, zlib.error):
        return None


def _open(data: bytes, folder: Path) -> Catalog:
    path = folder / "hostile.json.gz"
    path.write_bytes(data)
    return open_catalog(str(folder), metadata=path)


def _refused(data: bytes, folder: Path, *, when_used: bool = False) -> CorruptSnapshotError:
    with pytest.raises(CorruptSnapshotError) as caught:
        (_use if when_used else repr)(_open(data, folder))
    assert caught.value.object_key == "hostile.json.gz"
    assert len(str(caught.value)) < 500
    return pickle.loads(pickle.dumps(caught.value))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        gzip.compress(b""),
        gzip.compress(b"{}"),
        gzip.compress(b"[]"),
        gzip.compress(b"null"),
        gzip.compress(b'"text"'),
        gzip.compress(b"\xff\xfe\xff"),
        gzip.compress(b"[" * 100_000),
        gzip.compress(b'{"format": ' + b"9" * 10_000 + b"}"),
        gzip.compress(b'{"format": "pulsar-offload catalog", "version": 4}'),
        _packed([{"format": "x" * 10_000, "version": "y" * 10_000}]),
        _packed([{"format": "pulsar-offload catalog", "version": 3}]),
    ],
    ids=range(13),
)
def test_what_is_no_snapshot_is_refused(data: bytes, tmp_path: Path) -> None:
    """Whatever it is, there is one error, and it is short."""
    _refused(data, tmp_path)


def test_what_grows_beyond_measure_is_refused(
    saved: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a long file nor one that is long when it is uncompressed is read whole."""
    monkeypatch.setattr(snapshot_documents, "MAX_SNAPSHOT_BYTES", 1 << 20)
    monkeypatch.setattr(snapshot_module, "MAX_SNAPSHOT_BYTES", 1 << 20)
    _use(_open(_packed(saved), tmp_path))

    for place, each in enumerate(saved[:_KINDS]):
        longer = [*saved[:place], each | {"more": " " * (1 << 20)}, *saved[place + 1 :]]
        _refused(_packed(longer), tmp_path, when_used=True)
    _refused(os.urandom(1 << 20) + b"more", tmp_path)


def test_snapshot_of_too_many_values_is_refused(
    saved: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short text may become many objects: they are counted before they are made."""
    monkeypatch.setattr(snapshot_documents, "MAX_SNAPSHOT_VALUES", 100_000)
    _use(_open(_packed(saved), tmp_path))

    for place, each in enumerate(saved[:_KINDS]):
        more = each | {"more": [[] for _ in range(100_000)]}
        _refused(_packed([*saved[:place], more, *saved[place + 1 :]]), tmp_path, when_used=True)


def test_what_follows_a_snapshot_is_refused(saved: list[Any], tmp_path: Path) -> None:
    """A file that was written over a longer one is not whole."""
    _refused(_packed(saved) + b"more", tmp_path)


@given(data=st.data())
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_cut_or_flipped_bytes_are_refused(
    saved: list[Any], tmp_path: Path, data: st.DataObject
) -> None:
    """Before anything of it is used; but for bits that say nothing, as those that fill a byte."""
    whole = _packed(saved)
    if data.draw(st.booleans()):
        _refused(whole[: data.draw(st.integers(0, len(whole) - 1))], tmp_path)
        return
    position = data.draw(st.integers(0, len(whole) - 1))
    spoilt = bytearray(whole)
    spoilt[position] ^= 1 << data.draw(st.integers(0, 7))
    head = zlib.decompressobj(zlib.MAX_WBITS | 16)
    head.decompress(whole)
    is_of_head = position < len(whole) - len(head.unused_data)
    if is_of_head and _text(bytes(spoilt)) == gzip.decompress(whole):
        _open(bytes(spoilt), tmp_path)
    else:
        _refused(bytes(spoilt), tmp_path)


_ANYTHING: Final = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 70),
    st.sampled_from([2**63, 2**64, -(2**63), 10**400, 1.5, float("nan"), float("inf")]),
    st.sampled_from(["", "x", "../../x", "MissingObjectError", "Any", "open", "\ud800", "0" * 99]),
    st.sampled_from(["2026-11-21", "2026-11-21T00:00:00", "9999-12-31T23:59:59.9+00:00"]),
    st.sampled_from(["memory://x", "persistent://a/b/c", str(OTHER_UUID), "AAAA"]),
    st.sampled_from([[], {}, [[]], {"a": 1}, [1, 2], [None] * 3, ["x", 1, None]]),
)


def _places(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something can be put in place of what a value has."""
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from _places(value[key], (*path, key))


def _replaced(value: list[Any], path: tuple[Any, ...], other: object) -> Any:  # noqa: ANN401
    changed: Any = {"": copy.deepcopy(value)}
    *outer, last = ("", *path)
    inner = changed
    for key in outer:
        inner = inner[key]
    inner[last] = other
    return changed[""]


def _use(catalog: Catalog) -> None:
    """Look at all that a catalog tells."""
    repr(catalog)
    for table in TABLES.values():
        table(catalog, None)
    audit(catalog)
    for topic in catalog.topics():
        catalog.schema([topic])
        with suppress(PulsarOffloadError):
            catalog.select(str(topic))


@given(data=st.data())
@settings(max_examples=250, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_anything_else_in_its_place_is_refused_or_harmless(
    saved: list[Any], tmp_path: Path, data: st.DataObject
) -> None:
    """Whatever the text says, there is a catalog that can be used, or the one error."""
    places = [path for path in _places(saved) if path]
    path = data.draw(st.sampled_from(places))
    hostile = _replaced(saved, path, data.draw(_ANYTHING))
    try:
        _use(_open(_packed(hostile), tmp_path))
    except CorruptSnapshotError as error:
        assert len(str(error)) < 500  # noqa: PT017 - either outcome is right
    except PulsarOffloadError:
        pass


def _first_copy(documents: list[Any], of: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    copies = (each["copy"] for each in _ledgers(documents))
    return next(each for each in copies if each and of(each))


def _sound(each: dict[str, Any]) -> bool:
    return each["error"] is None


def _cut(each: dict[str, Any]) -> bool:
    return each["cut_bytes"] is not None


@pytest.mark.parametrize(
    ("of", "changes"),
    [
        (_sound, {"block": None}),
        (_sound, {"data": None}),
        (_sound, {"topic": None}),
        (_sound, {"cut_bytes": 5}),
        (_cut, {"error": None}),
        (_cut, {"cut_bytes": None}),
        (_cut, {"error": ["SystemExit", "", {}]}),
        (_cut, {"error": ["IncompleteReadWarning", "", {}]}),
        (_sound, {"index": ["../../etc/passwd", 5, None]}),
        (_sound, {"data": [_STREAMING, 5, None]}),
        (_sound, {"index": [LedgerObjectName(OTHER_UUID, 5).index_name, 5, None]}),
    ],
)
def test_ledgers_that_would_vanish_or_mislead_are_refused(
    saved: list[Any],
    tmp_path: Path,
    of: Callable[[dict[str, Any]], bool],
    changes: dict[str, Any],
) -> None:
    """A ledger neither sound nor in error would be left out; another's name would be deleted."""
    hostile = copy.deepcopy(saved)
    _first_copy(hostile, of).update(changes)
    _refused(_packed(hostile), tmp_path, when_used=True)


def test_snapshot_keeps_how_far_metadata_is_proven(tmp_path: Path) -> None:
    """What may be deleted by the metadata may be by its snapshot, and nothing else."""
    bucket, path = OwnedBucket.copied(tmp_path), tmp_path / "catalog.json.gz"
    bucket.copy_ledger(CHUNKED.ledgers[0])
    bucket.copy_ledger(ENCRYPTED.ledgers[0])
    bucket.unprove(ENCRYPTED.name)
    catalog = bucket.catalog()
    catalog.save(path)

    found = audit(open_catalog(str(bucket.objects), metadata=path), is_one_cluster=True)

    assert found == audit(catalog, is_one_cluster=True)
    assert [each.deletable for each in found.findings] == [True, False]


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_snapshot_of_an_earlier_version_says_what_to_do(tmp_path: Path, version: int) -> None:
    """It is not called damaged for lack of what it never had."""
    path = tmp_path / "old.json.gz"
    old = {"format": "pulsar-offload catalog", "version": version, "contents": {}}
    path.write_bytes(gzip.compress(json.dumps(old).encode()))

    with pytest.raises(CorruptSnapshotError, match=f"has version {version}, but this release"):
        open_catalog(str(tmp_path), metadata=str(path))


def test_streaming_objects_have_names_of_theirs(saved: list[Any], tmp_path: Path) -> None:
    """Another name is an error of the snapshot."""
    head, rest, *documents = copy.deepcopy(saved)
    (streaming,) = (each for each in rest["contents"]["unfinished"] if "ledger" not in each[0][0])
    streaming[0][0] = "other"
    catalog = _open(_packed([head, rest, *documents]), tmp_path)
    with pytest.raises(CorruptSnapshotError):
        _use(catalog)


def test_snapshot_of_no_statistics(saved: list[Any], tmp_path: Path) -> None:
    """It says so, and no other value does."""
    head, *documents = saved
    assert head["statistics"] is None
    assert _open(_packed([head, *documents]), tmp_path).statistics is None
    _refused(_packed([head | {"statistics": 5}, *documents]), tmp_path)


BATCHED: Final = golden_topic("small-bytes-batched-lz4")


def _skipped(catalog: Catalog, **options: Any) -> int:  # noqa: ANN401 - those of open_topic
    """How many zones a read leaves out that asks for times before all messages."""
    given = {"catalog": catalog, "value": "raw", **options}
    dataset = open_topic(str(catalog.location), BATCHED.name, **given)
    before = pc.field("__publish_time__") < LONG_AGO.replace(year=2000)
    return dataset.filter(before).scan.pruning().zones


def test_snapshot_remembers_where_statistics_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads by it go by them, wherever they are started, unless others are given."""
    url, snapshot = str(GOLDEN / SMALL / "objects"), tmp_path / "catalog.json.gz"
    monkeypatch.chdir(tmp_path)
    catalog = open_catalog(url)
    zones = sum(each.zones for each in catalog.analyze("statistics", BATCHED.name))

    catalog.save(snapshot, statistics="statistics")
    monkeypatch.chdir("/")

    opened = open_catalog(url, metadata=snapshot)
    assert (catalog.statistics, opened.statistics) == (None, str(tmp_path / "statistics"))
    assert (_skipped(catalog), _skipped(opened)) == (0, zones)
    (tmp_path / "others").mkdir()
    with pytest.warns(UnusedStatisticsWarning, match="there are no statistics in"):
        assert _skipped(opened, statistics=tmp_path / "others") == 0
    opened.save(snapshot)
    assert open_catalog(url, metadata=snapshot).statistics == opened.statistics
    elsewhere = "memory://me:secret@host/x"
    file_system, root = fsspec.url_to_fs(elsewhere)
    file_system.pipe_file(f"{root}/notes.txt", b"no statistics")
    with pytest.warns(UnusedStatisticsWarning, match="there are no statistics in"):
        opened.save(snapshot, statistics=elsewhere)
    file_system.rm(root, recursive=True)
    assert "secret" not in str(open_catalog(url, metadata=snapshot).statistics)
    with pytest.raises(OptionError, match="statistics must be a path or URL"):
        catalog.save(snapshot, statistics="")

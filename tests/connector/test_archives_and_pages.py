"""Topics in archives and behind web servers are read as in a folder, or refused by name."""

from __future__ import annotations

import http.server
import tarfile
import zipfile
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from arrow_io.errors import MissingObjectError, OptionError, StorageError
from arrow_io.storage.location import Location
from connector import open_catalog, open_topic, write_messages
from tests.support.golden import GOLDEN
from tests.support.http_servers import serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_TOPIC = "multi-ledger"
_OBJECTS = GOLDEN / "pulsar-4.0.7" / "objects"


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of archives with the objects of a bucket, at their root and in a folder."""
    folder = tmp_path_factory.mktemp("archives")
    for name, prefix in (("root", ""), ("folder", "backup/bucket/")):
        with zipfile.ZipFile(folder / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for path in _OBJECTS.iterdir():
                archive.write(path, f"{prefix}{path.name}")
        with tarfile.open(folder / f"{name}.tar.gz", "w:gz") as tar:
            for path in _OBJECTS.iterdir():
                tar.add(path, f"{prefix}{path.name}")
    (folder / "broken.zip").write_bytes((folder / "root.zip").read_bytes()[:-1000])
    damaged = bytearray((folder / "root.zip").read_bytes())
    damaged[: len(damaged) // 2] = bytes(len(damaged) // 2)
    (folder / "damaged.zip").write_bytes(damaged)
    return folder


@pytest.mark.parametrize(
    "url",
    [
        "zip::{}/root.zip",
        "zip://::file://{}/root.zip",
        "zip://backup/bucket::{}/folder.zip",
        "tar::{}/root.tar.gz",
        "tar://backup/bucket/::{}/folder.tar.gz",
        "zip::memory://archives/root.zip",
    ],
)
def test_archives(archives: Path, url: str) -> None:
    """A topic in an archive is read in small ranges, as from a folder."""
    data = (archives / "root.zip").read_bytes()
    Location("memory://archives").write_object("root.zip", data, user_metadata={})
    found = open_topic(url.format(archives), _TOPIC, range_bytes=4000)
    assert found.to_table() == open_topic(str(_OBJECTS), _TOPIC).to_table()


def test_a_folder_in_an_archive(archives: Path) -> None:
    """Folders of an archive are listed, and lead to their objects."""
    root = Location(f"zip::{archives}/folder.zip")
    assert (root.list_folders(), root.list_objects()) == (["backup"], [])
    assert root.child("backup").list_folders() == ["bucket"]
    objects = root.child("backup").child("bucket").list_objects()
    assert [each.name for each in objects] == sorted(path.name for path in _OBJECTS.iterdir())
    assert root.list_tree("backup/none") == []
    assert [each.name for each in root.list_tree()] == [
        f"backup/bucket/{each.name}" for each in objects
    ]


@pytest.mark.parametrize(
    ("url", "error", "message"),
    [
        ("zip::{}/broken.zip", StorageError, "BadZipFile"),
        ("tar::{}/root.zip", StorageError, "ReadError"),
        ("zip::{}/none.zip", MissingObjectError, "no such folder"),
        ("zip://backup/none::{}/folder.zip", MissingObjectError, "no such folder"),
        ("zip://{}/root.zip", OptionError, "names no archive: zip://folder::path"),
        ("reference::{}/refs.json", OptionError, "is a list of references"),
        ("reference://", OptionError, "is a list of references"),
    ],
)
def test_what_cannot_be_read(
    archives: Path, url: str, error: type[Exception], message: str
) -> None:
    """An archive that is broken, missing or not named is an error that says so."""
    with pytest.raises(error, match=message):
        open_catalog(url.format(archives))


def test_damaged_members(archives: Path) -> None:
    """Bytes of an archive that are damaged are a typed error."""
    with pytest.raises(StorageError, match="BadZipFile"):
        open_topic(f"zip::{archives}/damaged.zip", _TOPIC).to_table()


class _Pages(http.server.SimpleHTTPRequestHandler):
    """Lists folders as Apache does: with links that sort the page, and one to the parent."""

    def list_directory(self, path: str) -> None:  # type: ignore[override]
        links = ["?C=N;O=D", "?C=M;O=A", "/", "#top"]
        if "empty" not in self.path:
            links += [each.name for each in sorted(_OBJECTS.iterdir())]
        page = "".join(f'<a href="{link}">{link}</a>\n' for link in links).encode()
        del path
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_args: object) -> None:
        """Print nothing."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    """URL of a web server with a bucket and an empty folder."""
    (tmp_path / "bucket").symlink_to(_OBJECTS)
    (tmp_path / "empty").mkdir()
    handler = partial(_Pages, directory=str(tmp_path))
    with serving(http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)) as url:
        yield url


@pytest.mark.posix
def test_web_servers(site: str) -> None:
    """A folder whose page lists it is read; a page without links to files is no folder."""
    expected = open_topic(str(_OBJECTS), _TOPIC).to_table()
    assert open_topic(f"{site}/bucket/", _TOPIC).to_table() == expected
    for folder in ("empty/", "nowhere/"):
        with pytest.raises(MissingObjectError, match="no such folder"):
            open_catalog(f"{site}/{folder}")


@pytest.mark.posix
def test_web_servers_are_only_read(site: str) -> None:
    """A topic is not written to a web server."""
    with pytest.raises(OptionError, match="is read-only"):
        write_messages(f"{site}/bucket/", "written", pa.table({"__value__": [b"1"]}))

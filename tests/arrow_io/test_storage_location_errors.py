"""What a location says when a store fails or an option cannot work; never a secret."""

from __future__ import annotations

import pickle
import re
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from botocore.exceptions import NoCredentialsError
from fsspec.registry import _registry

from arrow_io.core.extras import install_command
from arrow_io.errors import OptionError, StorageError
from arrow_io.storage.location import Location
from arrow_io.storage.trace import RequestCounts, RequestTrace
from tests.support.faulty_storage import FaultScript, cut_to, instead, raising, s3_error
from tests.support.s3_server import SECRET_KEY

if TYPE_CHECKING:
    from pathlib import Path


class TestFailures:
    """What reaches the user when a store does not do what it should."""

    @pytest.mark.parametrize("is_async", [False, True])
    def test_what_passes_is_retried(self, is_async: bool) -> None:
        """Failures that pass are not noticed by the caller, but are counted."""
        faults = [raising(s3_error(503, "SlowDown")), raising(TimeoutError()), cut_to(0)]
        script, trace = FaultScript({"a": b"data"}, faults), RequestTrace()

        content = replace(script.location(is_async=is_async), trace=trace).read_range("a", 0, 4)

        assert content.data == b"data"
        assert trace.counts == RequestCounts(range_requests=4, head_requests=1, range_bytes=4)
        assert script.pauses_s == [0.1, 0.2, 0.4]

    def test_attempts_end(self) -> None:
        """When the attempts are used up, the error names object, offset, and their number."""
        script = FaultScript({"a": b"data"}, [raising(s3_error(500, "InternalError", "oops"))] * 9)

        with pytest.raises(StorageError, match=r"after 3 attempts: OSError: .*oops") as raised:
            script.location(attempts=3).read_range("a", 1, 4)
        assert (raised.value.object_key, raised.value.offset) == ("a", 1)
        assert len(script.requests) == 3

    def test_no_progress_ends_too(self) -> None:
        """A store that goes on sending nothing of an object that is long enough is given up."""
        script = FaultScript({"a": b"data"}, [cut_to(0)] * 9)

        with pytest.raises(StorageError, match="no bytes were sent of an object of 4 bytes"):
            script.location(attempts=4).read_range("a", 0, 4)
        assert len(script.requests) == 4

    def test_a_longer_answer_is_refused(self) -> None:
        """A whole object is not taken for its first range."""
        script = FaultScript({"a": b"data"}, [instead(b"data")])

        with pytest.raises(StorageError, match="did not answer with the requested bytes"):
            script.location().read_range("a", 0, 2)
        assert script.pauses_s == []

    @pytest.mark.parametrize(
        "error",
        [
            PermissionError("AccessDenied"),
            s3_error(403, "AccessDenied"),
            NoCredentialsError(),
            aiohttp.ClientError("broken"),
        ],
        ids=repr,
    )
    def test_what_lasts_is_a_storage_error_at_once(self, error: Exception) -> None:
        """A refusal is not retried, whichever library's class it is."""
        script = FaultScript({"a": b"data"}, [raising(error)])

        with pytest.raises(StorageError, match=type(error).__name__) as raised:
            script.location().read_object("a", max_bytes=9)
        assert raised.value.object_key == "a"
        assert script.pauses_s == []

    def test_bugs_are_not_hidden(self) -> None:
        """An error that no storage library means to raise goes through as it is."""
        script = FaultScript({"a": b"data"}, [raising(ZeroDivisionError())])

        with pytest.raises(ZeroDivisionError):
            script.location().read_object("a", max_bytes=9)

    def test_errors_hold_no_secret(self) -> None:
        """Neither message, nor causes, nor the pickled error have an option's value in them."""
        text = f"403 for {SECRET_KEY} at https://me:{SECRET_KEY}@host/a?X-Amz-Signature=abc"
        script = FaultScript({"a": b"data"}, [raising(PermissionError(text))])
        location = script.location(secret=SECRET_KEY, nested={"token": SECRET_KEY})

        with pytest.raises(StorageError) as raised:
            location.read_object("a", max_bytes=9)

        assert "403 for *** at https://***@host/a?***" in str(raised.value)
        assert SECRET_KEY.encode() not in pickle.dumps(raised.value)
        assert raised.value.__cause__ is None
        assert raised.value.__suppress_context__

    def test_a_file_is_no_folder(self, tmp_path: Path) -> None:
        """A location that is an object cannot be listed."""
        path = tmp_path / "file"
        path.write_bytes(b"data")

        with pytest.raises(StorageError, match="NotADirectoryError"):
            Location(str(path)).list_objects()

    def test_a_folder_is_no_object(self, tmp_path: Path) -> None:
        """A folder cannot be read."""
        (tmp_path / "folder").mkdir()

        with pytest.raises(StorageError, match="IsADirectoryError") as raised:
            Location(str(tmp_path)).read_object("folder", max_bytes=9)
        assert raised.value.object_key == "folder"


class TestOptions:
    """URLs and options that cannot work are told at once, and none is shown."""

    @pytest.mark.parametrize(
        "url",
        [
            "s3://key:hidden@bucket/prefix",
            "s3://key:hid/den@bucket/prefix",
            "s3://hidden@bucket",
            "gs://key:hidden@bucket",
        ],
    )
    def test_credentials_in_the_url_of_a_bucket_are_refused(self, url: str) -> None:
        """The libraries would take them for a part of the bucket's name, and print it."""
        with pytest.raises(OptionError, match="pass them as storage options") as raised:
            Location(url)
        assert "hid" not in str(raised.value)

    @pytest.mark.parametrize("url", ["s3://", "s3:///prefix", "gs://"])
    def test_a_bucket_must_be_named(self, url: str) -> None:
        """A URL without bucket is refused before any request."""
        with pytest.raises(OptionError, match="names no bucket"):
            Location(url)

    @pytest.mark.parametrize(
        "url", ["s3://bucket/x?versionId=1", "S3A://bucket?", "zip::s3://bucket/x?y"]
    )
    def test_a_question_mark_is_refused_on_s3(self, url: str) -> None:
        """s3fs would take what is before it for the key of an object that is there."""
        with pytest.raises(OptionError, match=r"has a '\?'"):
            Location(url)

    def test_elsewhere_a_question_mark_is_a_character(self, tmp_path: Path) -> None:
        """A folder may have one in its name."""
        location = Location(str(tmp_path / "why?"))
        location.write_object("a", b"because", user_metadata={})

        assert location.read_object("a", max_bytes=9).data == b"because"

    @pytest.mark.parametrize("options", [{"url": 5}, {"url": b"s3://b"}, {"storage_options": "k"}])
    def test_values_of_wrong_types_are_refused(self, options: dict[str, Any]) -> None:
        """A URL is text, and options are a mapping."""
        with pytest.raises(OptionError, match=r"not (an int|a bytes|a str)"):
            Location(**{"url": "memory://x", **options})

    def test_a_chain_is_not_written_to(self) -> None:
        """What it has of a store's own ways to write whole objects is unknown."""
        location = Location("dir::memory://chained")

        with pytest.raises(OptionError, match="chain of URLs"):
            location.write_object("a", b"", user_metadata={})
        with pytest.raises(OptionError, match="chain of URLs"):
            location.upload("a", user_metadata={})

    def test_an_access_point_is_a_bucket(self) -> None:
        """The colons of an access point's ARN are no credentials."""
        arn = "arn:aws:s3:eu-west-1:123456789012:accesspoint"

        assert str(Location(f"s3://{arn}/name/prefix")) == f"s3://{arn}/name/prefix"

    def test_what_is_printed_has_names_of_options_only(self) -> None:
        """Neither repr nor str have a value of an option or a URL's credentials."""
        options = {"key": "hidden1", "secret": "hidden2", "client_kwargs": {"a": "hidden3"}}
        location = Location("sftp://me:hidden4@host/folder?hidden5", options)

        assert repr(location) == (
            "Location('sftp://***@host/folder?***', options: key, secret, client_kwargs)"
        )
        assert str(location) == "sftp://***@host/folder?***"

    def test_locations_are_values(self) -> None:
        """Equal URL and options make equal locations; later changes of the options do not count."""
        options: dict[str, object] = {"key": "k"}
        location = Location("s3://bucket", options)
        options["key"] = "other"

        assert location == Location("s3://bucket", {"key": "k"})
        assert location != Location("s3://bucket", options)
        assert location != Location("s3://other", {"key": "k"})
        assert Location("memory://a") == Location("memory://a", {})
        assert len({location, Location("s3://bucket", {"key": "k"})}) == 1

    def test_a_relative_path_is_made_absolute(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A location means the same in a process with another working folder."""
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "a").write_bytes(b"1")
        monkeypatch.chdir(tmp_path)
        location = Location("data")
        monkeypatch.chdir("/")

        assert location.url == str(tmp_path / "data")
        assert [info.name for info in location.list_objects()] == ["a"]

    @pytest.mark.parametrize(
        ("url", "package", "extra"),
        [
            ("s3://bucket", "s3fs", "s3"),
            ("gs://bucket", "gcsfs", "gcs"),
            ("abfs://container", "adlfs", "azure"),
            ("webhdfs://host", "requests", "hdfs"),
        ],
    )
    def test_a_missing_package_is_named(
        self, monkeypatch: pytest.MonkeyPatch, url: str, package: str, extra: str
    ) -> None:
        """Without the file system of a store the error says what to install."""
        monkeypatch.delitem(_registry, url.partition("://")[0], raising=False)
        monkeypatch.setitem(sys.modules, package, None)
        monkeypatch.delitem(sys.modules, "fsspec.implementations.webhdfs", raising=False)

        with pytest.raises(OptionError, match=f"needs {package}: .*{extra}\\]"):
            Location(url, {"account_name": "me"} if extra == "azure" else {}).list_objects()

    def test_missing_hdfs_native_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Even if PyArrow, whose HDFS needs Java, is installed."""
        monkeypatch.setattr("arrow_io.storage.connection.find_spec", lambda _name: None)

        for url in ("hdfs://host:1/a", "viewfs://host/a"):
            with pytest.raises(OptionError, match=r"needs hdfs-native: .*hdfs\]"):
                Location(url).list_objects()

    def test_missing_obstore_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """If it was asked for by name."""
        monkeypatch.setitem(sys.modules, "arrow_io.storage.obstore_object_store", None)

        with pytest.raises(OptionError, match=re.escape(install_command("obstore"))):
            Location("s3://bucket", {"client": "obstore"}).list_objects()

    def test_another_missing_package_is_named_by_fsspec(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """For stores without an extra of ours fsspec's own words are given."""
        monkeypatch.delitem(_registry, "oss", raising=False)
        monkeypatch.setitem(sys.modules, "ossfs", None)

        with pytest.raises(OptionError, match="ossfs"):
            Location("oss://bucket").list_objects()

    def test_an_unknown_option_is_an_option_error(self) -> None:
        """A mistyped option is named, its value is not."""
        with pytest.raises(OptionError, match="secert") as raised:
            Location("s3://bucket", {"secert": "hidden"}).list_objects()
        assert "hidden" not in str(raised.value)

    def test_an_unusable_endpoint_is_an_option_error(self) -> None:
        """An endpoint that is no URL is told before any request."""
        options = {"key": "k", "secret": "hidden", "endpoint_url": "nonsense"}

        with pytest.raises(
            OptionError, match=r"endpoint_url must be the URL of a server.*nonsense"
        ):
            Location("s3://bucket", options).list_objects()

    def test_an_unknown_protocol_is_an_option_error(self) -> None:
        """A URL that fsspec has no file system for is refused by name."""
        with pytest.raises(OptionError, match="Protocol not known: nowhere"):
            Location("nowhere://bucket").list_objects()

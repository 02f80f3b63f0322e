"""What may be shown holds no secret and stays readable."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.storage.redaction import redacted, redacted_urls


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/prefix", "s3://bucket/prefix"),
        ("s3://key:secret@bucket/prefix", "s3://***@bucket/prefix"),
        ("s3://key:sec/ret@bucket/prefix", "s3://***@bucket/prefix"),
        ("s3://key:sec@ret@bucket/prefix", "s3://***@bucket/prefix"),
        ("s3://bucket/folder@home/prefix", "s3://bucket/folder@home/prefix"),
        ("https://token@host/folder", "https://***@host/folder"),
        ("https://host/folder?sig=abc&se=1", "https://host/folder?***"),
        ("sftp://me:pass@host:22/folder", "sftp://***@host:22/folder"),
        ("simplecache::s3://key:secret@bucket", "simplecache::s3://***@bucket"),
        ("abfs://container@account.example/folder", "abfs://container@account.example/folder"),
        ("abfs://user:pass@account.example/folder", "abfs://***@account.example/folder"),
        ("/home/me@work/what?", "/home/me@work/what?"),
    ],
)
def test_urls_lose_credentials_and_nothing_else(url: str, shown: str) -> None:
    """User part and query of a URL are masked; containers, folders and local paths stay."""
    assert redacted_urls(url) == shown


def test_option_values_are_masked_at_any_depth() -> None:
    """A value is found in nested options, plain or URL-encoded, the longer one first."""
    options = {
        "key": "AKIA",
        "secret": "AKIA/extra",
        "client_kwargs": {"aws_session_token": "to ken", "tags": ["listed"]},
        "anon": False,
    }

    shown = redacted("AKIA/extra AKIA%2Fextra AKIA 'to ken' to%20ken listed", options)

    assert shown == "*** *** *** '***' *** ***"


def test_the_endpoint_and_the_region_stay_readable() -> None:
    """An error message without the endpoint would not help; credentials inside it are masked."""
    options = {
        "endpoint_url": "http://u:p@host:9000",
        "client_kwargs": {"region_name": "eu-west-1"},
    }

    shown = redacted("cannot connect to http://u:p@host:9000 in eu-west-1", options)

    assert shown == "cannot connect to http://***@host:9000 in eu-west-1"


_USER_PART = re.compile(r"(?P<scheme>\w[\w+.-]*)://(?P<user>[^\s\"'@:]*:[^\s\"']*@|[^\s\"'/@]*@)")
_QUERY = re.compile(r"(?P<url>\w[\w+.-]*://[^\s\"'?]*)\?[^\s\"']+")


def _masked_user(match: re.Match[str]) -> str:
    is_container = match["scheme"].lower() in {"az", "abfs"} and ":" not in match["user"]
    return match[0] if is_container else f"{match['scheme']}://***@"


_PIECES = st.sampled_from(
    [*"://@?:/ '\"+.-a\né", "://", "s3://", "AZ://", "me:pw@", "c@", "bucket", "?sig=1", "::"]
)


@given(text=st.lists(_PIECES, max_size=25).map("".join))
def test_urls_are_those_of_the_grammar(text: str) -> None:
    """What is masked is what regular expressions, which take quadratic time, would mask."""
    assert redacted_urls(text) == _QUERY.sub(r"\g<url>?***", _USER_PART.sub(_masked_user, text))


@given(
    secret=st.text(min_size=4, max_size=20), before=st.text(max_size=20), after=st.text(max_size=20)
)
def test_no_option_value_survives(secret: str, before: str, after: str) -> None:
    """Whatever surrounds it, an option's value is not in the text shown."""
    shown = redacted(f"{before}{secret}{after}", {"password": secret})

    assert secret not in shown.replace("***", "\0")

"""Sentences that count things: one is told as one, in errors, in notes and in reports."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from connector.display.topic_metrics import TopicMetrics

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT: Final = Path(__file__).parents[1]
_NOUNS: Final = (
    "attempts|blocks|bytes|chunks|columns|entries|fields|files|findings|folders|keys|ledgers"
    "|messages|objects|pages|partitions|problems|ranges|requests|rows|texts|topics|transactions"
    "|values"
)
_COUNT: Final = re.compile(
    rf"\{{(?P<number>[^{{}}]*)\}} (?:(?!for |in |lacks |of |that )[a-z]+ )?(?:{_NOUNS})\b"
)
_MANY: Final = re.compile(rf"\b1 (?:[a-z]+ )?(?:{_NOUNS})\b")
_BOUND: Final = re.compile(
    r"^(?:self\.|cls\.|_)*[A-Z][A-Z_]+$"  # a constant, which is greater than 1
    r"|_(?:bound|limit|room)s?$|^(?:limit|most|least|allowed|max_bytes)$"
)
_GREATER_THAN_ONE: Final = {
    ("arrow_io/format/index_block.py", "index.data_header_length_bytes"): "20 at least",
    ("arrow_io/format/index_block.py", "index_length"): "the fixed fields alone are more",
    ("arrow_io/format/index_block.py", "len(data)"): "more than any index object has",
    ("arrow_io/format/index_block.py", "table_stop"): "behind the fixed fields",
    ("arrow_io/format/streaming_index.py", "header_length"): "36 at least",
    ("arrow_io/format/streaming_index.py", "len(data)"): "more than any index object has",
    ("arrow_io/ledgers/writer.py", "self._block_bytes"): "a block has a header",
    ("arrow_io/ledgers/writer.py", "self._metadata.length_bytes"): "a repr",
    ("arrow_io/messages/entry_writer.py", "len(whole)"): "more than an entry may have",
    ("arrow_io/messages/entry_writer.py", "size_bytes"): "more than a message may have",
    ("connector/catalog/metadata/admin_answers.py", "len(data)"): "more than an answer may have",
    ("connector/catalog/metadata/admin_connection.py", "count"): "more than answers may have",
    ("connector/catalog/metadata/managed_ledger.py", "size_bytes"): "more than metadata may have",
    ("connector/catalog/snapshot/snapshot.py", "len(text)"): "more than a snapshot may have",
    ("connector/catalog/topic_ledgers.py", "len(metadata_by_uuid)"): "they differ",
    (
        "connector/writing/offloader.py",
        "metadata.length_bytes",
    ): "more than the blocks allowed hold",
    ("connector/report/charts.py", "len(spans)"): "one is told by its id",
    ("connector/report/charts.py", "per_bar"): "one is told without a number",
    ("connector/report/render.py", "len(lanes)"): "more than those drawn",
    ("connector/report/render.py", "len(names)"): "one is told by its name",
}
"""Why a count cannot be one, by file and expression."""


def _sentences() -> Iterator[tuple[str, int, str]]:
    for package in ("arrow_io", "connector", "spark_ds"):
        for path in sorted((_ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    yield str(path.relative_to(_ROOT)), node.lineno, _spelled(node)


def _spelled(node: ast.JoinedStr) -> str:
    parts = (
        each.value if isinstance(each, ast.Constant) else f"{{{ast.unparse(each.value)}}}"
        for each in node.values
        if isinstance(each, ast.Constant | ast.FormattedValue)
    )
    return "".join(map(str, parts))


def test_no_sentence_takes_a_count_for_many() -> None:
    """A number stands before the plural of a noun only where it is greater than one."""
    found = [
        f"{path}:{line}: {match[0]}"
        for path, line, text in _sentences()
        for match in _COUNT.finditer(text)
        if not _BOUND.search(match["number"]) and (path, match["number"]) not in _GREATER_THAN_ONE
    ]

    assert not found, "\n".join(found)


def test_a_reader_is_told_of_one_thing_as_one() -> None:
    """Each notice of metrics, with every count at one."""
    metrics = TopicMetrics()
    for each in fields(TopicMetrics):
        if each.type == "int":
            setattr(metrics, each.name, 1)
    notices = metrics.notices()

    assert len(notices) >= 6
    assert [said for said in notices if _MANY.search(said)] == []
    assert [said for said in notices if re.search(r"\b1 [a-z ]+\b(were|are|have)\b", said)] == []


@pytest.mark.parametrize(
    ("said", "is_wrong"), [("1 ledgers", True), ("1 open ledgers", True), ("1 ledger was", False)]
)
def test_the_wrong_number_is_recognized(said: str, *, is_wrong: bool) -> None:
    """Else nothing that these tests look for would be found."""
    assert bool(_MANY.search(said)) is is_wrong

"""The prose of the packages: docstrings, messages, and names that are nouns or verbs."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from functools import cache
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

import pytest

from connector.display.topic_metrics import TopicMetrics

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT: Final = Path(__file__).parents[1]
_VAGUE: Final = re.compile(
    r"\b(?:told|given|behind|stands?|is none|of none|by itself|what (?:is|has|was|came)|whoever"
    r"|be it|all the same|go(?:es)? on|as of)\b",
    re.IGNORECASE,
)
"""Phrases that hid the subject of a sentence in earlier texts."""
_MOST_VAGUE_PER_1000: Final = 40
_LONGEST_MEDIAN: Final = 80
_NO_VERBS: Final = frozenset(
    {"A", "An", "As", "How", "If", "In", "Of", "That", "The", "What", "Where", "Whether", "Which"}
)
_NO_NAMES: Final = frozenset(
    {"asked", "behind", "beyond", "done", "given", "kept", "of", "standing", "taken", "told"}
    | {"within", "written"}
)
"""Participles and prepositions, which neither name a value nor say what a function does."""
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
    ("connector/report/charts.py", "len(spans)"): "one is named by its id",
    ("connector/report/charts.py", "per_bar"): "one is named without a number",
    ("connector/report/render.py", "len(lanes)"): "more than those drawn",
    ("connector/report/render.py", "len(names)"): "one is shown by its name",
}
"""Why a count cannot be one, by file and expression."""


@cache
def _nodes() -> list[tuple[str, ast.AST]]:
    """Return every node of the syntax trees of the packages, with the path of its file."""
    return [
        (str(path.relative_to(_ROOT)), node)
        for package in ("arrow_io", "connector", "spark_ds")
        for path in sorted((_ROOT / package).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
    ]


def _sentences() -> Iterator[tuple[str, int, str]]:
    for path, node in _nodes():
        if isinstance(node, ast.JoinedStr):
            yield path, node.lineno, _spelled(node)


def _spelled(node: ast.JoinedStr) -> str:
    parts = (
        each.value if isinstance(each, ast.Constant) else f"{{{ast.unparse(each.value)}}}"
        for each in node.values
        if isinstance(each, ast.Constant | ast.FormattedValue)
    )
    return "".join(map(str, parts))


def _messages() -> Iterator[tuple[str, int, str]]:
    """Yield what is assigned to a name with `message` in it, or passed to an error or a warning."""
    for path, node in _nodes():
        texts: list[ast.expr | None] = []
        if isinstance(node, ast.Assign) and "message" in ast.unparse(node.targets[0]):
            texts = [node.value]
        elif isinstance(node, ast.Call) and re.search(
            r"(?:Error|Warning|warn_of_read|add_note|say)$", ast.unparse(node.func)
        ):
            texts = [*node.args]
        for text in texts:
            for part in ast.walk(text) if text else ():
                if isinstance(part, ast.JoinedStr):
                    yield path, part.lineno, _spelled(part)
                elif isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield path, part.lineno, part.value


def _docstrings() -> Iterator[tuple[str, ast.AST, str]]:
    documented = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    for path, node in _nodes():
        if isinstance(node, documented) and (text := ast.get_docstring(node)):
            yield path, node, text


def test_docstrings_name_their_subject() -> None:
    """Phrases without a subject are rare, and first lines are short."""
    texts = [text for _, _, text in _docstrings()]
    vague = sum(len(_VAGUE.findall(text)) for text in texts)

    assert len(texts) > 3000
    assert 1000 * vague / len(texts) <= _MOST_VAGUE_PER_1000
    assert median(len(text.splitlines()[0]) for text in texts) < _LONGEST_MEDIAN


def test_summaries_of_functions_begin_with_a_verb() -> None:
    """A property is a value, so its summary may be a noun."""
    found = [
        f"{path}:{node.lineno}: {text.splitlines()[0]}"
        for path, node, text in _docstrings()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not any("property" in ast.unparse(each) for each in node.decorator_list)
        and text.split()[0] in _NO_VERBS
    ]

    assert not found, "\n".join(found)


def test_messages_name_their_subject() -> None:
    """What a user reads says what failed, and what was found."""
    messages = [*_messages()]
    found = [
        f"{path}:{line}: {text}"
        for path, line, text in messages
        if any(match[0].lower() != "given" for match in _VAGUE.finditer(text))
    ]

    assert len(messages) > 1000
    assert not found, "\n".join(found)


def test_names_are_nouns_or_verbs() -> None:
    """No function, parameter or variable has a bare participle or preposition as its name."""
    found = []
    for path, node in _nodes():
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.FunctionDef(name=name):
                if name.strip("_").lower() in _NO_NAMES:
                    found.append(f"{path}:{node.lineno}: {name}")

    assert found == []


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

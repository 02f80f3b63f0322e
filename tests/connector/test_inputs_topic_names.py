"""Topic names are read in every form, become managed-ledger names and back, and are chosen."""

from __future__ import annotations

import re
from dataclasses import replace
from operator import attrgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import FormatError, OptionError, TopicNotFoundError
from connector.inputs.topic_names import (
    ForeignTopic,
    Segment,
    TopicName,
    managed_ledger_owner,
    matching_topics,
    namespaces_of,
    owning_topics,
    select_topics,
)
from tests.support.golden import GoldenTopic, golden_topics

PARTS = st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1)
TOPICS = st.builds(TopicName, PARTS, PARTS, PARTS, st.none() | PARTS)


def topics(*names: str) -> list[TopicName]:
    """Topics of these names."""
    return [TopicName.parse(name) for name in names]


def selected(wanted: str | list[str], *names: str) -> list[str]:
    """Names of the topics chosen from these."""
    return [str(topic) for topic in select_topics(wanted, topics(*names))]


class TestParse:
    """How users and Pulsar write names."""

    @pytest.mark.parametrize(
        ("name", "full"),
        [
            ("orders", "persistent://public/default/orders"),
            ("sales/eu/orders", "persistent://sales/eu/orders"),
            ("persistent://sales/eu/orders", "persistent://sales/eu/orders"),
            ("persistent://sales/c1/eu/orders", "persistent://sales/c1/eu/orders"),
            ("orders-partition-2", "persistent://public/default/orders-partition-2"),
            ("what a: name*", "persistent://public/default/what a: name*"),
        ],
    )
    def test_every_form_is_read(self, name: str, full: str) -> None:
        """Short names are in public/default; the full name says the same again."""
        assert str(TopicName.parse(name)) == full
        assert TopicName.parse(full) == TopicName.parse(name)

    def test_other_domains_are_refused(self) -> None:
        """Topics that are not persistent are never offloaded, and the error says so."""
        for name in ("non-persistent://public/default/orders", "http://a/b/c", "://a/b/c"):
            with pytest.raises(OptionError, match="only persistent:// and topic:// topics"):
                TopicName.parse(name)

    @pytest.mark.parametrize(
        "name",
        [
            *("", "/", "a/b", "a/b/c/d", "a//c", "/b/c", "a/b/"),
            *("persistent://", "persistent://a", "persistent://a/b", "persistent:///b/c"),
            *("persistent://a/b/", "persistent://a//c/d"),
        ],
    )
    def test_other_shapes_are_refused(self, name: str) -> None:
        """A name with a missing or empty part is no topic's."""
        with pytest.raises(OptionError, match="is not 'name'"):
            TopicName.parse(name)

    def test_an_error_shows_a_bounded_part_of_the_name(self) -> None:
        """However long a name is, the message about it is not."""
        with pytest.raises(OptionError) as raised:
            TopicName.parse("a/" * 100_000)
        assert len(str(raised.value)) < 400

    @given(st.text())
    def test_any_text_is_a_name_or_an_option_error(self, name: str) -> None:
        """No text breaks the parser, and what it reads it writes the same."""
        try:
            topic = TopicName.parse(name)
        except OptionError:
            return
        assert TopicName.parse(str(topic)) == topic
        assert str(topic).endswith(name)


class TestManagedLedgerName:
    """How a topic's managed ledger is named."""

    @pytest.mark.parametrize(
        ("local_name", "encoded"),
        [
            ("orders", "orders"),
            ("a b", "a+b"),
            ("a+b", "a%2Bb"),
            ("a.b-c_d*e", "a.b-c_d*e"),
            ("a~b", "a%7Eb"),
            ("100%", "100%25"),
            ("a:b", "a%3Ab"),
            ("été", "%C3%A9t%C3%A9"),
            ("😀", "%F0%9F%98%80"),
            ("a'b(c)!", "a%27b%28c%29%21"),
        ],
    )
    def test_the_local_name_is_encoded_as_java_does(self, local_name: str, encoded: str) -> None:
        """The encoding is that of java.net.URLEncoder with UTF-8."""
        topic = TopicName("public", "default", local_name)

        assert topic.managed_ledger_name == f"public/default/persistent/{encoded}"
        assert TopicName.from_managed_ledger_name(topic.managed_ledger_name) == topic

    @pytest.mark.parametrize("topic", golden_topics(), ids=str)
    def test_golden_names_agree(self, topic: GoldenTopic) -> None:
        """Both names that a real broker uses for a topic are made of each other."""
        assert TopicName.parse(topic.name).managed_ledger_name == topic.managed_ledger
        assert str(TopicName.from_managed_ledger_name(topic.managed_ledger)) == topic.name

    def test_the_cluster_comes_before_the_namespace(self) -> None:
        """The first version has the cluster in the managed ledger's name too."""
        topic = TopicName("sales", "eu", "a/b", "c1")

        assert topic.managed_ledger_name == "sales/c1/eu/persistent/a%2Fb"
        assert TopicName.from_managed_ledger_name("sales/c1/eu/persistent/a%2Fb") == topic

    @given(TOPICS)
    def test_names_come_back(self, topic: TopicName) -> None:
        """Every topic survives the way to either name and back."""
        assert TopicName.from_managed_ledger_name(topic.managed_ledger_name) == topic
        assert TopicName.parse(str(topic)) == topic

    @pytest.mark.parametrize(
        "name",
        [
            "",
            "orders",
            "public/default/orders",
            "public/default/non-persistent/orders",
            "public/default/persistent/",
            "/default/persistent/orders",
            "public//persistent/orders",
            "a/b/c/d/persistent/orders",
            "public/default/persistent/a%2Fb",
            "public/default/persistent/a b",
            "public/default/persistent/a%zz",
            "public/default/persistent/%FF%FE",
            "public/default/persistent/%c3%a9",
            "public/default/persistent/a%",
            "public/default/persistent/~",
            "public/default/persistent/\ud800",
            "public/default/persistent/\x00",
            "public/default/topic/orders",
        ],
    )
    def test_other_names_are_refused(self, name: str) -> None:
        """What Pulsar would not write is an error, not another topic's name."""
        with pytest.raises(FormatError, match="is not the managed ledger"):
            TopicName.from_managed_ledger_name(name)

    @given(st.text() | st.text("ab/%2FfE9+~ ").map("t/n/persistent/".__add__))
    def test_no_two_names_are_one_topic(self, name: str) -> None:
        """Whatever stands in a bucket is refused, or is exactly the name of the topic read."""
        try:
            topic = TopicName.from_managed_ledger_name(name)
        except FormatError:
            return
        assert topic.managed_ledger_name == name

    def test_half_a_character_does_not_break_the_encoding(self) -> None:
        """A lone surrogate, which Java writes as a question mark, is written so here."""
        assert TopicName("a", "b", "\ud800").managed_ledger_name == "a/b/persistent/%3F"


class TestScalableTopics:
    """Names of scalable topics and of their segments."""

    @pytest.mark.parametrize(
        ("managed_ledger", "name"),
        [
            (
                "public/default/segment/orders/0000-7fff-1",
                "segment://public/default/orders/0000-7fff-1",
            ),
            (
                "t/n/segment/odd+%C3%A9t%C3%A9%3A2026/0000-ffff-0",
                "segment://t/n/odd été:2026/0000-ffff-0",
            ),
            ("t/n/segment/persistent/8000-ffff-12", "segment://t/n/persistent/8000-ffff-12"),
            (
                "t/n/segment/x/0000-ffff-9223372036854775807",
                "segment://t/n/x/0000-ffff-9223372036854775807",
            ),
        ],
    )
    def test_managed_ledgers_of_segments(self, managed_ledger: str, name: str) -> None:
        """A segment has a name in five parts, which comes back from either form."""
        owner = managed_ledger_owner(managed_ledger)
        assert isinstance(owner, TopicName)
        assert str(owner) == name
        assert owner.managed_ledger_name == managed_ledger
        assert TopicName.parse(name) == owner

    @pytest.mark.parametrize(
        ("managed_ledger", "name"),
        [
            ("t/n/topic/orders", "topic://t/n/orders"),
            ("t/n/segment/orders", "segment://t/n/orders"),
            ("t/n/non-persistent/orders", "non-persistent://t/n/orders"),
        ],
    )
    def test_managed_ledgers_of_no_topic(self, managed_ledger: str, name: str) -> None:
        """A well-formed name that Pulsar offloads nothing for is that of a foreign topic."""
        owner = managed_ledger_owner(managed_ledger)
        assert isinstance(owner, ForeignTopic)
        assert str(owner) == name
        assert owner.managed_ledger_name == managed_ledger

    @given(TOPICS, st.integers(0, 2**63 - 1), st.integers(0, 65535), st.integers(0, 65535))
    def test_names_of_segments_come_back(
        self, topic: TopicName, number: int, one: int, other: int
    ) -> None:
        """Every segment survives the way to either name and back, and knows its topic."""
        segment = Segment(number, min(one, other), max(one, other))
        name = TopicName(topic.tenant, topic.namespace, topic.local_name.replace("/", "_"))
        unit = replace(name, domain="segment", segment=segment)
        assert TopicName.parse(str(unit)) == unit
        assert TopicName.from_managed_ledger_name(unit.managed_ledger_name) == unit
        assert str(unit.base) == f"topic://{name.full_namespace}/{name.local_name}"
        assert TopicName.parse(str(unit.base)) == unit.base == unit.base.base
        assert unit.base.partition == unit.partition == -1
        assert unit.base.classic == name.base

    @pytest.mark.parametrize(
        "name",
        [
            "topic://public/default",
            "topic://t/c/n/x",
            "topic://t/n/",
            "segment://t/n/x",
            "segment://t/n/x/0000-7fff",
            "segment://t/n/x/0000-7fff-01",
            "segment://t/n/x/0000-7fff-9223372036854775808",
            "segment://t/n/x/8000-7fff-1",
            "segment://t/n/x/0000-7fff-1/more",
        ],
    )
    def test_malformed_names(self, name: str) -> None:
        """A name that no scalable topic can have is refused."""
        with pytest.raises(OptionError):
            TopicName.parse(name)

    def test_partitions_are_of_persistent_topics(self) -> None:
        """A scalable topic whose name ends like a partition's is no partition."""
        topic = TopicName.parse("topic://t/n/x-partition-3")
        assert (topic.partition, topic.base) == (-1, topic)

    def test_what_needs_a_persistent_topic_refuses_others(self) -> None:
        """A purpose that only persistent topics serve is named in the error."""
        assert TopicName.parse_persistent("x", "a write") == TopicName("public", "default", "x")
        with pytest.raises(OptionError, match=r"a write needs a persistent:// topic"):
            TopicName.parse_persistent("topic://t/n/x", "a write")

    def test_order(self) -> None:
        """Partitions precede segments, which are in the order of their ids."""
        names = [
            "persistent://t/n/x-partition-0",
            "persistent://t/n/x-partition-10",
            "segment://t/n/x/8000-ffff-2",
            "segment://t/n/x/0000-7fff-11",
            "persistent://t/n/y",
        ]
        assert (
            list(map(str, sorted(map(TopicName.parse, reversed(names)), key=attrgetter("order"))))
            == names
        )

    @pytest.mark.parametrize(
        ("name", "precedes"),
        [
            ("persistent://t/n/x", True),
            ("persistent://t/n/x-partition-7", True),
            ("segment://t/n/x/0000-ffff-0", True),
            ("segment://t/n/x/7fff-8000-3", True),
            ("segment://t/n/x/0000-7fff-3", True),
            ("segment://t/n/x/8000-ffff-3", False),
            ("segment://t/n/x/0000-7fff-4", False),
            ("segment://t/n/x/0000-ffff-5", False),
            ("segment://t/n/y/0000-ffff-0", False),
            ("persistent://t/n/y", False),
            ("topic://t/n/x", False),
        ],
    )
    def test_what_precedes_a_segment(self, name: str, precedes: bool) -> None:
        """A key comes from partitions, and from segments with lower ids that may have it."""
        segment = TopicName.parse("segment://t/n/x/0000-7fff-4")
        topic = TopicName.parse(name)
        assert topic.precedes(segment) is precedes
        assert not segment.precedes(topic.base)

    @pytest.mark.parametrize(("least_id", "owner"), [(1, "persistent"), (2, "topic")])
    def test_topics_that_partitions_and_segments_belong_to(self, least_id: int, owner: str) -> None:
        """A partition belongs to the scalable topic of its name, if ids leave room for it."""
        segment = f"segment://public/default/x/0000-ffff-{least_id}"
        names = ["x-partition-1", "y-partition-0", segment]
        owners = owning_topics(map(TopicName.parse, names))
        assert list(map(str, owners.values())) == [
            f"{owner}://public/default/x",
            "persistent://public/default/y",
            "topic://public/default/x",
        ]

    @pytest.mark.parametrize(
        ("wanted", "found"),
        [
            ("only", ["topic://only"]),
            ("both", ["persistent://both"]),
            ("topic://public/default/both", ["topic://both"]),
            ("persistent://public/default/both", ["persistent://both"]),
            ("both*", ["persistent://both", "topic://both"]),
            ("topic://public/default/*o*", ["topic://both", "topic://only"]),
            ("persistent://public/default/*o*", ["persistent://both"]),
            ("segment://public/default/only/0000-ffff-0", ["topic://only"]),
        ],
    )
    def test_selection(self, wanted: str, found: list[str]) -> None:
        """A short name is that of a persistent topic, or else of a scalable one."""
        names = [
            "persistent://public/default/both",
            "segment://public/default/both/0000-ffff-1",
            "segment://public/default/only/0000-ffff-0",
        ]
        topics = select_topics(wanted, map(TopicName.parse, names))
        assert [f"{each.base.domain}://{each.local_name}" for each in topics] == found

    @pytest.mark.parametrize("wanted", ["persistent://public/default/only", "only-partition-0"])
    def test_a_persistent_name_finds_no_scalable_topic(self, wanted: str) -> None:
        """A name that a scalable topic cannot have does not select it; it is suggested."""
        segment = TopicName.parse("segment://public/default/only/0000-ffff-0")
        with pytest.raises(TopicNotFoundError, match="'topic://public/default/only'"):
            select_topics(wanted, [segment])

    def test_members_replace_segments(self) -> None:
        """A scalable topic is what its members are, unless a segment is named."""
        old, new = (TopicName.parse(f"segment://public/default/x/0000-ffff-{n}") for n in (0, 1))
        legacy = TopicName.parse("x")

        def members(topic: TopicName) -> list[TopicName]:
            assert topic == old.base
            return [legacy, new]

        def found(wanted: str) -> list[TopicName]:
            return select_topics(wanted, [old, new], members)

        assert found("x") == found("topic://public/default/x") == found("*") == [legacy, new]
        assert found(str(old)) == [old]
        pattern = re.compile("topic://.*")
        assert matching_topics(pattern, [old, new], members) == [legacy, new]
        with pytest.raises(TopicNotFoundError):
            select_topics("x", [old], lambda _: [])

    @pytest.mark.parametrize(
        "name",
        [
            "t/n/segment/orders/0000-7fff",
            "t/n/segment/orders/0000-7FFF-1",
            "t/n/segment/orders/0000-7fff-01",
            "t/n/segment/a:b/0000-7fff-1",
            "t/n/segment//0000-7fff-1",
            "t/n/persistens/orders",
            "t/n/segment/persistent/0000-ffff-x0/more",
        ],
    )
    def test_malformed_names_are_refused(self, name: str) -> None:
        """What Pulsar would not write is damage, whatever it resembles."""
        with pytest.raises(FormatError, match="is not the managed ledger"):
            managed_ledger_owner(name)

    def test_topic_of_a_cluster_named_as_a_segment(self) -> None:
        """A name of Pulsar's first version stays one if its last part is not that of a segment."""
        owner = managed_ledger_owner("t/n/segment/persistent/orders")
        assert owner == TopicName("t", "segment", "orders", "n")

    @given(st.text() | st.text("ab/%2FfE9+~ 0-f").map("t/n/segment/".__add__))
    def test_no_two_names_are_one_topic(self, name: str) -> None:
        """Whatever stands in a bucket is refused, or is exactly the name of the owner read."""
        try:
            owner = managed_ledger_owner(name)
        except FormatError:
            return
        assert owner.managed_ledger_name == name


class TestPartition:
    """Which names are those of partitions."""

    @pytest.mark.parametrize(
        ("name", "partition", "base"),
        [
            ("orders", -1, "orders"),
            ("orders-partition-0", 0, "orders"),
            ("orders-partition-12", 12, "orders"),
            ("orders-partition-2147483647", 2147483647, "orders"),
            ("orders-partition-2147483648", -1, "orders-partition-2147483648"),
            ("orders-partition-01", -1, "orders-partition-01"),
            ("orders-partition--1", -1, "orders-partition--1"),
            ("orders-partition-+1", -1, "orders-partition-+1"),
            ("orders-partition-", -1, "orders-partition-"),
            ("orders-partition-1x", -1, "orders-partition-1x"),
            ("orders-partition-1\n", -1, "orders-partition-1\n"),
            ("orders-partition-\u0661", -1, "orders-partition-\u0661"),
            ("-partition-1", -1, "-partition-1"),
            ("a-partition-1-partition-2", 2, "a-partition-1"),
            ("line\nbreak-partition-3", 3, "line\nbreak"),
        ],
    )
    def test_the_number_is_read_as_pulsar_does(self, name: str, partition: int, base: str) -> None:
        """Only `-partition-` and a plain number at the end make a partition."""
        topic = TopicName.parse(name)

        assert topic.partition == partition
        assert topic.base == TopicName.parse(base)

    @given(TOPICS, st.integers(0, 2**31 - 1))
    def test_every_topic_can_have_partitions(self, topic: TopicName, number: int) -> None:
        """The name of a partition gives back the topic and the number."""
        partition = TopicName.parse(f"{topic}-partition-{number}")

        assert (partition.base, partition.partition) == (topic, number)


class TestSelect:
    """What a user gets for a name, a list, or a glob."""

    @pytest.mark.parametrize(
        ("wanted", "names", "found"),
        [
            ("orders", ["orders", "orders2", "sales/eu/orders"], ["orders"]),
            ("a-partition-1", ["a-partition-0", "a-partition-1"], ["a-partition-1"]),
            (
                "orders",
                [*(f"orders-partition-{number}" for number in (10, 2, 0, 1)), "other-partition-0"],
                [f"orders-partition-{number}" for number in (0, 1, 2, 10)],
            ),
            ("a*", ["a*", "ab", "a[bc]", "ac"], ["a*"]),
            ("a[bc]", ["a*", "ab", "a[bc]", "ac"], ["a[bc]"]),
            ("a[bc]", ["ab", "ac"], ["ab", "ac"]),
            (["b*", "a", "*", "b1"], ["b1", "a", "b1", "b2"], ["a", "b1", "b2"]),
        ],
        ids=["name", "partition", "partitions", "name-star", "name-set", "glob", "several"],
    )  # fmt: skip
    def test_names_win_over_globs_and_come_in_order(
        self, wanted: str | list[str], names: list[str], found: list[str]
    ) -> None:
        """A name selects its topic, or its partitions by number; each topic comes once."""
        assert selected(wanted, *names) == [f"persistent://public/default/{each}" for each in found]

    @pytest.mark.parametrize(
        ("wanted", "names", "said"),
        [
            (["orders", "nothing"], ["orders"], "nothing"),
            ("zzz", [f"topic-{n:02}" for n in range(20)], "there are 20, such as .*topic-04'$"),
            ("orders", [], "nor any other"),
        ],
        ids=["one-of-several", "some-are-shown", "empty-bucket"],
    )  # fmt: skip
    def test_each_wish_must_be_fulfilled(
        self, wanted: str | list[str], names: list[str], said: str
    ) -> None:
        """What is not there is an error that shows what there is."""
        with pytest.raises(TopicNotFoundError, match=said):
            selected(wanted, *names)

    @pytest.mark.parametrize(
        ("glob", "found"),
        [
            ("orders*", ["public/default/orders", "public/default/orders-eu-partition-0"]),
            ("*r*-??", ["public/default/orders-eu-partition-0"]),
            ("[A-Z]*", ["public/default/Orders"]),
            ("order?", ["public/default/orders"]),
            ("order[rs]", ["public/default/orders"]),
            ("order[!s]*", []),
            ("orders-eu-partition-*", []),
            ("*/*/orders", ["public/default/orders", "sales/eu/orders"]),
            ("persistent://sales/*/*", ["sales/eu/orders"]),
            ("sales/e*/o*s", ["sales/eu/orders"]),
            ("persistent://*/*/*/*", ["sales/c1/eu/orders"]),
        ],
    )
    def test_a_glob_matches_part_by_part(self, glob: str, found: list[str]) -> None:
        """Each part matches its own part of the base name; a short glob is in public/default."""
        names = ("orders", "orders-eu-partition-0", "sales/eu/orders", "Orders")
        everything = (*names, "persistent://sales/c1/eu/orders")
        expected = sorted(f"persistent://{name}" for name in found)

        if expected:
            assert selected(glob, *everything) == expected
        else:
            with pytest.raises(TopicNotFoundError):
                selected(glob, *everything)

    def test_globs_leave_out_system_topics(self) -> None:
        """Pulsar's own topics are not in a glob's result, but can be named."""
        system = (
            "__change_events",
            "__change_events-partition-0",
            "__transaction_buffer_snapshot",
            "__transaction_buffer_snapshot_segments",
            "__transaction_log_3",
            "orders-partition-0-sub__transaction_pending_ack",
        )

        assert selected("*", "orders", *system) == ["persistent://public/default/orders"]
        for name in system:
            assert f"persistent://public/default/{name}" in selected(name, "orders", *system)
        with pytest.raises(TopicNotFoundError):
            selected("__*", *system)

    def test_near_names_are_shown(self) -> None:
        """A mistyped name, or one in another namespace, is answered with what it may have meant."""
        names = ("orders", "sales/eu/order-lines-partition-0", "invoices")

        with pytest.raises(TopicNotFoundError) as raised:
            selected("ordres", *names)
        assert str(raised.value) == (
            "no offloaded topic 'persistent://public/default/ordres'; "
            "did you mean 'persistent://public/default/orders', 'persistent://sales/eu/order-lines'"
        )
        with pytest.raises(TopicNotFoundError, match="'persistent://sales/eu/order-lines'"):
            selected("order-lines", *names)

    def test_nothing_wanted_is_an_error(self) -> None:
        """An empty list is a mistake of the caller, not a wish for nothing."""
        with pytest.raises(OptionError, match="no topic is named"):
            selected([], "orders")

    @given(st.lists(TOPICS, min_size=1, max_size=6), st.data())
    def test_every_topic_can_be_selected_by_its_name(
        self, available: list[TopicName], data: st.DataObject
    ) -> None:
        """Whatever is in it, the full name selects the topic and its partitions only."""
        topic = data.draw(st.sampled_from(available))

        chosen = select_topics(str(topic), available)

        assert topic in chosen
        assert all(topic in (other, other.base) for other in chosen)


def test_namespaces_of_names() -> None:
    """Names tell their namespaces, with the cluster of the first version; globs none."""
    names = ["orders", "sales/eu/x-partition-2", "persistent://t/c/ns/topic"]
    assert namespaces_of(names) == frozenset({"public/default", "sales/eu", "t/c/ns"})
    assert namespaces_of([*names, "orders-*"]) is None
    with pytest.raises(OptionError):
        namespaces_of("a/b")

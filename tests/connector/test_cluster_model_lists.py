"""Lists of ledgers that lack some, and ids that two clusters give out in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.connector.test_cluster_model_cases import ORDERS, grow
from tests.support.cluster_model import DAY_MS, ModelWorld
from tests.support.model_checks import check_audit, check_cleaning, check_reading
from tests.support.saved_metadata import Form, save

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def world() -> Iterator[ModelWorld]:
    """A bucket, and a cluster that uses it."""
    world = ModelWorld()
    yield world
    world.drop()


@pytest.mark.parametrize("is_one_cluster", [True, False])
@pytest.mark.parametrize("forms", [(Form.STATS,), (Form.INFO,), (Form.INFO, Form.STATS)])
def test_value_that_lacks_a_ledger_beside_older_answers(
    world: ModelWorld, forms: tuple[Form, ...], *, is_one_cluster: bool
) -> None:
    """Whichever ledger it lacks, the one too that was open before, nothing needed is deletable."""
    topic = world.create(world.first, ORDERS)
    grow(world, topic, 3)
    world.produce(topic)
    older = save(world, world.first, forms)
    grow(world, topic, 3)
    world.tick(10 * DAY_MS)
    grow(world, topic)

    for lacking in range(len(topic.ledgers)):
        part = save(world, world.first, (Form.VALUE,), older=older, lacking=lacking)
        check_reading(world, part)
        check_audit(world, part, is_one_cluster=is_one_cluster)
        check_cleaning(world, part, is_one_cluster=is_one_cluster)

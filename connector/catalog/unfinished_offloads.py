"""The topics of unfinished offloads, which have a data object and no index object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arrow_io.errors import FormatError
from arrow_io.format.index_block import MANAGED_LEDGER_NAME_KEY
from connector.inputs.topic_names import managed_ledger_owner

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arrow_io.format.object_names import PairName
    from arrow_io.storage.location import Location
    from connector.inputs.topic_names import AnyTopic


class UnfinishedOffloads:
    """The user metadata of data objects without an index object. Each object is requested once."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._user_metadata: dict[PairName, Mapping[str, str] | None] = {}

    def topic(self, name: PairName) -> AnyTopic | None:
        """Return the topic of an unfinished offload; None if nothing names it.

        Raises:
            MissingObjectError: The data object does not exist any more.
            StorageError: The store refused, or all attempts failed.
        """
        managed_ledger = name.managed_ledger
        if managed_ledger is None:
            managed_ledger = (self.user_metadata(name) or {}).get(MANAGED_LEDGER_NAME_KEY)
        try:
            return managed_ledger_owner(managed_ledger) if managed_ledger else None
        except FormatError:
            return None

    def user_metadata(self, name: PairName) -> Mapping[str, str] | None:
        """Return the user metadata of the data object; None if the store keeps none.

        Names are in lower case.

        Raises:
            MissingObjectError: The data object does not exist any more.
            StorageError: The store refused, or all attempts failed.
        """
        if name not in self._user_metadata:
            self._user_metadata[name] = self._location.user_metadata(name.data_name)
        return self._user_metadata[name]

"""The metadata store of a cluster, as a tree of nodes that is only read.

Brokers keep what they know of topics in ZooKeeper or Oxia, below the same paths (Pulsar's
`MetadataStore`). Parts of a path are URL-encoded names. The nodes that readers need:

==================================================== ============================================
Path                                                 Value
==================================================== ============================================
`/managed-ledgers/<managed ledger>`                  ManagedLedgerInfo (`managed_ledger`)
`/managed-ledgers/<managed ledger>/<subscription>`   ManagedCursorInfo (`managed_ledger`)
`/schemas/<tenant>/<namespace>/<topic>`              SchemaLocator: positions in BookKeeper
`/txn/…`                                             JSON (`transaction_nodes`)
==================================================== ============================================
"""

from __future__ import annotations

from typing import Final, Protocol

MAX_CHILDREN: Final = 1_000_000
"""Maximum number of children of a node."""


class MetadataStore(Protocol):
    """Nodes of a metadata store, by path. Answers are not cached.

    An answer is current: it has each change that was made before the request. Safe to use from
    several threads.
    """

    @property
    def url(self) -> str:
        """The URL for messages, without credentials."""

    def get(self, path: str) -> bytes | None:
        """Return the value of a node, which may be empty; None if there is no such node.

        A node that brokers create only for its children has an empty value.

        Args:
            path: Path that begins with a slash and does not end with one, with encoded names.

        Raises:
            CorruptMetadataError: The value is longer than `MAX_METADATA_BYTES`.
            OptionError: A file with a token cannot be read, or contains no token.
            StorageError: The store cannot be reached, refuses the request, or does not answer in
                time.
        """

    def children(self, path: str) -> list[str]:
        """Return the names of a node's children, encoded and sorted; empty if there is no node.

        Raises:
            CorruptMetadataError: There are more than `MAX_CHILDREN` names, or together they are
                longer than `MAX_METADATA_BYTES`.
            OptionError: As for `get`.
            StorageError: As for `get`.
        """

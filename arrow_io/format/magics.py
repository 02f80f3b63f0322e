"""The magics: the first four bytes of each structure of an offloaded ledger.

The last two structures of the table are known here only so that an error can name them.

========== ========================================= ============================
Magic      Structure                                 Pulsar class
========== ========================================= ============================
0xFBDBABCB data block (PIP-17)                       DataBlockHeaderImpl
0xDE47DE47 index block (PIP-17)                      OffloadIndexBlockImpl
0x26A66D32 data block of streaming offload (PIP-76)  StreamingDataBlockHeaderImpl
0x3D1FB0BC index block of streaming offload (PIP-76) OffloadIndexBlockV2Impl
0xDEAD1234 draft of 2018, never released             -
0x000003E8 prototype before PIP-17, never released   -
========== ========================================= ============================
"""

from __future__ import annotations

from arrow_io.errors import UnknownFormatError

DATA_BLOCK_MAGIC = 0xFBDBABCB
INDEX_BLOCK_MAGIC = 0xDE47DE47
STREAMING_DATA_BLOCK_MAGIC = 0x26A66D32
STREAMING_INDEX_BLOCK_MAGIC = 0x3D1FB0BC

_STRUCTURES = {
    DATA_BLOCK_MAGIC: "a data block",
    INDEX_BLOCK_MAGIC: "an index block",
    STREAMING_DATA_BLOCK_MAGIC: "a data block of streaming offload (PIP-76)",
    STREAMING_INDEX_BLOCK_MAGIC: "an index block of streaming offload (PIP-76)",
    0xDEAD1234: "the draft layout of 2018",
    1000: "the prototype from before PIP-17",
}


def check_magic(actual: int, expected: int, *, offset: int) -> None:
    """Raise `UnknownFormatError` if a structure does not start with the expected magic.

    Args:
        actual: The magic read, unsigned.
        expected: One of the magics above.
        offset: Byte offset of the magic within the object, for the error.
    """
    if actual == expected:
        return
    values = f"magic 0x{actual:08X}, expected 0x{expected:08X}"
    structure = _STRUCTURES.get(actual)
    explained = f"{values}: this is {structure}" if structure else values
    message = f"not {_STRUCTURES[expected]}: {explained}"
    raise UnknownFormatError(message, offset=offset)

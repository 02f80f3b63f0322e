"""The conversion of Arrow tables to pandas frames: NumPy types if lossless, else Arrow types.

| Arrow | pandas | keeps its Arrow type (`pandas.ArrowDtype`) |
|---|---|---|
| bool, int8 … int64 | bool, int8 … int64 | if there are nulls, which would convert it to floats |
| float, double | float32, float64 | if there is a NaN, which pandas treats as a null |
| timestamp | datetime64 | if a value equals NumPy's null (NaT) |
| date32 | object (`datetime.date`) | if a year is out of Python's range, 1 to 9999 |
| decimal128, string, binary, time64[us] | object, str | never |
| time64[ns], list, map, struct | | always: Python lacks nanoseconds, NumPy nulls in lists |
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    import pandas as pd

_NOT_A_TIME: Final = -(2**63)
"""NumPy's NaT, in any unit."""
_FIRST_DAY: Final = (date.min - date(1970, 1, 1)).days
_LAST_DAY: Final = (date.max - date(1970, 1, 1)).days


def exact_frame(table: pa.Table) -> pd.DataFrame:
    """Convert a table to a frame that preserves each value and null.

    Example:
        >>> exact_frame(pa.table({"id": [1, 2], "seen": [2**53 + 1, None]})).dtypes.astype(str)
        id                int64
        seen    int64[pyarrow]
        dtype: str
    """
    import pandas as pd

    names = table.column_names
    # By number, because two columns may have the same name.
    table = table.rename_columns([str(number) for number in range(len(names))])
    is_numpy = {name: _is_exact_in_numpy(table[name]) for name in table.column_names}
    inexact = [name for name, is_exact in is_numpy.items() if not is_exact]
    arrow = table.select(inexact).to_pandas(types_mapper=pd.ArrowDtype)
    numpy = table.drop_columns(inexact).to_pandas()
    columns = {name: (numpy if is_exact else arrow)[name] for name, is_exact in is_numpy.items()}
    frame = pd.DataFrame(columns, index=pd.RangeIndex(len(table)), copy=False)
    frame.columns = pd.Index(names)
    return frame


def _is_exact_in_numpy(column: pa.ChunkedArray) -> bool:
    """Return whether pandas' default conversion of a column is lossless."""
    type_ = column.type
    if pa.types.is_boolean(type_) or pa.types.is_integer(type_):
        return bool(column.null_count == 0)
    if pa.types.is_floating(type_):
        return not pc.any(pc.is_nan(column)).as_py()
    if pa.types.is_timestamp(type_):
        return not pc.any(pc.equal(column.cast(pa.int64()), _NOT_A_TIME)).as_py()
    if pa.types.is_date32(type_):
        days = column.cast(pa.int32())
        return not pc.any(pc.or_(pc.less(days, _FIRST_DAY), pc.greater(days, _LAST_DAY))).as_py()
    return not (pa.types.is_nested(type_) or type_ == pa.time64("ns"))

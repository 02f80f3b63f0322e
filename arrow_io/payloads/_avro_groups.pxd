# A group of values with the same op, which `_avro_py.py` reads together.
cdef enum:
    GROUP_SIZE = 64

cdef struct Group:
    # The number of values.
    Py_ssize_t count
    # The rows of the values' node: at least `first`, below `stop`, in ascending order. Other rows in
    # this range belong to null records.
    long long first
    long long stop
    # Whether each row in the range has a value.
    bint is_dense
    # The position and the row of each value.
    Py_ssize_t at[GROUP_SIZE]
    long long rows[GROUP_SIZE]

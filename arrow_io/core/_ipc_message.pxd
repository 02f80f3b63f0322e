# The positions of `ipc_message.py`, as compile-time constants of C.
cdef enum:
    BODY_BYTES = 4
    ROWS = 8
    NODES = 10

# The places of `ipc_message.py`, as constants that C knows while it compiles.
cdef enum:
    BODY_BYTES = 4
    ROWS = 8
    NODES = 10

"""Statistics of topics: what a pass over the entries recorded of each zone, stored in Parquet.

A zone is about 1 MiB of consecutive entries (as in a zone map), which reads can prune. `zones` has
the columns, `gathering` computes rows, `zone_files` encodes them so that damage is detected,
`store` is a folder of such files, and `lookup` queries several of them. `analysis` and
`whole_ledgers` fill a folder; `ledger_parts` gathers zones from reads made for another purpose.
`data_objects` finds zones of outdated objects, `transactions` reads what zones record of
transactions.
"""

"""Statistics of topics: what a pass over the entries recorded of each zone, stored in Parquet.

A zone is about 1 MiB of consecutive entries (as in a zone map). Reads use it to prune.

- `zones`: the columns.
- `gathering`: computes the row of a zone from its entries.
- `zone_files`: encodes rows as files in which any damage is detected.
- `store`: a folder of such files.
- `lookup`: queries several files at once.
- `whole_ledgers`, `analysis`: read ledgers to fill a folder.
- `ledger_parts`: gathers zones from reads made for another purpose.
- `data_objects`: tells whether recorded zones belong to the current versions of objects.
- `transactions`: what statistics record of transactions.
"""

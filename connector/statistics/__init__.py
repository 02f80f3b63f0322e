"""Statistics of topics: what a pass over the entries learned of each segment, kept for good.

`segments` has the columns, `gathering` makes rows of entries, `segment_files` writes them so that
damage is found, `store` is a folder of such files, and `lookup` asks several of them. `analysis`
fills a folder by `whole_ledgers`, `ledger_parts` by what somebody reads for another reason.
`data_objects` says which segments are of objects as they are, `transactions` what they tell of
transactions.
"""

"""Statistics of topics: what a pass over the entries learned of each zone, kept for good.

`zones` has the columns, `gathering` makes rows of entries, `zone_files` writes them so that
damage is found, `store` is a folder of such files, and `lookup` asks several of them. `analysis`
fills a folder by `whole_ledgers`, `ledger_parts` by what somebody reads for another reason.
`data_objects` says which zones are of objects as they are, `transactions` what they tell of
transactions.
"""

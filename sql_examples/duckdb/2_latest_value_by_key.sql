-- What is the latest value of each key? Pulsar's compaction keeps the same messages, but this reads the whole history.
-- A null value deletes its key. Messages are ordered by ledger, entry and batch index.
SELECT
    __key__ AS key,
    __value__ AS value,
    count(*) OVER (PARTITION BY __key__) AS versions
FROM read_pulsar('compacted', schema := 'STRING')
WHERE __key__ IS NOT NULL
QUALIFY row_number() OVER (
    PARTITION BY __key__
    ORDER BY __ledger_id__ DESC, __entry_id__ DESC, __batch_index__ DESC NULLS LAST
) = 1
AND __value__ IS NOT NULL
ORDER BY key
LIMIT 5;

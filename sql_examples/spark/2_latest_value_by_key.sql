-- What is the latest value of each key? Pulsar's compaction keeps the same messages, but this reads the whole history.
-- A null value deletes its key. Messages are ordered by ledger, entry and batch index.
CREATE OR REPLACE TEMPORARY VIEW updates
USING pulsar_offload
OPTIONS (
    url 'tests/data/golden/pulsar-4.0.7/objects',
    topic 'compacted',
    schema 'STRING',
    columns '__ledger_id__,__entry_id__,__batch_index__,__key__,__value__'
);

SELECT key, __value__ AS value, versions
FROM (
    SELECT
        __key__ AS key,
        __value__,
        count(*) OVER (PARTITION BY __key__) AS versions,
        row_number() OVER (
            PARTITION BY __key__
            ORDER BY __ledger_id__ DESC, __entry_id__ DESC, __batch_index__ DESC NULLS LAST
        ) AS age
    FROM updates
    WHERE __key__ IS NOT NULL
)
WHERE age = 1 AND __value__ IS NOT NULL
ORDER BY key
LIMIT 5;

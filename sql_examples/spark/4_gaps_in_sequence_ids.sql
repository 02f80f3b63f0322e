-- Did a producer leave out sequence ids, and where? Each row is the message after a gap.
CREATE OR REPLACE TEMPORARY VIEW sequenced
USING pulsar_offload
OPTIONS (
    url 'tests/data/golden/pulsar-4.0.7/objects',
    topic 'delayed-and-sequenced',
    columns '__ledger_id__,__entry_id__,__batch_index__,__producer_name__,__sequence_id__,__message_id__'
);

SELECT
    __producer_name__ AS producer,
    __message_id__ AS message_id,
    previous + 1 AS first_missing,
    __sequence_id__ - 1 AS last_missing
FROM (
    SELECT
        *,
        lag(__sequence_id__) OVER (
            PARTITION BY __producer_name__
            ORDER BY __ledger_id__, __entry_id__, __batch_index__ NULLS LAST
        ) AS previous
    FROM sequenced
)
WHERE __sequence_id__ > previous + 1
ORDER BY producer, first_missing
LIMIT 5;

-- When was each ledger written, and how much data does it have? Two topics side by side.
CREATE OR REPLACE TEMPORARY VIEW history
USING pulsar_offload
OPTIONS (
    url 'tests/data/golden/pulsar-4.0.7/objects',
    topics 'multi-ledger,json-orders',
    value 'raw',
    columns '__topic__,__ledger_id__,__publish_time__,__value__'
);

SELECT
    split_part(__topic__, '/', 5) AS topic,
    __ledger_id__ AS ledger,
    count(*) AS messages,
    sum(octet_length(__value__)) AS value_bytes,
    date_trunc('day', min(__publish_time__)) AS day
FROM history
GROUP BY 1, 2
ORDER BY ledger;

-- When was each ledger written, and how much data does it have? Two topics side by side.
SELECT
    split_part(__topic__, '/', 5) AS topic,
    __ledger_id__ AS ledger,
    count(*) AS messages,
    sum(octet_length(__value__))::BIGINT AS value_bytes,
    date_trunc('day', min(__publish_time__)) AS day
FROM read_pulsar(['multi-ledger', 'json-orders'], value := 'raw', columns := [
    '__topic__', '__ledger_id__', '__publish_time__', '__value__'
])
GROUP BY ALL
ORDER BY ledger;

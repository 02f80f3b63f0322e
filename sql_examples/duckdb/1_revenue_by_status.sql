-- How many orders are there in each status, and what are they worth?
-- Values are bytes: decode() makes text of them, and DuckDB reads it as JSON.
SELECT
    decode(__value__) ->> 'status' AS status,
    count(*) AS orders,
    round(sum((decode(__value__) ->> 'total')::DOUBLE), 2) AS revenue
FROM read_pulsar('json-orders')
WHERE __value__ IS NOT NULL
GROUP BY ALL
ORDER BY status NULLS LAST;

-- How many orders are there in each status, and what are they worth?
-- With the topic's schema, the fields of the values are columns.
SELECT
    status,
    count(*) AS orders,
    round(sum(total), 2) AS revenue
FROM read_pulsar(
    'json-orders',
    schema := 'tests/data/golden/pulsar-4.0.7/public__default__json-orders/schemas-rest.json'
)
WHERE orderId IS NOT NULL
GROUP BY ALL
ORDER BY status NULLS LAST;

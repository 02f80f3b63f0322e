-- How many orders are there in each status, and what are they worth?
-- With the topic's schema, the fields of the values are columns.
CREATE OR REPLACE TEMPORARY VIEW orders
USING pulsar_offload
OPTIONS (
    url 'tests/data/golden/pulsar-4.0.7/objects',
    topic 'json-orders',
    schema 'tests/data/golden/pulsar-4.0.7/public__default__json-orders/schemas-rest.json',
    columns 'orderId,status,total'
);

SELECT
    status,
    count(*) AS orders,
    round(sum(total), 2) AS revenue
FROM orders
WHERE orderId IS NOT NULL
GROUP BY 1
ORDER BY status NULLS LAST;

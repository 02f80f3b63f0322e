-- How many orders are there in each status, and what are they worth?
-- Values are bytes: cast to text, they are read as JSON.
CREATE OR REPLACE TEMPORARY VIEW orders
USING pulsar_offload
OPTIONS (url 'tests/data/golden/pulsar-4.0.7/objects', topic 'json-orders', columns '__value__');

SELECT
    get_json_object(cast(__value__ AS STRING), '$.status') AS status,
    count(*) AS orders,
    round(sum(cast(get_json_object(cast(__value__ AS STRING), '$.total') AS DOUBLE)), 2) AS revenue
FROM orders
WHERE __value__ IS NOT NULL
GROUP BY 1
ORDER BY status NULLS LAST;

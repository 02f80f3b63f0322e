-- How many orders are there in each status, and what are they worth?
CREATE MATERIALIZED VIEW revenue AS
SELECT
    status,
    count(*) AS orders,
    round(sum(total), 2) AS revenue
FROM orders
WHERE orderId IS NOT NULL
GROUP BY status;

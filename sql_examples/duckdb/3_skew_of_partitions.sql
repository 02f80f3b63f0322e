-- Are the partitions of a topic filled evenly? One dataset reads all partitions.
SELECT
    __partition__ AS partition,
    count(*) AS messages,
    count(DISTINCT __key__) AS keys,
    round(100 * count(*) / sum(count(*)) OVER (), 1) AS percent
FROM read_pulsar('partitioned')
GROUP BY ALL
ORDER BY partition;

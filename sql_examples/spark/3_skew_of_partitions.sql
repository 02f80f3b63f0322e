-- Are the partitions of a topic filled evenly? One view reads all partitions.
CREATE OR REPLACE TEMPORARY VIEW partitioned
USING pulsar_offload
OPTIONS (
    url 'tests/data/golden/pulsar-4.0.7/objects',
    topic 'partitioned',
    columns '__partition__,__key__'
);

SELECT
    __partition__ AS partition,
    count(*) AS messages,
    count(DISTINCT __key__) AS keys,
    round(100 * count(*) / sum(count(*)) OVER (), 1) AS percent
FROM partitioned
GROUP BY 1
ORDER BY partition;

-- The ten highest bids of each auction. Adapted: of equal prices the earlier one is higher, so that there is one answer.
SELECT *
FROM (
  SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, dateTime) AS rank_number
  FROM bid
) AS ranked
WHERE rank_number <= 10

-- Highest bid of each window of 10 seconds.
-- Adapted: Spark's window() for TUMBLE; a bid is compared with the maximum of the very window that it is in.
SELECT b.auction, b.price, b.bidder, b.dateTime, b.extra
FROM bid AS b
JOIN (
  SELECT max(price) AS maxprice, window.end AS endtime
  FROM bid
  GROUP BY window(dateTime, '10 seconds')
) AS m ON b.price = m.maxprice
WHERE b.dateTime >= m.endtime - INTERVAL '10' SECOND AND b.dateTime < m.endtime

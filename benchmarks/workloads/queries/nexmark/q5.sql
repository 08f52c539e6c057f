-- Hot items: the auctions with the most bids in each window of 10 seconds, every 2 seconds.
-- Adapted: Spark's window() for HOP; the window is in the result, and one that is not over counts as far as it is known.
WITH counts AS (
  SELECT auction, count(*) AS num, window.start AS starttime, window.end AS endtime
  FROM bid
  GROUP BY auction, window(dateTime, '10 seconds', '2 seconds')
)
SELECT c.auction, c.num, c.starttime, c.endtime
FROM counts AS c
JOIN (SELECT max(num) AS maxn, starttime, endtime FROM counts GROUP BY starttime, endtime) AS m
  ON c.starttime = m.starttime AND c.endtime = m.endtime AND c.num >= m.maxn

-- Bids of each person per window of 10 seconds.
-- Adapted: event time for processing time, which no replay could give again.
SELECT bidder, count(*) AS bid_count, window.start AS starttime, window.end AS endtime
FROM bid
GROUP BY bidder, window(dateTime, '10 seconds')

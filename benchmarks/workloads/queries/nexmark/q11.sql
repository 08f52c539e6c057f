-- User sessions: how many bids a person makes until there is none for 10 seconds.
-- Adapted: Spark's session_window(); a session that is not over counts as far as it is known.
SELECT bidder, count(*) AS bid_count, session_window.start AS starttime, session_window.end AS endtime
FROM bid
GROUP BY bidder, session_window(dateTime, '10 seconds')

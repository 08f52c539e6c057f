-- Average price for a category. Adapted: an auction that is still open counts with its highest bid so far.
SELECT category, avg(final) AS average
FROM (
  SELECT max(b.price) AS final, a.category AS category
  FROM auction AS a, bid AS b
  WHERE a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires
  GROUP BY a.id, a.category
) AS q
GROUP BY category

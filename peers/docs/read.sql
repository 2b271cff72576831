\set revision random(:from, :to)
select body->>'count' from history where name = '0' and revision = :revision::int;

\set revision random(:from, :to)
select body::text from history where name = '0' and revision = :revision::int;

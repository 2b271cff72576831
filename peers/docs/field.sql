\set at random(0, :last)
\set price random(1000, 9999)
select set_field('large ' || :size::text, array[:at::text, 'price'], (:price::text || '.25')::jsonb);

\set number random(1000000000, 1999999999)
\set document :client_id + :first
select set_field(:document::text, '{count}', :number::text::jsonb);

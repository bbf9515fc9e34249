-- The source of the pipeline customers_cdc. Change rows by
--   docker compose exec cdc-database psql --username crm --command "UPDATE customers SET name = 'Grace' WHERE id = 1"
CREATE TABLE customers (id bigint PRIMARY KEY, name text, email text);
-- Deletes and updates tell the whole row as it was.
ALTER TABLE customers REPLICA IDENTITY FULL;
INSERT INTO customers VALUES (1, 'Ada', 'ada@example.org'), (2, 'Edsger', 'edsger@example.org');

-- Customers with their history: one row for each version, from when until when it held.
-- @merge_strategy: scd2
-- @unique_key: customer_id
-- @scd_current_flag: is_current
SELECT customer_id, name, email, address.city AS city
FROM {{ ref('silver.customers') }}

SELECT o.order_id, o.customer_id, c.address.city AS city, o.amount, o.status, o.placed_on, o.updated_at
FROM {{ ref('silver.orders') }} AS o
LEFT JOIN {{ ref('silver.customers') }} AS c ON c.customer_id = o.customer_id
{% if is_incremental() %}
WHERE o.updated_at > {{ watermark_value }}
{% endif %}

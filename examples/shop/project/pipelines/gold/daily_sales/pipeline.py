# Sales of each day. A day that has new orders, or changed ones, is replaced as a whole.
# @merge_strategy: snapshot
# @partition_column: placed_on
from pyspark.sql import functions as F


def transform(ctx):
    orders = ctx.ref("silver.orders").where("status <> 'cancelled'")
    return orders.groupBy("placed_on").agg(
        F.count("*").alias("orders"), F.sum("amount").cast("decimal(12,2)").alias("amount")
    )

"""Orders in a document database: an index on an array, pages, a transaction, a change stream."""

import os
from datetime import datetime, timedelta, timezone

from pymongo import DESCENDING, MongoClient

client = MongoClient(os.environ.get("SHEAF_URI", "mongodb://127.0.0.1:27017/"))
client.drop_database("examples")
orders = client.examples.orders
stock = client.examples.stock


def order(number, product=None, quantity=1):
    """An order of two lines, or of one line with the given product."""
    lines = [{"product": number % 7, "quantity": 1}, {"product": (number + 3) % 7, "quantity": 2}]
    if product is not None:
        lines = [{"product": product, "quantity": quantity}]
    return {
        "_id": number,
        "country": ["CH", "FR", "IT"][number % 3],
        "at": datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(days=number),
        "lines": lines,
    }


result = orders.insert_many([order(number) for number in range(1, 61)])
print("inserted", len(result.inserted_ids), "orders")

# One index serves the filter on the array's elements and the order of the results.
print("index", orders.create_index([("country", 1), ("lines.product", 1), ("at", DESCENDING)]))

# The next page begins where the last one ended: no page costs more than the first.
last, page = None, 1
while True:
    query = {"country": "CH", "lines.product": 5}
    if last is not None:
        query["at"] = {"$lt": last["at"]}
    found = list(orders.find(query).sort("at", DESCENDING).limit(4))
    if not found:
        break
    print(f"page {page}:", *(document["_id"] for document in found))
    last, page = found[-1], page + 1


class OutOfStock(Exception):
    pass


def sell(session, number, product, quantity):
    """Inserts the order and takes from the stock, both or neither."""
    orders.insert_one(order(number, product, quantity), session=session)
    taken = stock.update_one(
        {"_id": product, "left": {"$gte": quantity}}, {"$inc": {"left": -quantity}}, session=session
    )
    if taken.matched_count == 0:
        raise OutOfStock  # ends the transaction: the order is not inserted either


stock.insert_one({"_id": 5, "left": 10})
with client.start_session() as session:
    for number, quantity in [(61, 3), (62, 9)]:
        try:
            # Runs it again when it meets another transaction's write.
            session.with_transaction(lambda s: sell(s, number, 5, quantity))
            outcome = "sold"
        except OutOfStock:
            outcome = "cannot sell"
        print(f"{outcome} {quantity} of product 5, {stock.find_one({'_id': 5})['left']} left")
print("orders:", orders.count_documents({}))

with orders.watch() as changes:
    orders.insert_one(order(62))
    change = changes.next()
    print("change:", change["operationType"], change["documentKey"]["_id"])

client.close()

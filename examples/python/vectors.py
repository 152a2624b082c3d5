"""Vector search: the nearest documents to a vector, with a filter."""

import os
import time

from pymongo import MongoClient
from pymongo.operations import SearchIndexModel

client = MongoClient(os.environ.get("SHEAF_URI", "mongodb://127.0.0.1:27017/"))
client.drop_database("examples")
colours = client.examples.colours
colours.insert_many(
    [
        {"_id": 1, "name": "red", "warm": True, "rgb": [1.0, 0.0, 0.0]},
        {"_id": 2, "name": "green", "warm": False, "rgb": [0.0, 1.0, 0.0]},
        {"_id": 3, "name": "blue", "warm": False, "rgb": [0.0, 0.0, 1.0]},
        {"_id": 4, "name": "orange", "warm": True, "rgb": [1.0, 0.5, 0.0]},
    ]
)

# A vector index names the path, the dimensions, the similarity, and the fields to filter by.
definition = {
    "fields": [
        {"type": "vector", "path": "rgb", "numDimensions": 3, "similarity": "cosine"},
        {"type": "filter", "path": "warm"},
    ]
}
colours.create_search_index(SearchIndexModel(definition, name="near", type="vectorSearch"))
while not next(colours.list_search_indexes("near"))["queryable"]:
    time.sleep(0.1)
print("index ready")


def nearest(vector, limit, **options):
    """The documents nearest to the vector, with their scores from 0 to 1."""
    search = {"index": "near", "path": "rgb", "queryVector": vector, "limit": limit}
    return colours.aggregate(
        [
            {"$vectorSearch": {**search, "numCandidates": 20, **options}},
            {"$project": {"name": 1, "score": {"$meta": "vectorSearchScore"}}},
        ]
    )


for found in nearest([1.0, 0.0, 0.0], limit=2):
    print(found["_id"], found["name"], f"{found['score']:.3f}")

warm = nearest([0.0, 0.0, 1.0], limit=4, filter={"warm": True})
print("warm:", *sorted(found["name"] for found in warm))

client.close()

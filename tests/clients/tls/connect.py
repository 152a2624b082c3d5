"""Connects to a URI and writes "ok", or the driver's error on one line."""

import sys

import pymongo

try:
    with pymongo.MongoClient(sys.argv[1]) as client:
        collection = client.python_tls.documents
        collection.replace_one({"_id": 1}, {"text": "x" * 100_000}, upsert=True)
        assert len(collection.find_one({"_id": 1})["text"]) == 100_000
    print("ok")
except Exception as e:
    print(type(e).__name__, str(e).replace("\n", " "))

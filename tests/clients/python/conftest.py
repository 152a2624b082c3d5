"""Fixtures of the PyMongo tests: one client per session, an empty collection per test."""

import os
import re
import sys
import time

import pytest
from pymongo import MongoClient

URI = os.environ["SHEAF_URI"]
SOCKET = os.environ["SHEAF_SOCKET"]


@pytest.fixture(scope="session")
def client():
    with MongoClient(URI, serverSelectionTimeoutMS=5000) as c:
        yield c


@pytest.fixture(scope="module")
def db(client, request):
    """An empty database named after the test file."""
    name = "python_" + request.module.__name__.rpartition(".")[2].removeprefix("test_")
    client.drop_database(name)
    return client[name]


@pytest.fixture
def coll(db, request):
    """An empty collection named after the test."""
    c = db[re.sub(r"\W", "_", request.node.name)]
    c.drop()
    return c


@pytest.fixture(scope="session")
def member(tmp_path_factory):
    """The port of a member of a replica set that has been initiated."""
    sys.path.append(os.path.join(os.path.dirname(__file__), "..", "durability"))
    from servers import server

    with server(tmp_path_factory.mktemp("set") / "db", "--replSet", "rs0") as s:
        with MongoClient("127.0.0.1", s.port, directConnection=True) as c:
            address = f"127.0.0.1:{s.port}"
            c.admin.command("replSetInitiate", {"_id": "rs0", "members": [{"_id": 0, "host": address}]})
            until = time.monotonic() + 10
            while not c.admin.command("hello")["isWritablePrimary"]:
                assert time.monotonic() < until
                time.sleep(0.02)
            assert c.admin.command("replSetGetStatus")["members"][0]["stateStr"] == "PRIMARY"
        yield s.port

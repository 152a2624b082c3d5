"""Fixtures of the PyMongo tests: one client per session, an empty collection per test."""

import os
import re

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

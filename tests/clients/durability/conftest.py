"""Fixtures of the tests with failing disks."""

import pytest
from faults import built


@pytest.fixture(scope="session")
def shim(tmp_path_factory):
    """The library that intercepts a server's system calls, compiled once."""
    return built(tmp_path_factory.mktemp("shim"))

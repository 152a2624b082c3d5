"""What the tests of failing disks share."""

import pytest
from faults import built


@pytest.fixture(scope="session")
def shim(tmp_path_factory):
    """The library between a server and the system, compiled once."""
    return built(tmp_path_factory.mktemp("shim"))

"""Expects an error by its class and MongoDB's code."""

import contextlib

import pytest


@contextlib.contextmanager
def refused(kind, code, message=None):
    """The block must raise `kind` with this code; `message` is searched in its text.

    Yields pytest's ExceptionInfo, for further checks.
    """
    with pytest.raises(kind, match=message) as caught:
        yield caught
    assert caught.value.code == code, caught.value

"""GridFS: files as fs.files and fs.chunks, through PyMongo's bucket."""

import hashlib
import random

import pytest
from gridfs import GridFS, GridFSBucket, NoFile
from pymongo import ASCENDING

CHUNK = 255 * 1024


@pytest.fixture
def bucket(db, request):
    name = request.node.name
    for part in ("files", "chunks"):
        db[f"{name}.{part}"].drop()
    return GridFSBucket(db, bucket_name=name)


def content(n, seed=1):
    return random.Random(seed).randbytes(n)


def test_upload_and_download(bucket, db):
    data = content(3 * CHUNK + 17)
    file_id = bucket.upload_from_stream("a.bin", data, metadata={"kind": "test"})
    assert bucket.open_download_stream(file_id).read() == data
    (stored,) = bucket.find({"metadata.kind": "test"})
    assert (stored.filename, stored.length, stored.chunk_size) == ("a.bin", len(data), CHUNK)
    chunks = db["test_upload_and_download.chunks"]
    assert [c["n"] for c in chunks.find({"files_id": file_id}).sort("n")] == [0, 1, 2, 3]
    assert "files_id_1_n_1" in chunks.index_information()
    assert chunks.index_information()["files_id_1_n_1"]["unique"]
    # Chunks are read by the index, in order, without a sort.
    plan = chunks.find({"files_id": file_id}).sort([("files_id", ASCENDING), ("n", ASCENDING)]).explain()
    assert plan["executionStats"]["totalKeysExamined"] == 4


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1])
def test_sizes(db, size):
    bucket = GridFSBucket(db, bucket_name=f"size{size}")
    data = content(size, size)
    file_id = bucket.upload_from_stream("f", data)
    assert bucket.open_download_stream(file_id).read() == data
    bucket.delete(file_id)


def test_seek_and_range(bucket):
    data = content(5 * 1000 + 3)
    file_id = bucket.upload_from_stream("s", data, chunk_size_bytes=1000)
    with bucket.open_download_stream(file_id) as f:
        for start, n in [(0, 10), (995, 10), (2500, 1500), (5000, 100), (1, 0)]:
            f.seek(start)
            assert f.read(n) == data[start:start + n]
            assert f.tell() == min(start + n, len(data))
        f.seek(-3, 2)
        assert f.read() == data[-3:]
        f.seek(999)
        assert f.readchunk() == data[999:1000]


def test_revisions_rename_and_delete(bucket, db):
    first = bucket.upload_from_stream("r", b"one")
    second = bucket.upload_from_stream("r", b"two")
    assert bucket.open_download_stream_by_name("r").read() == b"two"
    assert bucket.open_download_stream_by_name("r", revision=0).read() == b"one"
    bucket.rename(first, "other")
    assert bucket.open_download_stream_by_name("other").read() == b"one"
    bucket.delete(second)
    with pytest.raises(NoFile):
        bucket.open_download_stream_by_name("r")
    with pytest.raises(NoFile):
        bucket.delete(second)
    assert db["test_revisions_rename_and_delete.chunks"].count_documents({}) == 1


def test_find_by_fields(bucket):
    for i in range(10):
        bucket.upload_from_stream(f"f{i}", b"x" * i, metadata={"even": i % 2 == 0})
    found = bucket.find({"metadata.even": True}, sort=[("length", -1)], limit=2, skip=1)
    assert [f.filename for f in found] == ["f6", "f4"]


def test_abort_leaves_nothing(bucket, db):
    with bucket.open_upload_stream("gone", chunk_size_bytes=10) as f:
        f.write(b"x" * 100)
        f.abort()
    assert db["test_abort_leaves_nothing.chunks"].count_documents({}) == 0
    assert db["test_abort_leaves_nothing.files"].count_documents({}) == 0


def test_large_file(bucket):
    data = content(20 * 1024 * 1024)
    file_id = bucket.upload_from_stream("large", data)
    got = bucket.open_download_stream(file_id)
    digest = hashlib.sha256()
    while piece := got.read(1 << 20):
        digest.update(piece)
    assert digest.digest() == hashlib.sha256(data).digest()


def test_older_interface(db):
    fs = GridFS(db, collection="older")
    file_id = fs.put(b"hello", filename="greeting")
    assert fs.get(file_id).read() == b"hello"
    assert fs.exists(filename="greeting") and fs.list() == ["greeting"]
    fs.delete(file_id)
    assert not fs.exists(file_id)

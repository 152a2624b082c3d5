"""kill -9 during inserts: every acknowledged measurement exists once, and buckets are valid."""

import random
import threading
import time
from datetime import datetime, timedelta, timezone

from pymongo import MongoClient, WriteConcern
from pymongo.errors import PyMongoError
from servers import server

START = datetime(2024, 5, 1, tzinfo=timezone.utc)
ROUNDS = 3


class Writer(threading.Thread):
    """Inserts batches until the server dies."""

    def __init__(self, uri, number, first):
        super().__init__(daemon=True)
        self.uri, self.number, self.next = uri, number, first
        self.acknowledged = []
        self.doubtful = []

    def run(self):
        rng = random.Random(self.number * 1_000_003 + self.next)
        with MongoClient(self.uri, serverSelectionTimeoutMS=500, retryWrites=False) as client:
            coll = client.durable.get_collection("measured", write_concern=WriteConcern(w=1, j=True))
            try:
                while True:
                    ids = [f"{self.number}-{self.next + n}" for n in range(rng.randrange(1, 60))]
                    self.next += len(ids)
                    self.doubtful = ids
                    coll.insert_many(
                        [{"_id": _id, "t": START + timedelta(seconds=rng.randrange(9000)), "m": rng.randrange(3), "x": rng.random()} for _id in ids],
                        ordered=rng.random() < 0.5,
                    )
                    self.acknowledged += ids
                    self.doubtful = []
            except PyMongoError:
                pass  # the server was killed, as expected


def test_no_measurement_is_lost(tmp_path):
    must, may = set(), set()
    next_ids = [0] * 4
    for round_ in range(ROUNDS + 1):
        with server(tmp_path / "data") as s:
            with s.client() as client:
                db = client.durable
                if round_ == 0:
                    db.create_collection("measured", timeseries={"timeField": "t", "metaField": "m"})
                found = [d["_id"] for d in db.measured.find({}, {"_id": 1})]
                assert len(found) == len(set(found)), "a measurement is there twice"
                assert must <= set(found), f"lost {sorted(must - set(found))[:5]}"
                assert set(found) <= must | may
                must = set(found)
                counted = sum(b["control"]["count"] for b in db["system.buckets.measured"].find({}, {"control.count": 1}))
                assert counted == len(found)
                validated = db.command("validate", "measured")
                assert validated["valid"], validated
            if round_ == ROUNDS:
                break
            writers = [Writer(s.uri, n, next_ids[n]) for n in range(4)]
            for w in writers:
                w.start()
            until = time.monotonic() + 20
            while any(not w.acknowledged for w in writers) and time.monotonic() < until:
                time.sleep(0.01)
            time.sleep(0.3)
            s.kill()
            for w in writers:
                w.join(20)
                assert w.acknowledged, s.log()
                must |= set(w.acknowledged)
                may |= set(w.doubtful)
                next_ids[w.number] = w.next

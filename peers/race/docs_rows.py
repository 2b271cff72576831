"""What both stores do, and PostgreSQL doing it: documents as jsonb, each revision a row of a history table."""

import json
import math
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from .kinds import NOT_FOUND, Failed

PACED = 1000  # commits a second of the writer that is not flat out
SCHEMA = """
drop table if exists document, history;
create table document (name text primary key, revision int not null, body jsonb not null);
create table history (name text, revision int, at timestamptz not null, body jsonb not null, primary key (name, revision));
create or replace function put(key text, value jsonb) returns int language plpgsql as $$
begin
    insert into document values (key, 1, value);
    insert into history values (key, 1, clock_timestamp(), value);
    return 1;
end $$;
create or replace function set_field(key text, path text[], value jsonb) returns int language plpgsql as $$
declare number int; whole jsonb;
begin
    update document set body = jsonb_set(body, path, value), revision = revision + 1 where name = key
        returning revision, body into number, whole;
    insert into history values (key, number, clock_timestamp(), whole);
    return number;
end $$;
"""


class Row(NamedTuple):
    """A row of the report: where it stands in ours, and pairs of the names of figures, ours and in the report; the first is compared."""

    key: tuple
    what: str
    figures: list


def ROWS(sizes):
    commit = [("per_s", "per_s"), ("commit_p50_us", "p50_us"), ("commit_p99_us", "p99_us"), ("bytes_each", "bytes_each")]
    read = [("warm_p50_us", "p50_us"), ("warm_p99_us", "p99_us")]
    rows = [Row(("history", "commit", "one field, one thread"), "commit one field", commit)]
    for writers in (16, 64):
        rows.append(Row(("history", "commit", f"{writers} writers, a document each"), f"{writers} writers", commit))
    rows.append(Row(("history", "open and read", "revision 1"), "a field of revision 1", read))
    rows.append(Row(("history", "history", "a page of 100"), "the newest 100 revisions", read))
    rows.append(Row(("history", "serialise", "revision 1"), "revision 1 as JSON", read))
    for beside in ("alone", "beside a writer of 1,000 commits/s", "beside a writer flat out"):
        figures = [("per_s", "per_s"), ("commits_per_s", "commits_per_s")]
        rows.append(Row(("history", "read", f"16 readers {beside}"), f"16 readers {beside}", figures))
    for size in sizes:
        on = f"{size:g} MB"
        rows.append(Row(("large", "load", on), f"load {on}", [("mb_per_s", "mb_per_s")]))
        rows.append(Row(("large", "commit", f"one field of {on}"), f"one field of {on}", commit))
    return rows


def program(name):
    """pgbench and psql stand beside the server's binaries where they are not on PATH."""
    places = [*os.environ["PATH"].split(":"), *sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True)]
    for place in places:
        if os.access(Path(place) / name, os.X_OK):
            return str(Path(place) / name)
    raise Failed(f"{name} is missing; it comes with PostgreSQL (apt-get install postgresql)", NOT_FOUND)


def share(values, part):
    """The value below which that part of them is."""
    values = sorted(values)
    return values[min(len(values) - 1, math.ceil(part * len(values)) - 1)] if values else 0.0


class Postgres:
    def __init__(self, url, scripts):
        self.url, self.scripts = url, scripts
        self.psql, self.pgbench = program("psql"), program("pgbench")
        self.sql(SCHEMA)

    def sql(self, text, *, stdin=None):
        words = [self.psql, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", self.url]
        done = subprocess.run(words, input=stdin or text, capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(f"psql: {done.stderr.strip()}")
        return done.stdout.strip()

    def make(self, name):
        self.sql(f"""select put('{name}', '{{"name":"ann","count":1000000000}}')""")

    def load(self, name, megabytes):
        """The same text as ours, in one statement; megabytes a second."""
        count = max(2, round(megabytes * 1e6 / 57))
        objects = [{"id": 1_000_000_000 + at, "name": "x" * 10, "price": 1000.25} for at in range(count)]
        text = json.dumps(objects, separators=(",", ":"))
        began = self.sql("select extract(epoch from clock_timestamp())")
        self.sql(None, stdin=f"select put('{name}', '{text}')")
        took = float(self.sql(f"select extract(epoch from clock_timestamp()) - {began}"))
        return count, len(text) / 1e6 / max(took, 1e-9)

    def wal_bytes(self):
        return int(self.sql("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))

    def begin(self, script, clients, seconds, variables=(), rate=None, count=None):
        folder = tempfile.TemporaryDirectory(prefix="pgbench.")
        words = [self.pgbench, "-n", "-M", "prepared", "-c", str(clients), "-j", str(min(clients, 2)), "-f", str(self.scripts / script)]
        words += ["-t", str(count)] if count else ["-T", str(max(1, round(seconds)))]
        words += ["-R", str(rate)] if rate else []
        words += ["--log", "--log-prefix", f"{folder.name}/log"]
        words += [it for name, value in ({"first": 0} | dict(variables)).items() for it in ("-D", f"{name}={value}")]
        done = subprocess.Popen([*words, self.url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        return folder, done

    def end(self, begun):
        folder, done = begun
        out, err = done.communicate()
        found = re.search(r"tps = ([0-9.]+)", out)
        with folder:
            if done.returncode != 0 or not found:
                raise Failed(f"pgbench: {err.strip()[-300:]}")
            took = [float(line.split()[2]) for log in Path(folder.name).glob("log*") for line in log.open()]
        return {"per_s": float(found[1]), "count": len(took), "p50_us": share(took, 0.5), "p99_us": share(took, 0.99)}

    def run(self, *words, **more):
        before = self.wal_bytes()
        figures = self.end(self.begin(*words, **more))
        figures["bytes_each"] = (self.wal_bytes() - before) / max(figures["count"], 1)
        return figures

    def rows(self, commits, sizes, seconds):
        """All rows, once."""
        self.sql("truncate document, history")
        self.make("0")
        rows = {("history", "commit", "one field, one thread"): self.run("commit.sql", 1, seconds, count=commits)}
        self.sql("vacuum analyze document, history")
        newest = int(self.sql("select revision from document where name = '0'"))
        for writers in (16, 64):
            self.sql(f"""select count(put(n::text, '{{"name":"ann","count":1000000000}}')) from generate_series({writers}, {2 * writers - 1}) n""")
            rows["history", "commit", f"{writers} writers, a document each"] = self.run("commit.sql", writers, seconds, {"first": writers})
            self.sql("delete from document where name <> '0'; delete from history where name <> '0'")
        one = {"from": 1, "to": 1}
        rows["history", "open and read", "revision 1"] = self.run("read.sql", 1, seconds, one)
        rows["history", "history", "a page of 100"] = self.run("page.sql", 1, seconds)
        rows["history", "serialise", "revision 1"] = self.run("whole.sql", 1, seconds, one)
        for beside, rate in (("alone", 0), ("beside a writer of 1,000 commits/s", PACED), ("beside a writer flat out", None)):
            writer = None if rate == 0 else self.begin("commit.sql", 1, seconds, rate=rate)
            figures = self.run("read.sql", 16, seconds, {"from": 1, "to": newest})
            if writer:
                figures["commits_per_s"] = self.end(writer)["per_s"]
            rows["history", "read", f"16 readers {beside}"] = figures
        for size in sizes:
            on, name = f"{size:g} MB", f"large {size:g}"
            count, rate = self.load(name, size)
            rows["large", "load", on] = {"mb_per_s": rate}
            rows["large", "commit", f"one field of {on}"] = self.run("field.sql", 1, seconds, {"size": f"{size:g}", "last": count - 1})
        return rows

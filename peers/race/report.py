"""The result as a report of `assent bench` (crates/bench/src/report.rs, format 1), written anew after each slice."""

import json
import os
import platform
import subprocess
from datetime import datetime, timezone
from pathlib import Path
from statistics import median_low

from .ours import EMBEDDED
from .tally import FLOORS, NOT_DURABLE

FORMAT = 1
NOTES = [
    "Each contender is a process of its own; only the one whose turn it is runs, the others are frozen.",
    "Figures are medians over rounds; a ratio is the median of ratios between slices of the same round.",
    "Peers are warm, each slice of ours is a new process with a new journal.",
    "plain, by-hand and their -rust forms keep no decision and are not atomic; narayana-volatile is not durable.",
    "The -lazy stores sync each decision but not that a transaction is finished, which is what Assent does.",
]


def first_line(path, prefix=""):
    try:
        for line in Path(path).read_text().splitlines():
            if line.startswith(prefix):
                return line.removeprefix(prefix).strip(" :\t")
    except OSError:
        pass
    return ""


def said(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def java():
    return (said("java", "--version").splitlines() or ["Java of an unknown version"])[0]


def host(folder, program):
    """The facts of the machine that a figure depends on."""
    folder = str(Path(folder).resolve())
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    under = [it for it in mounts if folder == it[1] or folder.startswith(it[1].rstrip("/") + "/")]
    mount = max(under, key=lambda it: len(it[1]), default=["", "", "", ""])
    memory = first_line("/proc/meminfo", "MemTotal").split()
    return {
        "cpu": first_line("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": int(memory[0]) * 1024 if memory else 0,
        "kernel": f"{platform.system()} {platform.release()}",
        "file_system": mount[2],
        "mount_flags": mount[3],
        "load_average": " ".join(f"{it:.2f}" for it in os.getloadavg()),
        "rustc": said("rustc", "--version"),
        "build": "release",
        "version": said(str(program), "--version").removeprefix("assent "),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def cells(tally):
    for row in tally.told():
        figures = {"rounds": len(row.slices), "transactions": sum(it.transactions for it in row.slices.values())}
        if row.slices:
            rates = [it.tps for it in row.slices.values()]
            figures |= {"tps": row.tps(), "tps_min": min(rates), "tps_max": max(rates)}
            figures |= {f"total_{it}_us": row.latency(it) for it in ("p50", "p95", "p99", "max", "mean")}
        figures["client_cpu_us_per_tx"] = row.median(lambda it: it.cpu_us_per_tx)
        figures["syncs_per_tx"] = row.median(lambda it: it.syncs_per_tx)
        figures["ours_ratio"] = tally.ours_against(row)
        for lazy, whom in ((True, "best_peer"), (False, "best_not_lazy")):
            best = tally.best_peer(row.branches, row.threads, lazy) if row.name == EMBEDDED else None
            if best:
                figures |= {f"tps_ratio_to_{whom}": best[0], f"total_p95_ratio_to_{whom}": best[1]}
        yield {
            "labels": {"branches": row.branches, "peer": row.name, "clients": str(row.threads)},
            "figures": {name: value for name, value in figures.items() if value is not None},
            "histograms": {},
            "error": row.error,
        }


def charts(branches):
    lines = {"kind": "lines", "x": "clients", "along": "clients", "series": ["peer"], "x_title": "clients",
             "x_log": True, "y_log": True}
    for kind, what in (("dummy", "two dummies"), ("real", "PostgreSQL and MariaDB")):
        if kind in branches:
            only = {"branches": [kind]}
            yield lines | {"title": f"Transactions/s, {what}", "y": ["tps"], "y_title": "transactions/s", "only": only}
            yield lines | {"title": f"Total latency (95 %), {what}", "y": ["total_p95_us"], "y_title": "us", "only": only}


class Report:
    """The file, and what does not change in it."""

    def __init__(self, path, command, branches, folder, program):
        self.path = Path(path)
        self.head = {
            "format": FORMAT, "scenario": "tx", "title": "Distributed transactions: Assent and its peers",
            "command": command, "host": host(folder, program),
        }
        self.charts = list(charts(branches))
        self.notes = [*NOTES, f"{java()}; versions and settings of the peers: peers/README.md."]
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def save(self, tally, floors, disk, complete):
        """Whole or as it was: a reader never sees half a file."""
        medians = [
            {"name": name, "unit": "us",
             "figures": {share: median_low([one[share] for one in figures]) for share in ("p50", "p95", "p99")}}
            for name, figures in floors.items()
        ]
        whole = self.head | {
            "host": self.head["host"] | disk, "floors": medians, "cells": list(cells(tally)), "charts": self.charts,
            "complete": complete, "notes": self.notes,
        }
        fresh = self.path.with_suffix(".tmp")
        fresh.write_text(json.dumps(whole, indent=1) + "\n")
        fresh.rename(self.path)

"""The result of the documents' race: a report of `assent bench` (crates/bench/src/report.rs, format 1), and a table."""

import json

NOTES = [
    "PostgreSQL: a row with the newest jsonb and one with all of it for each revision, written by one function in one transaction; "
    "synchronous_commit on, pgbench with prepared statements on the same machine. Bytes are those of its write-ahead log.",
    "Ours is embedded, without a connection. So reads are not the same walk: PostgreSQL's have a round trip in them.",
    "Figures are medians over rounds; a ratio is the median of ratios within the rounds: ours to PostgreSQL's.",
    "Not raced: differences, merge and hashes of subtrees, which such a table does not have.",
]


def lay(path, rows, report, complete, words):
    """Whole or as it was: a reader never sees half a file."""
    cells = []
    for row, figures in rows:
        for store, found in figures.items():
            labels = {"store": store, "scenario": row.key[0], "row": row.key[1], "on": row.key[2]}
            cells.append({"labels": labels, "figures": found, "histograms": {}, "error": None})
    bars = {"kind": "bars", "x": "on", "along": "", "series": ["store"], "x_title": "", "x_log": False, "y_log": True}
    charts = [
        bars | {"title": f"{title}: {scenario}", "y": [y], "y_title": y_title, "only": {"scenario": [scenario], "row": [row]}}
        for scenario in ("history", "large")
        for title, row, y, y_title in (
            ("Commits per second", "commit", "per_s", "commits per second"),
            ("Bytes of a commit", "commit", "bytes_each", "bytes"),
            ("Reads per second", "read", "per_s", "reads per second"),
        )
        if any(it.key[:2] == (scenario, row) for it, _ in rows)
    ]
    whole = {
        "format": report["format"], "scenario": "docs", "title": "Documents: Assent and PostgreSQL as jsonb with a history table",
        "command": " ".join(["scripts/peers-docs", *words[1:]]), "host": report["host"], "floors": report["floors"],
        "cells": cells, "charts": charts, "complete": complete, "notes": NOTES,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".tmp")
    fresh.write_text(json.dumps(whole, indent=1) + "\n")
    fresh.rename(path)


def table(rows):
    head = ("", "figure", "assent", "postgresql", "ours is x this")
    laid = [head]
    for row, figures in rows:
        for _, name in row.figures:
            ours, theirs = (figures[store].get(name) for store in ("assent", "postgresql"))
            if ours is None and theirs is None:
                continue
            ratio = figures["assent"].get(f"{name}_ratio_to_postgresql")
            shown = ["" if it is None else f"{it:,.0f}" if it >= 100 else f"{it:.3g}" for it in (ours, theirs)]
            laid.append((row.what, name, *shown, "" if ratio is None else f"{ratio:.3g}"))
    widths = [max(len(line[column]) for line in laid) for column in range(len(head))]
    for line in laid:
        print(f"{line[0]:{widths[0]}}  {line[1]:{widths[1]}}  " + "  ".join(f"{it:>{width}}" for it, width in zip(line[2:], widths[2:])))

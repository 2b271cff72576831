"""The result for a terminal."""

from .ours import EMBEDDED
from .tally import FLOORS, NOT_DURABLE

HEAD = ("", "threads", "transactions", "tps", "p50 us", "p95 us", "p99 us", "CPU us/tx", "ours is x this")


def cell(figure, form):
    return "" if figure is None else form.format(figure)


def laid(rows):
    """Columns as wide as they need to be; numbers to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    for row in rows:
        first, *others = row
        yield f"{first:{widths[0]}}  " + "  ".join(f"{it:>{width}}" for it, width in zip(others, widths[1:]))


def mark(name):
    if name in FLOORS:
        return f"{name} (not atomic)"
    return f"{name} (not durable)" if name in NOT_DURABLE else name


def show(tally, branches, threads):
    rows, errors, verdicts = [HEAD], [], []
    for count in threads:
        for row in tally.group(branches, count):
            rows.append((
                mark(row.name), str(count), str(sum(it.transactions for it in row.slices.values())),
                *(cell(it, "{:,.0f}") for it in (row.tps(), row.latency("p50"), row.latency("p95"), row.latency("p99"))),
                cell(row.median(lambda it: it.cpu_us_per_tx), "{:.0f}"), cell(tally.ours_against(row), "{:.2f}"),
            ))
            if row.error:
                errors.append(f"{row.name}, {count} threads: {row.error}")
        for lazy, whom in ((True, "the best peer"), (False, "the best that is not lazy")):
            best = tally.best_peer(branches, count, lazy)
            if best:
                verdicts.append(
                    f"{count} threads: {EMBEDDED} has {best[0]:.2f} x the tps of {whom} of each round "
                    f"(mostly {best[2]}) and {best[1]:.2f} x the best p95"
                )
    what = "two branches that answer at once" if branches == "dummy" else "one row in PostgreSQL and one in MariaDB"
    print(f"\n{what}; medians over the rounds, ratios within them")
    print("\n".join(laid(rows)))
    for line in [*verdicts, *(f"FAILED {error}" for error in errors)]:
        print(line)

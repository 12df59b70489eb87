"""The cells of a page's tables: what is read, and what it is sorted by."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedshot.report.comparison import Row
from fedshot.report.comparison_table import difference_in_words, some_in_words
from fedshot.report.wording import bytes_in_words, number_of, seconds_in_words
from fedshot.study.statistics import percent

if TYPE_CHECKING:
    from fedshot.record import Record


@dataclass(frozen=True)
class Cell:
    """What is read, and what it is sorted by."""

    text: str
    value: float | str


def comparison_cells(row: Row, known: Collection[str]) -> dict[str, Cell]:
    """The columns of the comparison, by name; of figures that not every record has, those that are known."""
    shares = {
        "balanced": row.balanced,
        "worst class": row.worst_class,
        "calibration error": row.calibration_error,
        "oracle routing": row.oracle_routing,
    }
    mean = 0.0 if row.difference is None or row.difference.mean is None else row.difference.mean
    return {
        "accuracy": Cell(percent(row.accuracy), row.accuracy.mean),
        "difference": Cell(difference_in_words(row), mean),
        "seeds": Cell(number_of(len(row.seeds), "seed"), len(row.seeds)),
        **{name: Cell(f"{100 * share.mean:.1f}", share.mean) for name, share in shares.items()},
        **{name: Cell(some_in_words(row, name), share.mean if (share := row.some[name]) else -1.0) for name in known},
        "phases": Cell(str(row.phases), row.phases),
        "rule": Cell("inductive" if row.inductive else "transductive", "i" if row.inductive else "t"),
    }


def cost_cells(label: str, records: Sequence["Record"]) -> dict[str, Cell]:
    """What a method costs, mean over its seeds."""

    def mean(values: Sequence[float]) -> float:
        return sum(values) / len(values)

    sent = [c.upload_bytes for record in records for c in record.clients if c.skipped is None]
    one = mean(sent) if sent else 0.0
    all_clients = mean([record.cost.upload_bytes for record in records])
    together = mean([record.cost.client_seconds for record in records])
    slowest = mean([record.cost.slowest_client_seconds for record in records])
    server = mean([record.cost.server_seconds for record in records])
    memory = max(record.cost.peak_memory_bytes for record in records)
    kept = max(record.cost.models_kept for record in records)
    return {
        "method": Cell(label, label),
        "upload of a client": Cell(bytes_in_words(one), one),
        "upload of all": Cell(bytes_in_words(all_clients), all_clients),
        "all clients": Cell(seconds_in_words(together), together),
        "slowest client": Cell(seconds_in_words(slowest), slowest),
        "server": Cell(seconds_in_words(server), server),
        "peak memory": Cell(bytes_in_words(memory), memory),
        "models kept": Cell(str(kept), kept),
    }

"""A finding: what was seen, the numbers that show it, the mechanism, and what to try."""

from dataclasses import dataclass
from typing import Literal, get_args

Severity = Literal["severe", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)  # the worst first


@dataclass(frozen=True)
class Fact:
    """A number of the evidence. `limit` is the threshold that it crossed, where it is the one that triggered."""

    name: str
    value: float | int | str
    unit: str = ""
    limit: str = ""

    @property
    def text(self) -> str:
        """The value as people read it.

        >>> Fact("growth", 24.06, "×").text, Fact("share", 0.5, "%").text, Fact("steps", 1200).text
        ('24.1 ×', '50.0 %', '1,200')
        """
        value = 100 * self.value if self.unit == "%" and not isinstance(self.value, str) else self.value
        if isinstance(value, str):
            said = value
        elif isinstance(value, int):
            said = f"{value:,}"
        else:
            said = f"{value:.1f}" if self.unit == "%" else f"{value:.3g}"
        return f"{said} {self.unit}".strip()


@dataclass(frozen=True)
class Series:
    """A quantity over epochs, for a small plot; `log` where it spans decades."""

    label: str
    epochs: tuple[int, ...]
    values: tuple[float, ...]
    log: bool = False


@dataclass(frozen=True)
class Finding:
    """One thing that a run, or a folder of runs, shows.

    The title is one sentence with the numbers in it. `clients` and `epochs` (first and last) say where it was seen;
    empty and None where it is about the run as a whole. `remedies` are sentences with commands in backticks.
    """

    name: str
    severity: Severity
    title: str
    facts: tuple[Fact, ...]
    cause: str
    remedies: tuple[str, ...]
    clients: tuple[int, ...] = ()
    epochs: tuple[int, int] | None = None
    series: tuple[Series, ...] = ()
    run: str = ""  # the folder that it is about; empty for what holds across runs


def by_severity(findings: list[Finding]) -> list[Finding]:
    """The worst first; equal ones keep their order."""
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


def listed(numbers: tuple[int, ...] | list[int], noun: str) -> str:
    """A noun with its numbers.

    >>> listed([3], "client"), listed([0, 2, 4], "client"), listed(list(range(9)), "class")
    ('client 3', 'clients 0, 2 and 4', 'classes 0, 1, 2, 3, 4 and 4 more')
    """
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    words = [str(number) for number in numbers]
    if len(words) == 1:
        return f"{noun} {words[0]}"
    if len(words) > 6:
        return f"{plural} {', '.join(words[:5])} and {len(words) - 5} more"
    return f"{plural} {', '.join(words[:-1])} and {words[-1]}"

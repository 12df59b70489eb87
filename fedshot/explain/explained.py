"""A run with its findings, as what looks across runs reads it."""

from dataclasses import dataclass
from pathlib import Path

from fedshot.explain.finding import Finding
from fedshot.record import Record


@dataclass(frozen=True)
class Explained:
    """One run. `name` is its folder below the path asked for, `label` its method with the options that were changed."""

    path: Path
    name: str
    label: str
    record: Record
    findings: tuple[Finding, ...]

    def has(self, name: str) -> bool:
        """Whether a finding of that name was made."""
        return any(finding.name == name for finding in self.findings)

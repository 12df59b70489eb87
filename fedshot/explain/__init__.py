"""Post-mortems: records, telemetry and uploads in, findings out."""

from fedshot.explain.engine import Explained, Explanation, explain, explain_path
from fedshot.explain.finding import Fact, Finding, Series

__all__ = ["Explained", "Explanation", "Fact", "Finding", "Series", "explain", "explain_path"]

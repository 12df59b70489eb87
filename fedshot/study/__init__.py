"""Many runs: a grid of them, what they left on disk as rows to query, and what several seeds and settings say."""

from fedshot.study.grid import Cell, Study
from fedshot.study.results import Results, load_results

__all__ = ["Cell", "Results", "Study", "load_results"]

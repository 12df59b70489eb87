"""Records to look at: tables for the terminal, figures, and one page that holds everything."""

from fedshot.report.comparison import Comparison, Runs, comparison
from fedshot.report.comparison_table import as_markdown, as_table
from fedshot.report.page import write_page
from fedshot.report.summary import run_summary

__all__ = ["Comparison", "Runs", "as_markdown", "as_table", "comparison", "run_summary", "write_page"]

"""Everything that was gathered, as tables in Markdown."""

from fedshot.report.across import across
from fedshot.report.comparison import comparison
from fedshot.report.comparison_table import as_markdown
from fedshot.report.gather import Gathered
from fedshot.study.sheet import as_markdown as sheet_as_markdown


def tables_in_markdown(found: Gathered) -> str:
    """The comparison of each task; above them, where there are several, one table across all of them."""
    compared = [as_markdown(comparison(task.runs)).strip() for task in found.tasks]
    if len(compared) == 1:
        return compared[0]
    parts = [f"## {task.name}\n\n{table}" for task, table in zip(found.tasks, compared, strict=True)]
    return "\n\n".join([sheet_as_markdown(across(found.records)), *parts])

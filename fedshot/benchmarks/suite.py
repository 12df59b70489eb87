"""Measures cases one after the other. A case that fails, for want of memory or otherwise, leaves a row that says so."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

from fedshot.benchmarks.cases import Case
from fedshot.benchmarks.eager import measure_eager
from fedshot.benchmarks.ground import Ground, expected_speed, in_one_line, release_memory
from fedshot.benchmarks.machine import flops_per_image, matrix_rate
from fedshot.benchmarks.packaged import FEWEST_EPOCHS, UNCOUNTED_EPOCHS, measure_package
from fedshot.benchmarks.plain import Measured
from fedshot.benchmarks.published import measure_published
from fedshot.benchmarks.report import BenchReport, Row
from fedshot.benchmarks.scaling import Point, scaling_rows
from fedshot.prepare import prepare
from fedshot.setting import Setting


def growing(
    report: BenchReport,
    cases: Sequence[Case],
    points: Sequence[Point],
    ground: Ground,
    begins: Callable[[str], None],
) -> Iterator[BenchReport]:
    """The report after each case and each point of the scaling. `begins` is told the name of what comes next."""
    for case in cases:
        begins(case.name)
        # taken again before every case, because other work on the machine can only make it look slower
        rate = matrix_rate(ground.device, min(0.5, ground.seconds))
        report = report.with_row(row_of(case, ground), rate)
        release_memory(ground.device)
        yield report
    for row in scaling_rows(points, ground, begins):
        report = report.model_copy(update={"scaling": (*report.scaling, row)})
        yield report


def row_of(case: Case, ground: Ground) -> Row:
    """A case, measured."""
    about = {key: value for key, value in asdict(case).items() if key in Row.model_fields} | {"name": case.name}
    try:
        setting = prepare(case.spec(epochs=1), ground.data_root, str(ground.device))
        return Row(**about, flops_per_image=flops_per_image(setting), **asdict(measure(case, setting, ground)))
    except Exception as error:
        return Row(**about, error=in_one_line(error))


def measure(case: Case, setting: Setting, ground: Ground) -> Measured:
    """One case."""
    if case.loop == "published":
        return measure_published(setting, ground.seconds)
    if case.loop == "eager":
        return measure_eager(setting, ground.seconds)
    wanted = ground.seconds * expected_speed(setting, ground) / len(setting.data.train)
    epochs = max(FEWEST_EPOCHS, UNCOUNTED_EPOCHS + round(wanted))
    return measure_package(case.spec(epochs), ground.execution(case.side_by_side, case.fused), case.side_by_side)

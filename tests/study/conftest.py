"""Records of many runs without training: copies of one that was trained, with other settings and figures."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedshot.record import HeldOut, Record
from fedshot.spec import Spec

Write = Callable[..., Path]


@pytest.fixture
def write_run(quick: Callable[..., Spec], finished: Callable, tmp_path: Path) -> Write:
    """Writes a record of a method with settings and final figures of choice below tmp_path/runs."""
    template: Record = finished(quick("fafi")).record

    def write(
        method: str,
        accuracy: float,
        final: dict[str, Any] | None = None,
        held_out: HeldOut | None = None,
        **settings: Any,
    ) -> Path:
        options = settings.pop("options", {})
        spec = template.spec.model_copy(update={"method": method, "options": options, **settings})
        figures = template.final.model_copy(update={"accuracy": accuracy, **(final or {})})
        division = {**template.partition, "recipe": spec.recipe, "parameters": {"alpha": spec.alpha}}
        told = {"spec": spec, "final": figures, "partition": division}
        told |= {"held_out": held_out.sealed(spec) if held_out else None}
        record = template.model_copy(update=told).sealed()
        folder = tmp_path / "runs" / spec.sha256[:16]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "record.json").write_text(record.model_dump_json())
        (folder / "spec.json").write_text(spec.model_dump_json())
        return folder

    return write

"""Options that several commands share, and how they become a spec. Defaults live in Spec alone."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fedshot.errors import UserError, unknown
from fedshot.options import parse_pairs
from fedshot.spec import Spec, make_spec


def setting(name: str, *flags: str) -> Any:
    """The command-line option for a field of Spec: its description is the help, its default is shown, not passed."""
    field = Spec.model_fields[name]
    default = "" if field.default is None or field.default == () else f" (default: {field.default})"
    return typer.Option(*flags, help=f"{field.description}{default}", show_default=False)


DataOption = Annotated[str | None, setting("data", "--data", "-d")]
ClientsOption = Annotated[int | None, setting("clients", "--clients", "-k")]
AlphaOption = Annotated[float | None, setting("alpha", "--alpha", "-a")]
RecipeOption = Annotated[str | None, setting("recipe", "--recipe")]
ClassesOption = Annotated[int | None, setting("classes_per_client", "--classes-per-client")]
PartitionFileOption = Annotated[str | None, setting("partition_file", "--partition-file")]
PublicOption = Annotated[str | None, setting("public", "--public")]
ValidationOption = Annotated[float | None, setting("validation", "--validation")]
EncoderOption = Annotated[str | None, setting("encoder", "--encoder")]
PretrainedOption = Annotated[str | None, setting("pretrained", "--pretrained")]
EpochsOption = Annotated[int | None, setting("epochs", "--epochs", "-e")]
BatchOption = Annotated[int | None, setting("batch_size", "--batch-size", "-b")]
FusionOption = Annotated[str | None, setting("fusion", "--fusion", "-f")]
SeedOption = Annotated[int | None, setting("seed", "--seed", "-s")]
PointsOption = Annotated[
    str | None,
    typer.Option(
        "--evaluate-at",
        help="epochs after which a snapshot is fused and scored: `5,10,20`, or `every:5`; the last always",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="any other setting, repeatable: of the run (`lr=0.1`, `schedule=cosine`, `weight_decay=5e-4`, "
        "`clip_scope=joint`, `upload_precision=int8` …) or of the method (`fedshot methods NAME` lists them)",
    ),
]
DeviceOption = Annotated[
    str,
    typer.Option(
        "--device",
        help="where to compute: `auto` takes all GPUs, else the CPU; `cpu`, `cuda`, `cuda:1`, `cuda:0,cuda:1`",
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        "--workers",
        "-w",
        min=1,
        metavar="<int>",
        help="clients trained side by side on the CPU, a process and a core each; all cores if not given",
    ),
]
LanesOption = Annotated[
    int | None,
    typer.Option(
        "--lanes",
        min=1,
        metavar="<int>",
        help="clients trained side by side on each GPU; as many as pay and fit if not given",
    ),
]
RootOption = Annotated[
    Path | None, typer.Option("--data-root", envvar="FEDSHOT_DATA", help="folder of the data sets (default: ./data)")
]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON alone on standard output")]
ResumeOption = Annotated[
    bool,
    typer.Option(
        "--resume/--fresh",
        help="go on with what the folder holds of the same run, or drop that and train anew (the same spec gives the "
        "same result: for when fedshot itself was changed)",
    ),
]


def parse_points(text: str | None, epochs: int) -> tuple[int, ...]:
    """Evaluation points as typed.

    >>> parse_points("every:4", epochs=10)
    (4, 8, 10)
    """
    if not text:
        return ()
    try:
        if text.startswith("every:"):
            step = int(text.removeprefix("every:"))
            if step < 1:
                raise ValueError
            return (*range(step, epochs, step), epochs)
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UserError(f"--evaluate-at {text!r}: write epochs as 5,10,20 or every:5") from None


_NOT_BY_SET = {
    "options": "type it as --set KEY=VALUE",
    "method": "type it as METHOD",
    "evaluate_at": "type it as --evaluate-at",
    "files": "it is filled in",
}


def parse_set(settings: list[str] | None) -> tuple[dict[str, str], dict[str, str]]:
    """key=value settings, those of the run and those left for the method.

    >>> parse_set(["lr=0.1", "anchors=random"])
    ({'lr': '0.1'}, {'anchors': 'random'})
    """
    given = parse_pairs(settings or [], "--set")
    for key, instead in _NOT_BY_SET.items():
        if key in given:
            raise UserError(f"--set {key}=… is not possible: {instead}")
    of_run = {key: value for key, value in given.items() if key in Spec.model_fields}
    return of_run, {key: value for key, value in given.items() if key not in of_run}


def build_spec(reference: str, given: dict[str, Any], settings: list[str] | None, points: str | None) -> Spec:
    """The spec of one run from what was typed; what was not typed keeps the default of Spec."""
    from fedshot.methods import parse_reference

    of_run, of_method = parse_set(settings)
    name, inline = parse_reference(reference)
    _check_keys(of_method, name)
    typed = {key: value for key, value in given.items() if value is not None}
    if twice := sorted(typed.keys() & of_run.keys()):
        raise UserError(f"{twice[0]} is given twice: by its own option and by --set")
    if twice := sorted(of_method.keys() & inline.keys()):
        raise UserError(f"{twice[0]} is given twice: after {name}: and by --set")
    spec = make_spec(method=name, options={**of_method, **inline}, **typed, **_none_where_said(of_run))
    check_division(spec)
    if not points:
        return spec
    asked = {field: getattr(spec, field) for field in spec.model_fields_set}  # what is not, a method may fill in
    return make_spec(**{**asked, "evaluate_at": parse_points(points, spec.epochs)})


def check_division(spec: Spec) -> None:
    """Refuses a setting of the division that was given and would do nothing."""
    from fedshot.partition import unread

    by = "a partition file, which says who holds what" if spec.partition_file else f"recipe {spec.recipe}"
    for name in unread(spec.recipe, spec.partition_file):
        if name in spec.model_fields_set:
            raise UserError(f"{name} does nothing with {by}: leave it out")


def _check_keys(of_method: dict[str, str], name: str) -> None:
    """A key that is neither a setting of the run nor an option of the method may be a misspelt one of either."""
    from fedshot.methods import factory_of
    from fedshot.options import options_of

    options = options_of(factory_of(name)) if of_method else {}
    for key in of_method:
        if not any(full == key or full.endswith(f".{key}") for full in options):
            of_run = Spec.model_fields.keys() - _NOT_BY_SET.keys()
            raise unknown(f"setting for {name}", key, [*of_run, *options])


def _none_where_said(settings: dict[str, str]) -> dict[str, str | None]:
    return {key: None if value.lower() == "none" else value for key, value in settings.items()}


def device_of(asked: str) -> str:
    """The device or devices that were asked for, if this machine has them."""
    import torch

    found = [f"cuda:{number}" for number in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    if asked in ("auto", "cuda") and found:
        return "cuda"
    if asked == "auto":
        return "cpu"
    names = asked.split(",")
    if not (set(names) <= set(found) or set(names) == {"cpu"}):
        has = f"the GPUs {', '.join(found)}" if found else "no GPU that torch can use"
        raise UserError(f"--device {asked} is not here: this machine has {has}; write auto, cpu, cuda, cuda:0,cuda:1 …")
    return asked

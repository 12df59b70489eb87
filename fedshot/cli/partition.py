"""`fedshot partition`: who would hold what."""

import json as json_module
from pathlib import Path
from typing import Annotated

import typer

from fedshot.cli import settings as s
from fedshot.errors import UserError


def partition(
    data: s.DataOption = None,
    clients: s.ClientsOption = None,
    alpha: s.AlphaOption = None,
    recipe: s.RecipeOption = None,
    classes_per_client: s.ClassesOption = None,
    partition_file: s.PartitionFileOption = None,
    public: s.PublicOption = None,
    seed: s.SeedOption = None,
    data_root: s.RootOption = None,
    save: Annotated[Path | None, typer.Option("--save", help="write the index lists to a .json or .npz file")] = None,
    export: Annotated[
        Path | None, typer.Option("--export", help="write the images of each client to share-K.npz in this folder")
    ] = None,
    image: Annotated[Path | None, typer.Option("--image", help="write a picture: .png, .svg or .pdf")] = None,
    json: s.JsonOption = False,
) -> None:
    """Show how a recipe divides a data set over the clients, without training anything.

    Recipes: `dirichlet` (per class, disjoint), `niid-bench` (with a minimum size), `equal-size`, `client-prior`,
    `released` (FAFI's published one: clients overlap), `iid`, `shards` (--classes-per-client), `natural` (by a group
    column).

    **Examples**

    - `fedshot partition --data cifar10 --alpha 0.05 --seed 1`

    - `fedshot partition --recipe shards --classes-per-client 2 --clients 10 --image map.png`

    - `fedshot partition --clients 3 --export shares` the private data of three clients, to rehearse a federation
    """
    typed = {
        "data": data,
        "clients": clients,
        "alpha": alpha,
        "recipe": recipe,
        "classes_per_client": classes_per_client,
        "partition_file": partition_file,
        "public": public,
        "seed": seed,
    }
    from fedshot.holding import held_by_clients, load_data
    from fedshot.partition.own import OWN
    from fedshot.spec import make_spec

    spec = make_spec(method="fafi", **{key: value for key, value in typed.items() if value is not None})
    s.check_division(spec)
    for path, endings in ((image, (".png", ".svg", ".pdf")), (save, (".json", ".npz"))):
        if path and path.suffix not in endings:
            raise UserError(f"{path}: end the name in {', '.join(endings[:-1])} or {endings[-1]}")
    if spec.recipe == OWN and not spec.partition_file:
        raise UserError(f"recipe {OWN}: the clients hold data of their own, and nothing is divided: choose a recipe")
    dataset = load_data(spec, data_root)
    found = held_by_clients(spec, dataset, data_root)
    if save:
        found.save(save)
    if export:
        from fedshot.federation.share import write_shares

        write_shares(dataset, found, export)
    if image:
        from fedshot.partition.picture import as_figure

        image.parent.mkdir(parents=True, exist_ok=True)
        as_figure(found, dataset.class_names).savefig(image, bbox_inches="tight", dpi=150)
    if json:
        typer.echo(json_module.dumps(found.summary(), indent=1))
        return
    from rich.console import Console

    from fedshot.partition.picture import as_text

    console = Console()
    console.print(as_text(found, console.width))
    console.print(f"fingerprint {found.fingerprint}", style="dim")

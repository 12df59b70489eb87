"""A study as a value: which methods, data, settings and seeds are combined, and the cells that come of it."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictInt,
    StrictStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from fedshot.errors import UserError, unknown
from fedshot.options import parse_integers
from fedshot.spec import Spec, make_spec

OPTION = "option."  # before the name of a method's option, wherever options stand beside settings of the run
_APART = ("method", "options", "files", "seed")  # fields of Spec that a study writes in another way
SETTINGS = tuple(name for name in Spec.model_fields if name not in _APART)
_OWN = ("name", "methods", "seeds", "settings", "options", "include", "exclude", "against")


@dataclass(frozen=True)
class Cell:
    """One run of a study: its place on every axis, and what is asked there."""

    at: Mapping[str, Any]  # method as typed, seed, and every setting and option that the study names
    asked: Spec | None = None  # if a recipe gave it

    def spec(self) -> Spec:
        """The spec, not yet complete, or one clear sentence about what is wrong with it."""
        from fedshot.methods import parse_reference

        if self.asked is not None:
            return self.asked
        name, inline = parse_reference(self.at["method"])
        given = {key.removeprefix(OPTION): value for key, value in self.at.items() if key.startswith(OPTION)}
        if twice := sorted(given.keys() & inline.keys()):
            raise UserError(f"{twice[0]} is given twice: after {name}: and among the options")
        settings = {key: value for key, value in self.at.items() if key in SETTINGS}
        return make_spec(method=name, options={**given, **inline}, seed=self.at["seed"], **settings)


class Study(BaseModel):
    """A grid: every combination of methods, settings, options and seeds, less `exclude`, plus `include`.

    A setting is a field of Spec. In a file it stands at the top, as one value or as a list of values:

    >>> study = Study.model_validate({"methods": ["fafi", "etf"], "alpha": [0.05, 0.5], "epochs": 2, "seeds": [1, 2, 3],
    ...                               "exclude": [{"method": "fafi", "alpha": 0.5}]})
    >>> len(study.cells()), study.axes
    (9, ('method', 'alpha', 'seed'))
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str = Field("study", pattern=r"^[\w.-]+$", description="of the file that keeps the definition")
    methods: tuple[StrictStr, ...] = Field(min_length=1, description="names, aliases, `etf:weight=0` or FILE.py")
    seeds: tuple[Annotated[StrictInt, Field(ge=0)], ...] = Field((1, 2, 3), min_length=1)
    settings: dict[str, tuple[Any, ...]] = Field(default_factory=dict, description="fields of Spec")
    options: dict[str, tuple[Any, ...]] = Field(default_factory=dict, description="of the methods in `methods`")
    exclude: tuple[dict[str, tuple[Any, ...]], ...] = Field((), description="combinations to leave out")
    include: tuple[dict[str, tuple[Any, ...]], ...] = Field((), description="grids to add")
    against: StrictStr | None = Field(None, description="a method: the table at the end gives differences to it")

    @model_validator(mode="before")
    @classmethod
    def _settings_at_the_top(cls, given: Any) -> Any:
        """Fields of Spec beside `methods` become settings; a key that is nothing gets its nearest neighbour."""
        if not isinstance(given, Mapping):
            raise ValueError("a study is a mapping: methods: [fafi, etf]")
        for key in given:
            if key not in SETTINGS and key not in _OWN:
                raise ValueError(str(unknown("key of a study", str(key), [*SETTINGS, *_OWN])))
        lifted = {key: given[key] for key in given if key in SETTINGS}
        inner = given.get("settings") or {}
        if isinstance(inner, Mapping) and (twice := lifted.keys() & inner.keys()):
            raise ValueError(f"{min(twice)} is given twice: at the top and in settings")
        rest = {key: value for key, value in given.items() if key in _OWN}
        return {**rest, "settings": {**inner, **lifted}} if isinstance(inner, Mapping) else given

    @model_validator(mode="after")
    def _compared_with_one_of_its_methods(self) -> "Study":
        if self.against is not None and self.against not in self.methods:
            raise ValueError(f"against: {self.against} is none of the methods: {', '.join(self.methods)}")
        return self

    @field_validator("methods", "seeds", mode="before")
    @classmethod
    def _one_is_a_list_of_one(cls, given: Any, about: ValidationInfo) -> Any:
        if about.field_name == "seeds" and isinstance(given, str):
            return tuple(parse_integers(given, "seeds"))
        return tuple(_values("", given)) if isinstance(given, str | int | list | tuple) else given

    @field_validator("settings", "options", mode="before")
    @classmethod
    def _values_of_axes(cls, given: Any) -> Any:
        return {key: _values(str(key), value) for key, value in given.items()} if isinstance(given, Mapping) else given

    @field_validator("exclude", "include", mode="before")
    @classmethod
    def _combinations(cls, given: Any) -> Any:
        if not isinstance(given, list | tuple) or not all(isinstance(entry, Mapping) and entry for entry in given):
            raise ValueError("it should be a list of combinations: [{method: fafi, alpha: 0.5}]")
        return [{key: _values(str(key), value) for key, value in entry.items()} for entry in given]

    @model_validator(mode="after")
    def _names_exist(self) -> "Study":
        for key in self.settings:
            if key not in SETTINGS:
                raise ValueError(str(unknown("setting", key, SETTINGS)))
        axes = set(self._grid())
        for what, entries, allowed in (
            ("exclude", self.exclude, axes | {key for entry in self.include for key in entry}),
            ("include", self.include, {*SETTINGS, "method", "seed"}),
        ):
            for number, entry in enumerate(entries):
                for key in entry:
                    if key not in allowed and not (what == "include" and key.startswith(OPTION)):
                        raise ValueError(f"{what}[{number}]: {unknown('axis', key, allowed)}")
        places = self._places()
        for number, entry in enumerate(self.exclude):
            if not any(_matches(place, entry) for place in places):
                raise ValueError(f"exclude[{number}] leaves nothing out: no run has {_in_words(entry)}")
        _check_distinct([cell.at for cell in self.cells()])
        return self

    @property
    def axes(self) -> tuple[str, ...]:
        """What takes several values in the study."""
        return varying([cell.at for cell in self.cells()])

    def cells(self) -> list[Cell]:
        """Every run, in the order of the file: methods change slowest, seeds fastest."""
        places = self._places()
        kept = [place for place in places if not any(_matches(place, entry) for entry in self.exclude)]
        return [Cell(place) for number, place in enumerate(kept) if place not in kept[:number]]

    def _places(self) -> list[dict[str, Any]]:
        """All combinations, before any is left out."""
        grid = self._grid()
        plain = {axis: values for axis, values in grid.items() if not axis.startswith(OPTION)}
        # a grid that is added names the options of its own methods; those of the study belong to others
        return [*_product(grid), *(place for entry in self.include for place in _product({**plain, **entry}))]

    def _grid(self) -> dict[str, tuple[Any, ...]]:
        options = {f"{OPTION}{key}": values for key, values in self.options.items()}
        return {"method": self.methods, **self.settings, **options, "seed": self.seeds}


def cells_of(specs: Iterable[Spec]) -> list[Cell]:
    """The cells of a plain list of specs: methods with the options that were given, and every setting by its name."""
    cells = []
    for spec in specs:
        options = ",".join(f"{key}={value}" for key, value in spec.options.items())
        method = f"{spec.method}:{options}" if options else spec.method
        settings = {name: getattr(spec, name) for name in SETTINGS}
        cells.append(Cell({"method": method, **settings, "seed": spec.seed}, spec))
    return cells


def varying(places: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Names under which the places do not all have the same value.

    >>> varying([{"method": "etf", "seed": 1}, {"method": "etf", "seed": 2}])
    ('seed',)
    """
    names = dict.fromkeys(name for place in places for name in place)
    return tuple(name for name in names if len({repr(place.get(name)) for place in places}) > 1)


def _check_distinct(places: Sequence[Mapping[str, Any]]) -> None:
    """Refuses runs that differ only in what their division does not read: they would be one run under two names."""
    from fedshot.partition import unread

    seen: dict[str, Mapping[str, Any]] = {}
    for place in places:
        recipe, file = str(place.get("recipe", Spec.model_fields["recipe"].default)), place.get("partition_file")
        ignored = unread(recipe, str(file) if file else None)
        key = repr(sorted((name, value) for name, value in place.items() if name not in ignored))
        other = seen.setdefault(key, place)
        if other is not place:
            by = "a partition file" if file else f"recipe {recipe}"
            pairs = {name: [_or_usual(name, at.get(name)) for at in (other, place)] for name in ignored}
            told = [f"{name} = {one} and {two}" for name, (one, two) in pairs.items() if one != two]
            raise ValueError(
                f"{told[0] if told else 'two runs'} would be the same run, since {by} does not read "
                f"{'it' if told else ' and '.join(ignored)}: leave one out, with exclude where other runs need both"
            )


def _or_usual(name: str, value: Any) -> Any:
    return Spec.model_fields[name].default if value is None else value


def _product(grid: Mapping[str, tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def _matches(place: Mapping[str, Any], entry: Mapping[str, tuple[Any, ...]]) -> bool:
    return all(axis in place and place[axis] in values for axis, values in entry.items())


def _in_words(entry: Mapping[str, tuple[Any, ...]]) -> str:
    return ", ".join(f"{axis} = {' or '.join(map(str, values))}" for axis, values in entry.items())


def _values(name: str, given: Any) -> tuple[Any, ...]:
    """What an axis takes: the elements of a list, or one value. Evaluation points are a list themselves."""
    if isinstance(given, Mapping):
        raise ValueError(f"{name}: it should be a value or a list of values, not {given!r}")
    if not isinstance(given, list | tuple):
        return (given,)
    if name == "evaluate_at" and not any(isinstance(part, list | tuple) for part in given):
        return (tuple(given),)
    if not given:
        raise ValueError(f"{name}: an empty list leaves no run" if name else "an empty list leaves no run")
    return tuple(tuple(part) if isinstance(part, list) else part for part in given)

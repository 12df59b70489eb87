"""The server's side of the flow: uploads are opened, checked, fused and scored. It never sees a client's data."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from fedshot.admission import size_limit, validate
from fedshot.errors import UploadRefused, UserError
from fedshot.evaluate import Metrics, evaluate
from fedshot.fusion import Fusion, Member, Predictor, without_training
from fedshot.fusion.memory import KEPT_BYTES, Budget
from fedshot.models import Classifier
from fedshot.models.copies import copy_of, frozen_copy
from fedshot.own_rule import check_sections, rule_of
from fedshot.privacy.counts import check_counts, check_told, lost, sections_told, told_spec
from fedshot.seeds import stream
from fedshot.setting import Setting
from fedshot.store import RunFolder
from fedshot.student import student_of
from fedshot.upload import Upload, parse

_MOST_OWN = 10**6  # images that a client with data of its own may hold
REFUSED = "upload refused"  # how the reason begins why a client is missing whose upload came and was bad


@dataclass(frozen=True)
class Received:
    """The uploads that can be fused, and why the others cannot, by client."""

    members: tuple[Member, ...]
    missing: Mapping[int, str]


@dataclass(frozen=True)
class Fused:
    """A fusion rule on the test images."""

    metrics: Metrics
    models_kept: int


def receive(
    setting: Setting,
    folder: RunFolder,
    needs: Sequence[str],
    epoch: int | None = None,
    absent: Mapping[int, str] = MappingProxyType({}),
) -> Received:
    """Checks every client's upload, or its snapshot after an epoch. A bad one is refused; the others go on.

    Args:
        absent: why nothing came of a client that has not finished.
    """
    members: list[Member] = []
    missing: dict[int, str] = {}
    reception = Reception(setting, needs)
    for number in range(setting.spec.clients):
        summary = folder.finished(number)
        if summary is None or summary.skipped:
            missing[number] = summary.skipped or "" if summary else absent.get(number, "has not finished")
            continue
        try:
            members.append(reception.admit(folder.upload(number, epoch), number))
        except UploadRefused as reason:
            missing[number] = f"{REFUSED}: {reason}"
        except FileNotFoundError:
            missing[number] = "its upload is not there"
    if not members:
        reasons = "; ".join(f"client {number}: {reason}" for number, reason in missing.items())
        raise UserError(f"there is nothing to fuse: {reasons}")
    return Received(tuple(members), missing)


class Reception:
    """Checks uploads against a job. They stay in their files; models are kept as long as the memory budget lasts."""

    def __init__(self, setting: Setting, needs: Sequence[str]) -> None:
        self._setting, self._needs = setting, needs
        self._blank = frozen_copy(setting.initial_model)
        self._expected = {name: t.to("meta") for name, t in self._blank.state_dict().items()}
        images = _MOST_OWN if setting.own else len(setting.data.train)
        told = sections_told(setting.method.statistics, setting.spec)
        self._known = {name: setting.method.statistics[name] for name in told}
        self._limit = size_limit(self._expected, setting.sizes, images, setting.method.statistics)
        noise = torch.randn(2, *setting.task.shape, generator=stream(setting.task.seed, "probe"))
        self._noise = noise.to(setting.device)
        self._budget = Budget(KEPT_BYTES[setting.device.type])

    def admit(self, file: Path, number: int) -> Member:
        """The client of that number as a member, or UploadRefused; everything is checked before anything is loaded."""
        self.check_size(file.stat().st_size)  # too large to read at all
        message = file.read_bytes()
        upload, classes = parse(message, self._limit), self._setting.task.classes
        if upload.header.client != number:
            raise UploadRefused(f"it says that it comes from client {upload.header.client}, not {number}")
        if len(upload.header.class_counts) != classes:
            raise UploadRefused(f"{len(upload.header.class_counts)} class counts for {classes} classes")
        check_told(upload.header.counts, self._setting.spec)
        validate(upload, self._expected, self._setting.sizes, self._needs, self._known)
        model, stored = self._load(upload), upload.stored(file, message)
        if not self._answers(model):
            raise UploadRefused("its model answers with values that are not finite")
        size = sum(t.nbytes for t in model.state_dict().values())
        return Member(stored, self._budget.keep(model, size, partial(self._load, stored)))

    def check_size(self, size: int) -> None:
        """Refuses more bytes than an upload of the job can have."""
        if size > self._limit:
            raise UploadRefused(f"{size:,} bytes exceed the limit of {self._limit:,}")

    def _load(self, upload: Upload) -> Classifier:
        model = copy_of(self._blank)
        model.load_state_dict(upload.section("weights"))
        return model

    @torch.no_grad()
    def _answers(self, model: Classifier) -> bool:
        """Whether finite weights give finite features and logits, on two images of noise."""
        features = model.features(self._noise)
        return bool(features.isfinite().all() and model.logits(features).isfinite().all())


def fuse_and_score(setting: Setting, members: Sequence[Member], rules: Mapping[str, Fusion]) -> dict[str, Fused]:
    """Every rule on the same members; the members are asked once for each test image, whatever the number of rules."""
    return score_all(setting, {name: rule.fuse(members, setting.task) for name, rule in rules.items()})


def score_all(setting: Setting, predictors: Mapping[str, Predictor]) -> dict[str, Fused]:
    """Predictors on the test images."""
    found = evaluate(predictors, setting.data.test, setting.task)
    return {name: Fused(found[name], len(predictors[name].models)) for name in predictors}


def sent(upload: Upload, rule: Fusion) -> Upload:
    """The part of an upload that a rule needs: what travels, and what is counted."""
    return upload.only(rule.needs)


def fuse_again(
    setting: Setting, folder: RunFolder, asked: Sequence[str] = (), without: Collection[int] = ()
) -> list[dict[str, Any]]:
    """Other rules on the uploads of a finished run, without training: one row for each rule, the best first.

    A row has the metrics, the bytes that the rule needs, and who was left out and why; or it says under `error` why the
    rule cannot be used. Without `asked`, all rules that train nothing, in their default form; that of the method itself
    in the form that the method made.
    """
    rules = {text: rule_of(setting.method, text) for text in asked or without_training()}
    if strangers := sorted(set(without) - set(range(setting.spec.clients))):
        raise UserError(f"there is no client {strangers[0]}: the clients are 0 to {setting.spec.clients - 1}")
    received = receive(setting, folder, ("weights",))
    members = [m for m in received.members if m.upload.header.client not in without]
    if not members:
        raise UserError("no client is left to fuse")
    predictors, errors = usable(rules, members, setting)
    teachers = {f"teacher of {text}": p.teacher for text, p in predictors.items() if p.teacher is not None}
    scores = _scores(setting, {**predictors, **teachers}, errors)
    left_out = {**received.missing, **dict.fromkeys(without, "left out on request")}
    rows: list[dict[str, Any]] = [
        {
            "fusion": text,
            **scores[text].metrics.model_dump(mode="json"),
            "upload_bytes": sum(sent(m.upload, rules[text]).size for m in members),
            "models_kept": scores[text].models_kept,
            "inductive": rules[text].inductive,
            "images": scores[text].metrics.images,
            "clients": [m.upload.header.client for m in members],
            "left_out": {str(number): left_out[number] for number in sorted(left_out)},
            **_lost(setting, members, text, rules[text]),
            **_student(setting, predictor, scores[text], scores.get(f"teacher of {text}")),
        }
        for text, predictor in predictors.items()
        if text in scores
    ]
    rows.sort(key=lambda row: -row["accuracy"])
    return rows + [{"fusion": text, "error": errors[text]} for text in rules if text in errors]


def _scores(setting: Setting, predictors: Mapping[str, Predictor], errors: dict[str, str]) -> dict[str, Fused]:
    """All predictors together; if one fails at the test images, each alone, and the reason joins the errors."""
    try:
        return score_all(setting, predictors)
    except UserError:
        scores: dict[str, Fused] = {}
    for name, predictor in predictors.items():
        try:
            scores |= score_all(setting, {name: predictor})
        except UserError as error:
            errors[name] = str(error)
    return scores


def _lost(setting: Setting, members: Sequence[Member], text: str, rule: Fusion) -> dict[str, Any]:
    """What a rule loses by class counts that are not exact, for a row; nothing where it loses nothing."""
    spec = told_spec(members, setting.spec, text)
    words = lost(spec, rule, spec.counts)
    return {"lost": words} if words else {}


def _student(setting: Setting, predictor: Predictor, found: Fused, taught: Fused | None) -> dict[str, Any]:
    """What a predictor keeps of its teacher, for a row; nothing where it has none."""
    accuracy = taught.metrics.accuracy if taught else None
    student = student_of(predictor, found.metrics.accuracy, accuracy, setting.data.test, setting.task)
    return {"student": student.model_dump()} if student else {}


def usable(
    rules: Mapping[str, Fusion], members: Sequence[Member], setting: Setting
) -> tuple[dict[str, Predictor], dict[str, str]]:
    """The rules as predictors, and for those that these members do not allow, why not."""
    predictors: dict[str, Predictor] = {}
    errors: dict[str, str] = {}
    for text, rule in rules.items():
        try:
            check_sections(rule, setting.method)
            check_counts(told_spec(members, setting.spec, text), rule)
            if reason := lacking_section(members, rule):
                raise UserError(reason)
            predictors[text] = rule.fuse(members, setting.task)
        except UserError as error:
            errors[text] = str(error)
    return predictors, errors


def lacking_section(members: Sequence[Member], rule: Fusion) -> str | None:
    """Which section of the uploads a rule misses, if so."""
    for section in rule.needs:
        lacking = [m.upload.header.client for m in members if section not in m.upload.sections]
        if not lacking:
            continue
        if len(lacking) < len(members):
            numbers = ",".join(map(str, lacking))
            who = "client" if len(lacking) == 1 else "clients"
            return f"{who} {numbers} sent no {section}: fuse the others by --without {numbers}"
        hint = ": train with --validation 0.1" if section.endswith("familiarity") else ""
        return f"the uploads carry no {section}{hint}"
    return None

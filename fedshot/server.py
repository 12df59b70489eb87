"""The server's side of the flow: uploads are opened, checked, fused and scored. It never sees a client's data."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedshot.errors import UploadRefused, UserError
from fedshot.evaluate import Metrics, evaluate
from fedshot.fusion import FUSIONS, Fusion, Member, make_fusion
from fedshot.setting import Setting
from fedshot.store import RunFolder
from fedshot.upload import Upload, parse, validate


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


def receive(setting: Setting, folder: RunFolder, needs: Sequence[str], epoch: int | None = None) -> Received:
    """Opens every client's upload, or its snapshot after an epoch. A bad one is refused; the others go on."""
    members: list[Member] = []
    missing: dict[int, str] = {}
    for number in range(setting.spec.clients):
        summary = folder.finished(number)
        if summary is None or summary.skipped:
            missing[number] = summary.skipped or "" if summary else "has not finished"
            continue
        try:
            members.append(open_upload(setting, folder.upload(number, epoch).read_bytes(), number, needs))
        except (UploadRefused, FileNotFoundError) as reason:
            missing[number] = f"upload refused: {reason}"
    if not members:
        reasons = "; ".join(f"client {number}: {reason}" for number, reason in missing.items())
        raise UserError(f"there is nothing to fuse: {reasons}")
    return Received(tuple(members), missing)


def open_upload(setting: Setting, message: bytes, number: int, needs: Sequence[str]) -> Member:
    """A member from the bytes that a client sent, checked against the job before anything is loaded."""
    upload = parse(message)
    model = setting.method.model(setting.task)
    if upload.header.client != number:
        raise UploadRefused(f"it says that it comes from client {upload.header.client}, not {number}")
    if len(upload.header.class_counts) != setting.task.classes:
        raise UploadRefused(f"{len(upload.header.class_counts)} class counts for {setting.task.classes} classes")
    validate(upload, model.state_dict(), model.encoder.width, needs)
    model.load_state_dict(upload.section("weights"))
    return Member(upload, model.to(setting.device).eval().requires_grad_(False))


def fuse_and_score(setting: Setting, members: Sequence[Member], rules: Mapping[str, Fusion]) -> dict[str, Fused]:
    """Every rule on the same members; the members are asked once for each test image, whatever the number of rules."""
    predictors = {name: rule.fuse(members, setting.task) for name, rule in rules.items()}
    found = evaluate(predictors, setting.data.test, setting.task)
    return {name: Fused(found[name], len(predictors[name].models)) for name in rules}


def sent(upload: Upload, rule: Fusion) -> Upload:
    """The part of an upload that a rule needs: what travels, and what is counted."""
    return upload.only(rule.needs)


def fuse_again(
    setting: Setting, folder: RunFolder, asked: Sequence[str] = (), without: Collection[int] = ()
) -> list[dict[str, Any]]:
    """Other rules on the uploads of a finished run, without training: one row for each rule, the best first.

    A row has the metrics and the bytes that the rule needs, or says under `error` why the rule cannot be used. Without
    `asked`, all rules in their default form.
    """
    rules = {text: make_fusion(text) for text in asked or FUSIONS}
    received = receive(setting, folder, ("weights",)).members
    members = [m for m in received if m.upload.header.client not in without]
    if not members:
        raise UserError("no client is left to fuse")
    errors = {text: error for text, rule in rules.items() if (error := obstacle(setting, members, rule))}
    usable = {text: rule for text, rule in rules.items() if text not in errors}
    rows: list[dict[str, Any]] = [
        {
            "fusion": text,
            **fused.metrics.model_dump(mode="json"),
            "upload_bytes": sum(len(sent(m.upload, rules[text]).to_bytes()) for m in members),
            "models_kept": fused.models_kept,
            "inductive": rules[text].inductive,
            "clients": [m.upload.header.client for m in members],
        }
        for text, fused in fuse_and_score(setting, members, usable).items()
    ]
    rows.sort(key=lambda row: -row["accuracy"])
    return rows + [{"fusion": text, "error": error} for text, error in errors.items()]


def obstacle(setting: Setting, members: Sequence[Member], rule: Fusion) -> str | None:
    """Why these members cannot be fused by a rule, if so."""
    lacking = {section for section in rule.needs for m in members if section not in m.upload.sections}
    if lacking:
        hint = ": train with --validation 0.1" if "familiarity" in lacking else ""
        return f"the uploads carry no {', '.join(sorted(lacking))}{hint}"
    try:
        rule.fuse(members, setting.task)
    except UserError as error:
        return str(error)
    return None

"""Another fusion rule on the uploads of a finished run, as a run of its own: spec, record, and the same clients."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedshot.data.public import NONE_SET_ASIDE
from fedshot.errors import UserError
from fedshot.experiment import finish_run, make_folder
from fedshot.local.work import one_thread
from fedshot.own_rule import settled
from fedshot.prepare import prepare
from fedshot.record import Record, read_record
from fedshot.screen import Mode
from fedshot.server import lacking_section, receive
from fedshot.setting import Setting
from fedshot.sharing import Sharer, family_of, of_clients, with_public
from fedshot.store import RunFolder, read_spec


def keep_rule(
    run: RunFolder,
    rule: str,
    out: Path,
    data_root: Path | None = None,
    device: str = "cpu",
    public: str | None = None,
) -> Record:
    """The record of a rule on the clients of a run that has ended; `out` becomes the folder of a run of that rule.

    It is the record that a run with this rule would have given. Snapshots are gone when a run has ended, so that the
    new one has its last evaluation point alone. A folder that holds this run already is left as it is.

    Args:
        public: another data set, for a rule that asks for public images where the run has none.
    """
    known = read_record(run.record)
    if known is None:
        raise UserError(f"{run.path} has no record: end that run first, by its own command")
    setting, target = _with_rule(run, rule, data_root, device, public), RunFolder(out)
    target.check(setting.spec)
    if earlier := read_record(target.record):
        return earlier
    with one_thread(setting.device), _whole_or_nothing(out):
        _check_sent(setting, run)
        make_folder(setting, target, resume=True)
        sharer = Sharer.of(setting, target)
        finished = [number for number in range(setting.spec.clients) if run.finished(number)]
        for number in finished:
            sharer.take(number, run)
        absent = {client.id: client.skipped or "" for client in known.clients if client.id not in finished}
        return finish_run(setting, target, absent, _screen_of(known))


@contextmanager
def _whole_or_nothing(folder: Path) -> Iterator[None]:
    """Leaves no folder behind for a rule that turns out to be impossible."""
    was_there = folder.exists()
    try:
        yield
    except BaseException:
        if not was_there:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _with_rule(run: RunFolder, rule: str, data_root: Path | None, device: str, public: str | None) -> Setting:
    """The setting of the same clients with another rule."""
    spec = read_spec(run.spec)
    asked = of_clients(spec).model_copy(update={"fusion": rule, "evaluate_at": (spec.epochs,)})
    asked = settled(asked, replacing=True)
    setting = prepare(asked, data_root, device, run.pretrained)
    if setting.fusion.public and public is not None:  # of another rule it would only make another run
        asked = with_public(asked, public)
        setting = prepare(asked, data_root, device, run.pretrained)
    if family_of(setting.spec) != family_of(asked):  # public images that the rule asks for would be taken from clients
        raise UserError(f"fusion {rule} needs public images, {NONE_SET_ASIDE}")
    setting.fusion.check(setting.initial_model)
    return setting


def _check_sent(setting: Setting, run: RunFolder) -> None:
    """Refuses a rule that reads what no client has sent. A client that alone lacks it is refused, as in any run."""
    members = receive(setting, run, ("weights",)).members
    lacking = [member for member in members if lacking_section([member], setting.fusion)]
    if len(lacking) == len(members) and (reason := lacking_section(members, setting.fusion)):
        raise UserError(reason)


def _screen_of(record: Record) -> Mode:
    """How the uploads of a run were screened."""
    if record.screening is None:
        return "off"
    suspects = record.screening.suspects
    return "exclude" if any(client.skipped for client in record.clients if client.id in suspects) else "report"

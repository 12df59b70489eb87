import json
import math
import re
import shlex
from html.parser import HTMLParser
from importlib.resources import files

import pytest

from fedshot.cli.settings import build_spec
from fedshot.errors import UserError
from fedshot.explain import Finding
from fedshot.explain.commands import again
from fedshot.report import write_page
from fedshot.report.comparison import comparison
from fedshot.report.gather import TaskRuns
from fedshot.report.page import lead, write_report
from fedshot.report.reproduce import python_lines, shell_line
from fedshot.report.style import COLOURS
from fedshot.spec import make_spec

VOID = {"meta", "path", "use", "rect", "image", "br", "link"}


class Structure(HTMLParser):
    """Collects tags, and fails when one is closed that is not open."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag


def parsed(path):
    page = Structure()
    page.feed(path.read_text())
    assert page.open == []
    return page


def data_in(path):
    """The numbers that the page draws."""
    return json.loads(re.search(r'id="data">(.*?)</script>', path.read_text(), re.S)[1])


@pytest.fixture
def folders(runs, tmp_path):
    """Run folders, where only the second method has an alignment weight."""
    made = {}
    for label, records in runs.items():
        made[label] = [tmp_path / label / str(record.spec.seed) for record in records]
        for folder in made[label]:
            folder.mkdir(parents=True)
            weight = 0.0 if label == "fafi" else 3.5
            rows = [
                {"client": k, "epoch": e, "lambda_raw": weight, "lambda_effective": weight, "lambda_equilibrium": None}
                for k in (0, 1)
                for e in (1, 2)
            ]
            (folder / "telemetry.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return made


def test_the_page_holds_table_figures_specs_and_command(runs, folders, tmp_path):
    path = write_page(runs, folders, tmp_path / "new" / "report.html", command="fedshot compare fafi V14 --epochs 2")
    text = path.read_text()
    assert "70.0 ± 10.0" in text and "+2.0 [−0.5, +4.5]" in text
    assert "fedshot compare fafi V14 --epochs 2" in text
    assert "V14: weight of the alignment loss" in text
    assert "fafi: weight of the alignment loss" not in text
    assert text.count("Full spec of seed") == 6
    assert "client 0 · 35 · 1.00 bit" in text
    assert "fedshot compare aurora --seeds 1,2,3 --clients 2" in text
    assert [file.name for file in path.parent.iterdir()] == ["report.html"], "no part file stays behind"
    page = parsed(path)
    assert sum(tag == "svg" for tag, _ in page.seen) == 5, (
        "dots, curves, classes, partition and a weight without script"
    )
    drawn = [attrs["data-draw"] for tag, attrs in page.seen if tag == "figure" and "data-draw" in attrs]
    assert drawn == [
        *("dots", "curves", "classes", "partition", "lambda", "losses"),
        *("cosines", "plane", "alone", "confusion", "further"),
    ]


def test_the_page_needs_no_network(runs, folders, tmp_path):
    text = write_page(runs, folders, tmp_path / "report.html").read_text()
    without_names = re.sub(r'xmlns(:\w+)?="[^"]*"', "", text)
    assert "http:" not in without_names and "https:" not in without_names
    assert "default-src 'none'" in text
    assert "@import" not in text and "<link" not in text
    assert all("src" not in attrs for _, attrs in parsed(tmp_path / "report.html").seen)


def test_the_page_is_accessible(runs, folders, tmp_path):
    page = parsed(write_page(runs, folders, tmp_path / "report.html"))
    assert all(attrs.get("scope") in ("col", "row") for tag, attrs in page.seen if tag == "th")
    assert all(attrs.get("aria-label") and attrs["role"] == "img" for tag, attrs in page.seen if tag == "svg")
    names = [attrs["id"] for _, attrs in page.seen if "id" in attrs]
    assert len(names) == len({*names}), "identifiers of the figures must not meet"
    used = {attrs["xlink:href"][1:] for tag, attrs in page.seen if tag == "use"}
    assert used <= {*names}


def test_equal_runs_give_equal_pages(runs, folders, tmp_path):
    first = write_page(runs, folders, tmp_path / "1.html").read_bytes()
    assert write_page(runs, folders, tmp_path / "2.html").read_bytes() == first


def test_fifty_runs_stay_under_a_megabyte_and_the_page_can_say_what_was_thinned(make_record, tmp_path):
    wide = [[k + c for c in range(100)] for k in range(20)]
    alone = {"per_class_alone": tuple(n / 100 for n in range(100))}
    names = [f"loss_{letter}" for letter in "abcdef"] + ["lambda_raw", "lambda_effective", "attenuation", "grad_norm"]
    rows = [
        {"client": k, "epoch": e, **{name: math.exp(e / 7 + n + k) for n, name in enumerate(names)}}
        for k in range(20)
        for e in range(1, 51)
    ]
    (tmp_path / "telemetry.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    runs = {}
    for number in range(10):
        records = [make_record(f"method_{number}", seed, class_counts=wide) for seed in range(1, 6)]
        runs[f"method_{number}"] = [
            r.model_copy(update={"clients": tuple(c.model_copy(update=alone) for c in r.clients)}) for r in records
        ]
    path = write_page(runs, {label: [tmp_path] * 5 for label in runs}, tmp_path / "report.html")
    assert path.stat().st_size < 1_000_000
    told = data_in(path)
    assert len(told["runs"]) == 50 and len(told["partitions"]) == 5
    telemetry = told["runs"][-1]["telemetry"]
    assert telemetry["of"] == [20, 50]
    assert len(telemetry["clients"]) < 20
    assert 8 <= len(telemetry["epochs"][0]) < 50
    assert telemetry["epochs"][0][0] == 1 and telemetry["epochs"][0][-1] == 50
    assert told["runs"][0]["confusion"] and told["runs"][0]["alone"] and not told["runs"][-1]["confusion"]


def test_one_run_of_one_method_without_telemetry_makes_a_page(make_record, tmp_path):
    record = make_record(curve=(0.5,), skipped={1: "no samples"}, findings=["client 1 held nothing"])
    text = write_page({"fafi": [record]}, {"fafi": [tmp_path / "gone"]}, tmp_path / "report.html").read_text()
    assert "50.0 (1 seed)" in text
    assert "1 of 2 clients skipped" in text
    assert "client 1 held nothing (seed 1)" in text
    assert "<h3>Accuracy over local epochs</h3>" not in text


def test_what_explain_finds_in_a_run_stands_on_the_page(runs, monkeypatch, tmp_path):
    def explain(folder):
        kinds = ("severe", "λ explodes"), ("note", "too small to tell")
        return [Finding(title, severity, f"{title} in {folder.name}", (), "", ()) for severity, title in kinds]

    monkeypatch.setattr("fedshot.explain.explain", explain)
    folders = {label: [tmp_path / f"{label}-{r.spec.seed}" for r in records] for label, records in runs.items()}
    for folder in [folder for each in folders.values() for folder in each]:
        folder.mkdir()
        (folder / "record.json").touch()
    text = write_page(runs, folders, tmp_path / "report.html").read_text()
    seeds = ", ".join(str(r.spec.seed) for r in runs["fafi"])
    assert f"severe: λ explodes in fafi-{runs['fafi'][0].spec.seed} (seed {seeds})" in text
    assert "too small to tell" not in text


def test_what_the_user_typed_is_text_and_never_markup(make_record, tmp_path):
    label = '<script>alert("x")</script>'
    path = write_page({label: [make_record()]}, {}, tmp_path / "report.html", command=label)
    assert sum(tag == "script" for tag, _ in parsed(path).seen) == 3, "errors, data and drawing"
    assert label not in path.read_text()
    assert data_in(path)["tasks"][0]["methods"][0]["label"] == label


def test_a_folder_is_not_a_page(runs, tmp_path):
    with pytest.raises(UserError, match="is a folder"):
        write_page(runs, {}, tmp_path)


def test_a_failure_leaves_the_old_page(runs, tmp_path):
    path = write_page(runs, {}, tmp_path / "report.html")
    before = path.read_bytes()
    with pytest.raises(UserError):
        write_page({}, {}, path)
    assert path.read_bytes() == before


def test_the_lead_claims_no_more_than_the_seeds_give(runs, make_record):
    assert lead(comparison(runs)).endswith("These seeds do not tell the two apart.")
    clear = [make_record("etf", s, (0.5, v)) for s, v in {1: 0.901, 2: 0.70, 3: 0.80}.items()]
    assert lead(comparison({"fafi": runs["fafi"], "etf": clear})).endswith("[+9.9, +10.2].")
    assert "Against" not in lead(comparison({"etf": clear, "fafi": runs["fafi"]}))
    assert (
        lead(comparison({"fafi": [make_record()]})) == "Accuracy on the test images, in percent: fafi, 80.0 (1 seed)."
    )
    assert lead(comparison({"fafi": runs["fafi"], "etf": clear[:1]})).startswith("The methods ran on different seeds")


def test_many_clients_are_counted_and_the_first_of_them_drawn(make_record, tmp_path):
    record = make_record(class_counts=[[1] * 100] * 300)
    (partition,) = data_in(write_page({"fafi": [record]}, {}, tmp_path / "report.html"))["partitions"].values()
    assert len(partition["sizes"]) == 300 and len(partition["counts"]) == 100


def test_differences_to_every_method_are_there_to_choose_from(runs, tmp_path):
    methods = data_in(write_page(runs, {}, tmp_path / "report.html"))["tasks"][0]["methods"]
    assert {m["label"]: m["against"] for m in methods} == {
        "fafi": {"V14": ["−2.0 [−4.5, +0.5]", -2]},
        "V14": {"fafi": ["+2.0 [−0.5, +4.5]", 2]},
    }


def test_several_tasks_have_a_comparison_each(runs, make_record, tmp_path):
    other = TaskRuns({"fafi": [make_record(data="svhn")]})
    named = write_report([TaskRuns(runs), other], ["x/record.json is damaged"], tmp_path / "report.html")
    page = parsed(tmp_path / "report.html")
    assert sum(attrs.get("class") == "comparison sortable" for _, attrs in page.seen) == 2
    text = (tmp_path / "report.html").read_text()
    assert "2 methods on digits, svhn" in text and "Left out: x/record.json is damaged" in text
    assert named == ["x/record.json is damaged"]


def test_telemetry_that_is_damaged_is_named_and_the_rest_is_shown(runs, folders, tmp_path):
    (folders["V14"][0] / "telemetry.jsonl").write_text('{"client": 0, "epoch": 1}\n{"client"')
    named = write_report([TaskRuns(runs, folders)], [], tmp_path / "report.html")
    assert [problem.endswith("is damaged in line 2: its telemetry is left out") for problem in named] == [True]
    assert [bool(run["telemetry"]) for run in data_in(tmp_path / "report.html")["runs"]] == [True] * 3 + [False] + [
        True
    ] * 2


def test_the_shell_line_gives_the_same_spec(make_record):
    spec = {"options": {"alignment.weight": 2.0}, "evaluate_at": (1, 2), "fusion": "logits", "data": "svhn", "lr": 0.1}
    records = [make_record("etf", seed=seed, **spec) for seed in (1, 2)]
    words = shlex.split(shell_line(records))
    assert words[:5] == ["fedshot", "compare", "etf", "--seeds", "1,2"]
    given = dict(zip(words[5::2], words[6::2], strict=True))
    settings = [value for flag, value in zip(words[5::2], words[6::2], strict=True) if flag == "--set"]
    fields = {
        flag[2:].replace("-", "_"): value for flag, value in given.items() if flag not in ("--set", "--evaluate-at")
    }
    built = build_spec("etf", {**fields, "seed": 2}, settings, given["--evaluate-at"])
    assert built.model_copy(update={"options": {"alignment.weight": 2.0}}) == records[1].spec
    assert built.options == {"alignment.weight": "2"}


def test_the_shell_line_has_what_is_read_and_every_option_that_is_not_usual(make_record):
    options = {"count": None, "images": "noise", "temperature": 1.0}
    words = shell_line([make_record("distilled", options=options, recipe="iid", alpha=0.1)])
    assert "--recipe iid" in words and "--alpha" not in words
    assert "--set count=none --set images=noise" in words and "temperature" not in words


def test_runs_of_an_earlier_form_say_so_and_give_a_command_that_runs(make_record):
    records = [make_record("recommended", seed=s, options={"share": 1.5, "shrink": 0.003}) for s in (1, 2)]
    remark, words = shell_line(records).splitlines()
    assert remark == "# these runs are of an earlier form of recommended (shrink=0.003); this runs the present one"
    assert "--set share=1.5" in words and "shrink" not in words
    assert remark in python_lines(records) and "'shrink'" not in python_lines(records)
    assert "shrink" not in again(records[0].spec, {"epochs": 3})


def test_the_python_lines_give_the_same_specs(make_record):
    records = [make_record("etf", seed=s, options={"weight": 2.0}, evaluate_at=(1, 2), fusion="logits") for s in (1, 2)]
    for group in (records, [records[0], make_record("fafi", seed=2)]):
        code = "\n".join(line for line in python_lines(group).splitlines() if not line.startswith("from"))
        made = []

        class Done:
            class final:
                accuracy = 1.0

        scope = {"make_spec": make_spec, "run": lambda spec: made.append(spec) or Done, "print": lambda *_: None}  # noqa: B023
        exec(code, scope)
        assert made == [record.spec for record in group]


def contrast(one, other):
    """WCAG 2.1: (lighter + 0.05) / (darker + 0.05) of relative luminances."""

    def luminance(colour):
        parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
        red, green, blue = (v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_text_stands_out_in_light_and_dark():
    css = files("fedshot.report").joinpath("page.css").read_text(encoding="utf-8")
    themes = [
        dict(re.findall(r"--([\w-]+): (#\w{6})", block)) for block in re.findall(r"color-scheme: .*?}", css, re.S)
    ]
    assert len(themes) == 3 and themes[1] == themes[2], "light, dark by preference, dark by choice"
    for theme in themes:
        grounds = [theme["paper"], theme["card"]]
        for ink in ("ink", "soft", "accent", "warn"):
            assert all(contrast(theme[ink], ground) >= 4.5 for ground in grounds), ink
        assert contrast(theme["warn"], theme["warn-paper"]) >= 4.5
        assert contrast(theme["ink"], theme["code"]) >= 4.5
        assert contrast(theme["soft"], theme["none"]) >= 4.5
        assert all(contrast(line, theme["card"]) >= 3 for line in COLOURS)

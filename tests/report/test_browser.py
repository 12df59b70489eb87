"""The page in a real browser: it draws without an error, obeys its address, and fits a phone."""

import html
import json
import re
import struct
import zlib

import pytest
import torch
from safetensors.torch import save_file

from fedshot.report import write_page

LAMBDAS = ("lambda_raw", "lambda_effective")


@pytest.fixture(scope="module")
def page(tmp_path_factory, make_record):
    """A page with all its figures, of runs that were never trained."""
    root = tmp_path_factory.mktemp("page")
    counts = ((30, 0, 5), (0, 20, 0))
    runs = {"fafi": [], "<V14>": []}
    folders = {"fafi": [], "<V14>": []}
    for label in runs:
        for seed in (1, 2, 3):
            record = make_record(
                label, seed, (0.5, 0.6 + seed / 10, 0.7 if label == "fafi" else 0.8), counts, findings=["a finding"]
            )
            clients = tuple(c.model_copy(update={"per_class_alone": (None, 0.5, 0.25)}) for c in record.clients)
            final = record.final.model_copy(update={"confusion": ((0, 0, 0), (1, 5, 0), (0, 2, 4))})
            runs[label].append(record.model_copy(update={"clients": clients, "final": final}))
            folders[label].append(folder := root / str(len(folders[label])) / str(len(label)))
            for client in ("0", "1"):
                (folder / "clients" / client).mkdir(parents=True)
                prototypes = {"weights/head.prototypes": torch.eye(3, 4) + seed}
                save_file(prototypes, folder / "clients" / client / "upload.safetensors")
            weight = 0.0 if label == "fafi" else 10.0
            weights = {"lambda_equilibrium": None, "attenuation": 1.0, "grad_norm": 0.0}
            rows = [
                {"client": k, "epoch": e, "loss_contrast": 1.0 / e, **weights, **dict.fromkeys(LAMBDAS, weight**e)}
                for k in (0, 1)
                for e in (1, 2, 3)
            ]
            (folder / "telemetry.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return write_page(runs, folders, root / "report.html")


def dom_of(browse, page, fragment=""):
    """The document after its script ran, and the attributes of its root."""
    dom = browse(f"file://{page}{fragment}", "--dump-dom")
    return dom, dict(re.findall(r'data-(\w+)="([^"]*)"', re.search(r"<html[^>]*>", dom)[0]))


def figure(dom, kind):
    return re.search(rf'<figure[^>]*data-draw="{kind}".*?</figure>', dom, re.S)[0]


def test_every_figure_is_drawn_without_an_error(browse, page):
    dom, told = dom_of(browse, page)
    assert "errors" not in told, told
    kinds = ["dots", "curves", "classes", "partition", "losses", "cosines", "plane", "alone", "confusion", "further"]
    for kind in kinds:
        assert "<desc>" in figure(dom, kind), kind
    assert "fafi weighs no alignment loss" in figure(dom, "lambda")
    assert int(told["drawn"]) >= 11
    assert figure(dom, "curves").count('aria-pressed="true"') == 2
    assert "arrow keys read the values" in figure(dom, "curves")


def test_the_address_chooses_run_theme_axis_baseline_and_series(browse, page):
    view = "#dark&log&run=3&baseline=%3CV14%3E&hide=fafi"
    dom, told = dom_of(browse, page, view)
    assert "errors" not in told and told["theme"] == "dark"
    weight = figure(dom, "lambda")
    assert "λ, logarithmic" in weight and "raw λ ends at 1000" in weight
    assert weight.count("<h4>") == 2, "a panel for each client"
    assert 'aria-pressed="false" data-series="fafi"' in figure(dom, "curves") or re.search(
        r'data-series="fafi"[^>]*aria-pressed="false"', figure(dom, "curves")
    )
    assert "fafi ends at" not in figure(dom, "curves") and "V14&gt; ends at" in figure(dom, "curves").replace(
        "&#62;", "&gt;"
    )
    differences = re.findall(r'<td class="difference"[^>]*>([^<]*)<', dom)
    assert differences[1] == "reference" and differences[0] != "reference"


def test_linear_is_linear(browse, page):
    dom, told = dom_of(browse, page, "#linear&run=3")
    assert "errors" not in told and "logarithmic" not in re.sub(r">logarithmic axis<", "", figure(dom, "lambda"))


def pixels_of(png):
    """Width, height and rows of RGB pixels of an 8-bit PNG without interlace."""
    content, place, data = png.read_bytes(), 8, b""
    while place < len(content):
        size, kind = struct.unpack(">I4s", content[place : place + 8])
        if kind == b"IHDR":
            width, height, _, colours = struct.unpack(">IIBB", content[place + 8 : place + 18])
        if kind == b"IDAT":
            data += content[place + 8 : place + 8 + size]
        place += 12 + size
    return width, height, (3 if colours == 2 else 4), zlib.decompress(data)


@pytest.mark.parametrize(("fragment", "dark"), [("#light", False), ("#dark", True)])
def test_a_phone_shows_the_page_in_the_theme_that_was_chosen(browse, page, tmp_path, fragment, dark):
    shot = tmp_path / "shot.png"
    browse(f"file://{page}{fragment}", "--window-size=360,800", f"--screenshot={shot}")
    width, height, channels, data = pixels_of(shot)
    assert (width, height) == (360, 800)
    first = data[1 : 1 + channels]  # the corner, which lies on the paper; the first row is never filtered upwards
    assert (max(first[:3]) < 60) == dark


def test_nothing_sticks_out_of_a_phone(browse, page, tmp_path):
    """The page itself does not scroll sideways; wide tables scroll inside their frames."""
    probe = "<script>root.dataset.wide = root.scrollWidth - innerWidth;</script></body>"
    narrow = tmp_path / "narrow.html"
    narrow.write_text(page.read_text().replace("</body>", probe))
    dom = browse(f"file://{narrow}", "--window-size=360,800", "--dump-dom")
    root = re.search(r"<html[^>]*>", dom)[0]
    assert int(re.search(r'data-wide="(-?\d+)"', root)[1]) <= 0


PROBE = """<script>
const press = selector => document.querySelector(selector).click();
const said = {};
press("#theme"); said.theme = root.dataset.theme;
press('[data-draw=curves] .legend button'); said.hash = location.hash;
said.pressed = document.querySelector('[data-draw=curves] .legend button').getAttribute("aria-pressed");
const first = () => document.querySelector(".comparison tbody th").dataset.value;
press(".comparison thead th:nth-child(2) button"); said.sorted = first();
press(".comparison thead th:nth-child(2) button"); said.again = first();
const map = document.querySelector("[data-draw=partition] .drawing");
map.focus(); map.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" })); said.tip = tip.textContent;
const methods = document.getElementById("method"); methods.value = methods.options[1].value; methods.onchange();
said.weight = document.querySelectorAll("[data-draw=lambda] svg[role=img]").length;
press("[data-draw=lambda] .axis"); said.axis = location.hash;
document.querySelector("[data-draw=alone] details").open = true;
document.body.dataset.said = JSON.stringify(said);
</script></body>"""


def test_buttons_keys_and_selections_work(browse, page, tmp_path):
    probed = tmp_path / "probed.html"
    probed.write_text(page.read_text().replace("</body>", PROBE))
    dom, told = dom_of(browse, probed, "#light")
    assert "errors" not in told, told
    said = json.loads(html.unescape(re.search(r'data-said="([^"]*)"', dom)[1]))
    assert said == {
        "theme": "dark",
        "hash": "#dark&hide=fafi",
        "pressed": "false",
        "sorted": "<V14>",
        "again": "fafi",
        "tip": "client 0 · 35 · 1.00 bit\nclass 0: 30 samples",
        "weight": 2,
        "axis": "#dark&linear&run=3&hide=fafi",
    }
    assert "who is best" in figure(dom, "alone"), "the table is filled when it is opened"

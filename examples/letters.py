"""Letters as different hands draw them, for the recipe `natural`: 62 characters of 200 type families of five kinds.

    npm install --no-save --prefix fonts $(python examples/letters.py packages)
    python examples/letters.py draw fonts --out data/letters --owner kind

The families are those of examples/type-families.csv, free fonts in packages of npm. Every fifth of a kind is a test
family: no client has seen its hand. `--owner kind` gives the recipe five groups, `--owner family` one for each family.
"""

import argparse
import csv
import string
import sys
from pathlib import Path
from typing import Literal, NamedTuple

from PIL import Image, ImageDraw, ImageFont

CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
SIDE, BASELINE, SIZE = 28, 21, 22  # pixels
EVERY = 5  # one family of so many is for testing


class Family(NamedTuple):
    """A line of the list: which kind of hand it is, and where it is to be had."""

    kind: str
    package: str
    version: str

    def font(self, fonts: Path) -> ImageFont.FreeTypeFont:
        """Its upright cut of normal weight."""
        folder = fonts / "node_modules" / "@fontsource" / self.package / "files"
        return ImageFont.truetype(folder / f"{self.package}-latin-400-normal.woff", SIZE)


def families() -> list[Family]:
    """All of the list."""
    with Path(__file__).with_name("type-families.csv").open(encoding="utf-8") as lines:
        return [Family(**row) for row in csv.DictReader(lines)]


def draw(fonts: Path, out: Path, owner: Literal["kind", "family"]) -> None:
    """A folder of pictures as `--data folder:OUT` reads it, with whose each training picture is."""
    seen: dict[str, int] = {}
    rows = [("path", "group")]
    for family in families():
        place = seen[family.kind] = seen.get(family.kind, -1) + 1
        part, font = "test" if place % EVERY == EVERY - 1 else "train", family.font(fonts)
        for character in CHARACTERS:
            path = Path(part, class_name(character), f"{family.package}.png")
            (out / path).parent.mkdir(parents=True, exist_ok=True)
            picture(character, font).save(out / path)
            if part == "train":
                rows.append((path.as_posix(), family.kind if owner == "kind" else family.package))
    with (out / "groups.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


def class_name(character: str) -> str:
    """A folder name that differs from every other where capitals do not count as different.

    >>> class_name("a"), class_name("A"), class_name("7")
    ('a', 'A-capital', '7')
    """
    return f"{character}-capital" if character.isupper() else character


def picture(character: str, font: ImageFont.FreeTypeFont) -> Image.Image:
    """White on black, all on one base line and at one size, so that capitals can be told from small letters."""
    canvas = Image.new("L", (SIDE, SIDE))
    ImageDraw.Draw(canvas).text((SIDE / 2, BASELINE), character, 255, font, anchor="ms")
    return canvas


def main() -> None:
    """What is typed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked = parser.add_subparsers(dest="asked", required=True)
    asked.add_parser("packages", help="print what to install")
    drawing = asked.add_parser("draw", help="draw the characters into a folder of pictures")
    drawing.add_argument("fonts", type=Path, help="where npm has put the packages")
    drawing.add_argument("--out", type=Path, required=True, help="the folder to make")
    drawing.add_argument("--owner", choices=("kind", "family"), default="kind", help="who owns a picture")
    given = parser.parse_args()
    if given.asked == "packages":
        print(*(f"@fontsource/{family.package}@{family.version}" for family in families()))
        return
    try:
        draw(given.fonts, given.out, given.owner)
    except OSError as error:
        sys.exit(f"{error}: install the packages first, see --help")


if __name__ == "__main__":
    main()

"""The handbook's pictures are what the code draws, for light and dark, and each is on a page."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from ops.docs import pictures, site

SVG = "{http://www.w3.org/2000/svg}"


def test_no_picture_is_left_over() -> None:
    assert {path.name for path in pictures.FOLDER.iterdir()} == set(pictures.PICTURES)


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_pictures_are_up_to_date(name: str) -> None:
    """`python -m ops.docs.pictures` draws them."""
    drawn = pictures.PICTURES[name]().drawn()
    assert (pictures.FOLDER / name).read_text(encoding="utf-8") == drawn
    root = ElementTree.fromstring(drawn)
    assert root.find(f"{SVG}title") is not None and root.find(f"{SVG}desc") is not None
    assert "prefers-color-scheme: dark" in drawn
    width, height = map(int, root.attrib["viewBox"].split()[2:])
    for box in root.iter(f"{SVG}rect"):
        right, low = (
            int(box.attrib[start]) + int(box.attrib[size])
            for start, size in (("x", "width"), ("y", "height"))
        )
        assert right < width and low < height, "a box leaves the picture"


def test_every_picture_is_on_a_page() -> None:
    shown = {file.name for page in site.pages() for file in site.linked_files(page)}
    assert set(pictures.PICTURES) <= shown

"""The table of docs/formats.md says what is heard from a model in every form."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests import data

from .format_table import FORMS, MODELS, RANDOM, column

DOCS = Path(__file__).resolve().parents[2] / "docs" / "formats.md"


def documented() -> dict[str, list[str]]:
    """The cells of the table by the names of its rows; the columns are MODELS."""
    lines = DOCS.read_text("utf-8").splitlines()
    start = lines.index("| form | " + " | ".join(MODELS) + " |")
    end = lines.index("", start)
    parts = [[part.strip() for part in line.strip("|").split("|")] for line in lines[start + 2 : end]]
    return {name: cells for name, *cells in parts}


def test_every_form_is_in_the_table_and_all_are_the_same() -> None:
    table = documented()
    assert list(table) == list(FORMS)
    assert {cell for cells in table.values() for cell in cells} == {"same text", "same tokens"}
    # only where the file has no vocabulary, and the published one is not the model's
    assert [name for name, cells in table.items() if "same tokens" in cells] == ["OpenAI's checkpoint"]


@pytest.mark.parametrize("name", MODELS)
def test_what_is_heard_is_what_the_table_says(name: str, samples: Path) -> None:
    if name != RANDOM:
        data.or_skip(data.model_file, name)
    at = MODELS.index(name)
    assert column(name, np.load(samples)) == {form: cells[at] for form, cells in documented().items()}

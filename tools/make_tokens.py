"""Make the vocabularies of whispyx/data from those of published models: the same bytes every time.

    python tools/make_tokens.py

The models come from the packages that `whispyx.models` knows, each file checked by its hash.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # run as a script
    sys.path.insert(0, str(ROOT))

from whispyx.models.convert import read_vocabulary  # noqa: E402
from whispyx.models.formats.known_tokens import N_PAIRS, packed_pairs, pairs_of  # noqa: E402
from whispyx.models.packages import MODEL_PACKAGES, unpack_wheels  # noqa: E402

SOURCES = {"english": ("tiny.en", 50256), "multilingual": ("base", 50257)}


def content(folder: Path, model: str, n_tokens: int) -> str:
    """Return the text of the file for the vocabulary of `model`, which lies in `folder` and has `n_tokens` texts."""
    tokens = read_vocabulary(folder, n_tokens)[: 256 + N_PAIRS]  # the one beyond is empty
    digest = hashlib.sha256(b"".join(len(token).to_bytes(2, "little") + token for token in tokens)).hexdigest()
    return (
        f"# Made by tools/make_tokens.py from the vocabulary of Whisper {model}, (c) OpenAI, MIT licence.\n"
        f"# {len(tokens)} tokens; SHA-256 of their lengths (two bytes each) and texts: {digest}\n"
        f"{packed_pairs(pairs_of(tokens))}"
    )


def main() -> None:
    for name, (model, n_tokens) in SOURCES.items():
        with tempfile.TemporaryDirectory() as work:
            folder = unpack_wheels(MODEL_PACKAGES[model], Path(work))
            target = ROOT / "whispyx" / "data" / f"tokens_{name}.txt"
            target.write_text(content(folder, model, n_tokens), "ascii", newline="\n")
            print(f"{target.relative_to(ROOT)}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()

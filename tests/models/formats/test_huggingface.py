"""Hugging Face folders: every value is reached, and what Whisper's graph cannot express is refused."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import data
from tests.oracle.reader import read_model
from whispyx.errors import ModelFormatError, ModelNotFoundError
from whispyx.languages import CODES
from whispyx.models.formats.huggingface import is_folder, read_folder
from whispyx.models.formats.manifest import GGML_TYPES, Settings

from .folder_maker import (
    HEADS,
    N_AUDIO_CTX,
    N_TEXT_CTX,
    N_VOCAB,
    WIDTH,
    Stored,
    as_float,
    byte_letters,
    config,
    conv_bias_apart,
    files,
    names_of,
    random_tensors,
    safetensors_bytes,
    special_tokens,
    stored,
    values,
    write,
)


def check_values(
    folder: Path, tensors: dict[str, Stored], layers: tuple[int, int] = (2, 1), prefix: str = "model."
) -> None:
    with read_folder(folder) as manifest:
        names = names_of(*layers)
        assert set(manifest.tensors) == set(names)
        for ours, theirs in names.items():
            expected = conv_bias_apart(ours, as_float(tensors[prefix + theirs]))
            assert manifest.tensors[ours].shape == expected.shape, ours
            assert np.array_equal(values(manifest, ours), expected), ours


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_every_value_is_reached(tmp_path: Path, dtype: str) -> None:
    tensors = random_tensors(dtype)
    folder = write(tmp_path, files(tensors))
    check_values(folder, tensors)
    with read_folder(folder) as manifest:
        assert manifest.format == "huggingface"
        assert {tensor.type for tensor in manifest.tensors.values()} == {GGML_TYPES[dtype.lower()]}
        assert manifest.name == str(folder / "model.safetensors")


def test_settings_are_those_of_the_config(tmp_path: Path) -> None:
    with read_folder(write(tmp_path, files())) as manifest:
        assert manifest.settings == Settings(N_VOCAB, N_AUDIO_CTX, WIDTH, HEADS, 2, N_TEXT_CTX, WIDTH, HEADS, 1, 80)
        assert manifest.filters is None
        assert manifest.alignment_heads is manifest.suppress_tokens is manifest.begin_suppress_tokens is None
        assert manifest.metadata == {}


def test_types_may_differ_and_names_may_lack_their_prefix(tmp_path: Path) -> None:
    tensors = random_tensors("F16", prefix="")
    for name in ("encoder.conv1.bias", "decoder.layers.0.fc1.weight"):
        tensors[name] = stored(as_float(tensors[name]), "F32")
    check_values(write(tmp_path, files(tensors)), tensors, prefix="")


def test_a_distilled_model_has_fewer_decoder_layers(tmp_path: Path) -> None:
    tensors = random_tensors(layers=(3, 2))
    folder = write(tmp_path, files(tensors) | {"config.json": config(layers=(3, 2))})
    check_values(folder, tensors, (3, 2))


def test_weights_may_lie_in_several_files(tmp_path: Path) -> None:
    tensors = random_tensors("BF16")
    names = sorted(tensors)
    parts = {f"model-{i + 1:05}-of-00003.safetensors": names[i::3] for i in range(3)}
    contents = files(tensors)
    del contents["model.safetensors"]
    contents["model.safetensors.index.json"] = {
        "metadata": {"total_size": 1},
        "weight_map": {name: part for part, those in parts.items() for name in those},
    }
    contents |= {part: safetensors_bytes({name: tensors[name] for name in those}) for part, those in parts.items()}
    folder = write(tmp_path, contents)
    check_values(folder, tensors)
    with read_folder(folder) as manifest:
        assert len(manifest.blobs) == 3
        assert {tensor.blob for tensor in manifest.tensors.values()} == {0, 1, 2}


def test_the_output_projection_is_ignored_where_it_is_tied(tmp_path: Path) -> None:
    tensors = random_tensors()
    head = {"proj_out.weight": tensors["model.decoder.embed_tokens.weight"]}
    folder = write(tmp_path, files(tensors | head))
    check_values(folder, tensors)
    write(folder, {"config.json": config() | {"tie_word_embeddings": True}})
    check_values(folder, tensors)
    write(folder, {"config.json": config() | {"tie_word_embeddings": False}})
    with pytest.raises(ModelFormatError, match=r"proj_out\.weight and config\.json has tie_word_embeddings false"):
        read_folder(folder)


def without(name: str) -> dict[str, Stored]:
    return {key: tensor for key, tensor in random_tensors().items() if key != name}


def with_tensor(name: str, *shape: int, dtype: str = "F16") -> dict[str, Stored]:
    return random_tensors() | {name: stored(np.zeros(shape), dtype)}


TENSORS: dict[str, tuple[dict[str, Stored], str]] = {
    "missing": (without("model.encoder.layers.1.fc2.bias"), "'model.encoder.layers.1.fc2.bias' is missing"),
    "none": ({}, "'encoder.positional_embedding' is missing".replace("positional_embedding", "embed_positions.weight")),
    "extra": (with_tensor("model.encoder.layers.2.fc1.bias", 32), "'model.encoder.layers.2.fc1.bias' belongs to no"),
    "two extra": (
        with_tensor("model.x", 1) | {"model.y": ("F16", np.zeros(2, np.float16))},
        r"'model\.x' belongs to no .* \(2 such\)",
    ),
    "a key's bias": (with_tensor("model.encoder.layers.0.self_attn.k_proj.bias", 8), "k_proj.bias' belongs to no"),
    "a classifier": (with_tensor("classifier.weight", 2, 8), "'classifier.weight' belongs to no"),
    "turned": (
        with_tensor("model.decoder.layers.0.fc1.weight", 8, 32),
        r"shape \(8, 32\); config.json makes it \(32, 8\)",
    ),
    "a wide kernel": (with_tensor("model.encoder.conv1.weight", 8, 80, 5), r"shape \(8, 80, 5\)"),
    "more mel bands": (with_tensor("model.encoder.conv1.weight", 8, 128, 3), r"shape \(8, 128, 3\)"),
    "more tokens": (with_tensor("model.decoder.embed_tokens.weight", 2000, 8), r"shape \(2000, 8\)"),
    "another head": (with_tensor("proj_out.weight", 5, 8), r"'proj_out.weight' has the shape \(5, 8\)"),
    "a head's bias": (with_tensor("proj_out.bias", N_VOCAB), "'proj_out.bias' belongs to no"),
    "F64": (with_tensor("model.decoder.layer_norm.bias", 8, dtype="F64"), "'model.decoder.layer_norm.bias' is F64"),
    "I8": (with_tensor("model.decoder.layers.0.fc1.weight", 32, 8, dtype="I8"), "is I8; weights can be F32, F16, BF16"),
    "mixed prefixes": (without("model.encoder.conv1.bias") | with_tensor("encoder.conv1.bias", 8), "belongs to no"),
}


@pytest.mark.parametrize("case", TENSORS)
def test_wrong_tensors_are_named(tmp_path: Path, case: str) -> None:
    tensors, reason = TENSORS[case]
    with pytest.raises(ModelFormatError, match=reason) as caught:
        read_folder(write(tmp_path, files(tensors)))
    assert str(tmp_path) in str(caught.value)


CONFIGS: dict[str, tuple[Any, str]] = {
    "a list": ([], "should be a JSON object"),
    "not JSON": ("{", "not valid JSON"),
    "a page": ("<html>", "not valid JSON"),
    "another model": (config() | {"model_type": "wav2vec2"}, "model_type is 'wav2vec2'; only 'whisper'"),
    "no kind": ({}, "model_type is None"),
    "another activation": (config() | {"activation_function": "relu"}, "activation_function is 'relu'"),
    "scaled": (config() | {"scale_embedding": True}, "scale_embedding is True"),
    "scaled by 1": (config() | {"scale_embedding": 1}, "true or false is expected"),
    "a wide network": (config() | {"encoder_ffn_dim": 16}, "encoder_ffn_dim is 16; .* 32"),
    "an encoder": (config() | {"is_encoder_decoder": False}, "is_encoder_decoder is False"),
    "quantised": (config() | {"quantization_config": {"bits": 4}}, "quantization_config"),
    "no width": ({**config(), "d_model": None}, "d_model is missing"),
    "a width as text": (config() | {"d_model": "8"}, "d_model is '8'; a whole number"),
    "a fraction": (config() | {"d_model": 8.0}, "d_model is 8.0; a whole number"),
    "many layers": (config() | {"encoder_layers": 10**9}, "encoder_layers is 1000000000; .* to 128"),
    "no layers": (config() | {"decoder_layers": 0}, "decoder_layers is 0"),
    "a huge vocabulary": (config() | {"vocab_size": 2**31}, "vocab_size is 2147483648"),
    "3 heads": (config() | {"encoder_attention_heads": 3}, "the encoder has 3 heads, which do not divide its width 8"),
    "61 bands": (config() | {"num_mel_bins": 61}, "61 mel bands"),
    "128 bands": (config() | {"num_mel_bins": 128}, r"'model.encoder.conv1.weight' has the shape \(8, 80, 3\)"),
    "fewer layers": (config(layers=(1, 1)), "'model.encoder.layers.1.fc1.bias' belongs to no"),
    "more layers": (config(layers=(2, 2)), "'model.decoder.layers.1.* is missing"),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_a_config_that_whispers_graph_cannot_express_is_refused(tmp_path: Path, case: str) -> None:
    content, reason = CONFIGS[case]
    with pytest.raises(ModelFormatError, match=reason):
        read_folder(write(tmp_path, files() | {"config.json": content}))


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="there is no folder"):
        read_folder(tmp_path / "missing")
    with pytest.raises(ModelNotFoundError, match="there is no folder"):
        read_folder("a\0b")
    with pytest.raises(ModelNotFoundError, match=r"there is no config\.json"):
        read_folder(tmp_path)
    whole = files()
    for name, reason in (("model.safetensors", r"no model\.safetensors"), ("tokenizer.json", "has no vocabulary")):
        contents = {key: content for key, content in whole.items() if key != name}
        with pytest.raises(ModelNotFoundError, match=reason):
            read_folder(write(tmp_path / name.partition(".")[0], contents))


OTHERS = {
    "pytorch_model.bin.index.json": "PyTorch weights in several files; this reader needs model.safetensors",
    "tf_model.h5": "TensorFlow weights",
    "flax_model.msgpack": "Flax weights",
    "adapter_model.safetensors": "an adapter",
}


@pytest.mark.parametrize("name", OTHERS)
def test_weights_of_another_kind_are_named(tmp_path: Path, name: str) -> None:
    contents = files() | {name: b"x"}
    del contents["model.safetensors"]
    with pytest.raises(ModelFormatError, match=f"{name} holds {OTHERS[name]}"):
        read_folder(write(tmp_path, contents))


def test_another_variant_is_pointed_out(tmp_path: Path) -> None:
    contents = files()
    contents["model.fp16.safetensors"] = contents.pop("model.safetensors")
    with pytest.raises(ModelNotFoundError, match=r"'model\.fp16\.safetensors'\] is another variant"):
        read_folder(write(tmp_path, contents))


def test_files_of_a_refused_model_are_closed(tmp_path: Path) -> None:
    folder = write(tmp_path, files(without("model.encoder.conv1.bias")))
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(ModelFormatError):
        read_folder(folder)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_config_that_leads_elsewhere_is_not_read(tmp_path: Path) -> None:
    folder = write(tmp_path / "model", files())
    (folder / "config.json").rename(tmp_path / "config.json")
    (folder / "config.json").symlink_to(tmp_path / "config.json")
    with pytest.raises(ModelFormatError, match="link that leads out"):
        read_folder(folder)


def test_a_huge_config_is_not_read(tmp_path: Path) -> None:
    folder = write(tmp_path, files())
    with (folder / "config.json").open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(ModelFormatError, match="1099511627776 bytes"):
        read_folder(folder)


def test_folders_are_told_apart(tmp_path: Path) -> None:
    assert is_folder(write(tmp_path / "hf", {"config.json": config()}))
    assert not is_folder(write(tmp_path / "ct2", {"config.json": {}, "model.bin": b""}))
    assert not is_folder(tmp_path)
    assert not is_folder("a\0b")


# Rules of decoding, the front end, the card.


def rules(tmp_path: Path, **contents: Any) -> Any:
    named = {key.replace("_json", ".json"): content for key, content in contents.items()}
    with read_folder(write(tmp_path, files() | named)) as manifest:
        return manifest


def test_rules_come_from_the_generation_config(tmp_path: Path) -> None:
    generation = {
        "alignment_heads": [[0, 1], [0, 0]],
        "suppress_tokens": [1, 7, 7, 256],
        "begin_suppress_tokens": [220],
    }
    found = rules(tmp_path, generation_config_json=generation)
    assert found.alignment_heads == ((0, 1), (0, 0))
    assert found.suppress_tokens == (1, 7, 256)
    assert found.begin_suppress_tokens == (220,)


def test_older_folders_have_the_rules_in_their_config(tmp_path: Path) -> None:
    found = rules(tmp_path, config_json=config() | {"suppress_tokens": [], "begin_suppress_tokens": [32, 256]})
    assert found.suppress_tokens == ()
    assert found.begin_suppress_tokens == (32, 256)
    again = rules(tmp_path, generation_config_json={"suppress_tokens": None})
    assert again.suppress_tokens is again.begin_suppress_tokens is None


def test_alignment_heads_of_the_teacher_are_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for heads in ([[0, 1], [7, 0]], [[0, 2]], [[-1, 0]], []):
            assert rules(tmp_path, generation_config_json={"alignment_heads": heads}).alignment_heads is None
    assert len(caplog.records) == 4
    assert "are not in this model; they are ignored" in caplog.text


def test_tokens_that_are_not_there_cannot_be_suppressed(tmp_path: Path) -> None:
    found = rules(tmp_path, generation_config_json={"suppress_tokens": [-1, 5, N_VOCAB]})
    assert found.suppress_tokens == (5,)


@pytest.mark.parametrize("key", ["alignment_heads", "suppress_tokens", "begin_suppress_tokens", "lang_to_id"])
@pytest.mark.parametrize("value", [3, "x", ["1"], [[1, 2, 3]], [[0.0, 1.0]], [True], {"a": "b"}])
def test_malformed_rules_are_refused(tmp_path: Path, key: str, value: Any) -> None:
    with pytest.raises(ModelFormatError, match=rf"generation_config\.json: {key} is"):
        rules(tmp_path, generation_config_json={key: value})


def slaney(n_mels: int) -> Any:
    """The filters in closed form: triangles of equal area, corners even on Slaney's scale."""
    mel = np.linspace(0, 15 + 27 * np.log(8000 / 1000) / np.log(6.4), n_mels + 2)
    hertz = np.where(mel < 15, mel * 200 / 3, 1000 * np.exp(np.log(6.4) * (mel - 15) / 27))
    bins = np.arange(201) * 40.0
    rows = [
        np.clip(np.minimum((bins - low) / (middle - low), (high - bins) / (high - middle)), 0, None) * 2 / (high - low)
        for low, middle, high in zip(hertz, hertz[1:], hertz[2:], strict=False)
    ]
    return np.array(rows)


def test_filters_that_are_whispers_are_not_kept_and_others_are(tmp_path: Path) -> None:
    usual = {"feature_size": 80, "sampling_rate": 16000, "n_fft": 400, "hop_length": 160}
    for filters in (slaney(80).tolist(), slaney(80).T.tolist(), None):
        assert rules(tmp_path, preprocessor_config_json=usual | {"mel_filters": filters}).filters is None
    other = np.random.default_rng(3).random((80, 201)).astype(np.float32)
    for filters in (other.tolist(), other.T.tolist()):
        found = rules(tmp_path, preprocessor_config_json=usual | {"mel_filters": filters}).filters
        assert found.dtype == np.float32 and found.flags.c_contiguous
        assert np.array_equal(found, other)


FRONT_ENDS: dict[str, tuple[Any, str]] = {
    "bands": ({"feature_size": 128}, "feature_size is 128; 80 is expected"),
    "rate": ({"sampling_rate": 8000}, "sampling_rate is 8000; 16000"),
    "window": ({"n_fft": 512}, "n_fft is 512; 400"),
    "hop": ({"hop_length": 80}, "hop_length is 80; 160"),
    "text": ({"feature_size": "80"}, "whole number"),
    "filters": ({"mel_filters": 1}, "list of rows"),
    "rows": ({"mel_filters": [[0.0] * 201] * 79}, "79 rows"),
    "ragged": ({"mel_filters": [[0.0] * 201] * 79 + [[]]}, "80 rows of"),
    "texts": ({"mel_filters": [["0"] * 201] * 80}, "no number"),
    "infinite": ('{"mel_filters": [' + ", ".join(["[" + ", ".join(["1e999"] * 201) + "]"] * 80) + "]}", "no number"),
}


@pytest.mark.parametrize("case", FRONT_ENDS)
def test_another_front_end_is_refused(tmp_path: Path, case: str) -> None:
    content, reason = FRONT_ENDS[case]
    with pytest.raises(ModelFormatError, match=reason):
        rules(tmp_path, preprocessor_config_json=content)
    if isinstance(content, dict):
        with pytest.raises(ModelFormatError, match=reason):
            rules(tmp_path / "newer", processor_config_json={"feature_extractor": content})


CARD = """---
language:
- en
- "zh"
license: apache-2.0  # permissive
tags: [a, b]
base_model: 'openai/whisper-tiny'
datasets: [one, two ]
model-index:
- name: other
  results: 3
---
# A model
license: proprietary
"""


def test_the_card_tells_license_languages_and_origin(tmp_path: Path) -> None:
    found = rules(tmp_path, **{"README.md": CARD, "LICENSE": "MIT"}).metadata
    assert found == {
        "license": "apache-2.0",
        "language": "en, zh",
        "base_model": "openai/whisper-tiny",
        "datasets": "one, two",
        "license_file": "LICENSE",
    }


@pytest.mark.parametrize(
    "text",
    ["", "---", "---\n", "license: mit\n", "# x\n---\nlicense: mit\n---\n", "---\nlicense: mit", b"\xff\xfe---\n"],
)
def test_a_card_without_a_head_tells_nothing(tmp_path: Path, text: Any) -> None:
    assert rules(tmp_path, **{"README.md": text}).metadata == {}


def test_what_a_card_says_can_be_printed(tmp_path: Path) -> None:
    card = b"---\r\nlicense: \x1b[31mmit\x07\xff\r\nlanguage: " + b"x" * 3000 + b"\r\n---\r\n"
    found = rules(tmp_path, **{"README.md": card}).metadata
    assert found["license"] == "[31mmit\N{REPLACEMENT CHARACTER}"
    assert found["language"] == "x" * 500


def test_a_real_model_in_this_layout_is_the_same_model(tmp_path: Path) -> None:
    """tiny.en as a folder, its values and tokens taken from the file that whisper.cpp reads."""
    model = read_model(data.or_skip(data.model_file, "tiny.en"))
    letters = byte_letters()
    vocab = {"".join(letters[byte] for byte in token): i for i, token in enumerate(model.tokens)}
    added = {text: 50256 + i for i, text in enumerate(special_tokens(CODES[:99]))}
    sizes = model.settings
    tensors = {
        f"model.{theirs}": (
            stored(model[ours].reshape(-1) if ours.endswith(("conv1.bias", "conv2.bias")) else model[ours], kind)
        )
        for ours, theirs in names_of(4, 4).items()
        for kind in ["F16" if model.types[ours] == "f16" else "F32"]
    }
    folder = write(
        tmp_path,
        {
            "config.json": config()
            | {
                "d_model": sizes["n_audio_state"],
                "encoder_ffn_dim": 1536,
                "decoder_ffn_dim": 1536,
                "encoder_layers": sizes["n_audio_layer"],
                "decoder_layers": sizes["n_text_layer"],
                "encoder_attention_heads": sizes["n_audio_head"],
                "decoder_attention_heads": sizes["n_text_head"],
                "max_source_positions": sizes["n_audio_ctx"],
                "max_target_positions": sizes["n_text_ctx"],
                "vocab_size": sizes["n_vocab"],
            },
            "model.safetensors": safetensors_bytes(tensors),
            "vocab.json": vocab,
            "added_tokens.json": added,
        },
    )
    with read_folder(folder) as manifest:
        assert manifest.settings.values() == tuple(sizes.values())[:10]
        assert list(manifest.vocabulary.tokens) == model.tokens
        assert manifest.vocabulary.languages == CODES[:99]
        assert manifest.vocabulary.special == {
            "eot": 50256,
            "sot": 50257,
            "translate": 50357,
            "transcribe": 50358,
            "solm": 50359,
            "prev": 50360,
            "nosp": 50361,
            "not": 50362,
            "beg": 50363,
        }
        assert set(manifest.tensors) == set(model.tensors)
        for name, expected in model.tensors.items():
            assert np.array_equal(values(manifest, name), expected), name

"""CTranslate2 folders become legacy ggml files, value by value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.oracle.reader import ModelFile, read_model
from whispyx.errors import ParamsError
from whispyx.models.convert import convert

from .ct2_maker import HEADS, N_AUDIO_CTX, N_TEXT_CTX, WIDTH, Ct2Model, random_model, write_folder

W = WIDTH


def converted(tmp_path: Path, model: Ct2Model, dtype: str = "f16") -> ModelFile:
    target = convert(write_folder(tmp_path / "ct2", model), tmp_path / "out" / "model.bin", dtype)
    assert [path.name for path in target.parent.iterdir()] == ["model.bin"]
    return read_model(target)


def as_float(array: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    return array.astype(np.float32)


def expected_tensors(arrays: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[np.float32]]:
    """What the ggml file must hold, written out from the two layouts' descriptions."""
    found: dict[str, npt.NDArray[Any]] = {
        "encoder.positional_embedding": arrays["encoder/position_encodings/encodings"],
        "encoder.conv1.weight": arrays["encoder/conv1/weight"],
        "encoder.conv1.bias": arrays["encoder/conv1/bias"][:, None],
        "encoder.conv2.weight": arrays["encoder/conv2/weight"],
        "encoder.conv2.bias": arrays["encoder/conv2/bias"][:, None],
        "encoder.ln_post.weight": arrays["encoder/layer_norm/gamma"],
        "encoder.ln_post.bias": arrays["encoder/layer_norm/beta"],
        "decoder.positional_embedding": arrays["decoder/position_encodings/encodings"],
        "decoder.token_embedding.weight": arrays["decoder/embeddings/weight"],
        "decoder.ln.weight": arrays["decoder/layer_norm/gamma"],
        "decoder.ln.bias": arrays["decoder/layer_norm/beta"],
    }
    for side, n_layer in (("encoder", 2), ("decoder", 1)):
        for index in range(n_layer):
            ggml, ct2 = f"{side}.blocks.{index}", f"{side}/layer_{index}"
            qkv = arrays[f"{ct2}/self_attention/linear_0/weight"]
            qkv_bias = arrays[f"{ct2}/self_attention/linear_0/bias"]
            found |= {
                f"{ggml}.attn.query.weight": qkv[:W],
                f"{ggml}.attn.key.weight": qkv[W : 2 * W],
                f"{ggml}.attn.value.weight": qkv[2 * W :],
                f"{ggml}.attn.query.bias": qkv_bias[:W],
                f"{ggml}.attn.value.bias": qkv_bias[2 * W :],
                f"{ggml}.attn.out.weight": arrays[f"{ct2}/self_attention/linear_1/weight"],
                f"{ggml}.attn.out.bias": arrays[f"{ct2}/self_attention/linear_1/bias"],
                f"{ggml}.attn_ln.weight": arrays[f"{ct2}/self_attention/layer_norm/gamma"],
                f"{ggml}.attn_ln.bias": arrays[f"{ct2}/self_attention/layer_norm/beta"],
                f"{ggml}.mlp_ln.weight": arrays[f"{ct2}/ffn/layer_norm/gamma"],
                f"{ggml}.mlp_ln.bias": arrays[f"{ct2}/ffn/layer_norm/beta"],
                f"{ggml}.mlp.0.weight": arrays[f"{ct2}/ffn/linear_0/weight"],
                f"{ggml}.mlp.0.bias": arrays[f"{ct2}/ffn/linear_0/bias"],
                f"{ggml}.mlp.2.weight": arrays[f"{ct2}/ffn/linear_1/weight"],
                f"{ggml}.mlp.2.bias": arrays[f"{ct2}/ffn/linear_1/bias"],
            }
    ggml, ct2 = "decoder.blocks.0", "decoder/layer_0/attention"
    kv, kv_bias = arrays[f"{ct2}/linear_1/weight"], arrays[f"{ct2}/linear_1/bias"]
    found |= {
        f"{ggml}.cross_attn.query.weight": arrays[f"{ct2}/linear_0/weight"],
        f"{ggml}.cross_attn.query.bias": arrays[f"{ct2}/linear_0/bias"],
        f"{ggml}.cross_attn.key.weight": kv[:W],
        f"{ggml}.cross_attn.value.weight": kv[W:],
        f"{ggml}.cross_attn.value.bias": kv_bias[W:],
        f"{ggml}.cross_attn.out.weight": arrays[f"{ct2}/linear_2/weight"],
        f"{ggml}.cross_attn.out.bias": arrays[f"{ct2}/linear_2/bias"],
        f"{ggml}.cross_attn_ln.weight": arrays[f"{ct2}/layer_norm/gamma"],
        f"{ggml}.cross_attn_ln.bias": arrays[f"{ct2}/layer_norm/beta"],
    }
    return {name: as_float(array) for name, array in found.items()}


def test_every_value_of_a_float16_model_is_kept(tmp_path: Path) -> None:
    model = random_model()
    file = converted(tmp_path, model)
    expected = expected_tensors(model.arrays)
    assert set(file.tensors) == set(expected)
    assert len(expected) == 11 + 15 * 2 + 24 * 1
    for name, values in expected.items():
        assert file[name].shape == values.shape, name
        assert np.array_equal(file[name], values), name


def test_settings_come_from_the_shapes(tmp_path: Path) -> None:
    file = converted(tmp_path, random_model())
    assert file.settings == {
        "n_vocab": 51864,
        "n_audio_ctx": N_AUDIO_CTX,
        "n_audio_state": W,
        "n_audio_head": HEADS,
        "n_audio_layer": 2,
        "n_text_ctx": N_TEXT_CTX,
        "n_text_state": W,
        "n_text_head": HEADS,
        "n_text_layer": 1,
        "n_mels": 80,
        "ftype": 1,
    }


@pytest.mark.parametrize(
    ("n_vocab", "n_mels", "n_tokens"), [(51864, 80, 50256), (51865, 80, 50257), (51866, 128, 50257)]
)
def test_text_tokens_are_stored_and_special_ones_are_not(
    tmp_path: Path, n_vocab: int, n_mels: int, n_tokens: int
) -> None:
    file = converted(tmp_path, random_model(n_vocab=n_vocab, n_mels=n_mels))
    assert file.settings["n_vocab"] == n_vocab
    assert file.filters.shape == (n_mels, 201)
    assert len(file.tokens) == n_tokens
    assert file.tokens[:3] == [b"0", b" 1", b"2"]


def test_types_follow_the_rules_of_the_layout(tmp_path: Path) -> None:
    matrices = {"decoder.token_embedding.weight", "encoder.blocks.0.attn.key.weight", "decoder.blocks.0.mlp.2.weight"}
    plain = {
        "encoder.positional_embedding",
        "decoder.positional_embedding",
        "encoder.conv1.bias",
        "encoder.ln_post.weight",
        "decoder.blocks.0.cross_attn.query.bias",
    }
    convs = {"encoder.conv1.weight", "encoder.conv2.weight"}
    for dtype, ftype, conv_type in (("f16", 1, "f16"), ("f32", 0, "f32"), ("bf16", 24, "f16")):
        file = converted(tmp_path / dtype, random_model(), dtype)
        assert file.settings["ftype"] == ftype
        assert {file.types[name] for name in matrices} == {dtype}
        assert {file.types[name] for name in plain} == {"f32"}
        assert {file.types[name] for name in convs} == {conv_type}


def test_float32_values_survive_an_f32_file(tmp_path: Path) -> None:
    model = random_model(dtype="float32")
    file = converted(tmp_path, model, "f32")
    for name, values in expected_tensors(model.arrays).items():
        assert np.array_equal(file[name], values), name


def test_bf16_rounds_to_the_nearest_and_ties_to_even(tmp_path: Path) -> None:
    model = random_model(dtype="float32")
    values = model.arrays["encoder/layer_0/ffn/linear_0/weight"]
    # 1 + 2^-8 lies halfway between the bfloat16 neighbours 1 and 1 + 2^-7; so does 1 + 3·2^-8 above them.
    values[0, :6] = [1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, 1 + 2**-8 + 2**-20, 1e-40, 0.0]
    file = converted(tmp_path, model, "bf16")
    row = file["encoder.blocks.0.mlp.0.weight"][0]
    assert row[:4].tolist() == [1.0, 1 + 2**-6, -1.0, 1 + 2**-7]
    assert abs(row[4] - 1e-40) < 1e-40
    assert row[5] == 0.0
    stored = file["encoder.blocks.0.mlp.0.weight"]
    assert np.all(np.abs(stored - values) <= np.maximum(np.abs(values) * 2.0**-8, 2.0**-134))


def test_bfloat16_weights_are_read(tmp_path: Path) -> None:
    model = random_model(dtype="float32")
    name = "encoder/layer_0/ffn/linear_0/weight"
    high = (model.arrays[name].view(np.uint32) >> 16).astype(np.uint16)
    model.arrays[name] = high
    model.bfloat16.add(name)
    file = converted(tmp_path, model, "f32")
    exact = (high.astype(np.uint32) << 16).view(np.float32)
    assert np.array_equal(file["encoder.blocks.0.mlp.0.weight"], exact)


def test_int8_weights_are_scaled_back_row_by_row(tmp_path: Path) -> None:
    model = random_model(dtype="float32")
    name = "encoder/layer_0/self_attention/linear_0/weight"
    original = model.arrays[name]
    scale = 127 / np.abs(original).max(axis=1)
    model.arrays[name] = np.round(original * scale[:, None]).astype(np.int8)
    model.arrays[f"{name}_scale"] = scale.astype(np.float32)
    file = converted(tmp_path, model, "f32")
    stored = np.concatenate([file[f"encoder.blocks.0.attn.{part}.weight"] for part in ("query", "key", "value")])
    # A rounded value is off by half a step at most; a step is 1/scale.
    assert np.all(np.abs(stored - original) <= 0.501 / scale[:, None])


def test_int16_weights_have_one_scale(tmp_path: Path) -> None:
    model = random_model(dtype="float32")
    name = "decoder/layer_0/ffn/linear_1/weight"
    original = model.arrays[name]
    scale = np.float32(1023 / np.abs(original).max())
    model.arrays[name] = np.round(original * scale).astype(np.int16)
    model.arrays[f"{name}_scale"] = np.array(scale, np.float32)
    file = converted(tmp_path, model, "f32")
    assert np.all(np.abs(file["decoder.blocks.0.mlp.2.weight"] - original) <= 0.501 / scale)


def test_progress_counts_bytes_up_to_the_total(tmp_path: Path) -> None:
    seen: list[tuple[int, int | None, str]] = []
    folder = write_folder(tmp_path / "ct2", random_model())
    convert(folder, tmp_path / "model.bin", progress=lambda *report: seen.append(report))
    done = [report[0] for report in seen]
    assert done == sorted(done)
    assert seen[-1][0] == seen[-1][1]
    assert {report[2] for report in seen} == {"convert"}


def test_an_interrupted_conversion_leaves_nothing(tmp_path: Path) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    folder = write_folder(tmp_path / "ct2", random_model())
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        convert(folder, out / "model.bin", progress=stop)
    assert list(out.iterdir()) == []


def test_an_unknown_type_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match="q4_0"):
        convert(write_folder(tmp_path, random_model()), tmp_path / "out.bin", "q4_0")

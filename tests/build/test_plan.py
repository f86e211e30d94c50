"""Which plugins a build makes, for this machine and for others."""

from __future__ import annotations

import re
import platform
from pathlib import Path

import pytest

from tools.build import ROOT, BuildError
from tools.build.config import BuildConfig
from tools.build.native import files
from tools.build.plugins import chosen, cpu_flags, manifest_of, plan_of

CPU = manifest_of("cpu")
_variants = CPU.build.variants
assert _variants is not None
VARIANTS = _variants.flags
UPSTREAM = ROOT / "vendor" / "ggml" / "src" / "CMakeLists.txt"

# What ggml's CMake calls a feature, what /proc/cpuinfo calls it, and its bit of the score (arch/x86/cpu-feats.cpp).
FEATURES = {
    "FMA": (["fma"], 1),
    "F16C": (["f16c"], 2),
    "SSE42": (["sse4_2"], 4),
    "BMI2": (["bmi2"], 8),
    "AVX": (["avx"], 16),
    "AVX2": (["avx2"], 32),
    "AVX_VNNI": (["avx_vnni"], 64),
    "AVX512": (["avx512f", "avx512cd", "avx512vl", "avx512dq", "avx512bw"], 128),
    "AVX512_VBMI": (["avx512vbmi"], 256),
    "AVX512_BF16": (["avx512_bf16"], 512),
    "AVX512_VNNI": (["avx512_vnni"], 1024),
    "AMX_INT8": (["amx_int8"], 2048),
    "AMX_TILE": (["amx_tile"], 0),
}
HASWELL = frozenset(["sse4_2", "avx", "f16c", "fma", "avx2", "bmi2"])
ICELAKE_512 = frozenset(["avx512f", "avx512cd", "avx512vl", "avx512dq", "avx512bw", "avx512vbmi", "avx512_vnni"])


def targets(config: BuildConfig, machine: str = "x86_64", flags: frozenset[str] = frozenset()) -> list[str]:
    return [name.removeprefix("ggml-cpu-") for name in plan_of(CPU, config, machine=machine, flags=flags).targets]


def upstream_variants() -> dict[str, list[str]]:
    if not UPSTREAM.exists():
        pytest.skip("vendor/ggml is not unpacked here (built from another tree)")
    text = UPSTREAM.read_text(encoding="utf-8")
    x86 = text[text.index('GGML_SYSTEM_ARCH STREQUAL "x86")', text.index("if (GGML_CPU_ALL_VARIANTS)")) :]
    x86 = x86[: x86.index("elseif(GGML_SYSTEM_ARCH")]
    found = re.findall(r"ggml_add_cpu_backend_variant\((\w+)([^)]*)\)", x86)
    return {name: features.split() for name, features in found}


def test_the_table_has_the_variants_and_instruction_sets_of_ggml() -> None:
    wanted = {
        name: {flag for feature in features for flag in FEATURES[feature][0]}
        for name, features in upstream_variants().items()
    }
    assert {name: set(flags) for name, flags in VARIANTS.items()} == wanted


def test_the_table_is_ordered_as_ggml_scores() -> None:
    score = {name: 1 + sum(FEATURES[part][1] for part in parts) for name, parts in upstream_variants().items()}
    assert list(VARIANTS) == sorted(VARIANTS, key=lambda name: score[name])


@pytest.mark.parametrize(
    ("flags", "best"),
    [
        (HASWELL, "haswell"),
        (HASWELL - {"avx2"}, "piledriver"),
        (HASWELL | {"avx_vnni"}, "alderlake"),
        (HASWELL | ICELAKE_512, "icelake"),
        (HASWELL | ICELAKE_512 | {"avx512_bf16"}, "zen4"),
        (HASWELL | ICELAKE_512 | {"avx512_bf16", "avx_vnni", "amx_tile", "amx_int8"}, "sapphirerapids"),
        (HASWELL | (ICELAKE_512 - {"avx512vl"}), "haswell"),
    ],
)
def test_native_builds_the_best_variant_and_the_fallback(flags: frozenset[str], best: str) -> None:
    assert targets(BuildConfig(), flags=flags) == ["x64", best]


def test_a_machine_with_nothing_gets_the_fallback_once() -> None:
    assert targets(BuildConfig(), flags=frozenset(["sse2"])) == ["x64"]


def test_where_the_processor_cannot_be_asked_native_builds_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.build.plugins.cpu_flags", lambda: None)
    made = plan_of(CPU, BuildConfig(), machine="x86_64").targets
    assert [name.removeprefix("ggml-cpu-") for name in made] == list(VARIANTS)


def test_all_builds_all_and_a_list_builds_exactly_that() -> None:
    assert targets(BuildConfig(cpu_variants=("all",))) == list(VARIANTS)
    assert targets(BuildConfig(cpu_variants=("zen4", "haswell", "zen4"))) == ["haswell", "zen4"]


def test_native_may_stand_among_others() -> None:
    wanted = BuildConfig(cpu_variants=("native", "haswell"))
    best = frozenset(HASWELL | ICELAKE_512 | {"avx512_bf16"})
    assert targets(wanted, flags=best) == ["x64", "haswell", "zen4"]
    assert targets(wanted, flags=frozenset(["sse2"])) == ["x64", "haswell"]


@pytest.mark.parametrize("words", [("zen9",), ("x64", "zen9"), ("all", "x64")])
def test_an_unknown_variant_lists_the_valid_ones(words: tuple[str, ...]) -> None:
    with pytest.raises(BuildError) as info:
        targets(BuildConfig(cpu_variants=words))
    assert all(name in str(info.value) for name in VARIANTS)


def test_other_processors_get_one_library_without_variants() -> None:
    made = plan_of(CPU, BuildConfig(), machine="aarch64", flags=None)
    assert made.targets == ("ggml-cpu",)
    assert "GGML_CPU_ALL_VARIANTS" not in made.options
    with pytest.raises(BuildError, match="on aarch64 the cpu plugin has no variants"):
        plan_of(CPU, BuildConfig(cpu_variants=("zen4",)), machine="aarch64")


def test_an_unknown_backend_lists_the_folders_there_are() -> None:
    with pytest.raises(BuildError, match=r"names 'abacus'.*There are: .*cpu"):
        chosen(BuildConfig(backends=("cpu", "abacus")))
    with pytest.raises(BuildError, match=r"names '\.\./cpu'"):
        chosen(BuildConfig(backends=("../cpu",)))


def test_the_files_of_a_build_are_those_of_its_plugins_and_what_lies_beside_them() -> None:
    made = files(BuildConfig(backends=("rpc", "blas")))
    plugins = ["plugins/libggml-rpc.so", "plugins/libggml-blas.so", "plugins/libscipy_openblas.so"]
    ours = [f"kernels/libwhispyx-kernels-{name}.so" for name in ("avx2", "avx512", "avx512-bf16")]
    if platform.machine() != "x86_64":
        ours = []
    assert made == ["libwhispyx-ggml-base.so", "LICENSE.ggml", *plugins, *ours]


def test_the_flags_of_a_machine_are_read_from_cpuinfo(tmp_path: Path) -> None:
    listing = tmp_path / "cpuinfo"
    listing.write_text("processor\t: 0\nflags\t\t: fpu avx2 fma\nbugs\t: none\n\nprocessor : 1\nflags : fpu\n")
    assert cpu_flags(listing) == {"fpu", "avx2", "fma"}
    listing.write_text("processor : 0\nFeatures : fp asimd\n")
    assert cpu_flags(listing) is None
    assert cpu_flags(tmp_path / "missing") is None

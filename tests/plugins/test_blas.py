"""The blas plugin: a whole transcription, and as many threads of OpenBLAS as the job asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests import data
from tests.plugins.toolkit import python

CODE = """
import ctypes, json, sys
import whispyx

answers = []
for n_threads in (1, 2):
    with whispyx.Model(sys.argv[1]) as model:
        text = model.transcribe(sys.argv[2], n_threads=n_threads).text
        encoder = model.devices.placement.get("the encoder", {})
        answer = {"text": text, "devices": list(model.devices), "encoder": {d: dict(n) for d, n in encoder.items()}}
    if len(sys.argv) > 3:
        answer["threads"] = ctypes.CDLL(sys.argv[3]).scipy_openblas_get_num_threads()
    answers.append(answer)
print(json.dumps(answers))
"""


def test_the_text_is_that_of_the_cpu_and_openblas_has_the_threads_of_the_job(built: Callable[[str], Path]) -> None:
    folder = built("blas")
    model, sound = (data.or_skip(get) for get in (lambda: data.model_file("tiny.en"), data.jfk_wav))
    paths = [str(model), str(sound)]
    cpu = python(CODE, *paths, env={"WHISPYX_BACKEND": "cpu"})
    assert cpu.returncode == 0, cpu.stderr
    env = {"WHISPYX_BACKEND": "blas", "WHISPYX_BACKEND_PATH": str(folder)}
    blas = python(CODE, *paths, str(folder / "libscipy_openblas.so"), env=env)
    assert blas.returncode == 0, blas.stderr
    expected = json.loads(cpu.stdout)[0]["text"]
    assert "ask what you can do for your country" in expected
    for n_threads, answer in enumerate(json.loads(blas.stdout), start=1):
        assert answer["devices"] == ["BLAS", "CPU"]
        assert answer["text"] == expected
        assert answer["threads"] == n_threads
        assert answer["encoder"]["BLAS"] == {"MUL_MAT": 4 * 6}  # layers x (q, k, v, out, and two of the feed-forward)

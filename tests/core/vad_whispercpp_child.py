"""whisper.cpp's voice activity detection on arrays of samples. Run with the peer's interpreter by test_vad_detect.py.

Arguments: model, folder. Reads samples-*.npy and grid.json (a list of parameter sets) in the folder, and writes
out-*.json beside each: probabilities, and regions in hundredths of a second for each parameter set.
"""

from __future__ import annotations

import ctypes as c
import json
import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parent.parent.parent / "tools" / "workers"))

from whispercpp import VadContextParams, VadParams, open_library  # type: ignore[import-not-found]


def main() -> None:
    model, folder = sys.argv[1], Path(sys.argv[2])
    lib = open_library()
    p, i, floats = c.c_void_p, c.c_int, c.POINTER(c.c_float)
    for name, result, *args in (
        ("init_from_file_with_params", p, c.c_char_p, VadContextParams),
        ("detect_speech", c.c_bool, p, floats, i),
        ("n_probs", i, p),
        ("probs", floats, p),
        ("default_params", VadParams),
        ("segments_from_probs", p, p, VadParams),
        ("segments_n_segments", i, p),
        ("segments_get_segment_t0", c.c_float, p, i),
        ("segments_get_segment_t1", c.c_float, p, i),
    ):
        function = getattr(lib, f"whisper_vad_{name}")
        function.restype, function.argtypes = result, args
    grid = json.loads((folder / "grid.json").read_text())
    vad = lib.whisper_vad_init_from_file_with_params(model.encode(), VadContextParams(n_threads=1))
    assert vad
    for path in sorted(folder.glob("samples-*.npy")):
        samples = np.load(path)
        assert lib.whisper_vad_detect_speech(vad, samples.ctypes.data_as(floats), samples.size)
        probs = np.ctypeslib.as_array(lib.whisper_vad_probs(vad), (lib.whisper_vad_n_probs(vad),))
        regions = []
        for changes in grid:
            params = lib.whisper_vad_default_params()
            for name, value in changes.items():
                setattr(params, name, value)
            found = lib.whisper_vad_segments_from_probs(vad, params)
            regions.append(
                [
                    (
                        int(lib.whisper_vad_segments_get_segment_t0(found, k)),
                        int(lib.whisper_vad_segments_get_segment_t1(found, k)),
                    )
                    for k in range(lib.whisper_vad_segments_n_segments(found))
                ]
            )
        out = {"probs": probs.tolist(), "regions": regions}
        (folder / path.name.replace("samples-", "out-").replace(".npy", ".json")).write_text(json.dumps(out))


if __name__ == "__main__":
    main()

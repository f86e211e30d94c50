"""OpenAI's engine and transformers as a worker process, in the environment of the peer `openai-whisper`.

They also write models here, with PyTorch's and their own functions. Tokens are those of one window, greedily.

save_openai        tensors (.npz, OpenAI's names), dims, out, legacy -> {}: a checkpoint as OpenAI publishes them
save_transformers  source (a Hugging Face folder), out, shard_bytes -> files
openai             model (.pt), samples (.npy), language, timestamps -> tokens, text
generate           model (a folder), samples (.npy), language, timestamps -> tokens: by transformers

`legacy` is the layout of PyTorch before 1.6, which is no zip file.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

# nothing here asks a hub for anything
os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

import numpy as np

SAMPLE_RATE = 16000


class Worker:
    def __init__(self) -> None:
        import torch
        import transformers
        import whisper

        self.torch, self.transformers, self.whisper = torch, transformers, whisper
        transformers.logging.set_verbosity_error()

    def save_openai(self, tensors: str, dims: dict[str, int], out: str, legacy: bool = False) -> dict[str, Any]:
        model = self.whisper.model.Whisper(self.whisper.model.ModelDimensions(**dims))
        with np.load(tensors) as arrays:
            model.load_state_dict({name: self.torch.from_numpy(arrays[name]) for name in arrays.files})
        content = {"dims": dict(dims), "model_state_dict": model.half().state_dict()}
        self.torch.save(content, out, _use_new_zipfile_serialization=not legacy)
        return {}

    def save_transformers(self, source: str, out: str, shard_bytes: int = 0) -> dict[str, Any]:
        classes = self.transformers
        model = classes.WhisperForConditionalGeneration.from_pretrained(source, dtype=self.torch.float16)
        model.save_pretrained(out, **({"max_shard_size": shard_bytes} if shard_bytes else {}))
        classes.AutoTokenizer.from_pretrained(source).save_pretrained(out)
        classes.WhisperFeatureExtractor.from_pretrained(source).save_pretrained(out)
        return {"files": sorted(os.listdir(out))}

    def openai(self, model: str, samples: str, language: str = "en", timestamps: bool = True) -> dict[str, Any]:
        whisper = self.whisper
        engine = whisper.load_model(model, device="cpu")
        mel = whisper.log_mel_spectrogram(whisper.pad_or_trim(np.load(samples)), engine.dims.n_mels)
        options = whisper.DecodingOptions(
            language=language, temperature=0.0, fp16=False, without_timestamps=not timestamps
        )
        found = whisper.decode(engine, mel, options)
        return {"tokens": list(found.tokens), "text": found.text}

    def generate(self, model: str, samples: str, language: str = "en", timestamps: bool = True) -> dict[str, Any]:
        classes = self.transformers
        engine = classes.WhisperForConditionalGeneration.from_pretrained(model, dtype=self.torch.float32)
        extractor = classes.WhisperFeatureExtractor.from_pretrained(model)
        features = extractor(np.load(samples), sampling_rate=SAMPLE_RATE, return_tensors="pt").input_features
        # models of English alone refuse to be told a language
        told = {"language": language, "task": "transcribe"} if engine.generation_config.is_multilingual else {}
        found = engine.generate(features, do_sample=False, num_beams=1, return_timestamps=timestamps, **told)
        return {"tokens": found[0].tolist()}


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parent))
    from serving import serve

    serve(Worker())

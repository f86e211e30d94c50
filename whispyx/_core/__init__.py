"""The recogniser. Private: its callers are `whispyx.capi`, `whispyx.model` and the tests."""

import whispyx._core.base  # noqa: F401 - refuses to run on a ggml that is not ours, before the first call into it

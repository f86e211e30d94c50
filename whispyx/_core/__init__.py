"""The recogniser. Private: its callers are `whispyx.model` and the tests."""

try:
    # Refuses to run on a ggml that is not ours, before the first call into it.
    import whispyx._core.base  # noqa: F401
except ModuleNotFoundError as missing:
    if missing.name != "whispyx._core.base":
        raise
    # Most often Python was started in the repository's folder, which it searches before the installed package.
    raise ImportError(
        f"the whispyx in {__path__[0]} has not been built: it is a source tree. Start Python in another folder to use "
        "the installed whispyx, or build the tree in place with: pip install -e ."
    ) from None

"""Damage to JSON documents as hypothesis draws it: any value replaced, removed or doubled, anywhere in the tree."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from(
        [2**31 - 1, 2**31, 2**32, 2**53, 2**63, 2**64 - 1, -(2**63), 10**19, 1.5, 1e300, "", "\ud800", "x" * 70000]
    ),
    st.text(max_size=8),
    st.sampled_from(["F32", "F64", "BF16", "../../x", "model.safetensors", "<|en|>", "<|endoftext|>", "gelu", "BPE"]),
    st.just([]),
    st.just({}),
    st.lists(st.integers(-2, 70000), max_size=4),
    st.lists(st.lists(st.integers(-2, 9), max_size=3), max_size=3),
)


@st.composite
def damaged(draw: st.DrawFn, document: Any) -> Any:
    """One to three changes of a copy of `document`."""
    root = [copy.deepcopy(document)]
    for _ in range(draw(st.integers(1, 3))):
        parent, key = root, 0
        while True:
            child: Any = parent[key]
            keys = list(child) if isinstance(child, dict) else range(len(child)) if isinstance(child, list) else ()
            if not keys or not draw(st.integers(0, 5)):
                break
            parent, key = child, keys[draw(st.integers(0, len(keys) - 1))]
        action = draw(st.sampled_from(["replace", "replace", "remove", "add", "swap"]))
        if action == "remove" and parent is not root:
            del parent[key]
        elif action == "add" and isinstance(parent[key], dict):
            parent[key][draw(st.text(max_size=5))] = copy.deepcopy(draw(LEAVES))
        elif action == "add" and isinstance(parent[key], list):
            parent[key].append(copy.deepcopy(draw(LEAVES)))
        elif action == "swap" and isinstance(parent, list) and len(parent) > 1:
            other = draw(st.integers(0, len(parent) - 1))
            parent[key], parent[other] = parent[other], parent[key]
        elif action == "swap" and isinstance(parent, dict):
            parent[key] = copy.deepcopy(parent[draw(st.sampled_from(list(parent)))])
        else:
            parent[key] = copy.deepcopy(draw(LEAVES))
    return root[0]

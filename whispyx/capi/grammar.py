"""Grammars: from arrays of elements, as in C, or from text.

The example programs of whisper.cpp read grammars in GBNF and turn them into elements. Here a `Grammar` that was made
with `Grammar.from_gbnf(text, root)` can be put into `whisper_full_params.grammar_rules` as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whispyx._core.grammar import Grammar
from whispyx.capi.structs import whisper_grammar_element
from whispyx.errors import ParamsError

if TYPE_CHECKING:
    from whispyx.capi.full_params import whisper_full_params

__all__ = ["Grammar"]


def grammar_of(params: whisper_full_params) -> Grammar | None:
    """Return the grammar that parameters ask for; None without one.

    Raises
    ------
    ParamsError
        Fewer rules than n_grammar_rules, a start rule that is not there, or rules that make no grammar.
    """
    rules = params.grammar_rules
    if rules is None or isinstance(rules, Grammar):
        return rules
    n, start = params.n_grammar_rules, params.i_start_rule
    if n == 0:
        return None
    if n > len(rules):
        raise ParamsError(f"n_grammar_rules is {n}, but grammar_rules holds {len(rules)}")
    if start >= n:
        raise ParamsError(f"i_start_rule is {start}, but there are {n} rules")
    plain = []
    for i in range(n):
        for element in rules[i]:
            if not isinstance(element, whisper_grammar_element):
                raise TypeError(f"grammar_rules[{i}] must hold whisper_grammar_element, not {element!r}")
        plain.append([(int(element.type), element.value) for element in rules[i]])
    return Grammar.from_rules(plain, start)

"""Whether the network may be used."""

from __future__ import annotations

import os
from typing import Final

from whispyx.errors import ParamsError

__all__ = ["offline"]

_VALUES: Final = {"": False, "0": False, "false": False, "no": False, "1": True, "true": True, "yes": True}


def offline() -> bool:
    """Tell whether `WHISPYX_OFFLINE` forbids every use of the network.

    Raises
    ------
    ParamsError
        The variable is neither on (1, true, yes) nor off (0, false, no, empty).
    """
    text = os.environ.get("WHISPYX_OFFLINE", "")
    try:
        return _VALUES[text.strip().lower()]
    except KeyError:
        raise ParamsError(f"WHISPYX_OFFLINE={text!r} is neither 1 nor 0") from None

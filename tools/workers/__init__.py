"""Recognisers as worker processes that take one JSON command a line, and the client that talks to them."""

from __future__ import annotations

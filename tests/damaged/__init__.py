"""Damaged copies of models in every format, and what becomes of whoever loads them."""

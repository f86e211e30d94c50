"""Modules that take the place of other packages' native modules, so that programs written for those run on whispyx."""

"""Files that are shipped with whispyx."""

"""Programs for people who build and check whispyx; nothing here is installed."""

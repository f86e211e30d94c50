"""Models of every format: their headers are read here, their weights by the recogniser."""

from whispyx.errors import ModelFormatError

MAGIC: int

def located(source: object, error: ModelFormatError) -> ModelFormatError: ...

MAGIC: int

"""The copy engine: bytes from one store to another, each file once, checksummed on the way, within bounds."""

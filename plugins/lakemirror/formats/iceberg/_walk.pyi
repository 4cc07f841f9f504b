# The C extension: see native/module.c. Buffers of numbers are int64 or int32 in the machine's order.
Path = tuple[int, int, int]  # slot, branch of the text, branch of null
Rule = tuple[bytes, bytes]

VERSION: int

class Program:
    def __init__(self, code: bytes, slots: int) -> None: ...
    def walk(self, data: bytes, start: int, count: int) -> tuple[bytes, int]: ...

def rewrite(
    data: bytes, ranges: bytes, slots: int, paths: tuple[Path, ...], rules: tuple[Rule, ...]
) -> bytes | None: ...
def entries(
    data: bytes,
    ranges: bytes,
    slots: int,
    numbers: tuple[int, int, int],
    key_metadata: Path,
    path: Path,
    referenced: Path,
    rules: tuple[Rule, ...],
) -> tuple[int, bytes, bytes, bytes, bytes, bytes] | None: ...

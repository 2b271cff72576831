"""Exit codes, those of the `kind` table (crates/kind)."""

INVALID, NOT_FOUND, UNAVAILABLE, INTERNAL, INTERRUPTED = 2, 3, 8, 70, 130


class Failed(Exception):
    """One sentence for people, and the exit code it ends the program with if nobody takes it."""

    def __init__(self, said, code=UNAVAILABLE):
        super().__init__(said)
        self.code = code

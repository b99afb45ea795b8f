"""A scheduler that writes a line to a file for each header that it decodes, and for each pickle that it loads.

python watched_decoding.py FILE ARGUMENTS OF scaler_scheduler
"""

from __future__ import annotations

import pickle
import sys
from typing import Any, Callable

from scaler_appliance.shell import scheduler_program
from scaler_protocol.wire import codec


def watched(what: str, function: Callable[..., Any], path: str) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        with open(path, "a") as file:
            file.write(f"{what}\n")
        return function(*arguments, **options)

    return call


def main() -> int:
    path = sys.argv.pop(1)
    originals = {codec.decode: "header", codec.decode_struct: "struct"}
    replaced = 0
    for module in list(sys.modules.values()):
        for name, value in list(vars(module).items()):
            if callable(value) and getattr(value, "__module__", "") == codec.__name__ and value in originals:
                setattr(module, name, watched(originals[value], value, path))
                replaced += 1
    assert replaced >= 2, "the scheduler decodes elsewhere"
    for name in ("load", "loads", "Unpickler"):
        setattr(pickle, name, watched("pickle", getattr(pickle, name), path))
    return scheduler_program.main()


if __name__ == "__main__":
    sys.exit(main())

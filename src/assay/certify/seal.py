"""The seal of a certificate: a SHA-256 of the whole file, so that one changed byte anywhere is found."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from safetensors.torch import load, save
from torch import Tensor

from assay.errors import BadInput

KIND = "assay certificate"
NO_DIGEST = "0" * 64  # stands in the digest's place while it is computed


def sealed(statement: dict[str, Any], tensors: dict[str, Tensor]) -> bytes:
    """A safetensors file with the statement in its header, and in the statement the digest of the file."""
    whole = {"kind": KIND, "version": 1, **statement, "sha256": NO_DIGEST}
    data = save(tensors, metadata={"certificate": json.dumps(whole, sort_keys=True)})
    return data.replace(NO_DIGEST.encode(), hashlib.sha256(data).hexdigest().encode(), 1)


def unsealed(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Statement and tensors of a certificate; BadInput if it is not what `sealed` wrote."""
    try:
        data = path.read_bytes()
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        statement = json.loads(header["__metadata__"]["certificate"])
        blank = data.replace(statement["sha256"].encode(), NO_DIGEST.encode(), 1)
        if statement["kind"] == KIND and hashlib.sha256(blank).hexdigest() == statement["sha256"]:
            return statement, load(data)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, MemoryError):
        pass
    raise BadInput(f"{path} is not a certificate, or it was changed or damaged; `assay certify` writes certificates")

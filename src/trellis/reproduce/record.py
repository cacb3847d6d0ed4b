"""Results as the JSON that is kept."""

import json
import re
from collections.abc import Mapping
from typing import Any


def as_text(record: Mapping[str, Any]) -> str:
    """Indented, but for lists of numbers: a curve is hundreds of them, and stands on one line."""
    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
    folded = re.sub(r"\[(?:null|[-+\d.eE,\s])+\]", lambda found: " ".join(found[0].split()), text)
    return folded + "\n"

"""Write the texts to a folder, or accept them as they are."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests import golden

if sys.argv[1:] == ["--accept"]:
    digests = {name: golden.digest(text) for name, text in golden.texts()}
    golden.DIGESTS.write_text(json.dumps(digests, indent=0) + "\n", encoding="utf-8")
elif len(sys.argv) == 2 and not sys.argv[1].startswith("-"):
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in golden.texts():
        (folder / name).write_text(text, encoding="utf-8")
else:
    sys.exit("usage: python -m tests.golden FOLDER | --accept")

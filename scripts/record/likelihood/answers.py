"""Writes the sets of answers as JSON lines for `hone judge features`: python answers.py FOLDER"""

import glob
import json
import pathlib
import sys
import tomllib

folder = pathlib.Path(sys.argv[1])
own = pathlib.Path("scripts/record/likelihood/own-smollm2-135m.jsonl")
(folder / "own.jsonl").write_text(own.read_text())
for name, files in [("training", "scripts/record/likelihood/training/*.toml"), ("examination", "config/examination/*.toml")]:
    with open(folder / f"{name}.jsonl", "w") as output:
        for path in sorted(glob.glob(files)):
            for question in tomllib.loads(pathlib.Path(path).read_text())["question"]:
                for label in [label for label in ("good", "mediocre", "bad") if label in question]:
                    row = {"id": question["id"], "label": label, "query": question["question"]}
                    print(json.dumps(row | {"answer": question[label]}), file=output)

"""Writes the sets of answers as JSON lines for `hone judge features`: python answers.py FOLDER"""

import glob
import json
import pathlib
import sys
import tomllib

folder = pathlib.Path(sys.argv[1])
own = pathlib.Path("scripts/record/likelihood/own-smollm2-135m.jsonl").read_text()
(folder / "own.jsonl").write_text(own)
# The same answers, in a conversation about two other questions.
rows = [json.loads(line) for line in own.splitlines()]
with open(folder / "own-later.jsonl", "w") as output:
    for index, row in enumerate(rows):
        before = [rows[index - 2], rows[index - 1]]
        turns = [("user", "query"), ("assistant", "answer")]
        history = [{"role": role, "content": earlier[key]} for earlier in before for role, key in turns]
        print(json.dumps(row | {"history": history}), file=output)
for name, files in [("training", "scripts/record/likelihood/training/*.toml"), ("examination", "config/examination/*.toml")]:
    with open(folder / f"{name}.jsonl", "w") as output:
        for path in sorted(glob.glob(files)):
            for question in tomllib.loads(pathlib.Path(path).read_text())["question"]:
                for label in [label for label in ("good", "mediocre", "bad") if label in question]:
                    row = {"id": question["id"], "label": label, "query": question["question"]}
                    print(json.dumps(row | {"answer": question[label]}), file=output)

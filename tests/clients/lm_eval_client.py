"""lm-evaluation-harness by its `local-completions`, unchanged: log-likelihoods of endings, and continuations. The tokenizer is that
of the server (`tokenizer_backend=remote`)."""

import json
import math
import os
import pathlib
import tempfile
import urllib.request

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}

from checking import address, model, run
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager

folder = pathlib.Path(tempfile.mkdtemp())
endings = [
    ("The capital of France is", [" Paris", " Rome", " Oslo"], 0),
    ("The sun rises in the", [" ocean floor", " east", " teapot"], 1),
    ("The opposite of hot is", [" cold", " window", " seventeen"], 0),
]
rows = [json.dumps({"text": text, "endings": ways, "right": right}) for text, ways, right in endings]
(folder / "endings.jsonl").write_text("\n".join(rows))
common = f"""
dataset_path: json
dataset_kwargs: {{data_files: {folder}/endings.jsonl}}
test_split: train
doc_to_text: "{{{{text}}}}"
target_delimiter: ""
"""
(folder / "endings.yaml").write_text(
    f"task: endings\noutput_type: multiple_choice\ndoc_to_choice: '{{{{endings}}}}'\ndoc_to_target: right\n{common}"
    "metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]\n"
)
(folder / "next.yaml").write_text(
    f"task: next\noutput_type: generate_until\ndoc_to_target: '{{{{endings[right]}}}}'\n{common}"
    "generation_kwargs: {until: ['.'], max_gen_toks: 4, do_sample: false}\n"
    "metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]\n"
)


def evaluated(task):
    return simple_evaluate(
        model="local-completions",
        model_args={
            "model": model,
            "base_url": f"{address}/v1/completions",
            "tokenizer_backend": "remote",
            "num_concurrent": 1,
        },
        tasks=[task],
        task_manager=TaskManager(include_path=str(folder), include_defaults=False),
        batch_size=4,
        log_samples=True,
    )


def post(path, body):
    request = urllib.request.Request(address + path, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def endings_have_their_log_likelihoods():
    result = evaluated("endings")
    assert result["results"]["endings"]["acc,none"] == 1.0, result["results"]
    (first,) = [sample for sample in result["samples"]["endings"] if sample["doc_id"] == 0]
    measured = [likelihood for likelihood, _ in first["filtered_resps"]]
    text, ways, _ = endings[0]
    for way, likelihood in zip(ways, measured):
        body = {"model": model, "prompt": text + way, "echo": True, "logprobs": 1, "max_tokens": 0}
        logprobs = post("/v1/completions", body)["choices"][0]["logprobs"]
        places = zip(logprobs["text_offset"], logprobs["token_logprobs"])
        expected = sum(logprob for offset, logprob in places if offset >= len(text))
        assert math.isclose(float(likelihood), expected, abs_tol=1e-3), (way, likelihood, expected)


def texts_are_continued():
    result = evaluated("next")
    answers = [sample["filtered_resps"][0] for sample in result["samples"]["next"]]
    assert len(answers) == len(endings) and all(answers), answers


run(endings_have_their_log_likelihoods, texts_are_continued)

"""Clients that ask typed questions and get probabilities: OpenAI's, TypeSafe's, LangChain's and jevals. Arguments: the server's
address, the model's name."""

import math

import jevals
import openai
import typesafe_sdk
from langchain_core.messages import AIMessage, HumanMessage
from langchain_openai.decisions import Choice, Level, OpenAIDecisions, Predicate, Score

from checking import address, model, refused, run

client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=120)
typesafe = typesafe_sdk.TypeSafeClient(base_url=address, api_key="none", model=model, timeout=120)
message = "My parcel has been lost, and nobody answers. I want my money back today!"


def sums_to_one(probabilities):
    assert math.isclose(sum(probabilities), 1, abs_tol=1e-9), probabilities
    assert all(0 <= probability <= 1 for probability in probabilities), probabilities


def decisions_of_openai():
    conversation = [
        {"role": "user", "content": [{"type": "input_text", "text": message}, {"type": "input_json", "data": {"order": 7}}]},
        {"role": "assistant", "content": "I am sorry."},
    ]
    questions = [
        {"type": "predicate", "name": "lost", "instructions": "Something was lost."},
        {"type": "choice", "instructions": "Is it?", "choices": [{"value": True}, {"value": "true", "description": "text"}]},
        {"type": "score", "instructions": "How urgent?", "levels": [{"label": "low"}, {"label": "high", "description": "now"}]},
    ]
    decision = client.decisions.create(model=model, input=conversation, questions=questions)
    predicate, choice, score = decision.answers
    assert predicate.name == "lost" and 0 <= predicate.probability <= 1, predicate
    assert choice.choice in (True, "true") and [option.value for option in choice.probabilities] == [True, "true"], choice
    sums_to_one([option.probability for option in choice.probabilities])
    sums_to_one([level.probability for level in score.probabilities])
    assert math.isclose(score.score, score.probabilities[1].probability), score
    assert decision.usage.output_tokens == 3 and decision.usage.input_tokens > 100, decision.usage
    again = client.decisions.create(model=model, input=conversation, questions=questions)
    assert again.answers == decision.answers, "the same question has the same answer"


def decisions_that_are_refused():
    refused(openai.NotFoundError, lambda: client.decisions.create(model="none", input="x", questions=[]))
    refused(openai.BadRequestError, lambda: client.decisions.create(model=model, input="x", questions=[]))
    invalid = typesafe_sdk.TypeSafeUnprocessableEntityError
    one = {"one": typesafe_sdk.Choice(criteria={"only": None})}
    refused(invalid, lambda: typesafe.system_one(state="x", questions=one))
    refused(typesafe_sdk.TypeSafeNotFoundError, lambda: typesafe.system_one(state="x", questions=one, model="none"))


def system_one():
    questions = {
        "lost": typesafe_sdk.Noul(instructions="Was something lost?", criteria={"true": "It is gone"}),
        "team": typesafe_sdk.Choice(instructions="Who should answer?", criteria={"billing": "Payments", "post": None}),
        "urgency": typesafe_sdk.Score(instructions="How urgent is it?", criteria=["can wait", "this week", "today"]),
    }
    answers = typesafe.system_one(state={"message": message}, questions=questions)
    assert 0 <= answers.nouls["lost"].noul <= 1, answers
    assert answers.choices["team"].choice in ("billing", "post"), answers
    sums_to_one(answers.choices["team"].probabilities.values())
    urgency = answers.scores["urgency"]
    assert urgency.legend == {0: "can wait", 1: "this week", 2: "today"} and 0 <= urgency.score <= 2, urgency
    sums_to_one(urgency.probabilities.values())


def compressed_system_one():
    # The client compresses long bodies.
    asked = {"sky": typesafe_sdk.Noul(instructions="Is it about the sky?")}
    answers = typesafe.system_one(state="The sky is blue. " * 100, questions=asked)
    assert 0 <= answers.nouls["sky"].noul <= 1, answers


def langchain():
    decisions = OpenAIDecisions(model=model, base_url=f"{address}/v1", api_key="none")
    questions = {
        "lost": Predicate(instructions="Something was lost."),
        "team": Choice(instructions="Who should answer?", choices={"billing": "Payments", "post": None}),
        "urgency": Score(instructions="How urgent is it?", levels=[Level(label="low"), Level(label="high")]),
    }
    answers = decisions.invoke({"input": [HumanMessage(message), AIMessage("I am sorry.")], "questions": questions})
    assert set(answers.answers) == set(questions), answers


def evals():
    sample = {"input": "Where is the Eiffel Tower?", "output": "It is in Paris.", "contexts": ["The tower is in Paris."]}
    report = jevals.evaluate(sample, [jevals.get_eval("grounded")], backend=address)
    assert report.results and not any(result.error for result in report.results), report


run(decisions_of_openai, decisions_that_are_refused, system_one, compressed_system_one, langchain, evals)

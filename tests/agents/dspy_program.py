"""DSPy against hone: a signature, whose answer it takes apart."""

import sys

import dspy

address, model = sys.argv[1:]
dspy.configure(lm=dspy.LM(f"openai/{model}", api_base=f"{address}/v1", api_key="none", max_tokens=100, cache=False))
print(dspy.Predict("question -> answer")(question="Say hello.").answer)

//! Rubrics, judge prompts and verdicts: how answers are graded and compared.

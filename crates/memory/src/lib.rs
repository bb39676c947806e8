//! What is remembered: answers, their grades and vectors, and every event.

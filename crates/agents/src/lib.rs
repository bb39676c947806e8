//! Generator, critic and memory agents: explicit state machines on threads of their own.

//! The loop of a model that calls tools: it is asked, its calls are executed, and it is asked again with the results,
//! until it answers or reaches its limits.
//!
//! The generator executes calls of its own tool this way, a client those of its tools, and an agent that works on a
//! task those with which it inspects the workspace.

use crate::{Message, Role, ToolCall};

/// Limits on the tool calls for one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolLimits {
    /// The most rounds, each of which may have several calls.
    pub rounds: usize,
    /// The most calls in all rounds.
    pub calls: usize,
}

/// The rounds of one answer.
#[derive(Clone, Debug)]
pub struct ToolRounds {
    limits: ToolLimits,
    n_rounds: usize,
    n_calls: usize,
    turns: Vec<Message>,
}

impl ToolRounds {
    /// No rounds yet.
    pub fn new(limits: ToolLimits) -> ToolRounds {
        ToolRounds { limits, n_rounds: 0, n_calls: 0, turns: Vec::new() }
    }

    /// Whether the model may call tools once more; if not, it must answer.
    pub fn may_call(&self) -> bool {
        self.n_rounds < self.limits.rounds && self.n_calls < self.limits.calls
    }

    /// The model's calls so far with their results, which follow the question.
    pub fn turns(&self) -> &[Message] {
        &self.turns
    }

    /// Discards the calls and their results, which still count towards the limits.
    pub fn forget(&mut self) {
        self.turns.clear();
    }

    /// Executes the model's `calls` after its text `said`. `result_of` gets each call and whether it is within the
    /// limits, and returns the turn that the model reads, or `None` to stop: then nothing of the round is kept, and
    /// `false` is returned.
    ///
    /// # Errors
    /// The errors of `result_of`.
    pub fn carry_out<E>(
        &mut self,
        said: &str,
        calls: &[ToolCall],
        mut result_of: impl FnMut(&ToolCall, bool) -> Result<Option<Message>, E>,
    ) -> Result<bool, E> {
        let mut turns = vec![Message { tool_calls: calls.to_vec(), ..Message::new(Role::Assistant, said) }];
        for call in calls {
            let is_within_limits = self.may_call();
            self.n_calls += 1;
            let Some(turn) = result_of(call, is_within_limits)? else { return Ok(false) };
            turns.push(turn);
        }
        self.n_rounds += 1;
        self.turns.extend(turns);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Carries out rounds with these numbers of calls, and returns which calls were within the limits.
    #[track_caller]
    fn check(limits: ToolLimits, rounds: &[usize], expected: &[bool]) -> ToolRounds {
        let mut tool_rounds = ToolRounds::new(limits);
        let mut allowed = Vec::new();
        let call = ToolCall::new("look", json!({}));
        for n_calls in rounds {
            let calls = vec![call.clone(); *n_calls];
            let carried_out = tool_rounds.carry_out("", &calls, |_, is_within_limits| {
                allowed.push(is_within_limits);
                Ok::<_, std::convert::Infallible>(Some(Message::new(Role::Tool, "found")))
            });
            assert_eq!(carried_out, Ok(true));
        }
        assert_eq!(allowed, expected);
        tool_rounds
    }

    #[test]
    fn rounds_and_calls_are_limited() {
        let searches = ToolLimits { rounds: usize::MAX, calls: 3 };
        assert!(check(searches, &[1, 1], &[true, true]).may_call());
        assert!(!check(searches, &[2, 2], &[true, true, true, false]).may_call());
        let rounds = ToolLimits { rounds: 2, calls: usize::MAX };
        assert!(check(rounds, &[5], &[true; 5]).may_call());
        assert!(!check(rounds, &[1, 2], &[true; 3]).may_call());
    }

    #[test]
    fn every_round_is_a_turn_of_the_model_and_one_for_each_result() {
        let mut rounds = check(ToolLimits { rounds: 8, calls: 8 }, &[2, 1], &[true; 3]);
        let roles: Vec<Role> = rounds.turns().iter().map(|turn| turn.role).collect();
        assert_eq!(roles, [Role::Assistant, Role::Tool, Role::Tool, Role::Assistant, Role::Tool]);
        let call = ToolCall::new("look", json!({}));
        assert_eq!(rounds.carry_out("", &[call], |_, _| Ok::<_, std::convert::Infallible>(None)), Ok(false));
        assert_eq!(rounds.turns().len(), 5, "a round that was stopped is left out");
        rounds.forget();
        assert!(rounds.turns().is_empty() && rounds.may_call());
    }
}

//! State machines as types, and readable tables of them.
//!
//! A state is a token that cannot be copied, and [`AgentState::act`] is the only way from one to the next: it consumes
//! one and returns the other. The actions that a state [`Allows`] are listed once, in [`state_machine!`]: an action
//! that is not listed does not compile, and the table printed by `hone config --agents` is generated from the same
//! rows. A step has no other effect: an agent performs its actions next to the step, and its work is data next to the
//! token.

use std::fmt::Write;

/// A state of an agent.
pub(crate) trait AgentState: Sized {
    /// The agent's name.
    const AGENT: &'static str;
    /// The state's name.
    const NAME: &'static str;

    /// The state. Only [`AgentState::act`] may call this.
    fn entered() -> Self;

    /// Leaves this state, by an action that it allows, for the next one.
    fn act<A: AgentAction>(self, _: A) -> <Self as Allows<A>>::Next
    where
        Self: Allows<A>,
    {
        tracing::trace!(agent = Self::AGENT, from = Self::NAME, action = A::NAME, to = Self::Next::NAME);
        Self::Next::entered()
    }
}

/// An action that takes an agent from state to state.
pub(crate) trait AgentAction {
    /// Its name.
    const NAME: &'static str;
}

/// Declares that a state allows an action, and the next state.
pub(crate) trait Allows<A: AgentAction>: AgentState {
    /// The next state.
    type Next: AgentState;
}

/// The states and transitions of an agent, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateTable {
    /// The agent's name.
    pub agent: &'static str,
    /// Its states; it begins in the first.
    pub states: Vec<&'static str>,
    /// State, action, and next state.
    pub transitions: Vec<[&'static str; 3]>,
}

impl StateTable {
    /// The table as a Mermaid state diagram (`stateDiagram-v2`, <https://mermaid.js.org/syntax/stateDiagram.html>).
    pub fn mermaid(&self) -> String {
        let mut diagram = format!("stateDiagram-v2\n    [*] --> {}\n", self.states[0]);
        for [from, action, to] in &self.transitions {
            // Writing to a string cannot fail.
            let _ = writeln!(diagram, "    {from} --> {to}: {action}");
        }
        diagram
    }
}

/// The table row for an action in a state.
pub(crate) fn row<S: Allows<A>, A: AgentAction>() -> [&'static str; 3] {
    [S::NAME, A::NAME, S::Next::NAME]
}

/// Defines an agent's states and actions, and the resulting transitions. The states in `rests` are the variants of
/// `State`, in which the agent waits between events, all but the first with its work; it begins in the first. The
/// states in `passes` are entered and left while one event is handled.
macro_rules! state_machine {
    (
        $agent:literal;
        rests { $first:ident = $first_name:literal, $($rest:ident($work:ty) = $rest_name:literal,)* }
        passes { $($pass:ident = $pass_name:literal,)* }
        actions { $($action:ident = $action_name:literal,)* }
        transitions { $($from:ident + $by:ident => $to:ident,)* }
    ) => {
        /// The agent's current state, with its work.
        pub(crate) enum State {
            $first($first),
            $($rest($rest, $work),)*
        }

        impl Default for $first {
            fn default() -> Self {
                $first(())
            }
        }

        impl Default for State {
            fn default() -> Self {
                State::$first($first::default())
            }
        }

        $crate::machine::state_machine!(
            @state $agent; $first = $first_name, $($rest = $rest_name,)* $($pass = $pass_name,)*
        );

        $(
            #[derive(Debug)]
            pub(crate) struct $action;

            impl $crate::machine::AgentAction for $action {
                const NAME: &'static str = $action_name;
            }
        )*

        $(
            impl $crate::machine::Allows<$by> for $from {
                type Next = $to;
            }
        )*

        /// The table of this state machine.
        pub(crate) fn table() -> $crate::machine::StateTable {
            $crate::machine::StateTable {
                agent: $agent,
                states: vec![$first_name, $($rest_name,)* $($pass_name,)*],
                transitions: vec![$($crate::machine::row::<$from, $by>(),)*],
            }
        }
    };
    (@state $agent:literal; $($state:ident = $name:literal,)*) => {
        $(
            // The field is private to this module, so that states are entered only through actions.
            pub(crate) struct $state(());

            impl $crate::machine::AgentState for $state {
                const AGENT: &'static str = $agent;
                const NAME: &'static str = $name;

                fn entered() -> Self {
                    $state(())
                }
            }
        )*
    };
}
pub(crate) use state_machine;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::tables;

    /// The states that `steps` reach from `first`, including `first`.
    fn reached<'a>(first: &'a str, steps: &[(&'a str, &'a str)]) -> BTreeSet<&'a str> {
        let mut reached = BTreeSet::from([first]);
        loop {
            let next = steps.iter().filter(|(from, _)| reached.contains(from)).map(|(_, to)| *to);
            let more: BTreeSet<&str> = next.chain(reached.iter().copied()).collect();
            if more == reached {
                return reached;
            }
            reached = more;
        }
    }

    #[test]
    fn every_state_is_reached_and_left_for_the_first_again() {
        for table in tables() {
            let states: BTreeSet<&str> = table.states.iter().copied().collect();
            let steps: Vec<(&str, &str)> = table.transitions.iter().map(|[from, _, to]| (*from, *to)).collect();
            let back: Vec<(&str, &str)> = steps.iter().map(|(from, to)| (*to, *from)).collect();
            assert_eq!(reached(table.states[0], &steps), states, "the {} agent has a state out of reach", table.agent);
            assert_eq!(reached(table.states[0], &back), states, "the {} agent has a dead end", table.agent);
        }
    }

    #[test]
    fn a_table_is_a_diagram() {
        let table = tables().into_iter().find(|table| table.agent == "generator").map(|table| table.mermaid());
        let diagram = table.unwrap_or_default();
        assert!(
            diagram.starts_with("stateDiagram-v2\n    [*] --> IDLE\n    IDLE --> RECALLING: RECEIVE\n"),
            "{diagram}"
        );
    }
}

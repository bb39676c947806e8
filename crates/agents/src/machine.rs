//! State machines as tables: what state an agent is in, and which actions lead where.
//!
//! The table says what is legal, and [`Machine::act`] is the only way from state to state. An action that the state does not
//! allow is a defect of the agent; it is logged, the machine goes back to its first state, and the agent is told, so that
//! it lets go of its work and lives on.

use std::fmt::Write;

use thiserror::Error;

/// A state or an action: one of a closed set of names.
pub(crate) trait Named: Copy + PartialEq + Send + Sync + 'static {
    /// All of them.
    const ALL: &'static [Self];

    /// The name.
    fn name(self) -> &'static str;
}

/// One row of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transition<S: 'static, A: 'static> {
    pub(crate) from: S,
    pub(crate) action: A,
    pub(crate) to: S,
}

/// What an agent may do in which state. The first state of `S` is the one in which it waits.
#[derive(Debug)]
pub(crate) struct Table<S: 'static, A: 'static> {
    pub(crate) agent: &'static str,
    pub(crate) transitions: &'static [Transition<S, A>],
}

/// Where an agent stands in its table.
#[derive(Debug)]
pub(crate) struct Machine<S: 'static, A: 'static> {
    table: &'static Table<S, A>,
    state: S,
}

/// An action that the state does not allow.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("the {agent} agent cannot {action} while it is {state}")]
pub(crate) struct IllegalTransition {
    agent: &'static str,
    action: &'static str,
    state: &'static str,
}

impl<S: Named, A: Named> Machine<S, A> {
    /// A machine in the first state.
    pub(crate) fn new(table: &'static Table<S, A>) -> Self {
        Machine { table, state: S::ALL[0] }
    }

    /// Goes where the action leads.
    ///
    /// # Errors
    /// When the table has no such row; the machine is in its first state then.
    pub(crate) fn act(&mut self, action: A) -> Result<(), IllegalTransition> {
        let mut rows = self.table.transitions.iter();
        let row = rows.find(|row| row.from == self.state && row.action == action);
        let agent = self.table.agent;
        let Some(row) = row else {
            let illegal = IllegalTransition { agent, action: action.name(), state: self.state.name() };
            tracing::error!(agent, reset_to = S::ALL[0].name(), "{illegal}");
            self.state = S::ALL[0];
            return Err(illegal);
        };
        tracing::trace!(agent, from = row.from.name(), action = action.name(), to = row.to.name());
        self.state = row.to;
        Ok(())
    }

    /// Goes where the first action of a piece of work leads. A machine that does not stand where work begins has been left
    /// there by a defect; the work is not to suffer for it, and begins after the reset.
    ///
    /// # Errors
    /// When no work begins with this action.
    pub(crate) fn begin(&mut self, action: A) -> Result<(), IllegalTransition> {
        self.act(action).or_else(|_| self.act(action))
    }
}

/// A table for people to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateTable {
    /// The agent.
    pub agent: &'static str,
    /// Its states; it begins in the first.
    pub states: Vec<&'static str>,
    /// State, action, and the state that it leads to.
    pub transitions: Vec<[&'static str; 3]>,
}

impl StateTable {
    pub(crate) fn of<S: Named, A: Named>(table: &Table<S, A>) -> StateTable {
        let names = |row: &Transition<S, A>| [row.from.name(), row.action.name(), row.to.name()];
        StateTable {
            agent: table.agent,
            states: S::ALL.iter().map(|state| state.name()).collect(),
            transitions: table.transitions.iter().map(names).collect(),
        }
    }

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

/// Defines the states, the actions and the table of an agent. The first state is the one in which it waits.
macro_rules! state_machine {
    (
        $agent:literal;
        $(#[$of_states:meta])* states { $($state:ident = $state_name:literal,)* }
        $(#[$of_actions:meta])* actions { $($action:ident = $action_name:literal,)* }
        transitions { $($from:ident + $by:ident => $to:ident,)* }
    ) => {
        $(#[$of_states])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum State { $($state,)* }

        $(#[$of_actions])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Action { $($action,)* }

        impl $crate::machine::Named for State {
            const ALL: &'static [State] = &[$(State::$state,)*];

            fn name(self) -> &'static str {
                match self { $(State::$state => $state_name,)* }
            }
        }

        impl $crate::machine::Named for Action {
            const ALL: &'static [Action] = &[$(Action::$action,)*];

            fn name(self) -> &'static str {
                match self { $(Action::$action => $action_name,)* }
            }
        }

        pub(crate) static TABLE: $crate::machine::Table<State, Action> = $crate::machine::Table {
            agent: $agent,
            transitions: &[$($crate::machine::Transition { from: State::$from, action: Action::$by, to: State::$to },)*],
        };
    };
}
pub(crate) use state_machine;

#[cfg(test)]
impl<S: Named, A: Named> Machine<S, A> {
    /// A machine in this state, however it came there.
    pub(crate) fn at(table: &'static Table<S, A>, state: S) -> Self {
        Machine { table, state }
    }

    /// Where it stands.
    pub(crate) fn state(&self) -> S {
        self.state
    }
}

/// That a table has exactly the rows of `diagram`, takes every one of them, and refuses and resets on everything else.
#[cfg(test)]
#[track_caller]
pub(crate) fn check_table<S: Named, A: Named>(table: &'static Table<S, A>, diagram: &str) {
    assert_eq!(StateTable::of(table).mermaid(), diagram);
    let mut n_legal = 0;
    for &from in S::ALL {
        for &action in A::ALL {
            let mut machine = Machine::at(table, from);
            let row = format!("    {} --> ", from.name());
            let suffix = format!(": {}", action.name());
            let expected = diagram.lines().find_map(|line| line.strip_prefix(&row)?.strip_suffix(&suffix));
            let outcome = machine.act(action);
            assert_eq!(outcome.is_ok(), expected.is_some(), "{} + {}", from.name(), action.name());
            assert_eq!(machine.state().name(), expected.unwrap_or(S::ALL[0].name()));
            n_legal += usize::from(outcome.is_ok());
        }
    }
    assert_eq!(n_legal, table.transitions.len(), "a row stands twice or contradicts another");
}

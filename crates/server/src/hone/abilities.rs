//! hone's abilities besides answering, in one place: the tools of its MCP servers.

use std::sync::Arc;

use hone_app::ServedMemory;
use hone_app::judging::ServedJudges;
use hone_memory::Whose;
use hone_protocol::OwnerId;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::blocking;
use super::judging::{Bench, CompareRequest, GradeRequest};
use super::memory::{Search, found, switched_on};
use super::report::report;
use crate::Shared;
use crate::clients::Client;
use crate::decisions::TerminalDecider;
use crate::error::ApiError;
use crate::systemone::{SystemOneBody, decided, decided_at_terminal};

/// The abilities available to one client.
#[derive(Clone)]
pub(crate) struct Abilities {
    bench: Bench,
    memory: Option<ServedMemory>,
    whose: Whose,
    decides: Decides,
}

/// Where decisions are made.
#[derive(Clone)]
enum Decides {
    /// The server, for one of its clients.
    Server(Arc<Shared>, Client),
    Terminal(Arc<TerminalDecider>),
}

impl Abilities {
    /// The abilities for a server's client.
    pub(crate) fn of_client(shared: &Arc<Shared>, client: Client) -> Abilities {
        Abilities {
            bench: Bench::of(shared),
            memory: shared.parts.memory.clone(),
            whose: client.whose(),
            decides: Decides::Server(Arc::clone(shared), client),
        }
    }

    /// For the terminal user; limits pending verdicts.
    pub(crate) fn of_terminal(
        judges: Arc<ServedJudges>,
        memory: Option<ServedMemory>,
        decider: TerminalDecider,
        most_verdicts: usize,
    ) -> Abilities {
        let room = Arc::new(Semaphore::new(most_verdicts));
        let decides = Decides::Terminal(Arc::new(decider));
        Abilities { bench: Bench { judges, room }, memory, whose: Whose::Of(None), decides }
    }

    fn owner(&self) -> Option<OwnerId> {
        match self.whose {
            Whose::Of(owner) => owner,
            Whose::Everyones => None,
        }
    }

    /// Grades an answer.
    ///
    /// # Errors
    /// When there is no judge, or too many requests wait for it.
    pub(crate) async fn grade(&self, request: GradeRequest) -> Result<Value, ApiError> {
        self.bench.grade(request, self.owner()).await
    }

    /// Compares two answers.
    ///
    /// # Errors
    /// When there is no judge, or too many requests wait for it.
    pub(crate) async fn compare(&self, request: CompareRequest) -> Result<Value, ApiError> {
        self.bench.compare(request, self.owner()).await
    }

    /// Answers questions about a text with probabilities.
    ///
    /// # Errors
    /// When the model cannot be run, there is no room, or a question is not valid.
    pub(crate) async fn decide(&self, body: SystemOneBody) -> Result<Value, ApiError> {
        match &self.decides {
            Decides::Server(shared, client) => decided(shared, *client, body).await,
            Decides::Terminal(decider) => decided_at_terminal(decider, body).await,
        }
    }

    /// Searches the client's memory.
    ///
    /// # Errors
    /// When memory is switched off or cannot be read.
    pub(crate) async fn search_memory(&self, search: Search) -> Result<Value, ApiError> {
        let (memory, whose) = (switched_on(self.memory.as_ref())?.clone(), self.whose);
        blocking(move || found(&memory, whose, &search)).await
    }

    /// Statistics about the client's answers, without the graphs.
    ///
    /// # Errors
    /// When memory is switched off or cannot be read.
    pub(crate) async fn report(&self) -> Result<Value, ApiError> {
        let (store, whose) = (switched_on(self.memory.as_ref())?.store.clone(), self.whose);
        blocking(move || report(&store, whose)).await.map(without_graphs)
    }
}

/// A report as a model can read it.
fn without_graphs(value: Value) -> Value {
    match value {
        Value::Object(object) => {
            let kept = object.into_iter().filter(|(key, _)| key != "svg");
            kept.map(|(key, value)| (key, without_graphs(value))).collect()
        }
        Value::Array(values) => values.into_iter().map(without_graphs).collect(),
        other => other,
    }
}

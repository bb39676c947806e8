//! A workspace, a place for tasks, and everything that a runner needs.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hone_app::authoring::EngineAuthor;
use hone_bus::{Bus, Mailbox, Overload, Subscription};
use hone_containment::Launcher;
use hone_memory::{MemoryOptions, MemoryStore};
use hone_protocol::scripted::{Script, Scripted};
use hone_protocol::{GateAction, GenerateRequest, Prompt, Subject};
use hone_work::{Assignment, EvaluatorTool, Reviewers, TaskPhase, TaskRecord, TaskRunner, TaskStore, ToolSettings};

use crate::support::Home;

/// The answer of a model that plans.
pub(crate) const PLAN: &str =
    "=== write implementation_plan.md\n1. Write the code, such as main.py.\n2. Run the tests.\n=== end\n";

/// All texts of a prompt.
pub(crate) fn prompt_of(request: &GenerateRequest) -> String {
    let Prompt::Chat(messages) = &request.prompt else { panic!("not a chat") };
    messages.iter().map(|message| message.content.as_str()).collect::<Vec<_>>().join("\n")
}

/// A model that plans, and then gives these answers, repeating the last one.
pub(crate) fn answering(answers: Vec<String>) -> Arc<Scripted> {
    let next = AtomicUsize::new(0);
    Arc::new(Scripted::new(move |request| {
        if prompt_of(request).contains("Write no other file") {
            return Script::saying(&[PLAN]);
        }
        let n = next.fetch_add(1, Ordering::SeqCst);
        Script::saying(&[&answers[n.min(answers.len() - 1)]])
    }))
}

/// The phase, the agent and the decision of every attempt.
pub(crate) fn actions(record: &TaskRecord) -> Vec<(&str, &str, GateAction)> {
    let of = |attempt: &'_ hone_work::WorkAttempt| attempt.decision.as_ref().unwrap().action;
    record.attempts.iter().map(|attempt| (attempt.phase.as_str(), attempt.agent.as_str(), of(attempt))).collect()
}

/// A workspace with files, in a home of hone.
pub(crate) struct Stage {
    pub(crate) home: Home,
    pub(crate) bus: Bus,
    events: Mailbox,
    /// Changes to the shipped tools.
    pub(crate) tools: toml::Table,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) reviewers: Reviewers,
}

impl Stage {
    pub(crate) fn new(files: &[(&str, &str)]) -> Stage {
        let home = Home::new();
        fs::create_dir_all(home.path("workspace")).unwrap();
        for (path, text) in files {
            home.write(&format!("workspace/{path}"), text.as_bytes());
        }
        let bus = Bus::new();
        let events = bus.subscribe(Subscription {
            name: "test".into(),
            subjects: Subject::ALL.to_vec(),
            sessions: None,
            capacity: 256,
            overload: Overload::Close,
        });
        let environment = std::env::vars().collect();
        Stage { home, bus, events, tools: toml::Table::new(), environment, reviewers: Reviewers::default() }
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.home.path("workspace").canonicalize().unwrap()
    }

    /// The store of tasks, where `hone task` finds them, too.
    pub(crate) fn store(&self) -> TaskStore {
        TaskStore::new(self.home.path("data/tasks"))
    }

    pub(crate) fn task(&self, text: &str) -> TaskRecord {
        self.store().create(Assignment::parse(text).unwrap(), self.workspace()).unwrap()
    }

    pub(crate) fn runner(&self, ladder: &[&str], generator: Arc<Scripted>) -> TaskRunner {
        let mut gate: toml::Table = include_str!("../../config/gate.toml").parse().unwrap();
        gate.insert("ladder".into(), ladder.iter().map(|agent| (*agent).to_owned()).collect::<Vec<_>>().into());
        let bus = self.bus.clone();
        TaskRunner {
            author: Arc::new(EngineAuthor::new(generator, HashMap::new())),
            request: GenerateRequest::new("", Prompt::Chat(Vec::new())),
            agent: "small".into(),
            phases: TaskPhase::all(toml::Table::new()).unwrap(),
            tools: EvaluatorTool::all(&self.tools).unwrap(),
            tool_settings: ToolSettings {
                launcher: launcher(),
                workspace: self.workspace(),
                environment: self.environment.clone(),
                is_cancelled: Arc::new(|| false),
            },
            reviewers: self.reviewers.clone(),
            gate: gate.try_into().unwrap(),
            publish: Box::new(move |event| bus.publish(event).unwrap()),
            store: self.store(),
        }
    }

    /// The subjects of the events since the last call.
    pub(crate) fn subjects(&self) -> Vec<&'static str> {
        self.events.receiver().try_iter().map(|envelope| envelope.subject().as_str()).collect()
    }

    /// Writes the events since the last call into the log, which `hone events` reads.
    pub(crate) fn log_events(&self) {
        let store = MemoryStore::open(&self.home.path("data/memory"), MemoryOptions::default()).unwrap();
        for envelope in self.events.receiver().try_iter() {
            store.append_event(&envelope).unwrap();
        }
    }

    pub(crate) fn file(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.workspace().join(name)).ok()
    }
}

/// Runs commands in the binary under test.
pub(crate) fn launcher() -> Launcher {
    Launcher {
        program: Path::new(env!("CARGO_BIN_EXE_hone")).to_owned(),
        arguments: vec!["command-worker".into()],
        uses_namespaces: true,
    }
}

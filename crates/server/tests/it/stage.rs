//! A running server.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hone_agents::{Expected, Load, MemoryParts, RespondentB, Team, TeamParts};
use hone_app::config::{Config, ServerSettings, Source};
use hone_app::conversations::{OwnedConversations, fresh_name};
use hone_app::judging::ServedJudges;
use hone_app::{App, ServedMemory, Silent};
use hone_bus::Bus;
use hone_judging::{FeedbackMode, JudgeSettings, Jury, scripted};
use hone_memory::{MemoryOptions, MemoryStore};
use hone_protocol::scripted::{Script, Scripted};
use hone_protocol::{GenerateRequest, Prompt, SamplingOptions};
use hone_server::{Server, ServerParts};
use serde_json::{Value, json};
use tempfile::TempDir;
use time::OffsetDateTime;
use tokio::sync::watch;

use crate::conformance;
use crate::shelf::silent_memory;
use crate::staged::StagedModels;

/// Far longer than anything here takes, so that only a missing event reaches it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A running server with its agents and model.
pub(crate) struct Stage {
    pub(crate) address: SocketAddr,
    /// The address for Ollama's clients.
    pub(crate) compat_address: Option<SocketAddr>,
    pub(crate) model: Arc<Scripted>,
    pub(crate) bus: Bus,
    /// `None` if memory is off.
    pub(crate) store: Option<MemoryStore>,
    pub(crate) models: Arc<StagedModels>,
    /// The model of the judge, if there is one.
    pub(crate) judge: Option<Arc<Scripted>>,
    stop: watch::Sender<bool>,
    _runtime: tokio::runtime::Runtime,
    _team: Team,
    _folder: TempDir,
}

/// The judge, and whether answers are remembered.
#[derive(Default)]
pub(crate) struct Plan {
    /// The judge's model; without it, nothing is graded.
    pub(crate) judge: Option<Scripted>,
    /// Whether the judge writes its reasons on request only.
    pub(crate) is_silent: bool,
    pub(crate) remembers: bool,
}

impl Plan {
    /// A memory, and a judge that gives every answer this score, except for the answer `endless`, whose judging never
    /// ends.
    pub(crate) fn grading(score: u8) -> Plan {
        let verdict = format!(" [RESULT] {score}");
        let judge = Scripted::new(move |request| match scripted::turn(request).contains("endless") {
            true => Script::never_ending(&["Well, "]),
            false => Script::saying(&["It is fine.", &verdict]),
        });
        Plan { judge: Some(judge), remembers: true, ..Plan::default() }
    }
}

pub(crate) fn settings() -> ServerSettings {
    ServerSettings {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        compat_port: 0,
        keys: Vec::new(),
        hosts: Vec::new(),
        most_answers: 8,
        most_questions: 64,
        most_streams: 64,
        most_body: Some(1 << 20),
        most_connections: 1024,
        patience: Some(Duration::from_secs(20)),
        drain: Some(Duration::from_secs(30)),
        respondent_b: false,
        model_b: String::new(),
        temperature_b: 0.5,
    }
}

/// An app whose judge cannot be asked: its rubric does not exist.
fn app(home: &Path) -> App {
    let mut config = Config::defaults().unwrap();
    config.set_text("judge.rubric", "missing", Source::Default).unwrap();
    App::in_folder(config, home.to_owned(), Arc::new(Silent)).unwrap()
}

/// The name of a conversation that begins with this question today.
pub(crate) fn name_of(question: &str) -> String {
    fresh_name(OffsetDateTime::now_utc().date(), question, |_| Ok(false))
}

fn team_parts(
    settings: &ServerSettings,
    model: &Arc<Scripted>,
    judge: Option<Jury>,
    store: Option<MemoryStore>,
) -> TeamParts {
    let memory =
        |store| MemoryParts { store, embedder: None, settings: silent_memory(), remembers: true, grades_due: false };
    TeamParts {
        generator: Arc::clone(model) as _,
        respondent_b: Some(RespondentB { model: None, temperature: settings.temperature_b }),
        judge,
        graders: None,
        memory: store.map(memory),
        works_off_backlog: false,
        critic: None,
        load: Load { most_answers: settings.most_answers, most_questions: settings.most_questions },
    }
}

impl Stage {
    pub(crate) fn start(
        settings: ServerSettings,
        respond: impl Fn(&GenerateRequest) -> Script + Send + Sync + 'static,
    ) -> Stage {
        Stage::planned(settings, Plan::default(), respond)
    }

    pub(crate) fn planned(
        settings: ServerSettings,
        plan: Plan,
        respond: impl Fn(&GenerateRequest) -> Script + Send + Sync + 'static,
    ) -> Stage {
        let bus = Bus::new();
        let folder = tempfile::tempdir().unwrap();
        let model = Arc::new(Scripted::new(respond));
        let store =
            plan.remembers.then(|| MemoryStore::open(&folder.path().join("memory"), MemoryOptions::default()).unwrap());
        let judge_model = plan.judge.map(Arc::new);
        let feedback = plan.is_silent.then_some(FeedbackMode::OnRequest);
        let judge_settings = JudgeSettings { feedback, ..JudgeSettings::shipped() };
        let jury = judge_model.clone().map(|model| Jury::from(scripted::judge_over(model, judge_settings)));
        let expected = Expected { grades: jury.is_some(), ..Expected::default() };
        let app = app(&folder.path().join("home"));
        let judges = match &jury {
            Some(jury) => ServedJudges::given(jury.clone()),
            None => ServedJudges::configured(&app, Arc::clone(&model) as _),
        };
        let team = Team::start(&bus, team_parts(&settings, &model, jury, store.clone())).unwrap();
        let staged = Arc::new(StagedModels::default());
        let parts = ServerParts {
            app,
            bus: bus.clone(),
            expected,
            models: Arc::clone(&staged) as _,
            generator: Arc::clone(&model) as _,
            responses: folder.path().join("responses"),
            memory: store.clone().map(|store| ServedMemory { store, recaller: None }),
            conversations: OwnedConversations::new(None, String::new()),
            judges: Arc::new(judges),
            sampling: SamplingOptions::default(),
            max_tokens: None,
            stop: Vec::new(),
            version: "1.2.3",
        };
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let server = runtime.block_on(Server::bind(settings, None, parts)).unwrap();
        let (address, compat_address) = (server.address(), server.compat_address());
        let (stop, stopped) = watch::channel(false);
        runtime.spawn(server.serve(stopped));
        Stage {
            address,
            compat_address,
            model,
            bus,
            store,
            models: staged,
            judge: judge_model,
            stop,
            _runtime: runtime,
            _team: team,
            _folder: folder,
        }
    }

    /// Sends a request as is, and returns the status and the body.
    pub(crate) fn send(&self, request: &str) -> (u16, String) {
        self.send_to(self.address, request)
    }

    /// Sends a request to one of its ports.
    pub(crate) fn send_to(&self, address: SocketAddr, request: &str) -> (u16, String) {
        let mut stream = connect(address, request);
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).unwrap_or_else(|| panic!("{answer}")).parse().unwrap();
        let head = head.to_ascii_lowercase();
        let is_chunked = head.contains("transfer-encoding: chunked");
        let body = if is_chunked { unchunked(body) } else { body.to_owned() };
        let kind = head.lines().find_map(|line| line.strip_prefix("content-type: ")).unwrap_or_default();
        conformance::check(request, status, kind, &body);
        (status, body)
    }

    pub(crate) fn connect(&self, request: &str) -> TcpStream {
        connect(self.address, request)
    }

    pub(crate) fn get(&self, path: &str) -> (u16, Value) {
        self.bare("GET", path)
    }

    pub(crate) fn delete(&self, path: &str) -> (u16, Value) {
        self.bare("DELETE", path)
    }

    /// A request without a body.
    fn bare(&self, method: &str, path: &str) -> (u16, Value) {
        let host = self.address;
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let (status, body) = self.send(&head);
        (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, body) = self.send(&self.post_text(path, body));
        (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
    }

    /// Sends a request with a key.
    pub(crate) fn with_key(&self, key: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let (status, body) = self.send(&self.keyed_text(key, method, path, body));
        (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
    }

    /// The text of a request with a key.
    pub(crate) fn keyed_text(&self, key: &str, method: &str, path: &str, body: &Value) -> String {
        let header = format!("Authorization: Bearer {key}\r\nContent-Type");
        self.post_text(path, body).replacen("POST", method, 1).replacen("Content-Type", &header, 1)
    }

    /// Tells the server to stop, which lets answers in progress end.
    pub(crate) fn stop(&self) {
        self.stop.send(true).unwrap();
    }

    /// Sends a request of any method with a JSON body.
    pub(crate) fn request(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let (status, body) = self.send(&self.post_text(path, body).replacen("POST", method, 1));
        (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
    }

    pub(crate) fn post_text(&self, path: &str, body: &Value) -> String {
        let (host, body) = (self.address, body.to_string());
        let length = body.len();
        format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        )
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
    }
}

fn connect(address: SocketAddr, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

fn unchunked(body: &str) -> String {
    let (mut text, mut rest) = (String::new(), body);
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        if size == 0 || after.len() < size {
            break;
        }
        text.push_str(&after[..size]);
        rest = after[size..].trim_start_matches("\r\n");
    }
    text
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    wait_for(what, || holds().then_some(()));
}

/// Waits until `look` finds something, and returns that. Looking takes at most half of the time.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        let begun = Instant::now();
        if let Some(found) = look() {
            return found;
        }
        assert!(begun < until, "within {PATIENCE:?} it has not come about that {what}");
        std::thread::sleep(begun.elapsed().max(Duration::from_millis(1)));
    }
}

pub(crate) fn question_of(request: &GenerateRequest) -> String {
    let Prompt::Chat(messages) = &request.prompt else { panic!("only conversations are asked") };
    messages.last().unwrap().content.clone()
}

/// Answers with the question, in pieces.
pub(crate) fn echo(request: &GenerateRequest) -> Script {
    let question = question_of(request);
    match question.as_str() {
        "endless" => Script::never_ending(&["on ", "and "]),
        _ => Script::saying(&question.split_inclusive(' ').collect::<Vec<_>>()),
    }
}

pub(crate) fn ask(question: &str) -> Value {
    json!({"model": "scripted", "messages": [{"role": "user", "content": question}]})
}

//! `hone launch`: starts a coding agent that asks hone's models.
//!
//! The agents are rows of `config/launch.toml`. Each learns of hone from its environment, its arguments, or a file in
//! hone's data folder: its own settings stay as they are.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use hone_app::models::GgufFacts;
use hone_files::{create_private_folder, open_private};
use serde::Deserialize;
use serde_json::Value;

use super::background;
use crate::arguments::LaunchArguments;
use crate::failure::{Outcome, usage};
use crate::invocation::Invocation;

/// The agents.
const AGENTS: &str = include_str!("../../../../config/launch.toml");
/// The key, where a server demands one.
const KEY: &str = "HONE_API_KEY";
/// The prompts of some agents have 15 000 tokens before the first question.
const LEAST_CONTEXT: usize = 32 * 1024;
/// Maximum bytes read of an answer.
const LONGEST_ANSWER: u64 = 4 << 20;
/// Time limit for a server to accept a connection.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time limit for its answer.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// A row of the agents.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Agent {
    title: String,
    /// The program that is started.
    program: String,
    /// How it is installed.
    install: String,
    /// Environment variables to remove.
    #[serde(default)]
    remove: Vec<String>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    #[serde(default)]
    arguments: Vec<String>,
    /// The contents of a file that points it to hone.
    file: Option<String>,
}

/// Starts an agent, and a server if none runs.
///
/// # Errors
/// When the agent is unknown or not installed, or the server cannot be started.
pub(crate) fn run(app: &Invocation, arguments: &LaunchArguments) -> anyhow::Result<Outcome> {
    let agents = agents();
    let Some(name) = &arguments.agent else { return list(app, &agents) };
    let agent = agents.get(name).ok_or_else(|| {
        let names: Vec<&str> = agents.keys().map(String::as_str).collect();
        usage(format!("{name:?} is no agent that hone knows: {}", names.join(", ")))
    })?;
    let program = match arguments.print {
        true => None,
        false => Some(found(&agent.program).with_context(|| {
            format!("{} is not installed, or not in the PATH: `{}` installs it", agent.title, agent.install)
        })?),
    };
    let address = app.config.server.listen;
    let model = app.config.engine.model.clone();
    let key = std::env::var(KEY).unwrap_or_else(|_| "none".to_owned());
    let served = served_context(reachable(address), &model, &key)?;
    let context = match served {
        Some(context) => context,
        None if arguments.print => LEAST_CONTEXT,
        None => context_of(app)?,
    };
    if context < LEAST_CONTEXT {
        app.output.note(&format!(
            "{model} has a context of {context} tokens here, and the prompts of coding agents alone may have 15000: one of \
             {LEAST_CONTEXT} or more is better (`hone serve --context {LEAST_CONTEXT}`, if the model has it)"
        ));
    }
    let file = agent.file.as_ref().map(|_| app.data_folder().join("launch").join(name));
    let places = Places {
        base: format!("http://{}", reachable(address)),
        model,
        context: context.to_string(),
        key,
        file: file.as_deref().map(|path| path.display().to_string()).unwrap_or_default(),
    };
    if let (Some(path), Some(text)) = (&file, &agent.file) {
        write(path, &places.filled_in_json(text))?;
    }
    let Some(program) = program else {
        app.output.print_line(&written(agent, &places, &arguments.arguments))?;
        return Ok(Outcome::Done);
    };
    if served.is_none() {
        serve(app, address, context)?;
    }
    let mut command = Command::new(program);
    command.args(agent.arguments.iter().map(|argument| places.filled(argument))).args(&arguments.arguments);
    for name in &agent.remove {
        command.env_remove(name);
    }
    command.envs(agent.environment.iter().map(|(name, value)| (name, places.filled(value))));
    replace(&mut command).with_context(|| format!("cannot start {}", agent.program))
}

fn agents() -> BTreeMap<String, Agent> {
    toml::from_str(AGENTS).expect("the list of agents is valid")
}

fn list(app: &Invocation, agents: &BTreeMap<String, Agent>) -> anyhow::Result<Outcome> {
    let mut rows = vec![vec!["agent".to_owned(), "program".to_owned(), "installed".to_owned()]];
    rows.extend(agents.iter().map(|(name, agent)| {
        let place = found(&agent.program).map(|path| path.display().to_string());
        vec![name.clone(), agent.title.clone(), place.unwrap_or_else(|| format!("no: {}", agent.install))]
    }));
    app.output.table(&rows, 0).iter().try_for_each(|line| app.output.print_line(line))?;
    Ok(Outcome::Done)
}

/// The values of the placeholders in a row.
struct Places {
    base: String,
    model: String,
    context: String,
    key: String,
    file: String,
}

impl Places {
    /// Fills the placeholders of a text; JSON stays valid.
    fn filled(&self, text: &str) -> String {
        if text.starts_with("{\"") { self.filled_in_json(text) } else { self.replaced(text) }
    }

    /// Fills the placeholders in strings of JSON, or of YAML, which escapes them alike.
    fn filled_in_json(&self, text: &str) -> String {
        let escaped = |text: &String| {
            let quoted = Value::from(text.as_str()).to_string();
            quoted[1..quoted.len() - 1].to_owned()
        };
        let Places { base, model, context, key, file } = self;
        let places = Places {
            base: escaped(base),
            model: escaped(model),
            context: escaped(context),
            key: escaped(key),
            file: escaped(file),
        };
        places.replaced(text)
    }

    fn replaced(&self, text: &str) -> String {
        let Places { base, model, context, key, file } = self;
        let places = [("{base}", base), ("{model}", model), ("{context}", context), ("{key}", key), ("{file}", file)];
        places.iter().fold(text.to_owned(), |text, (place, value)| text.replace(place, value))
    }
}

/// The context with which a server is started: the configured one, or a longer one that a coding agent needs, if the model
/// was trained for it.
fn context_of(app: &Invocation) -> anyhow::Result<usize> {
    let facts = GgufFacts::read(&app.model_file(&app.config.engine.model)?)?;
    let trained = facts.context_length.and_then(|length| usize::try_from(length).ok()).unwrap_or(usize::MAX);
    let configured = app.config.engine.options.model.context_length.unwrap_or(trained);
    Ok(trained.min(configured.max(LEAST_CONTEXT)))
}

/// The command in shell syntax.
fn written(agent: &Agent, places: &Places, more: &[OsString]) -> String {
    let removed = agent.remove.iter().map(|name| format!("-u {name}"));
    let variables = agent.environment.iter().map(|(name, value)| format!("{name}={}", quoted(&places.filled(value))));
    let arguments = agent.arguments.iter().map(|argument| quoted(&places.filled(argument)));
    let more = more.iter().map(|argument| quoted(&argument.to_string_lossy()));
    let begin = ["env".to_owned()].into_iter().chain(removed);
    begin.chain(variables).chain([agent.program.clone()]).chain(arguments).chain(more).collect::<Vec<_>>().join(" ")
}

fn quoted(text: &str) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_./:=@,".contains(character);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// The address at which this machine reaches a server that listens at `address`.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// The length of a model's context at the server that listens at `address`; `None` if no server does.
///
/// # Errors
/// When the listener is not a server of hone, or does not serve the model.
fn served_context(address: SocketAddr, model: &str, key: &str) -> anyhow::Result<Option<usize>> {
    let Ok(stream) = TcpStream::connect_timeout(&address, PATIENCE) else { return Ok(None) };
    let answer = properties(stream, address, model, key)
        .with_context(|| format!("what listens at {address} does not answer: choose another address with --listen"))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).unwrap_or_default();
    let properties: Value = serde_json::from_str(body).unwrap_or_default();
    match (status, properties["default_generation_settings"]["n_ctx"].as_u64()) {
        ("200", Some(context)) => Ok(Some(usize::try_from(context)?)),
        ("401", _) => bail!("the server at {address} demands a key: set {KEY} to one of its keys"),
        ("404", _) if properties["error"].is_object() => {
            bail!(
                "the server at {address} does not have the model {model}: choose another with --model, or end it with `hone down`"
            )
        }
        _ => bail!("what listens at {address} is no hone serve: choose another address with --listen"),
    }
}

/// The answer to a request for `/props`.
fn properties(mut stream: TcpStream, address: SocketAddr, model: &str, key: &str) -> std::io::Result<String> {
    let name: String = model.bytes().map(|byte| format!("%{byte:02x}")).collect();
    stream.set_read_timeout(Some(LONGEST_WAIT))?;
    let head = format!("GET /props?model={name} HTTP/1.0\r\nHost: {address}\r\nAuthorization: Bearer {key}\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut answer = String::new();
    stream.take(LONGEST_ANSWER).read_to_string(&mut answer)?;
    Ok(answer)
}

/// Starts a server in the background.
fn serve(app: &Invocation, address: SocketAddr, context: usize) -> anyhow::Result<()> {
    let (address, context, model) = (address.to_string(), context.to_string(), app.config.engine.model.as_str());
    let flags = ["--listen", &address, "--context", &context, "--model", model];
    let line = background::start(app, flags.map(OsString::from).to_vec())?;
    app.output.note(&line);
    Ok(())
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let failure = || format!("cannot write {}", path.display());
    path.parent().map_or(Ok(()), create_private_folder).with_context(failure)?;
    let mut file =
        open_private(path, OpenOptions::new().write(true).create(true).truncate(true)).with_context(failure)?;
    file.write_all(text.trim_start().as_bytes()).with_context(failure)
}

/// A program in the PATH.
fn found(program: &str) -> Option<PathBuf> {
    let endings: &[&str] = if cfg!(windows) { &[".exe", ".cmd", ".bat"] } else { &[""] };
    let folders = std::env::var_os("PATH")?;
    let names: Vec<String> = endings.iter().map(|ending| format!("{program}{ending}")).collect();
    std::env::split_paths(&folders)
        .flat_map(|folder| names.iter().map(move |name| folder.join(name)).collect::<Vec<_>>())
        .find(|path| path.is_file())
}

/// Replaces this process with the agent, which then owns the terminal.
#[cfg(unix)]
fn replace(command: &mut Command) -> std::io::Result<Outcome> {
    use std::os::unix::process::CommandExt;
    Err(command.exec())
}

#[cfg(not(unix))]
fn replace(command: &mut Command) -> std::io::Result<Outcome> {
    let status = command.status()?;
    std::process::exit(status.code().unwrap_or(1));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_agent_is_told_of_address_and_model() {
        let places = Places {
            base: "http://127.0.0.1:1".to_owned(),
            model: "qwen3:4b".to_owned(),
            context: "40960".to_owned(),
            key: "k'1".to_owned(),
            file: "/data/launch/x".to_owned(),
        };
        for (name, agent) in agents() {
            let file = agent.file.iter().map(|text| places.filled(text)).collect::<String>();
            let command = written(&agent, &places, &["-p".into(), "Hi there".into()]) + &file;
            assert!(command.contains("http://127.0.0.1:1") && command.contains("qwen3:4b"), "{name}: {command}");
            assert!(
                !["{base}", "{model}", "{context}", "{key}", "{file}"].iter().any(|place| command.contains(place)),
                "{command}"
            );
            assert!(command.contains(" -p 'Hi there'"), "{name}: {command}");
        }
    }

    #[test]
    fn what_is_json_stays_json() {
        let text = |text: &str| text.to_owned();
        let (base, context, file) = (text("http://a"), text("1"), text("f"));
        let places = Places { base, model: text(r"C:\models\x.gguf"), context, key: text("a\"b"), file };
        let agents = agents();
        let config = places.filled(&agents["opencode"].environment["OPENCODE_CONFIG_CONTENT"]);
        let config: Value = serde_json::from_str(&config).unwrap();
        assert_eq!(config["model"], r"hone/C:\models\x.gguf");
        assert_eq!(config["provider"]["hone"]["options"]["apiKey"], "a\"b");
        assert_eq!(places.filled("{model}"), r"C:\models\x.gguf");
    }

    #[test]
    fn a_server_for_all_addresses_is_reached_at_this_machine() {
        let at = |address: &str| reachable(address.parse().unwrap()).to_string();
        assert_eq!(
            (at("0.0.0.0:1"), at("[::]:2"), at("10.0.0.1:3")),
            ("127.0.0.1:1".into(), "[::1]:2".into(), "10.0.0.1:3".into())
        );
    }
}

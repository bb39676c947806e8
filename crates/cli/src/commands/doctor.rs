//! `hone doctor`: checks this machine and this installation for problems.
//!
//! Facts are collected first and then assessed by [`judge()`], which is pure. A problem says what is wrong and what to
//! do next; a remark is merely worth knowing. Only problems make the command fail.

mod installation;
pub(super) mod isolation;
mod judge;
mod memory;
mod privacy;

use hone_app::App;
use hone_app::config::{Config, EngineConfig, Places};
use hone_app::describe::bytes;
use hone_app::machine::Machine;
use hone_engine::DeviceChoice;
use hone_models::{CatalogModel, offline_in_environment};
use hone_protocol::with_causes;
use nu_ansi_term::Color;
use serde::Serialize;

use self::installation::Installation;
use self::judge::{Judge, Room};
use self::memory::Memory;
use self::privacy::Privacy;
use super::cards::{self, Card};
use crate::arguments::DoctorArguments;
use crate::failure::Outcome;
use crate::terminal::{Line, Output};

/// The processor's name, as shown by `hone doctor` and `hone bench`.
pub(super) fn processor_name() -> String {
    Machine::look().processor
}

/// Collects the facts and reports.
///
/// # Errors
/// When stdout cannot be written.
pub(crate) fn run(
    arguments: &DoctorArguments,
    places: &Places,
    loaded: anyhow::Result<(Config, Vec<String>)>,
    output: Output,
) -> anyhow::Result<Outcome> {
    let (config, complaints, warnings) = match loaded {
        Ok((config, warnings)) => (config, Vec::new(), warnings),
        Err(error) => (Config::defaults()?, vec![format!("{error:#}")], Vec::new()),
    };
    let machine = Machine::look();
    let engine = Engine::new(&config.engine);
    let installation = Installation::look(places, &config.engine.model, arguments.deep);
    let facts = Facts {
        version: env!("CARGO_PKG_VERSION"),
        judge: Judge::look(&config, room(&machine, &engine, &installation)).measured(&config, arguments.deep, output),
        machine,
        cards: cards::all(),
        engine,
        installation,
        privacy: Privacy::mend(),
        remembered: Memory::look(&config.memory),
        offline: offline_in_environment(),
    };
    let mut findings = judge(&facts);
    findings.problems.extend(complaints.into_iter().map(|what| Problem {
        what: format!("the configuration is not valid: {what}"),
        next: "correct or remove that line or variable".to_string(),
    }));
    findings.remarks.extend(warnings);
    if arguments.json.json {
        output.print_json(&DoctorReport { facts: &facts, findings: &findings })?;
    } else {
        print_report(&facts, &findings, output)?;
    }
    Ok(if findings.problems.is_empty() { Outcome::Done } else { Outcome::Failed })
}

/// Everything that was found.
#[derive(Debug, Serialize)]
struct Facts {
    version: &'static str,
    machine: Machine,
    /// NVIDIA's.
    cards: Vec<Card>,
    engine: Engine,
    #[serde(flatten)]
    installation: Installation,
    judge: Judge,
    privacy: Privacy,
    remembered: Memory,
    offline: bool,
}

/// The resources available to a judge; `None` if the system does not report its memory size.
fn room(machine: &Machine, engine: &Engine, installation: &Installation) -> Option<Room> {
    let generator_bytes = installation.model_size.or(installation.known_model_size).unwrap_or_default();
    let is_accelerated = engine.opened.as_ref().is_some_and(|device| !device.starts_with("cpu"));
    machine.memory_bytes.map(|memory_bytes| Room { memory_bytes, generator_bytes, is_accelerated })
}

/// The suggestion of a judge to replace `judge` on this machine; empty if no other one fits.
pub(super) fn judge_instead_of(judge: &str, app: &App) -> String {
    judge::instead_of(judge, &app.config, app.store.catalog(), room_beside(&app.config.engine.model, app))
}

/// Name and size of the judge that fits this machine best alongside the model that answers; `None` if none does.
pub(super) fn judge_beside(generator: &str, app: &App) -> Option<(String, u64)> {
    judge::best(&app.config, app.store.catalog(), room_beside(generator, app)?)
}

fn room_beside(generator: &str, app: &App) -> Option<Room> {
    let known = || app.store.catalog().find(generator).map_or(0, CatalogModel::size);
    let generator_bytes = app.store.show(generator).map_or_else(|_| known(), |model| model.size());
    let is_accelerated = app.config.engine.options.model.device.open().is_ok_and(|device| !device.starts_with("cpu"));
    let memory_bytes = Machine::look().memory_bytes?;
    Some(Room { memory_bytes, generator_bytes, is_accelerated })
}

/// The device and backend that a model would use.
#[derive(Debug, Serialize)]
struct Engine {
    model: String,
    device: String,
    backend: String,
    threads: Option<usize>,
    built_for: Vec<&'static str>,
    /// The device that opened.
    opened: Option<String>,
    /// Why no device opened.
    problem: Option<String>,
    /// Why the card is not used, although this binary was built for one.
    card_problem: Option<String>,
}

impl Engine {
    fn new(config: &EngineConfig) -> Engine {
        let devices = [("cpu", true), ("cuda", cfg!(feature = "cuda")), ("metal", cfg!(feature = "metal"))];
        let options = &config.options.model;
        let tried = options.device.open().map_err(|error| with_causes(&error));
        let is_without_card = cfg!(feature = "cuda")
            && options.device == DeviceChoice::Auto
            && tried.as_ref().is_ok_and(|device| device == "cpu");
        let card = is_without_card.then(|| DeviceChoice::Cuda(0).open());
        Engine {
            card_problem: card.and_then(Result::err).map(|error| with_causes(&error)),
            opened: tried.as_ref().ok().cloned(),
            problem: tried.err(),
            model: config.model.clone(),
            device: options.device.to_string(),
            backend: options.backend.to_string(),
            threads: options.n_threads,
            built_for: devices.into_iter().filter_map(|(name, built)| built.then_some(name)).collect(),
        }
    }
}

/// The conclusions from the facts.
#[derive(Debug, Default, PartialEq, Serialize)]
struct Findings {
    problems: Vec<Problem>,
    remarks: Vec<String>,
}

/// A problem.
#[derive(Debug, PartialEq, Serialize)]
struct Problem {
    what: String,
    next: String,
}

#[derive(Serialize)]
struct DoctorReport<'a> {
    #[serde(flatten)]
    facts: &'a Facts,
    #[serde(flatten)]
    findings: &'a Findings,
}

fn judge(facts: &Facts) -> Findings {
    let mut findings = Findings::default();
    judge_device(facts, &mut findings);
    judge_store(facts, &mut findings);
    judge_model(facts, &mut findings);
    findings.problems.extend(facts.judge.problem());
    judge_privacy(&facts.privacy, &mut findings);
    judge_memory(&facts.remembered, &mut findings);
    findings
}

fn judge_device(facts: &Facts, findings: &mut Findings) {
    if let Some(problem) = &facts.engine.problem {
        findings.problem(format!("no model can run: {problem}"), "use --device auto and --backend auto");
    }
    findings.remarks.extend(facts.engine.card_problem.clone());
    if !facts.cards.is_empty() && !facts.engine.built_for.contains(&"cuda") {
        let remark = "this machine has an NVIDIA GPU, and this binary was built without CUDA: `cargo build --release \
                      --features cuda` builds one that uses it";
        findings.remarks.push(remark.to_string());
    }
    let has = |set: &str| facts.machine.instruction_sets.contains(&set);
    match facts.machine.architecture {
        "aarch64" if !has("dotprod") => {
            findings.remarks.push("this processor has no dotprod: models will run slowly".to_string());
        }
        "x86_64" if !has("avx2") => {
            findings.remarks.push("this processor has no AVX2: models will run slowly".to_string());
        }
        _ => {}
    }
}

fn judge_store(facts: &Facts, findings: &mut Findings) {
    let installation = &facts.installation;
    if let Some(reason) = &installation.store_problem {
        findings.problem(reason.clone(), "set HONE_HOME to a writable folder");
    }
    for reason in &installation.broken_models {
        findings.problem(format!("a model is broken: {reason}"), "remove it with `hone rm` and pull it again");
    }
    for reason in &installation.damaged_models {
        findings.problem(reason.clone(), "then check it again with `hone doctor --deep`");
    }
    for name in &installation.unfinished_models {
        findings.remarks.push(format!("{name} is only partly downloaded: `hone pull {name}` resumes the download"));
    }
}

fn judge_model(facts: &Facts, findings: &mut Findings) {
    let (model, installation) = (&facts.engine.model, &facts.installation);
    let size = match (installation.model_size, installation.known_model_size) {
        (Some(size), _) => size,
        (None, None) => {
            return findings.problem(
                format!("the model {model:?} is neither installed nor in the catalog"),
                "see `hone list --all`",
            );
        }
        (None, Some(_)) if facts.offline => {
            let what = format!("the model {model:?} is not installed, and HONE_OFFLINE disables downloads");
            return findings.problem(what, format!("run `hone pull {model}` without HONE_OFFLINE"));
        }
        (None, Some(size)) => {
            findings.remarks.push(format!("{model} will be downloaded when it is first needed ({})", bytes(size)));
            if installation.free_bytes.is_some_and(|free| free < size) {
                let what = format!("{} are needed for the model {model:?} but less is free", bytes(size));
                findings.problem(what, "free some space, or set HONE_HOME to a folder on another disk");
            }
            size
        }
    };
    if let Some(problem) = &installation.model_problem {
        let next = "pull it again, or choose another: `hone list --all`";
        findings.problem(format!("the model {model:?} cannot be run: {problem}"), next);
    }
    if let Some(memory) = facts.machine.memory_bytes.filter(|memory| *memory < size) {
        let (size, memory) = (bytes(size), bytes(memory));
        let what = format!("the model {model:?} has {size} and this machine has {memory} of memory");
        findings.problem(what, "choose a smaller model: `hone list --all`");
    }
}

fn judge_privacy(privacy: &Privacy, findings: &mut Findings) {
    if let Some(problem) = &privacy.problem {
        findings.problem(problem.clone(), "run `hone doctor` as its owner, or remove it");
    }
    if privacy.narrowed > 0 {
        findings.remarks.push(match privacy.narrowed {
            1 => "a file or folder of yours could be read by other users: it is private now".to_owned(),
            n => format!("{n} files and folders of yours could be read by other users: they are private now"),
        });
    }
}

fn judge_memory(memory: &Memory, findings: &mut Findings) {
    if let Some(problem) = &memory.problem {
        findings.problem(problem.clone(), "until then, hone answers but remembers nothing");
    }
    if memory.without_vector > 0 {
        let Memory { without_vector, embedder, .. } = memory;
        let what = format!(
            "{without_vector} answers and facts have no vector of {embedder} and cannot be found by their meaning"
        );
        findings.remarks.push(format!("{what}: `hone memory search` computes them, or a chat while it is idle"));
    }
}

impl Findings {
    fn problem(&mut self, what: String, next: impl Into<String>) {
        self.problems.push(Problem { what, next: next.into() });
    }
}

fn print_report(facts: &Facts, findings: &Findings, output: Output) -> anyhow::Result<()> {
    output.print_table(&rows(facts))?;
    for remark in &findings.remarks {
        output.print_marked_line(&Line::marked(Color::Yellow, "note:", remark))?;
    }
    for problem in &findings.problems {
        output.print_marked_line(&Line::marked(Color::Red, "problem:", &problem.what))?;
        output.print_line(&format!("  next: {}", problem.next))?;
    }
    if findings.problems.is_empty() {
        output.print_marked_line(&Line::marked(Color::Green, "nothing is wrong", ""))?;
    }
    Ok(())
}

fn rows(facts: &Facts) -> Vec<Vec<String>> {
    let (machine, engine, installation) = (&facts.machine, &facts.engine, &facts.installation);
    let row = |name: &str, value: String| vec![name.to_string(), value];
    let free = installation.free_bytes.map_or(String::new(), |free| format!(", {} free", bytes(free)));
    let threads = engine.threads.map_or("one for each performance core".to_string(), |threads| threads.to_string());
    let device = engine.opened.as_ref().unwrap_or(&engine.device);
    let memory = |count: Option<u64>| count.map_or("unknown".to_string(), bytes);
    let available = memory(machine.available_memory_bytes);
    let cards = facts.cards.iter().map(|card| row("card", card.describe()));
    let mut rows = vec![
        row("version", facts.version.to_string()),
        row("system", format!("{} on {}", machine.system, machine.architecture)),
        row("processor", machine.processor.clone()),
        row("cores", format!("{} physical, {} logical", machine.physical_cores, machine.logical_cores)),
        row("instructions", list(&machine.instruction_sets)),
        row("memory", format!("{}, {available} available", memory(machine.memory_bytes))),
        row("device", format!("{device} (built for {})", engine.built_for.join(", "))),
        row("backend", engine.backend.clone()),
        row("threads", threads),
        row("model", engine.model.clone()),
        row("judge", facts.judge.row()),
        row("store", format!("{}{free}", installation.store_folder)),
        row("models", list(&installation.models)),
        row("remembered", remembered(&facts.remembered)),
        row("configuration", list(&installation.configuration_files)),
        row("network", if facts.offline { "off (HONE_OFFLINE)" } else { "on" }.to_string()),
    ];
    let after_device = rows.iter().position(|row| row[0] == "device").map_or(rows.len(), |device| device + 1);
    rows.splice(after_device..after_device, cards);
    rows
}

fn remembered(memory: &Memory) -> String {
    let Memory { answers, without_vector, .. } = memory;
    let facts = match memory.facts {
        0 => String::new(),
        1 => " and 1 fact".to_string(),
        facts => format!(" and {facts} facts"),
    };
    match (&memory.problem, without_vector) {
        (Some(_), _) => "cannot be read".to_string(),
        (None, 0) => format!("{answers} answers{facts}"),
        (None, _) => format!("{answers} answers{facts}, {without_vector} of them without a vector"),
    }
}

fn list(items: &[impl AsRef<str>]) -> String {
    let items: Vec<&str> = items.iter().map(AsRef::as_ref).collect();
    if items.is_empty() { "none".to_string() } else { items.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The conclusions for a sound machine with the model installed, after `change`.
    #[track_caller]
    fn check(change: impl FnOnce(&mut Facts), problems: &[&str], remarks: &[&str]) {
        let mut facts = Facts {
            version: "1",
            machine: Machine {
                system: "linux",
                architecture: "x86_64",
                processor: "Test".to_string(),
                physical_cores: 2,
                logical_cores: 4,
                instruction_sets: vec!["avx2"],
                memory_bytes: Some(8_000_000_000),
                available_memory_bytes: Some(4_000_000_000),
            },
            cards: Vec::new(),
            engine: Engine {
                model: "m".to_string(),
                device: "auto".to_string(),
                backend: "auto".to_string(),
                threads: None,
                built_for: vec!["cpu"],
                opened: Some("cpu".to_string()),
                problem: None,
                card_problem: None,
            },
            installation: Installation {
                model_size: Some(1_000_000_000),
                free_bytes: Some(2_000_000_000),
                ..Installation::default()
            },
            judge: Judge::default(),
            privacy: Privacy::default(),
            remembered: Memory::default(),
            offline: false,
        };
        change(&mut facts);
        let findings = judge(&facts);
        let whats: Vec<&str> = findings.problems.iter().map(|problem| problem.what.as_str()).collect();
        assert_eq!((whats, findings.remarks), (problems.to_vec(), remarks.iter().map(|it| it.to_string()).collect()));
        assert!(findings.problems.iter().all(|problem| !problem.next.is_empty()));
    }

    #[test]
    fn a_damaged_model_is_a_problem() {
        let damaged = |facts: &mut Facts| facts.installation.model_problem = Some("it ends too early".to_string());
        check(damaged, &["the model \"m\" cannot be run: it ends too early"], &[]);
    }

    #[test]
    fn a_sound_machine_has_no_problem() {
        check(|_| (), &[], &[]);
    }

    #[test]
    fn a_device_must_open() {
        let closed = |facts: &mut Facts| {
            facts.engine.opened = None;
            facts.engine.problem = Some("there is no such card".to_string());
        };
        check(closed, &["no model can run: there is no such card"], &[]);
        let without = |facts: &mut Facts| facts.engine.card_problem = Some("there is no driver".to_string());
        check(without, &[], &["there is no driver"]);
    }

    #[test]
    fn a_missing_model_is_a_problem_only_where_it_cannot_be_fetched() {
        let missing = |facts: &mut Facts| {
            facts.installation.model_size = None;
            facts.installation.known_model_size = Some(1_000_000_000);
        };
        let remark = "m will be downloaded when it is first needed (1.00 GB)";
        check(missing, &[], &[remark]);
        let offline = |facts: &mut Facts| {
            missing(facts);
            facts.offline = true;
        };
        check(offline, &["the model \"m\" is not installed, and HONE_OFFLINE disables downloads"], &[]);
        let full_disk = |facts: &mut Facts| {
            missing(facts);
            facts.installation.free_bytes = Some(10);
        };
        check(full_disk, &["1.00 GB are needed for the model \"m\" but less is free"], &[remark]);
        let unknown = |facts: &mut Facts| facts.installation.model_size = None;
        check(unknown, &["the model \"m\" is neither installed nor in the catalog"], &[]);
    }

    #[test]
    fn a_model_must_fit_into_memory() {
        let small = |facts: &mut Facts| facts.machine.memory_bytes = Some(500_000_000);
        check(small, &["the model \"m\" has 1.00 GB and this machine has 500.00 MB of memory"], &[]);
    }

    #[test]
    fn processors_are_remarked_on() {
        let arm = |sets: &'static [&str]| {
            move |facts: &mut Facts| {
                facts.machine.architecture = "aarch64";
                facts.machine.instruction_sets = sets.to_vec();
            }
        };
        check(arm(&["neon", "dotprod"]), &[], &[]);
        check(arm(&["neon"]), &[], &["this processor has no dotprod: models will run slowly"]);
        let old = |facts: &mut Facts| facts.machine.instruction_sets.clear();
        check(old, &[], &["this processor has no AVX2: models will run slowly"]);
    }

    #[test]
    fn a_card_without_a_build_for_it_is_remarked_on() {
        let card = || Card {
            name: "H200".to_string(),
            driver: "570".to_string(),
            memory_bytes: None,
            used_memory_bytes: None,
            load_percent: None,
        };
        let built_for = |devices: &'static [&str]| {
            move |facts: &mut Facts| {
                facts.cards = vec![card()];
                facts.engine.built_for = devices.to_vec();
                assert_eq!(rows(facts).iter().filter(|row| row[0] == "card").count(), 1);
            }
        };
        check(built_for(&["cpu", "cuda"]), &[], &[]);
        let remark = "this machine has an NVIDIA GPU, and this binary was built without CUDA: `cargo build --release \
                      --features cuda` builds one that uses it";
        check(built_for(&["cpu"]), &[], &[remark]);
    }

    #[test]
    fn what_others_could_read_is_said() {
        let wide = |facts: &mut Facts| facts.privacy.narrowed = 3;
        check(wide, &[], &["3 files and folders of yours could be read by other users: they are private now"]);
        let foreign = |facts: &mut Facts| facts.privacy.problem = Some("f cannot be made private".to_string());
        check(foreign, &["f cannot be made private"], &[]);
    }

    #[test]
    fn what_is_wrong_with_memory_is_said() {
        let stopped = |facts: &mut Facts| facts.remembered.problem = Some("its owner is stopped".to_string());
        check(stopped, &["its owner is stopped"], &[]);
        let lacking = |facts: &mut Facts| {
            facts.remembered =
                Memory { answers: 3, facts: 1, without_vector: 2, embedder: "e".to_string(), problem: None };
            assert_eq!(remembered(&facts.remembered), "3 answers and 1 fact, 2 of them without a vector");
        };
        let remark = "2 answers and facts have no vector of e and cannot be found by their meaning: `hone memory search` \
                      computes them, or a chat while it is idle";
        check(lacking, &[], &[remark]);
    }

    #[test]
    fn what_is_wrong_with_the_store_is_said() {
        let broken = |facts: &mut Facts| {
            facts.installation.store_problem = Some("it is read-only".to_string());
            facts.installation.broken_models.push("manifest.json is cut off".to_string());
            facts.installation.damaged_models.push("m is damaged".to_string());
            facts.installation.unfinished_models.push("n".to_string());
        };
        let problems = ["it is read-only", "a model is broken: manifest.json is cut off", "m is damaged"];
        check(broken, &problems, &["n is only partly downloaded: `hone pull n` resumes the download"]);
    }
}

//! The configuration: every key, its effective value, and the source of that value.
//!
//! The defaults are the files of `config/`, compiled in. They are also the schema: a key exists if it has a default,
//! and has its default's type. The user's files override them, then `HONE_*` variables, then flags, and in a chat
//! `/set`. Each of these is a call of [`Config::set`], which validates the value at once, so that an error can name the
//! key and where it was set.

pub mod editing;
mod moved;
mod preset;
mod sections;
mod server;
mod sources;
mod value;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use hone_agents::NoteSettings;
use hone_agents::research::ResearchSettings;
use hone_fleet::BusSettings;
use hone_judging::{CritiqueSettings, JudgeProfiles, JudgeSettings};
use hone_work::{GateConfig, ReviewSettings};
use serde::Serialize;
use toml::Value;

use crate::describe::nearest;
use crate::presets::Presets;
use crate::usage;
pub use preset::{check_preset, preset_keys};
pub use sections::{ChatConfig, EngineConfig, MemoryConfig, SamplingConfig};
pub use server::{InvalidSettings, KeyHash, ServerSettings};
pub use sources::Places;

/// A section's name, which is also the stem of its file, and its defaults.
const SECTIONS: [(&str, &str); 13] = [
    ("engine", include_str!("../../../config/engine.toml")),
    ("sampling", include_str!("../../../config/sampling.toml")),
    ("chat", include_str!("../../../config/chat.toml")),
    ("judge", include_str!("../../../config/judge.toml")),
    (JUDGES, include_str!("../../../config/judges.toml")),
    ("memory", include_str!("../../../config/memory.toml")),
    ("server", include_str!("../../../config/server.toml")),
    ("gate", include_str!("../../../config/gate.toml")),
    ("review", include_str!("../../../config/review.toml")),
    ("critique", include_str!("../../../config/critique.toml")),
    ("notes", include_str!("../../../config/notes.toml")),
    ("research", include_str!("../../../config/research.toml")),
    ("bus", include_str!("../../../config/bus.toml")),
];

/// The file of the tools that evaluate work. Its tables are not configuration keys.
pub const EVALUATORS: &str = "evaluators";
/// The file of the phases of a task. Its tables are not configuration keys.
pub const PHASES: &str = "phases";

/// The section with one table of keys per judge profile: `judges.PROFILE.KEY`.
const JUDGES: &str = "judges";
/// The profile that has every key.
const PLAIN: &str = "plain";
/// The key with which a profile names its base; `plain` alone has none.
const LIKE: &str = "like";

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "source", content = "name", rename_all = "lowercase")]
pub enum Source {
    /// The compiled-in files.
    Default,
    /// A file of the user's.
    File(PathBuf),
    /// An environment variable.
    Variable(String),
    /// A flag of this command.
    Flag(&'static str),
    /// The models that are part of this executable.
    Bundle,
    /// The marks of the installed judges.
    Installed,
    /// The models that workers on the bus have.
    Worker,
    /// The preset of this chat.
    Preset(String),
    /// A `/set` command in the chat, or the conversation that it resumed.
    Chat,
    /// The choice by past scores, `best:TYPE`.
    Chosen,
    /// The story being played.
    Story(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => f.write_str("default"),
            Source::File(path) => write!(f, "{}", path.display()),
            Source::Variable(name) => f.write_str(name),
            Source::Flag(name) => f.write_str(name),
            Source::Bundle => f.write_str("bundle"),
            Source::Installed => f.write_str("installed judges"),
            Source::Worker => f.write_str("worker"),
            Source::Preset(name) => write!(f, "preset {name}"),
            Source::Chat => f.write_str("chat"),
            Source::Chosen => f.write_str("choice by past scores"),
            Source::Story(id) => write!(f, "story {id}"),
        }
    }
}

/// One key, as `hone config` shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// Its value.
    pub value: Value,
    /// The source that set it last.
    #[serde(flatten)]
    pub source: Source,
}

/// A value that a flag gives to a key.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    /// `section.name`.
    pub key: &'static str,
    /// The flag, with its dashes.
    pub flag: &'static str,
    /// The value as typed.
    pub value: Value,
}

/// The effective configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The model and how it runs.
    pub engine: EngineConfig,
    /// Token sampling.
    pub sampling: SamplingConfig,
    /// The terminal chat.
    pub chat: ChatConfig,
    /// Memory.
    pub memory: MemoryConfig,
    /// The judge.
    pub judge: JudgeSettings,
    /// The prompts and verdict formats of each kind of judge.
    pub judges: JudgeProfiles,
    /// The HTTP server.
    pub server: ServerSettings,
    /// When the work on a task is accepted.
    pub gate: GateConfig,
    /// How models evaluate the work on a task.
    pub review: ReviewSettings,
    /// How texts are criticized.
    pub critique: CritiqueSettings,
    /// How notes are written from memory.
    pub notes: NoteSettings,
    /// How questions are researched.
    pub research: ResearchSettings,
    /// The bus beyond this process.
    pub bus: BusSettings,
    entries: BTreeMap<String, Entry>,
}

impl Config {
    /// Only the defaults.
    ///
    /// # Errors
    /// Only when a file of `config/` is invalid, which a test would catch.
    pub fn defaults() -> anyhow::Result<Config> {
        let mut entries = BTreeMap::new();
        for (section, text) in SECTIONS {
            for (key, value) in keys_of(section, text.parse::<toml::Table>()?) {
                entries.insert(key, Entry { value, source: Source::Default });
            }
        }
        Config::from_entries(entries).map_err(anyhow::Error::msg)
    }

    /// Loads the defaults, then the user's files, then variables, then a preset, then `flags`. Also returns warnings.
    ///
    /// # Errors
    /// For the first key that does not exist or whose value is invalid, with the place where it was set.
    pub fn load(places: &Places, preset: Option<&str>, flags: Vec<Override>) -> anyhow::Result<(Config, Vec<String>)> {
        let mut config = Config::defaults()?;
        let mut warnings = Vec::new();
        sources::apply_files(&mut config, places, &mut warnings)?;
        sources::apply_variables(&mut config, places, &mut warnings)?;
        if let Some(name) = preset {
            for (key, value) in Presets::of(places.folder())?.keys(name)? {
                warnings.extend(moved::new_name(&key).map(|now| format!("preset {name}: {key} is called {now} now")));
                config.set(&key, value, Source::Preset(name.to_owned()))?;
            }
        }
        for Override { key, flag, value } in flags {
            config.set(key, value, Source::Flag(flag))?;
        }
        Ok((config, warnings))
    }

    /// Every key in alphabetical order.
    pub fn entries(&self) -> &BTreeMap<String, Entry> {
        &self.entries
    }

    /// The current name of a key.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn known<'a>(&self, key: &'a str) -> anyhow::Result<Cow<'a, str>> {
        let key = self.present_name(key);
        match self.example_of(&key) {
            Some(_) => Ok(key),
            None if key.is_empty() => Err(usage("the key is empty: `hone config` lists the keys")),
            None => Err(usage(format!("unknown key {key}: {}", self.known_keys_near(&key)))),
        }
    }

    /// The source that set `key` last; `None` if the key does not exist.
    pub fn source_of(&self, key: &str) -> Option<&Source> {
        self.entries.get(key).map(|entry| &entry.source)
    }

    /// Sets `key`, which may be a former name.
    ///
    /// # Errors
    /// When the key does not exist, or the value has the wrong type or is out of range; nothing is changed then.
    pub fn set(&mut self, key: &str, value: Value, source: Source) -> anyhow::Result<()> {
        let key = &*self.present_name(key);
        let entry = self.checked(key, value, source.clone())?;
        *self = self.with([(key.to_string(), entry)]).map_err(|wrong| usage(format!("{key} ({source}): {wrong}")))?;
        Ok(())
    }

    /// Sets all of these keys at once, since they may only be valid together.
    ///
    /// # Errors
    /// See [`Config::set`].
    fn set_together(&mut self, values: Vec<(String, Value)>, source: &Source) -> anyhow::Result<()> {
        let entry = |(key, value): (String, Value)| {
            let entry = self.checked(&key, value, source.clone())?;
            Ok((key, entry))
        };
        let entries = values.into_iter().map(entry).collect::<anyhow::Result<Vec<_>>>()?;
        *self = self.with(entries).map_err(|wrong| usage(format!("{source}: {wrong}")))?;
        Ok(())
    }

    /// The current name of `key`.
    fn present_name<'a>(&self, key: &'a str) -> Cow<'a, str> {
        match moved::new_name(key).filter(|now| self.entries.contains_key(now)) {
            Some(now) => Cow::Owned(now),
            None => Cow::Borrowed(key),
        }
    }

    /// An entry for `key`, if the value has the key's type.
    fn checked(&self, key: &str, value: Value, source: Source) -> anyhow::Result<Entry> {
        let Some(default) = self.example_of(key) else {
            let advice = moved::new_place(key).unwrap_or_else(|| self.known_keys_near(key));
            return Err(usage(format!("unknown key {key} ({source}): {advice}")));
        };
        match value::with_type_of(&default, value) {
            Ok(value) => Ok(Entry { value, source }),
            Err(wrong) => Err(usage(format!("{key} ({source}) is {wrong}"))),
        }
    }

    /// The configuration with these entries replaced.
    fn with(&self, changed: impl IntoIterator<Item = (String, Entry)>) -> Result<Config, String> {
        let mut entries = self.entries.clone();
        entries.extend(changed);
        Config::from_entries(entries)
    }

    /// Sets `key` to the value in `text`, for sources without types: variables and `/set`.
    ///
    /// # Errors
    /// See [`Config::set`].
    pub fn set_text(&mut self, key: &str, text: &str, source: Source) -> anyhow::Result<()> {
        let value = match self.example_of(&self.present_name(key)) {
            Some(default) => value::from_text(&default, text),
            None => Value::String(text.to_string()),
        };
        self.set(key, value, source)
    }

    /// A value of the type of `key`; `None` if the key does not exist. A judge profile may have any name, and has the
    /// keys of `plain`.
    fn example_of(&self, key: &str) -> Option<Value> {
        if let Some(entry) = self.entries.get(key) {
            return Some(entry.value.clone());
        }
        let (profile, name) = key.strip_prefix(JUDGES)?.strip_prefix('.')?.split_once('.')?;
        match name {
            LIKE if profile != PLAIN => Some(Value::String(PLAIN.to_string())),
            name => self.entries.get(&format!("{JUDGES}.{PLAIN}.{name}")).map(|entry| entry.value.clone()),
        }
    }

    fn from_entries(entries: BTreeMap<String, Entry>) -> Result<Config, String> {
        let mut tables = toml::Table::new();
        for (key, entry) in &entries {
            let (section, name) = key.split_once('.').ok_or_else(|| format!("key {key} has no section"))?;
            let mut table = table_in(&mut tables, section);
            let mut last = name;
            if let Some((profile, name)) = name.split_once('.').filter(|_| section == JUDGES) {
                (table, last) = (table_in(table, profile), name);
            }
            table.insert(last.to_string(), entry.value.clone());
        }
        let sections = sections::Sections::read(tables)?;
        let sections::Sections {
            engine,
            sampling,
            chat,
            judge,
            judges,
            memory,
            server,
            gate,
            review,
            critique,
            notes,
            research,
            bus,
        } = sections;
        Ok(Config {
            engine,
            sampling,
            chat,
            judge,
            judges,
            memory,
            server,
            gate,
            review,
            critique,
            notes,
            research,
            bus,
            entries,
        })
    }

    fn known_keys_near(&self, key: &str) -> String {
        if key.strip_prefix(JUDGES).is_some_and(|rest| rest.starts_with('.')) {
            return format!("known are {}", self.profile_keys().join(", "));
        }
        if let Some(name) = nearest(key, self.entries.keys().map(String::as_str)) {
            return format!("did you mean {name}? `hone config` lists the keys");
        }
        let section = key.split('.').next().unwrap_or_default();
        let near: Vec<&str> =
            self.entries.keys().filter(|known| known.split('.').next() == Some(section)).map(String::as_str).collect();
        match near.is_empty() {
            true => "`hone config` lists the keys".to_owned(),
            false => format!("known are {}", near.join(", ")),
        }
    }

    /// The keys of every judge profile.
    fn profile_keys(&self) -> Vec<&str> {
        let of_plain = format!("{JUDGES}.{PLAIN}.");
        self.entries.keys().filter_map(|key| key.strip_prefix(&of_plain)).chain([LIKE]).collect()
    }
}

/// The purpose of a key, from the comment above it. Several keys in a row may have one comment. Empty without a comment.
pub fn description(key: &str) -> String {
    let (section, name) = key.split_once('.').unwrap_or((key, ""));
    let name = name.rsplit('.').next().unwrap_or_default();
    let text = SECTIONS.iter().find(|(known, _)| *known == section).map_or("", |(_, text)| text);
    let mut comment: Vec<&str> = Vec::new();
    let (mut is_over, mut is_inside_text) = (false, false);
    for line in text.lines() {
        match line.strip_prefix('#') {
            _ if is_inside_text => {}
            Some(words) => {
                if std::mem::take(&mut is_over) {
                    comment.clear();
                }
                comment.push(words.trim());
            }
            None if line.split_once('=').is_some_and(|(left, _)| left.trim() == name) => return comment.join(" "),
            None => is_over = true,
        }
        is_inside_text ^= line.matches("\"\"\"").count() % 2 == 1;
    }
    String::new()
}

/// The keys of a section's file, with their values.
fn keys_of(section: &str, file: toml::Table) -> Vec<(String, Value)> {
    let flat = |(name, value): (String, Value)| match value {
        Value::Table(profile) if section == JUDGES => {
            profile.into_iter().map(|(key, value)| (format!("{section}.{name}.{key}"), value)).collect()
        }
        value => vec![(format!("{section}.{name}"), value)],
    };
    file.into_iter().flat_map(flat).collect()
}

/// The table under this key, created if missing.
fn table_in<'a>(tables: &'a mut toml::Table, key: &str) -> &'a mut toml::Table {
    let value = tables.entry(key).or_insert_with(|| Value::Table(toml::Table::new()));
    if !value.is_table() {
        *value = Value::Table(toml::Table::new());
    }
    match value {
        Value::Table(table) => table,
        _ => unreachable!("it was made a table"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loads one user file, one variable and no flags, and returns the value of `key` or the error.
    fn check(files: &[(&str, &str)], variables: &[(&str, &str)], flags: Vec<Override>, key: &str, expected: &str) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let variables = variables.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let places = Places::new(Some(folder.path().to_path_buf()), variables);
        let seen = match Config::load(&places, None, flags) {
            Ok((config, warnings)) => {
                let entry = &config.entries()[key];
                let warned: String = warnings.iter().map(|warning| format!("\nwarning: {warning}")).collect();
                format!("{} from {}{warned}", entry.value, entry.source)
            }
            Err(error) => format!("{error:#}"),
        };
        assert_eq!(seen.replace(&folder.path().display().to_string(), "~"), expected);
    }

    #[test]
    fn every_key_has_a_description() {
        let config = Config::defaults().unwrap();
        let keys = config.entries().keys().filter(|key| !key.starts_with(JUDGES) || key.starts_with("judges.plain."));
        let without: Vec<&String> = keys.filter(|key| description(key).is_empty()).collect();
        assert!(without.is_empty(), "{without:?}");
        assert_eq!(
            description("sampling.top_p"),
            "Only the likeliest tokens whose probabilities sum to this stay; 1 keeps all."
        );
        assert!(description("sampling.dry_window").starts_with("DRY: "));
    }

    #[test]
    fn a_preset_overrides_variables_and_flags_override_it() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("presets")).unwrap();
        let preset = "[sampling]\ntemperature = 1\ntop_k = 7\n[chat]\nmessages = [\"user: Hi\", \"assistant: Yo\"]\n";
        std::fs::write(folder.path().join("presets/warm.toml"), preset).unwrap();
        let variables = vec![("HONE_SAMPLING_TEMPERATURE".to_owned(), "0.5".to_owned())];
        let places = Places::new(Some(folder.path().to_path_buf()), variables);
        let (config, _) = Config::load(&places, Some("warm"), flag("sampling.top_k", "--top-k", 3)).unwrap();
        assert_eq!((config.sampling.temperature, config.sampling.top_k), (1.0, 3));
        assert_eq!(config.source_of("sampling.temperature").unwrap().to_string(), "preset warm");
        let said: Vec<&str> = config.chat.messages.iter().map(|message| message.content.as_str()).collect();
        assert_eq!(said, ["Hi", "Yo"]);
        let error = Config::load(&places, Some("cold"), Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), "no preset \"cold\" exists: known are warm");
        std::fs::write(folder.path().join("presets/warm.toml"), "[chat]\nmessages = [\"tool: x\"]").unwrap();
        let error = Config::load(&places, Some("warm"), Vec::new()).unwrap_err().to_string();
        assert!(error.contains("chat.messages (preset warm)") && error.contains("ROLE: TEXT"), "{error}");
    }

    fn flag(key: &'static str, flag: &'static str, value: impl Into<Value>) -> Vec<Override> {
        vec![Override { key, flag, value: value.into() }]
    }

    #[test]
    fn defaults_are_a_valid_configuration() {
        let config = Config::defaults().unwrap();
        assert_eq!(config.engine.model, "smollm2:135m");
        assert!(config.entries().values().all(|entry| entry.source == Source::Default));
    }

    #[test]
    fn a_later_place_wins() {
        let file = [("engine.toml", "threads = 2\ncontext = 1024")];
        let variable = [("HONE_ENGINE_THREADS", "3")];
        check(&[], &[], vec![], "engine.threads", "0 from default");
        check(&file, &[], vec![], "engine.threads", "2 from ~/engine.toml");
        check(&file, &variable, vec![], "engine.threads", "3 from HONE_ENGINE_THREADS");
        check(&file, &variable, vec![], "engine.context", "1024 from ~/engine.toml");
        let flags = flag("engine.threads", "--threads", 4);
        check(&file, &variable, flags, "engine.threads", "4 from --threads");
    }

    #[test]
    fn an_unknown_key_is_named_with_its_file() {
        check(
            &[("chat.toml", "sytem = 'x'")],
            &[],
            vec![],
            "chat.system",
            "unknown key chat.sytem (~/chat.toml): did you mean chat.system? `hone config` lists the keys",
        );
        check(
            &[("chat.toml", "frobnicate_quickly = 'x'")],
            &[],
            vec![],
            "chat.system",
            "unknown key chat.frobnicate_quickly (~/chat.toml): known are chat.grade, chat.grade_due, chat.history_lines, chat.markdown, chat.messages, chat.save, chat.system, chat.tool_rounds",
        );
        check(
            &[("egnine.toml", "")],
            &[],
            vec![],
            "chat.system",
            "unknown configuration file ~/egnine.toml: known are engine.toml, sampling.toml, chat.toml, judge.toml, judges.toml, memory.toml, server.toml, gate.toml, review.toml, critique.toml, notes.toml, research.toml, bus.toml, evaluators.toml, phases.toml",
        );
    }

    #[test]
    fn a_file_that_is_no_toml_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("chat.toml"), "save = = 1").unwrap();
        let error = Config::load(&Places::new(Some(folder.path().to_path_buf()), vec![]), None, vec![]).unwrap_err();
        assert!(format!("{error:#}").contains("chat.toml"), "{error:#}");
    }

    #[test]
    fn a_wrong_type_is_named_with_the_type_that_is_expected() {
        let wrong = |text, expected| check(&[("sampling.toml", text)], &[], vec![], "sampling.top_k", expected);
        wrong("top_k = 'many'", "sampling.top_k (~/sampling.toml) is the string \"many\", expected an integer");
        wrong("top_k = 1.5", "sampling.top_k (~/sampling.toml) is the float 1.5, expected an integer");
        wrong("temperature = true", "sampling.temperature (~/sampling.toml) is the boolean true, expected a number");
        wrong("stop = 'x'", "sampling.stop (~/sampling.toml) is the string \"x\", expected an array");
        wrong("top_k = -1", "sampling.top_k (~/sampling.toml): -1 is negative, expected 0 or more");
        wrong("[top_k]\nx = 1", "sampling.top_k (~/sampling.toml) is the table { x = 1 }, expected an integer");
    }

    #[test]
    fn more_threads_than_can_be_started_are_refused() {
        let wrong = |value: i64, expected| check(&[], &[], flag("engine.threads", "--threads", value), "", expected);
        let n_processors = std::thread::available_parallelism().map_or(1, usize::from);
        let most = (4 * n_processors).clamp(64, 1024);
        let told =
            |value| format!("engine.threads (--threads): threads is {value}: it must be 0 to {most} on this machine");
        let (too_many, negative) = (told(1025), told(-1));
        wrong(1025, &too_many);
        wrong(-1, &negative);
        check(&[], &[], flag("engine.threads", "--threads", 64), "engine.threads", "64 from --threads");
    }

    #[test]
    fn a_value_out_of_range_is_refused() {
        let wrong = |name, text, expected| check(&[], &[(name, text)], vec![], "sampling.top_k", expected);
        wrong("HONE_SAMPLING_TOP_P", "1.5", "sampling.top_p (HONE_SAMPLING_TOP_P): top_p is 1.5: it must be 0 to 1");
        wrong(
            "HONE_SAMPLING_TEMPERATURE",
            "nan",
            "sampling.temperature (HONE_SAMPLING_TEMPERATURE): temperature is NaN: it must be 0 to 100",
        );
        wrong(
            "HONE_SAMPLING_LOGIT_BIAS",
            "12",
            "sampling.logit_bias (HONE_SAMPLING_LOGIT_BIAS): \"12\" is not a bias: write ID=BIAS, such as 42=-1.5",
        );
        wrong(
            "HONE_SAMPLING_SEED",
            "-2",
            "sampling.seed (HONE_SAMPLING_SEED): -2 is not a seed, expected 0 or more, or -1 for a fresh one",
        );
        wrong(
            "HONE_SAMPLING_LOGIT_BIAS",
            "12=nan",
            "sampling.logit_bias (HONE_SAMPLING_LOGIT_BIAS): the logit_bias of token 12 is NaN: it must be a number, or \
             -inf to forbid the token",
        );
        wrong("HONE_SAMPLING_TOP_K", "-2", "sampling.top_k (HONE_SAMPLING_TOP_K): -2 is negative, expected 0 or more");
    }

    #[test]
    fn variables_take_the_type_of_their_key() {
        let right = |name, text, key, expected| check(&[], &[(name, text)], vec![], key, expected);
        right("HONE_CHAT_SAVE", "false", "chat.save", "false from HONE_CHAT_SAVE");
        right("HONE_SAMPLING_TOP_P", "1", "sampling.top_p", "1.0 from HONE_SAMPLING_TOP_P");
        right("HONE_SAMPLING_STOP", "END", "sampling.stop", "[\"END\"] from HONE_SAMPLING_STOP");
        right("HONE_SAMPLING_STOP", "['a', 'b']", "sampling.stop", "[\"a\", \"b\"] from HONE_SAMPLING_STOP");
        right("HONE_CHAT_SYSTEM", "7", "chat.system", "\"7\" from HONE_CHAT_SYSTEM");
    }

    #[test]
    fn an_unknown_variable_is_warned_of_and_a_reserved_one_is_not() {
        check(
            &[],
            &[("HONE_ENGINE_THREAD", "3"), ("HONE_HOME", "/x"), ("HONE_TEST_MODELS", "/y"), ("PATH", "/z")],
            vec![],
            "engine.threads",
            "0 from default\nwarning: the variable HONE_ENGINE_THREAD does not match any key and is ignored: see `hone config`",
        );
    }

    #[test]
    fn the_judge_is_configured_like_everything_else() {
        let prompt = "\"\"\"\n{query}\n{answer_a}\n{answer_b}\n\"\"\"";
        let judges = format!("[prometheus]\npairwise_prompt = {prompt}");
        let shown = format!("{prompt} from ~/judges.toml");
        let check = |variables: &[(&str, &str)], key, expected| {
            let files = [("judge.toml", "model = 'mine:7b'\ngrade_timeout = 5"), ("judges.toml", &judges)];
            check(&files, variables, vec![], key, expected);
        };
        check(&[], "judge.model", "\"mine:7b\" from ~/judge.toml");
        check(&[("HONE_JUDGE_MODEL", "x.gguf")], "judge.model", "\"x.gguf\" from HONE_JUDGE_MODEL");
        check(&[], "judge.grade_timeout", "5.0 from ~/judge.toml");
        check(&[], "judges.prometheus.pairwise_prompt", &shown);
        let wrong = |name, text, expected| check(&[(name, text)], "", expected);
        wrong(
            "HONE_JUDGE_GRADE_TIMEOUT",
            "0",
            "judge.grade_timeout (HONE_JUDGE_GRADE_TIMEOUT): grade_timeout is 0: it must be above 0 and at most 604800 \
             (seconds)",
        );
        wrong(
            "HONE_JUDGE_TIE_MARGIN",
            "-1",
            "judge.tie_margin (HONE_JUDGE_TIE_MARGIN): tie_margin is -1: it must be 0 or more",
        );
        wrong(
            "HONE_JUDGE_FALLBACK",
            "hope",
            "judge.fallback (HONE_JUDGE_FALLBACK): unknown variant `hope`, expected one of `likelihood`, `generator`, `none`",
        );
        wrong(
            "HONE_JUDGES_PROMETHEUS_ABSOLUTE_PROMPT",
            "{query} {rubric}",
            "judges.prometheus.absolute_prompt (HONE_JUDGES_PROMETHEUS_ABSOLUTE_PROMPT): the judge profile \"prometheus\" \
             cannot be used: absolute_prompt has no place for the answer: write {answer} where it belongs",
        );
    }

    #[test]
    fn a_profile_of_ones_own_is_what_differs_from_another() {
        let file = "[mine]\nlike = 'prometheus'\nscores = ['0', '1']\ntemperature = 1\n[flow_judge]\ncontext = 1024";
        let own = |variables: &[(&str, &str)], key, expected| {
            check(&[("judges.toml", file)], variables, vec![], key, expected);
        };
        own(&[], "judges.mine.like", "\"prometheus\" from ~/judges.toml");
        own(&[], "judges.mine.temperature", "1.0 from ~/judges.toml");
        own(&[], "judges.flow_judge.context", "1024 from ~/judges.toml");
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("judges.toml"), file).unwrap();
        let (config, _) = Config::load(&Places::new(Some(folder.path().to_path_buf()), vec![]), None, vec![]).unwrap();
        let mine = config.judges.get("mine").unwrap();
        assert_eq!((mine.temperature, mine.context), (1.0, config.judges.get("prometheus").unwrap().context));
    }

    #[test]
    fn a_profile_that_is_wrong_is_named_with_its_key_and_file() {
        let wrong = |text: &str, what: &str| {
            let expected = format!("~/judges.toml: the judge profile \"mine\" cannot be used: {what}");
            check(&[("judges.toml", &format!("[mine]\n{text}"))], &[], vec![], "", &expected);
        };
        wrong("context = 5", "context is 5: it must be 256 or more");
        wrong("temperature = -1", "temperature is -1: it must be 0 or more");
        wrong("grade_timeout = 0", "grade_timeout is 0: it must be above 0 and at most 604800 (seconds)");
        wrong("thinking_tokens = -1", "thinking_tokens is -1: it must be 0 or more");
        wrong("like = 'yours'", "like is \"yours\", and no profile has this name");
        wrong("like = 'mine'", "like leads in a circle: mine and mine");
        wrong("scores = ['1']", "scores has 1 texts, expected 2 to 100, from the worst to the best");
        wrong("scores = ['a', 'a']", "scores has \"a\" twice");
        let three = "choices has 3 texts, expected 2: for the first answer and for the second";
        wrong("choices = ['a', 'b', 'c']", three);
        let song = "unknown variant `song`, expected one of `marker`, `tag`, `json`, `first`";
        wrong("score_form = 'song'", song);
        wrong("score_place = ' '", "score_place is \" \": it must be a text such as [RESULT]");
        let path = "choice_place is \"a..b\": it must be a key, or keys with points between them";
        wrong("choice_form = 'json'\nchoice_place = 'a..b'", path);
        let meaning = "rubric_score has no place for the meaning: write {meaning} where it belongs";
        wrong("rubric_score = '{score}'", meaning);
        let misplaced = "absolute_system has a place for the answer, which belongs in the prompt";
        wrong("absolute_system = '{answer}'", misplaced);
        let number = "judges.mine.temperature (~/judges.toml) is the string \"hot\", expected a number";
        check(&[("judges.toml", "[mine]\ntemperature = 'hot'")], &[], vec![], "", number);
        let name = "~/judges.toml: the judge profile \"my judge\" cannot be used: its name may hold \
                    letters, digits and underscores only";
        check(&[("judges.toml", "['my judge']\nmodels = []")], &[], vec![], "", name);
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("judges.toml"), "[mine]\ntone = 'kind'").unwrap();
        let places = Places::new(Some(folder.path().to_path_buf()), vec![]);
        let error = Config::load(&places, None, vec![]).unwrap_err().to_string();
        assert!(error.starts_with("unknown key judges.mine.tone ("), "{error}");
        assert!(error.contains("judges.toml): known are about, absolute_prompt, "), "{error}");
    }

    #[test]
    fn a_prompt_in_its_old_place_is_refused_with_the_new_one() {
        let advice = "the prompts are now those of the judge's profile: set pairwise_prompt in judges.toml, under [prometheus] \
                      for Prometheus, or under a name of your own that judge.profile names";
        let refused = |place| format!("unknown key critic.pairwise_prompt ({place}): {advice}");
        check(&[("critic.toml", "pairwise_prompt = 'x'")], &[], vec![], "", &refused("~/critic.toml"));
        check(&[], &[("HONE_CRITIC_PAIRWISE_PROMPT", "x")], vec![], "", &refused("HONE_CRITIC_PAIRWISE_PROMPT"));
    }

    #[test]
    fn former_names_are_read_with_a_warning_and_present_ones_win() {
        let (former, present) = (("critic.toml", "rubric = 'honesty'"), ("judge.toml", "rubric = 'reasoning'"));
        let warned =
            "\nwarning: ~/critic.toml holds the settings of the judge, whose file is called judge.toml now: rename it";
        check(&[former], &[], vec![], "judge.rubric", &format!("\"honesty\" from ~/critic.toml{warned}"));
        check(&[former, present], &[], vec![], "judge.rubric", &format!("\"reasoning\" from ~/judge.toml{warned}"));
        let variables = [("HONE_CRITIC_SAMPLES", "3"), ("HONE_JUDGE_RUBRIC", "honesty")];
        let warned = "\nwarning: the variable HONE_CRITIC_SAMPLES is called HONE_JUDGE_SAMPLES now";
        check(&[], &variables, vec![], "judge.samples", &format!("3 from HONE_CRITIC_SAMPLES{warned}"));
        let mut config = Config::defaults().unwrap();
        config.set_text("critic.samples", "2", Source::Chat).unwrap();
        assert_eq!(config.judge.samples, 2);
    }

    #[test]
    fn a_refused_value_changes_nothing() {
        let mut config = Config::defaults().unwrap();
        assert!(config.set_text("sampling.top_p", "2", Source::Chat).is_err());
        assert_eq!(config.sampling.top_p, 0.9);
        config.set_text("sampling.top_p", "0.5", Source::Chat).unwrap();
        assert_eq!(config.sampling.top_p, 0.5);
        assert_eq!(config.source_of("sampling.top_p"), Some(&Source::Chat));
    }
}

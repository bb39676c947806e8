//! The configuration: every key, its effective value, and the source of that value.
//!
//! The defaults are the files of `config/`, compiled in. They are also the schema: a key exists if it has a default, and has
//! its default's type. The user's files override them, then `HONE_*` variables, then flags, and in a chat `/set`. Each of
//! these is a call of [`Config::set`], which validates the value at once, so that an error can name the key and where it was
//! set.

mod sections;
mod sources;
mod value;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use hone_quality::CriticSettings;
use serde::Serialize;
use toml::Value;

use crate::failure::usage;
pub(crate) use sections::{ChatConfig, EngineConfig, MemoryConfig, SamplingConfig};
pub(crate) use sources::Places;

/// A section's name, which is also the stem of its file, and its defaults.
const SECTIONS: [(&str, &str); 5] = [
    ("engine", include_str!("../../config/engine.toml")),
    ("sampling", include_str!("../../config/sampling.toml")),
    ("chat", include_str!("../../config/chat.toml")),
    ("critic", include_str!("../../config/critic.toml")),
    ("memory", include_str!("../../config/memory.toml")),
];

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "source", content = "name", rename_all = "lowercase")]
pub(crate) enum Source {
    /// The files compiled in.
    Default,
    /// A file of the user's.
    File(PathBuf),
    /// An environment variable.
    Variable(String),
    /// A flag of this command.
    Flag(&'static str),
    /// The models that are part of this executable.
    Bundle,
    /// A command typed into the chat, or the conversation that it resumed.
    Chat,
    /// A story that is played.
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
            Source::Chat => f.write_str("chat"),
            Source::Story(id) => write!(f, "story {id}"),
        }
    }
}

/// One key, as `hone config` shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Entry {
    /// Its value.
    pub(crate) value: Value,
    /// Who set it last.
    #[serde(flatten)]
    pub(crate) source: Source,
}

/// A value that a flag gives to a key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Override {
    /// `section.name`.
    pub(crate) key: &'static str,
    /// The flag, with its dashes.
    pub(crate) flag: &'static str,
    /// What was typed.
    pub(crate) value: Value,
}

/// What is in force.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// The model and what it runs on.
    pub(crate) engine: EngineConfig,
    /// How the next token is chosen.
    pub(crate) sampling: SamplingConfig,
    /// The terminal chat.
    pub(crate) chat: ChatConfig,
    /// What is remembered.
    pub(crate) memory: MemoryConfig,
    /// The judge.
    pub(crate) critic: CriticSettings,
    entries: BTreeMap<String, Entry>,
}

impl Config {
    /// The defaults alone.
    ///
    /// # Errors
    /// Only when a file of `config/` is wrong, which a test would have shown.
    pub(crate) fn defaults() -> anyhow::Result<Config> {
        let mut entries = BTreeMap::new();
        for (section, text) in SECTIONS {
            for (name, value) in text.parse::<toml::Table>()? {
                entries.insert(format!("{section}.{name}"), Entry { value, source: Source::Default });
            }
        }
        Config::from_entries(entries).map_err(anyhow::Error::msg)
    }

    /// Defaults, then the user's files, then variables, then `flags`. Beside it, what deserves a warning.
    ///
    /// # Errors
    /// For the first key that does not exist or whose value is wrong, named together with its place.
    pub(crate) fn load(places: &Places, flags: Vec<Override>) -> anyhow::Result<(Config, Vec<String>)> {
        let mut config = Config::defaults()?;
        let mut warnings = Vec::new();
        sources::apply_files(&mut config, places, &mut warnings)?;
        sources::apply_variables(&mut config, places, &mut warnings)?;
        for Override { key, flag, value } in flags {
            config.set(key, value, Source::Flag(flag))?;
        }
        Ok((config, warnings))
    }

    /// Every key in alphabetical order.
    pub(crate) fn entries(&self) -> &BTreeMap<String, Entry> {
        &self.entries
    }

    /// Who set `key` last; `None` where there is no such key.
    pub(crate) fn source_of(&self, key: &str) -> Option<&Source> {
        self.entries.get(key).map(|entry| &entry.source)
    }

    /// Gives `key` a value.
    ///
    /// # Errors
    /// When there is no such key, or the value has the wrong type or lies outside its range; nothing is changed then.
    pub(crate) fn set(&mut self, key: &str, value: Value, source: Source) -> anyhow::Result<()> {
        let Some(entry) = self.entries.get(key) else {
            return Err(usage(format!("unknown key {key} ({source}): {}", self.known_keys_near(key))));
        };
        let value =
            value::with_type_of(&entry.value, value).map_err(|wrong| usage(format!("{key} ({source}) is {wrong}")))?;
        let mut entries = self.entries.clone();
        entries.insert(key.to_string(), Entry { value, source: source.clone() });
        *self = Config::from_entries(entries).map_err(|wrong| usage(format!("{key} ({source}): {wrong}")))?;
        Ok(())
    }

    /// Gives `key` the value that `text` stands for, where a type must be guessed from the key: variables and `/set`.
    ///
    /// # Errors
    /// As [`Config::set`].
    pub(crate) fn set_text(&mut self, key: &str, text: &str, source: Source) -> anyhow::Result<()> {
        let value = match self.entries.get(key) {
            Some(entry) => value::from_text(&entry.value, text),
            None => Value::String(text.to_string()),
        };
        self.set(key, value, source)
    }

    fn from_entries(entries: BTreeMap<String, Entry>) -> Result<Config, String> {
        let mut tables = toml::Table::new();
        for (key, entry) in &entries {
            let (section, name) = key.split_once('.').ok_or_else(|| format!("key {key} has no section"))?;
            let table = tables.entry(section).or_insert_with(|| Value::Table(toml::Table::new()));
            if let Value::Table(table) = table {
                table.insert(name.to_string(), entry.value.clone());
            }
        }
        let sections = sections::Sections::read(tables)?;
        let sections::Sections { engine, sampling, chat, critic, memory } = sections;
        Ok(Config { engine, sampling, chat, critic, memory, entries })
    }

    fn known_keys_near(&self, key: &str) -> String {
        let section = key.split('.').next().unwrap_or_default();
        let mut near: Vec<&str> =
            self.entries.keys().filter(|known| known.split('.').next() == Some(section)).map(String::as_str).collect();
        if near.is_empty() {
            near = self.entries.keys().map(String::as_str).collect();
        }
        format!("known are {}", near.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loads with one user's file, one variable and no flags, and gives what `key` became or the error.
    fn check(files: &[(&str, &str)], variables: &[(&str, &str)], flags: Vec<Override>, key: &str, expected: &str) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let variables = variables.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let places = Places::new(Some(folder.path().to_path_buf()), variables);
        let seen = match Config::load(&places, flags) {
            Ok((config, warnings)) => {
                let entry = &config.entries()[key];
                let warned: String = warnings.iter().map(|warning| format!("\nwarning: {warning}")).collect();
                format!("{} from {}{warned}", entry.value, entry.source)
            }
            Err(error) => format!("{error:#}"),
        };
        assert_eq!(seen.replace(&folder.path().display().to_string(), "~"), expected);
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
            "unknown key chat.sytem (~/chat.toml): known are chat.grade, chat.grade_due, chat.history_lines, chat.save, chat.system",
        );
        check(
            &[("egnine.toml", "")],
            &[],
            vec![],
            "chat.system",
            "unknown configuration file ~/egnine.toml: known are engine.toml, sampling.toml, chat.toml, critic.toml, memory.toml",
        );
    }

    #[test]
    fn a_file_that_is_no_toml_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("chat.toml"), "save = = 1").unwrap();
        let error = Config::load(&Places::new(Some(folder.path().to_path_buf()), vec![]), vec![]).unwrap_err();
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
        wrong(1025, "engine.threads (--threads): threads is 1025: it must be 0 to 1024");
        wrong(-1, "engine.threads (--threads): threads is -1: it must be 0 to 1024");
        let most = flag("engine.threads", "--threads", 1024);
        check(&[], &[], most, "engine.threads", "1024 from --threads");
    }

    #[test]
    fn a_value_out_of_range_is_refused() {
        let wrong = |name, text, expected| check(&[], &[(name, text)], vec![], "sampling.top_k", expected);
        wrong(
            "HONE_SAMPLING_TOP_P",
            "1.5",
            "sampling.top_p (HONE_SAMPLING_TOP_P): top_p is 1.5: it must be above 0 and at most 1",
        );
        wrong(
            "HONE_SAMPLING_TEMPERATURE",
            "nan",
            "sampling.temperature (HONE_SAMPLING_TEMPERATURE): temperature is NaN: it must be 0 or more",
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
        let file = format!("model = 'mine:7b'\ngrade_timeout = 5\npairwise_prompt = {prompt}");
        let shown = format!("{prompt} from ~/critic.toml");
        let check = |variables: &[(&str, &str)], key, expected| {
            check(&[("critic.toml", &file)], variables, vec![], key, expected);
        };
        check(&[], "critic.model", "\"mine:7b\" from ~/critic.toml");
        check(&[("HONE_CRITIC_MODEL", "x.gguf")], "critic.model", "\"x.gguf\" from HONE_CRITIC_MODEL");
        check(&[], "critic.grade_timeout", "5.0 from ~/critic.toml");
        check(&[], "critic.pairwise_prompt", &shown);
        let wrong = |name, text, expected| check(&[(name, text)], "", expected);
        wrong(
            "HONE_CRITIC_GRADE_TIMEOUT",
            "0",
            "critic.grade_timeout (HONE_CRITIC_GRADE_TIMEOUT): grade_timeout is 0: it must be above 0 and at most 604800 \
             (seconds)",
        );
        wrong(
            "HONE_CRITIC_TIE_MARGIN",
            "-1",
            "critic.tie_margin (HONE_CRITIC_TIE_MARGIN): tie_margin is -1: it must be 0 or more",
        );
        wrong(
            "HONE_CRITIC_FALLBACK",
            "hope",
            "critic.fallback (HONE_CRITIC_FALLBACK): unknown variant `hope`, expected `generator` or `none`",
        );
        wrong(
            "HONE_CRITIC_ABSOLUTE_PROMPT",
            "{query} {rubric}",
            "critic.absolute_prompt (HONE_CRITIC_ABSOLUTE_PROMPT): absolute_prompt has no place for the answer: write \
             {answer} where it shall stand",
        );
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

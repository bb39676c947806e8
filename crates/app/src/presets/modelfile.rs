//! Ollama's Modelfiles, as `ollama show --modelfile` prints them and its documentation describes them
//! (docs/modelfile.mdx in ollama/ollama): a line for each instruction, whose text may be enclosed in `"` or `"""`.

use std::path::Path;

use hone_files::without_mark;
use toml::Value;

/// The contents of a Modelfile, as keys of the configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Modelfile {
    /// The keys and their values.
    pub keys: Vec<(String, Value)>,
    /// Remarks for the user about contents that hone does not take over.
    pub remarks: Vec<String>,
}

/// The parameters that hone has, and their keys.
const PARAMETERS: [(&str, &str); 14] = [
    ("temperature", "sampling.temperature"),
    ("top_k", "sampling.top_k"),
    ("top_p", "sampling.top_p"),
    ("min_p", "sampling.min_p"),
    ("repeat_penalty", "sampling.repetition_penalty"),
    ("repeat_last_n", "sampling.penalty_window"),
    ("presence_penalty", "sampling.presence_penalty"),
    ("frequency_penalty", "sampling.frequency_penalty"),
    ("mirostat_tau", "sampling.mirostat_tau"),
    ("mirostat_eta", "sampling.mirostat_eta"),
    ("seed", "sampling.seed"),
    ("num_predict", "sampling.max_tokens"),
    ("num_ctx", "engine.context"),
    ("num_thread", "engine.threads"),
];

const MODEL: &str = "engine.model";
/// The key that turns mirostat on.
const TAU: &str = "sampling.mirostat_tau";

/// Parameters of Ollama that hone decides itself or lacks.
const LEFT_OUT: [&str; 17] = [
    "f16_kv",
    "logits_all",
    "low_vram",
    "main_gpu",
    "num_batch",
    "num_gpu",
    "num_gqa",
    "num_keep",
    "numa",
    "penalize_newline",
    "rope_frequency_base",
    "rope_frequency_scale",
    "tfs_z",
    "typical_p",
    "use_mlock",
    "use_mmap",
    "vocab_only",
];

impl Modelfile {
    /// The text of a Modelfile's bytes, which may be UTF-16, as PowerShell writes it.
    ///
    /// # Errors
    /// When they are not text.
    pub fn decode(bytes: &[u8]) -> Result<String, String> {
        let wide = |rest: &[u8], unit: fn([u8; 2]) -> u16| {
            let units: Vec<u16> = rest.as_chunks().0.iter().map(|pair| unit(*pair)).collect();
            String::from_utf16(&units).map_err(|_| "it is not UTF-16".to_owned())
        };
        match bytes {
            [0xff, 0xfe, rest @ ..] => wide(rest, u16::from_le_bytes),
            [0xfe, 0xff, rest @ ..] => wide(rest, u16::from_be_bytes),
            _ => String::from_utf8(without_mark(bytes).to_vec()).map_err(|_| "it is not UTF-8 text".to_owned()),
        }
    }

    /// Reads a Modelfile; paths in it are relative to `folder`.
    ///
    /// # Errors
    /// For the first instruction that is not valid, or that hone cannot follow, with its line.
    pub fn read(text: &str, folder: &Path) -> Result<Modelfile, String> {
        let mut file = Modelfile::default();
        let (mut stop, mut messages, mut mirostat) = (Vec::new(), Vec::new(), false);
        let mut rest = Rest { text, line: 1 };
        while let Some(line) = rest.next_instruction() {
            let wrong = |reason: String| format!("line {line}: {reason}");
            let name = rest.word().to_uppercase();
            match name.as_str() {
                "FROM" if file.keys.iter().any(|(key, _)| key == MODEL) => {
                    let from = rest.value().map_err(wrong)?;
                    file.remarks.push(format!("FROM {from} is left out: the first FROM names the model"));
                }
                "FROM" => {
                    let from = rest.value().map_err(wrong)?;
                    file.set(MODEL, Value::String(model(&from, folder).map_err(wrong)?));
                }
                "SYSTEM" => file.set("chat.system", Value::String(rest.value().map_err(wrong)?)),
                "MESSAGE" => {
                    let role = rest.word().to_lowercase();
                    if !["user", "assistant", "system"].contains(&role.as_str()) {
                        return Err(wrong(format!("{role:?} is not a role: user, assistant or system")));
                    }
                    messages.push(Value::String(format!("{role}: {}", rest.value().map_err(wrong)?)));
                }
                "PARAMETER" => {
                    let parameter = rest.word().to_lowercase();
                    let value = rest.value().map_err(wrong)?;
                    match parameter.as_str() {
                        "stop" => stop.push(Value::String(value)),
                        "mirostat" if ["0", "2"].contains(&value.as_str()) => mirostat = value == "2",
                        "mirostat" => return Err(wrong(format!("mirostat is {value}: hone has version 2"))),
                        _ => file.parameter(&parameter, &value).map_err(wrong)?,
                    }
                }
                "TEMPLATE" => {
                    rest.value().map_err(wrong)?;
                    file.remarks
                        .push("TEMPLATE is left out: hone uses the chat template in the model's file".to_owned());
                }
                "RENDERER" | "PARSER" => {
                    let program = rest.value().map_err(wrong)?;
                    let left_out =
                        format!("{name} {program} is left out: hone does what the model's chat template says");
                    file.remarks.push(left_out);
                }
                "LICENSE" | "REQUIRES" => drop(rest.value().map_err(wrong)?),
                "ADAPTER" => {
                    let adapter = rest.value().map_err(wrong)?;
                    return Err(wrong(format!(
                        "hone runs no adapters, and {adapter} is one: merge it into the model first"
                    )));
                }
                _ => return Err(wrong(format!("{name:?} is not an instruction of a Modelfile"))),
            }
        }
        file.keep_mirostat(mirostat);
        for (key, values) in [("sampling.stop", stop), ("chat.messages", messages)] {
            if !values.is_empty() {
                file.set(key, Value::Array(values));
            }
        }
        Ok(file)
    }

    /// Keeps the parameters of mirostat only if it is on; its target then defaults to Ollama's.
    fn keep_mirostat(&mut self, is_on: bool) {
        match is_on {
            true if self.keys.iter().any(|(key, _)| key == TAU) => {}
            true => self.set(TAU, Value::Float(5.0)),
            false => self.keys.retain(|(key, _)| !key.starts_with("sampling.mirostat")),
        }
    }

    /// Sets a key; the last of several values counts.
    fn set(&mut self, key: &str, value: Value) {
        self.keys.retain(|(known, _)| known != key);
        self.keys.push((key.to_owned(), value));
    }

    fn parameter(&mut self, name: &str, text: &str) -> Result<(), String> {
        if LEFT_OUT.contains(&name) {
            self.remarks
                .push(format!("the parameter {name} is left out: hone decides this itself, or does not have it"));
            return Ok(());
        }
        let key = PARAMETERS.iter().find(|(parameter, _)| *parameter == name).map(|(_, key)| *key);
        let Some(key) = key else { return Err(format!("the parameter {name:?} is unknown")) };
        let number = text.parse().map(Value::Integer).ok().or_else(|| text.parse().map(Value::Float).ok());
        let number = number.ok_or_else(|| format!("the parameter {name} is {text:?}, expected a number"))?;
        match (name, number.as_integer()) {
            // No limit other than the model and its context.
            ("num_predict", Some(..0)) => self.set(key, Value::Integer(0)),
            ("repeat_last_n", Some(..0)) => {
                self.remarks
                    .push("repeat_last_n is left out: hone's penalties look at a fixed number of tokens".to_owned());
            }
            _ => self.set(key, number),
        }
        Ok(())
    }
}

/// A model's name in hone: a path becomes absolute.
fn model(from: &str, folder: &Path) -> Result<String, String> {
    let is_path = from.starts_with(['.', '/', '~']) || from.to_lowercase().ends_with(".gguf");
    if !is_path {
        return Ok(from.to_owned());
    }
    let path = std::path::absolute(folder.join(from)).map_err(|error| format!("{from}: {error}"))?;
    if path.is_dir() {
        return Err(format!("{from} is a folder: hone needs a GGUF file"));
    }
    Ok(path.display().to_string())
}

/// The unread rest of a Modelfile.
struct Rest<'a> {
    text: &'a str,
    line: usize,
}

impl Rest<'_> {
    /// Goes to the next instruction, and returns its line.
    fn next_instruction(&mut self) -> Option<usize> {
        loop {
            let trimmed = self.text.trim_start();
            self.skip(self.text.len() - trimmed.len());
            match trimmed.starts_with('#') {
                true => self.skip(trimmed.find('\n').unwrap_or(trimmed.len())),
                false => return (!trimmed.is_empty()).then_some(self.line),
            }
        }
    }

    /// Takes a word of the line, and the spaces after it.
    fn word(&mut self) -> String {
        let end = self.text.find(char::is_whitespace).unwrap_or(self.text.len());
        let word = self.text[..end].to_owned();
        self.skip(end);
        let spaces = self.text.len() - self.text.trim_start_matches([' ', '\t']).len();
        self.skip(spaces);
        word
    }

    /// Takes the text of an instruction.
    fn value(&mut self) -> Result<String, String> {
        let quote = ["\"\"\"", "\""].into_iter().find(|quote| self.text.starts_with(quote));
        let value = match quote {
            Some(quote) => {
                self.skip(quote.len());
                let end = self.text.find(quote).ok_or_else(|| format!("the text after {quote} has no end"))?;
                let value = self.text[..end].to_owned();
                self.skip(end + quote.len());
                value
            }
            None => {
                let end = self.text.find('\n').unwrap_or(self.text.len());
                let value = self.text[..end].trim().to_owned();
                self.skip(end);
                value
            }
        };
        if value.is_empty() { Err("a text is missing".to_owned()) } else { Ok(value) }
    }

    fn skip(&mut self, bytes: usize) {
        let (skipped, rest) = self.text.split_at(bytes);
        self.line += skipped.matches('\n').count();
        self.text = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Modelfile, String> {
        Modelfile::read(text, Path::new("/models"))
    }

    #[test]
    fn a_modelfile_becomes_keys() {
        let text = "# a comment\nFROM llama3.2\nPARAMETER temperature 1\nparameter num_ctx 4096\nPARAMETER stop \"<|end|>\"\n\
                    PARAMETER stop User:\nPARAMETER num_predict -1\n\nSYSTEM \"\"\"You are Mario.\nBe brief.\"\"\"\n\
                    MESSAGE user Is Toronto in Canada?\nMESSAGE assistant \"\"\"yes\"\"\"\nTEMPLATE \"\"\"{{ .Prompt }}\n\"\"\"\n\
                    PARAMETER num_gpu 1\nLICENSE MIT";
        let file = read(text).unwrap();
        let table: toml::Table = file.keys.into_iter().collect();
        assert_eq!(table["engine.model"].as_str(), Some("llama3.2"));
        assert_eq!(table["sampling.temperature"].as_integer(), Some(1));
        assert_eq!(table["engine.context"].as_integer(), Some(4096));
        assert_eq!(table["sampling.stop"], Value::from(vec!["<|end|>", "User:"]));
        assert_eq!(table["sampling.max_tokens"].as_integer(), Some(0));
        assert_eq!(table["chat.system"].as_str(), Some("You are Mario.\nBe brief."));
        assert_eq!(table["chat.messages"], Value::from(vec!["user: Is Toronto in Canada?", "assistant: yes"]));
        assert_eq!(file.remarks.len(), 2, "{:?}", file.remarks);
    }

    #[test]
    fn mirostat_is_on_only_if_the_file_says_so() {
        let tau =
            |text: &str| read(text).unwrap().keys.iter().find(|(key, _)| key == TAU).and_then(|it| it.1.as_float());
        assert_eq!(tau("PARAMETER mirostat 2"), Some(5.0));
        assert_eq!(tau("PARAMETER mirostat_tau 3.5\nPARAMETER mirostat 2"), Some(3.5));
        assert_eq!(tau("PARAMETER mirostat_tau 3.5\nPARAMETER mirostat 0"), None);
        assert!(read("PARAMETER mirostat 1").is_err());
    }

    #[test]
    fn a_file_as_ollama_shows_it_is_read() {
        let text = "# Modelfile generated by \"ollama show\"\n# To build a new Modelfile based on this, replace FROM with:\n\
                    # FROM gemma4:e4b\n\nFROM /blobs/sha256-ab\nFROM /blobs/sha256-cd\nTEMPLATE {{ .Prompt }}\n\
                    RENDERER gemma4\nPARSER gemma4\nPARAMETER top_k 64\n";
        let file = read(text).unwrap();
        let table: toml::Table = file.keys.into_iter().collect();
        assert_eq!(table["engine.model"].as_str(), Some("/blobs/sha256-ab"));
        assert_eq!(file.remarks.len(), 4, "{:?}", file.remarks);
    }

    #[test]
    fn a_file_may_be_utf_16_or_begin_with_a_mark() {
        let units: Vec<u16> = "\u{feff}FROM ä".encode_utf16().collect();
        let bytes = |unit: fn(u16) -> [u8; 2]| units.iter().copied().flat_map(unit).collect::<Vec<u8>>();
        for written in [bytes(u16::to_le_bytes), bytes(u16::to_be_bytes), "\u{feff}FROM ä".into(), "FROM ä".into()] {
            assert_eq!(Modelfile::decode(&written).as_deref(), Ok("FROM ä"));
        }
        assert!(Modelfile::decode(&[0x80]).is_err());
    }

    #[test]
    fn a_path_is_relative_to_the_file() {
        let model = |from: &str| read(&format!("FROM {from}")).unwrap().keys[0].1.as_str().unwrap().to_owned();
        assert_eq!(
            (model("./a.gguf"), model("qwen3:4b")),
            ("/models/./a.gguf".replace("/./", "/"), "qwen3:4b".to_owned())
        );
    }

    #[test]
    fn what_cannot_be_followed_is_named_with_its_line() {
        let check = |text: &str, expected: &str| assert_eq!(read(text), Err(expected.to_owned()), "{text}");
        check(
            "FROM a\n\nADAPTER ./lora.gguf",
            "line 3: hone runs no adapters, and ./lora.gguf is one: merge it into the model first",
        );
        check("SYSTEM \"\"\"a\nb", "line 1: the text after \"\"\" has no end");
        check("FROM", "line 1: a text is missing");
        check("PARAMETER warmth 1", "line 1: the parameter \"warmth\" is unknown");
        check("PARAMETER seed x", "line 1: the parameter seed is \"x\", expected a number");
        check("MESSAGE tool x", "line 1: \"tool\" is not a role: user, assistant or system");
        check("SYSTEM \"\"\"a\nb\"\"\"\nRUN x", "line 3: \"RUN\" is not an instruction of a Modelfile");
    }
}

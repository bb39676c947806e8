//! The settings that a preset may have.

use toml::Value;

use super::{Config, Source};

/// Checks the keys of a new preset, so that a wrong one is refused here, not by the chat that uses the preset.
///
/// # Errors
/// When a key is unknown or its value is not valid.
pub fn check_preset(name: &str, keys: &[(String, Value)]) -> anyhow::Result<()> {
    let mut config = Config::defaults()?;
    keys.iter().try_for_each(|(key, value)| config.set(key, value.clone(), Source::Preset(name.to_owned())))
}

/// Settings of a chat; those that are `None` stay as configured.
#[derive(Clone, Debug, Default)]
pub struct ChatSettings {
    /// Instructions before the conversation.
    pub system: Option<String>,
    /// The sampling temperature.
    pub temperature: Option<f64>,
    /// The total probability of the tokens that are kept.
    pub top_p: Option<f64>,
    /// The maximum number of tokens in an answer.
    pub max_tokens: Option<u32>,
    /// Whether the model reasons, if it can.
    pub thinking: Option<bool>,
}

impl ChatSettings {
    /// The keys with their values.
    pub fn keys(self) -> Vec<(String, Value)> {
        let thinking = self.thinking.map(|is_on| if is_on { "on" } else { "off" });
        let keys: [(&str, Option<Value>); 5] = [
            ("chat.system", self.system.map(Value::from)),
            ("sampling.temperature", self.temperature.map(Value::from)),
            ("sampling.top_p", self.top_p.map(Value::from)),
            ("sampling.max_tokens", self.max_tokens.map(Value::from)),
            ("sampling.thinking", thinking.map(Value::from)),
        ];
        keys.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_a_chat_become_keys_that_are_checked() {
        let settings = ChatSettings { temperature: Some(0.5), thinking: Some(false), ..ChatSettings::default() };
        let keys = [("sampling.temperature", Value::from(0.5)), ("sampling.thinking", Value::from("off"))]
            .map(|(key, value)| (key.to_owned(), value));
        assert_eq!(settings.keys(), keys);
        check_preset("calm", &keys).unwrap();
        let wild = ChatSettings { temperature: Some(-1.0), ..ChatSettings::default() };
        let error = check_preset("wild", &wild.keys()).unwrap_err().to_string();
        assert!(error.starts_with("sampling.temperature (preset wild)"), "{error}");
    }
}

//! The settings that a preset may have.

use serde::Serialize;
use toml::{Table, Value};

use super::{Config, Source};

/// Checks the keys of a new preset, so that a wrong one is refused here, not by the chat that uses the preset.
///
/// # Errors
/// When a key is unknown or its value is not valid.
pub fn check_preset(name: &str, keys: &[(String, Value)]) -> anyhow::Result<()> {
    let mut config = Config::defaults()?;
    keys.iter().try_for_each(|(key, value)| config.set(key, value.clone(), Source::Preset(name.to_owned())))
}

/// The keys of settings whose fields are serialized under the names of keys, such as `sampling.temperature`. Those that
/// are `None` stay as configured and have no key.
///
/// # Errors
/// When a value has no form in TOML.
pub fn preset_keys(settings: &impl Serialize) -> anyhow::Result<Vec<(String, Value)>> {
    Ok(Table::try_from(settings)?.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_become_keys_that_are_checked() {
        #[derive(Serialize)]
        struct Settings {
            #[serde(rename = "sampling.temperature")]
            temperature: f64,
            #[serde(rename = "sampling.top_p")]
            top_p: Option<f64>,
        }
        let keys = preset_keys(&Settings { temperature: 0.5, top_p: None }).unwrap();
        assert_eq!(keys, [("sampling.temperature".to_owned(), Value::from(0.5))]);
        check_preset("calm", &keys).unwrap();
        let wild = preset_keys(&Settings { temperature: -1.0, top_p: None }).unwrap();
        let error = check_preset("wild", &wild).unwrap_err().to_string();
        assert!(error.starts_with("sampling.temperature (preset wild)"), "{error}");
    }
}

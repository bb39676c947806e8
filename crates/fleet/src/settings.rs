//! How a fleet is reached, and what its streams keep: `bus.toml`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::Deserialize;

/// The bus beyond this process.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BusSettings {
    /// The address of the NATS server, `nats://HOST:4222` or `tls://HOST:4222`, or several with commas; empty for none.
    pub url: String,
    /// A file with the credentials of an account, as `nsc` writes it; empty for none.
    pub credentials: PathBuf,
    /// A file with the certificate of the authority that has signed the server's; empty for those that the system trusts.
    pub authority: PathBuf,
    /// The seconds for which a chat waits for a grade before it says that the grade comes later.
    pub patience: f64,
    /// The seconds for which a worker has a piece of work before it has to say that it is still at it.
    pub lease: f64,
    /// How often a piece of work is given to a worker before it is given up.
    pub attempts: u32,
    /// The hours for which work and results are kept.
    pub keep_hours: f64,
    /// The most mebibytes that each stream keeps.
    pub keep_mib: u64,
    /// On how many servers of a cluster each stream is kept.
    pub replicas: usize,
}

impl BusSettings {
    /// Whether there is a bus beyond this process.
    pub fn is_used(&self) -> bool {
        !self.url.is_empty()
    }

    /// Checks every value.
    ///
    /// # Errors
    /// What is wrong with the first invalid one.
    pub fn check(&self) -> Result<(), String> {
        for (key, value, least, most) in [
            ("patience", self.patience, 0.0, 86_400.0),
            ("lease", self.lease, 1.0, 3600.0),
            ("keep_hours", self.keep_hours, 0.01, 24.0 * 365.0),
        ] {
            if !(least..=most).contains(&value) {
                return Err(format!("{key} is {value}: it must be {least} to {most}"));
            }
        }
        for (key, value, most) in [
            ("attempts", u64::from(self.attempts), 1000),
            ("keep_mib", self.keep_mib, 1 << 20),
            ("replicas", self.replicas as u64, 5),
        ] {
            if !(1..=most).contains(&value) {
                return Err(format!("{key} is {value}: it must be 1 to {most}"));
            }
        }
        Ok(())
    }
}

/// A data folder, whose processes share one memory, as others know it: letters, digits, `-` and `_`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HomeId(String);

/// A text that is no [`HomeId`].
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("it is not the id of a home: 1 to 64 letters, digits, - and _")]
pub struct NoHomeId;

impl FromStr for HomeId {
    type Err = NoHomeId;

    fn from_str(text: &str) -> Result<Self, NoHomeId> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        match (1..=64).contains(&text.len()) && text.bytes().all(is_plain) {
            true => Ok(HomeId(text.to_owned())),
            false => Err(NoHomeId),
        }
    }
}

impl fmt::Display for HomeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_a_part_of_a_subject() {
        assert!("01j-A_9".parse::<HomeId>().is_ok());
        for text in ["", "a.b", "a b", "*", ">", &"a".repeat(65)] {
            assert!(text.parse::<HomeId>().is_err(), "{text}");
        }
    }
}

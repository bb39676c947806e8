//! The address of a fleet, and the limits of its streams: `bus.toml`.

use std::path::PathBuf;

use serde::Deserialize;

/// The bus beyond this process.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BusSettings {
    /// The address of the NATS server, `nats://HOST:4222` or `tls://HOST:4222`, or several with commas; empty for none.
    pub url: String,
    /// A file with the credentials of an account, as `nsc` writes it; empty for none.
    pub credentials: PathBuf,
    /// A file with the certificate of the authority that signed the server's certificate; empty for those that the
    /// system trusts.
    pub authority: PathBuf,
    /// The seconds for which a chat waits for a grade before it says that the grade comes later.
    pub patience: f64,
    /// The seconds for which a worker has a job before it must renew its lease.
    pub lease: f64,
    /// The number of times that a job is given to a worker before it is given up.
    pub attempts: u32,
    /// The hours for which work and results are kept.
    pub keep_hours: f64,
    /// The size limit of each stream in MiB.
    pub keep_mib: u64,
    /// The number of servers in a cluster that keep each stream.
    pub replicas: usize,
}

impl BusSettings {
    /// Whether there is a bus beyond this process.
    pub fn is_used(&self) -> bool {
        !self.url.is_empty()
    }

    /// The addresses.
    pub(crate) fn servers(&self) -> impl Iterator<Item = &str> {
        self.url.split(',').map(str::trim)
    }

    /// Whether TLS is required: an address or a certificate says so.
    pub(crate) fn needs_tls(&self) -> bool {
        !self.authority.as_os_str().is_empty() || self.servers().any(|address| address.starts_with("tls://"))
    }

    /// Checks every value.
    ///
    /// # Errors
    /// The reason why the first invalid value is not valid.
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
        // A password would be shown in errors, in `hone config` and in lists of processes.
        if self.url.contains('@') {
            return Err("url must not hold a password: credentials names a file".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(url: &str, authority: &str) -> BusSettings {
        BusSettings {
            url: url.to_owned(),
            credentials: PathBuf::new(),
            authority: authority.into(),
            patience: 1.0,
            lease: 1.0,
            attempts: 1,
            keep_hours: 1.0,
            keep_mib: 1,
            replicas: 1,
        }
    }

    #[test]
    fn no_password_stands_in_an_address_and_tls_is_not_given_up() {
        assert!(settings("nats://user:secret@host", "").check().is_err());
        let check = |url: &str, authority: &str, expected| {
            let settings = settings(url, authority);
            assert_eq!((settings.check(), settings.needs_tls()), (Ok(()), expected), "{url}");
        };
        check("nats://host", "", false);
        check("nats://one:4222, tls://other", "", true);
        check("nats://host", "ca.pem", true);
    }
}

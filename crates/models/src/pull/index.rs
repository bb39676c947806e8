//! Package indices: finds the wheel for a requirement through the simple API (PEP 503 as HTML, PEP 691 as JSON).
//!
//! An index is not trusted: its answers are read up to a limit, only the requested entries are kept, and they are used
//! only to find a file. The catalog knows what that file must be.

mod page;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hone_protocol::with_causes;
use percent_encoding::percent_decode_str;
use url::Url;

use self::page::{ACCEPTED, LONGEST_PAGE};
pub use self::page::{Link, index_links};
use super::{
    PullOptions,
    client::{Client, Page, protocol},
    transfer_error::{Peer, TransferError},
};
use crate::{address::without_secrets, progress::ProgressSink};

/// A package with a version, `NAME==VERSION`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Requirement<'a> {
    name: &'a str,
    version: &'a str,
}

/// A wheel in an index, and the client to download it with.
pub(crate) struct FoundWheel {
    pub(crate) client: Client,
    pub(crate) link: Link,
}

impl<'a> Requirement<'a> {
    /// Parses `NAME==VERSION`.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let (name, version) = text.split_once("==")?;
        let is_word = |text: &str| {
            !text.is_empty()
                && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '+' | '!'))
        };
        let (name, version) = (name.trim(), version.trim());
        (is_word(name) && is_word(version)).then_some(Self { name, version })
    }

    /// The rank of a file, lower is better; `None` if it is not a wheel for this requirement.
    fn rank(&self, file: &str) -> Option<u8> {
        let parts: Vec<&str> = file.strip_suffix(".whl")?.split('-').collect();
        let ([name, version, tags @ ..], 5..=6) = (parts.as_slice(), parts.len()) else { return None };
        let same_version = version.replace('_', "-").eq_ignore_ascii_case(&self.version.replace('_', "-"));
        let is_it = normalized(name) == normalized(self.name) && same_version;
        // Any wheel may hold the file; a universal one is preferred, as other installers do.
        let is_universal = tags.ends_with(&["none", "any"]);
        is_it.then_some(u8::from(!is_universal))
    }
}

/// A project's name in the normal form of indices (PEP 503).
fn normalized(name: &str) -> String {
    let parts = name.split(['-', '_', '.']).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("-").to_lowercase()
}

/// Asks the indices in order until one has the wheel.
pub(crate) fn find(
    requirement: &Requirement<'_>,
    options: &PullOptions,
    progress: ProgressSink<'_>,
) -> Result<FoundWheel, TransferError> {
    if options.index.forbidden {
        let reason = "pip's configuration disables indices (`no-index` or PIP_NO_INDEX): enable one, or pull the file by its path";
        return Err(TransferError::Wheel(reason.to_owned()));
    }
    let mut failures = Vec::new();
    for url in &options.index.urls {
        match ask(url, requirement, options, progress) {
            Ok(found) => return Ok(found),
            Err(error) => failures.push(error),
        }
    }
    match (failures.pop(), failures.is_empty()) {
        (Some(only), true) => Err(only),
        (last, _) => {
            let reasons: Vec<String> = failures.iter().chain(&last).map(|error| with_causes(error)).collect();
            Err(TransferError::Wheel(format!("no index has it: {}", reasons.join("; "))))
        }
    }
}

fn ask(
    index: &str,
    requirement: &Requirement<'_>,
    options: &PullOptions,
    progress: ProgressSink<'_>,
) -> Result<FoundWheel, TransferError> {
    let malformed = || TransferError::Wheel(format!("`{}` is not a valid index address", without_secrets(index)));
    let base = Url::parse(index).ok().filter(|url| matches!(url.scheme(), "http" | "https")).ok_or_else(malformed)?;
    let mut address = base.clone();
    let path = format!("{}/{}/", base.path().trim_end_matches('/'), normalized(requirement.name));
    address.set_path(&path);
    let client = Client::new(Peer::Index, options.index.certificate.as_deref())?;
    let client = client.authorized(index, basic_authorization(&base));
    let page = options.retry.run(progress, || client.page(address.as_str(), ACCEPTED, LONGEST_PAGE))?;
    let link = best(&page, requirement)?;
    Ok(FoundWheel { client, link })
}

/// The best wheel of a page.
fn best(page: &Page, requirement: &Requirement<'_>) -> Result<Link, TransferError> {
    let address = Url::parse(&page.address).map_err(|error| TransferError::Wheel(error.to_string()))?;
    let wanted = |file: &str| requirement.rank(file).is_some();
    let mut links =
        index_links(&page.media_type, &page.bytes, &wanted).map_err(|reason| protocol(&address, &reason))?;
    links.sort_by_key(|link| (requirement.rank(&link.file), link.file.clone()));
    let Some(mut link) = links.into_iter().next() else {
        let Requirement { name, version } = requirement;
        return Err(protocol(&address, &format!("the index has no wheel of {name} {version}")));
    };
    let joined = address.join(&link.url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let joined = joined.ok_or_else(|| protocol(&address, "its link to the wheel is not a valid address"))?;
    if address.scheme() == "https" && joined.scheme() != "https" {
        return Err(protocol(&address, "its link to the wheel is an address without TLS"));
    }
    link.url = joined.into();
    Ok(link)
}

/// The header for `user:password@` in an address (RFC 7617).
pub(crate) fn basic_authorization(address: &Url) -> Option<String> {
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let (user, password) = (decoded(address.username()), decoded(address.password().unwrap_or_default()));
    let is_given = !user.is_empty() || !password.is_empty();
    is_given.then(|| format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wheels_are_ranked() {
        let check = |requirement: &str, file: &str, expected: Option<u8>| {
            assert_eq!(Requirement::parse(requirement).unwrap().rank(file), expected, "{requirement} {file}");
        };
        check("hone-tiny==1.0", "hone_tiny-1.0-py3-none-any.whl", Some(0));
        check("Hone.Tiny==1.0", "hone_tiny-1.0-1-py2.py3-none-any.whl", Some(0));
        check("hone-tiny==1.0", "hone_tiny-1.0-cp312-cp312-manylinux_2_17_x86_64.whl", Some(1));
        check("hone-tiny==1.0", "hone_tiny-1.0.1-py3-none-any.whl", None);
        check("hone-tiny==1.0", "hone_tiny_more-1.0-py3-none-any.whl", None);
        check("hone-tiny==1.0", "hone_tiny-1.0.tar.gz", None);
        check("hone-tiny==1.0", "../hone_tiny-1.0-py3-none-any.whl", None);
        check("hone-tiny==1.0", "1.0-py3-none-any.whl", None);
    }

    #[test]
    fn requirements_are_exact() {
        for text in ["a", "a>=1", "a==", "==1", "a==1; python_version>'3'", "a==../b", "a/b==1"] {
            assert_eq!(Requirement::parse(text), None, "{text}");
        }
        assert_eq!(Requirement::parse("a == 1.0+x"), Some(Requirement { name: "a", version: "1.0+x" }));
    }

    #[test]
    fn credentials_become_a_header() {
        let check = |address: &str, expected: Option<&str>| {
            assert_eq!(basic_authorization(&address.parse().unwrap()).as_deref(), expected, "{address}");
        };
        check("https://h/simple", None);
        check("https://Aladdin:open%20sesame@h/", Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="));
        check("https://token@h/", Some("Basic dG9rZW46"));
    }
}

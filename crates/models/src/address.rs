//! Addresses for display and for requests.

use url::Url;

/// An address without user and password, which go into a header for their own host.
pub(crate) fn bare(address: &Url) -> Url {
    let mut bare = address.clone();
    // Only addresses without a host fail here, and they have neither.
    let _ = bare.set_username("");
    let _ = bare.set_password(None);
    bare
}

/// An address that is safe to show: a query may be a signature that grants access.
pub(crate) fn shown(address: &Url) -> String {
    let mut shown = bare(address);
    shown.set_query(None);
    shown.set_fragment(None);
    shown.into()
}

/// Like [`shown`], for an address that is not parsed.
pub(crate) fn without_secrets(address: &str) -> String {
    match Url::parse(address) {
        Ok(url) if url.has_host() => shown(&url),
        _ => address.rsplit('@').next().unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_without_secrets() {
        assert_eq!(without_secrets("https://me:hush@h:1/x?signature=hush#hush"), "https://h:1/x");
        assert_eq!(without_secrets("me:hush@h/x"), "h/x");
    }
}

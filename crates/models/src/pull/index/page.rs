//! Parses pages of the simple API: links to files, as JSON or as the anchors of an HTML page.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use serde::Deserialize;

use crate::digest::is_sha256;

/// The accepted media types, the preferred one first.
pub(super) const ACCEPTED: &str =
    "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1";

/// The longest page that is read, in bytes; a project with many files has a long page.
pub(super) const LONGEST_PAGE: u64 = 16 * 1024 * 1024;

/// A file in an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The file's name.
    pub file: String,
    /// Its address, which may be relative to the page.
    pub url: String,
    /// Its SHA-256, if the index provides it.
    pub sha256: Option<String>,
}

#[derive(Deserialize)]
struct RawPage<'a> {
    #[serde(borrow)]
    files: Vec<RawFile<'a>>,
}

#[derive(Deserialize)]
struct RawFile<'a> {
    #[serde(borrow)]
    filename: Cow<'a, str>,
    #[serde(borrow)]
    url: Cow<'a, str>,
    #[serde(default, borrow)]
    hashes: RawHashes<'a>,
}

#[derive(Default, Deserialize)]
struct RawHashes<'a> {
    #[serde(default, borrow)]
    sha256: Option<Cow<'a, str>>,
}

/// The links on a page of that media type to the wanted files.
///
/// # Errors
/// When the format is unknown; the reason completes a sentence about the page.
pub fn index_links(media_type: &str, bytes: &[u8], wanted: &dyn Fn(&str) -> bool) -> Result<Vec<Link>, String> {
    if media_type.ends_with("json") {
        return json_links(bytes, wanted);
    }
    if media_type.ends_with("html") {
        return Ok(html_links(&String::from_utf8_lossy(bytes), wanted));
    }
    Err(format!("it answers with `{}`, which is not an index's page", media_type.chars().take(64).collect::<String>()))
}

fn json_links(bytes: &[u8], wanted: &dyn Fn(&str) -> bool) -> Result<Vec<Link>, String> {
    let page: RawPage<'_> =
        serde_json::from_slice(bytes).map_err(|error| format!("its page is malformed ({error})"))?;
    let files = page.files.into_iter().filter(|file| wanted(&file.filename));
    let link = |file: RawFile<'_>| Link {
        file: file.filename.into_owned(),
        url: file.url.into_owned(),
        sha256: file.hashes.sha256.map(|hash| hash.to_lowercase()).filter(|hash| is_sha256(hash)),
    };
    Ok(files.map(link).collect())
}

/// The anchors of an HTML page. Their text is ignored: the file name is the end of the address, as for pip.
fn html_links(text: &str, wanted: &dyn Fn(&str) -> bool) -> Vec<Link> {
    let mut links = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        rest = &rest[start + 1..];
        let (tag, after) = tag(rest);
        rest = after;
        links.extend(anchor(tag).and_then(|href| link(&href)).filter(|link| wanted(&link.file)));
    }
    links
}

/// Splits at the `>` that ends a tag; one in quotes does not end it.
fn tag(text: &str) -> (&str, &str) {
    let mut quote = None;
    for (at, character) in text.char_indices() {
        match (quote, character) {
            (None, '>') => return (&text[..at], &text[at + 1..]),
            (None, '"' | '\'') => quote = Some(character),
            (Some(open), _) if open == character => quote = None,
            _ => {}
        }
    }
    // Searching behind an unfinished tag would take quadratic time.
    (text, "")
}

/// The `href` of a tag, if it is an anchor.
fn anchor(tag: &str) -> Option<String> {
    let attributes = tag.strip_prefix(['a', 'A']).filter(|rest| rest.starts_with(char::is_whitespace))?;
    let lower = attributes.to_ascii_lowercase();
    let mut from = 0;
    loop {
        let at = from + lower[from..].find("href")?;
        from = at + 4;
        let is_name = lower[..at].ends_with(char::is_whitespace);
        let value = attributes[from..].trim_start().strip_prefix('=').filter(|_| is_name);
        if let Some(value) = value {
            return Some(unescaped(attribute(value.trim_start())));
        }
    }
}

fn attribute(text: &str) -> &str {
    match text.chars().next() {
        Some(quote @ ('"' | '\'')) => text[1..].split(quote).next().unwrap_or_default(),
        _ => text.split(char::is_whitespace).next().unwrap_or_default(),
    }
}

/// Resolves the character references that occur in addresses.
fn unescaped(text: &str) -> String {
    let names = [("&quot;", "\""), ("&#34;", "\""), ("&#39;", "'"), ("&#x27;", "'"), ("&#43;", "+"), ("&#x2B;", "+")];
    let text = names.iter().fold(text.to_owned(), |text, (name, character)| text.replace(name, character));
    // The last one, so that its result is not resolved again.
    text.replace("&#38;", "&amp;").replace("&amp;", "&")
}

fn link(href: &str) -> Option<Link> {
    let (url, fragment) = href.split_once('#').unwrap_or((href, ""));
    let path = url.split('?').next()?;
    let file = percent_decode_str(path.rsplit('/').next()?).decode_utf8().ok()?.into_owned();
    let hash = fragment.split('&').find_map(|part| part.strip_prefix("sha256="));
    let sha256 = hash.map(str::to_lowercase).filter(|hash| is_sha256(hash));
    Some(Link { file, url: url.to_owned(), sha256 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(media_type: &str, text: &str) -> Vec<(String, String, bool)> {
        let found = index_links(media_type, text.as_bytes(), &|file| file.ends_with(".whl")).unwrap();
        found.into_iter().map(|link| (link.file, link.url, link.sha256.is_some())).collect()
    }

    fn check(media_type: &str, text: &str, expected: &[(&str, &str, bool)]) {
        let expected: Vec<_> =
            expected.iter().map(|(file, url, hash)| ((*file).into(), (*url).into(), *hash)).collect();
        assert_eq!(links(media_type, text), expected, "{text}");
    }

    #[test]
    fn json_pages_are_read() {
        let (json, hash) = ("application/vnd.pypi.simple.v1+json", "A".repeat(64));
        let file = |name: &str, hashes: &str| {
            format!("{{\"filename\":\"{name}\",\"url\":\"u/{name}\",\"hashes\":{hashes},\"yanked\":false,\"size\":3}}")
        };
        let hashes = format!("{{\"md5\":\"x\",\"sha256\":\"{hash}\"}}");
        let page = |files: &[String]| {
            format!("{{\"meta\":{{\"api-version\":\"1.1\"}},\"name\":\"n\",\"files\":[{}]}}", files.join(","))
        };
        check(
            json,
            &page(&[file("a.whl", &hashes), file("a.tar.gz", "{}"), file("b.whl", "{}")]),
            &[("a.whl", "u/a.whl", true), ("b.whl", "u/b.whl", false)],
        );
        check("application/json", &page(&[]), &[]);
        for text in ["", "{}", "{\"files\":3}", "{\"files\":[{}]}", "<html>"] {
            assert!(index_links(json, text.as_bytes(), &|_| true).unwrap_err().contains("malformed"), "{text}");
        }
        assert!(index_links("image/png", b"", &|_| true).unwrap_err().contains("`image/png`"));
    }

    #[test]
    fn html_pages_are_read() {
        let hash = "0".repeat(64);
        let html = "text/html";
        check(html, &format!("<a href=\"../../p/a.whl#sha256={hash}\">a.whl</a>"), &[("a.whl", "../../p/a.whl", true)]);
        check(
            html,
            "<A data-x='>' HREF = 'x%2Bcpu/a%2B1.whl?k=1&amp;l=2' >",
            &[("a+1.whl", "x%2Bcpu/a%2B1.whl?k=1&l=2", false)],
        );
        check(html, "<a data-href=\"no.whl\" href=b.whl rel=internal>", &[("b.whl", "b.whl", false)]);
        check(html, "<abbr href=\"a.whl\"><a><a href><a href=\"a.zip\">", &[]);
        check(html, &"<\">\"".repeat(1 << 20), &[]);
        check(html, "<", &[]);
        check(html, "<a href=\"é.whl\" class=\"İ\">", &[("é.whl", "é.whl", false)]);
    }
}

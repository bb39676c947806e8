//! Turns bare addresses in a text into links.

use pulldown_cmark::{CowStr, Event, LinkType, Tag, TagEnd};

/// The prefixes of an address.
const BEGINNINGS: [&str; 2] = ["https://", "http://"];

/// Maximum number of addresses that become links.
const MOST_LINKS: usize = 2_000;

/// The longest address that becomes a link, in bytes.
const LONGEST_ADDRESS: usize = 2_048;

/// The events with a link around each address in their texts, except in links. Consecutive texts are one text.
pub(super) fn with_links(events: Vec<Event<'_>>) -> Vec<Event<'_>> {
    let mut linked = Linked::default();
    let mut text = String::new();
    for event in events {
        if let Event::Text(piece) = &event {
            text.push_str(piece);
            continue;
        }
        linked.push_text(&std::mem::take(&mut text));
        match &event {
            Event::Start(Tag::Link { .. }) => linked.level += 1,
            Event::End(TagEnd::Link) => linked.level = linked.level.saturating_sub(1),
            _ => {}
        }
        linked.events.push(event);
    }
    linked.push_text(&text);
    linked.events
}

#[derive(Default)]
struct Linked<'a> {
    events: Vec<Event<'a>>,
    /// The number of open links.
    level: usize,
    n_links: usize,
}

impl Linked<'_> {
    fn push_text(&mut self, text: &str) {
        let mut rest = text;
        while self.level == 0
            && self.n_links < MOST_LINKS
            && let Some((start, end)) = address(rest)
        {
            self.push(&rest[..start]);
            let destination = CowStr::from(rest[start..end].to_owned());
            let (title, id) = (CowStr::from(""), CowStr::from(""));
            let link = Tag::Link { link_type: LinkType::Autolink, dest_url: destination, title, id };
            self.events.push(Event::Start(link));
            self.push(&rest[start..end]);
            self.events.push(Event::End(TagEnd::Link));
            self.n_links += 1;
            rest = &rest[end..];
        }
        self.push(rest);
    }

    fn push(&mut self, text: &str) {
        if !text.is_empty() {
            self.events.push(Event::Text(text.to_owned().into()));
        }
    }
}

/// The start and the end of the first address.
fn address(text: &str) -> Option<(usize, usize)> {
    let starts = text.match_indices("http").map(|(start, _)| start);
    starts.filter(|start| !text[..*start].chars().next_back().is_some_and(char::is_alphanumeric)).find_map(|start| {
        let beginning = BEGINNINGS.into_iter().find(|beginning| text[start..].starts_with(beginning))?;
        let begin = start + beginning.len();
        let is_end = |c: char| c.is_whitespace() || "<>\"`|".contains(c);
        let within = &text[begin..text.floor_char_boundary(begin + LONGEST_ADDRESS)];
        let length = within.find(is_end).or((begin + within.len() == text.len()).then_some(within.len()))?;
        let end = begin + without_punctuation(&within[..length]).len();
        (end > begin).then_some((start, end))
    })
}

/// An address without the sentence's punctuation after it; a closing bracket belongs to the address if it was opened
/// there.
fn without_punctuation(address: &str) -> &str {
    let surplus =
        |open: char, close: char| address.matches(close).count().saturating_sub(address.matches(open).count());
    let (mut round, mut square) = (surplus('(', ')'), surplus('[', ']'));
    let mut kept = address;
    while let Some(last) = kept.chars().next_back() {
        match last {
            ')' if round > 0 => round -= 1,
            ']' if square > 0 => square -= 1,
            '.' | ',' | ';' | ':' | '!' | '?' | '\'' | '*' | '_' | '}' => {}
            _ => break,
        }
        kept = &kept[..kept.len() - last.len_utf8()];
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::super::html_of;

    #[track_caller]
    fn check(markdown: &str, expected: &str) {
        let html =
            html_of(markdown).replace(" rel=\"noopener noreferrer nofollow\"", "").replace(" target=\"_blank\"", "");
        assert_eq!(html.trim(), format!("<p>{expected}</p>"), "{markdown}");
    }

    fn link(address: &str) -> String {
        format!("<a href=\"{address}\">{address}</a>")
    }

    #[test]
    fn addresses_become_links() {
        let wiki = "https://en.wikipedia.org/wiki/Rust_(language)";
        check(&format!("See {wiki}."), &format!("See {}.", link(wiki)));
        check(&format!("({wiki}), or"), &format!("({}), or", link(wiki)));
        check(
            "http://a.example/b_c_d and https://b.example",
            &format!("{} and {}", link("http://a.example/b_c_d"), link("https://b.example")),
        );
        check("xhttps://a.example http:// https://", "xhttps://a.example http:// https://");
        check("`https://a.example`", "<code>https://a.example</code>");
        let named = "[https://a.example](https://b.example)";
        check(named, "<a href=\"https://b.example\">https://a.example</a>");
        check("<https://a.example>", &link("https://a.example"));
        let long = format!("https://a{}", ")".repeat(3_000));
        check(&long, &long);
    }
}

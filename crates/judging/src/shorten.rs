//! Removes the middle of answers that do not fit the judge's context. The beginning and the end are kept, because they
//! state the subject and the conclusion.

/// A text, perhaps without its middle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shortened {
    /// The text, with a note in place of the middle.
    pub(crate) text: String,
    /// Number of removed characters.
    pub(crate) left_out: usize,
}

/// The texts with at most `room` characters in total, unchanged if they fit. A text shorter than its share leaves the
/// rest of the share to the others.
pub(crate) fn shortened<'a>(texts: impl Iterator<Item = &'a str> + Clone, room: usize) -> Vec<Shortened> {
    let lengths: Vec<usize> = texts.clone().map(|text| text.chars().count()).collect();
    let share = share(&lengths, room);
    texts.zip(&lengths).map(|(text, length)| without_middle(text, *length, share)).collect()
}

/// The maximum length of a text such that all texts together have at most `room` characters.
fn share(lengths: &[usize], room: usize) -> usize {
    let mut sorted = lengths.to_vec();
    sorted.sort_unstable();
    let mut left = room;
    for (index, length) in sorted.iter().enumerate() {
        let share = left / (sorted.len() - index);
        if *length > share {
            return share;
        }
        left -= length;
    }
    sorted.last().copied().unwrap_or_default()
}

fn without_middle(text: &str, length: usize, kept: usize) -> Shortened {
    if length <= kept {
        return Shortened { text: text.to_owned(), left_out: 0 };
    }
    let left_out = length - kept;
    let tail = kept / 2;
    let head = kept - tail;
    let byte_of = |index: usize| text.char_indices().nth(index).map_or(text.len(), |(byte, _)| byte);
    let (head, tail) = (&text[..byte_of(head)], &text[byte_of(length - tail)..]);
    Shortened { text: format!("{head}\n[… {} left out …]\n{tail}", characters(left_out)), left_out }
}

/// The judge's text, with a note about the part of the `answers` that it was not shown.
pub(crate) fn with_remark(text: &str, left_out: usize, answers: &str) -> String {
    if left_out == 0 {
        return text.to_owned();
    }
    let what = characters(left_out);
    let remark =
        format!("[Not shown to the judge, for lack of context or time: {what} in the middle of the {answers}.]");
    format!("{text}\n{remark}").trim_start().to_owned()
}

/// A number of characters, in words.
fn characters(count: usize) -> String {
    match count {
        1 => "1 character".to_owned(),
        count => format!("{count} characters"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check<const N: usize>(texts: [&str; N], room: usize, expected: [&str; N]) {
        let seen: Vec<String> =
            shortened(texts.into_iter(), room).into_iter().map(|shortened| shortened.text).collect();
        assert_eq!(seen, expected);
    }

    #[test]
    fn the_middle_is_left_out_and_counted() {
        check(["0123456789"], 10, ["0123456789"]);
        check(["0123456789"], 5, ["012\n[… 5 characters left out …]\n89"]);
        check(["0123456789"], 9, ["01234\n[… 1 character left out …]\n6789"]);
        check(["0123456789"], 0, ["\n[… 10 characters left out …]\n"]);
        check(["äöü世界!"], 3, ["äö\n[… 3 characters left out …]\n!"]);
        check([""], 0, [""]);
    }

    #[test]
    fn a_short_text_leaves_its_share_to_the_other() {
        check(["ab", "0123456789"], 8, ["ab", "012\n[… 4 characters left out …]\n789"]);
        check(
            ["0123456789", "abcdefghij"],
            4,
            ["0\n[… 8 characters left out …]\n9", "a\n[… 8 characters left out …]\nj"],
        );
        check(["ab", "cd"], 4, ["ab", "cd"]);
    }
}

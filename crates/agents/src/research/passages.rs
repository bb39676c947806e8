//! Divides documents into passages that an embedder reads in full.

use hone_protocol::{Embed, EmbedError};

use super::document::{Document, DocumentLine, DocumentUnit, Passage};

/// The size of passages, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PassageSize {
    /// The most characters of a passage.
    pub(super) most: usize,
    /// The most characters that it repeats from the passage before it, in whole lines.
    pub(super) overlap: usize,
}

/// Passages this short are not divided further, even if the embedder does not read all of one.
const SHORT: usize = 40;
/// The share of the longest passage, in percent, from which on a blank line ends one.
const FULL_ENOUGH: usize = 60;

/// The passages of a document, in order. No passage crosses a page boundary.
pub(super) fn passages(document: &Document, size: PassageSize) -> Vec<Passage> {
    chunks(document.unit, &pieces(&document.lines, size.most), size)
        .iter()
        .map(|chunk| passage(document, chunk))
        .collect()
}

/// Like [`passages`], with passages short enough for the embedder to read in full.
///
/// # Errors
/// When the embedder cannot be loaded.
pub(super) fn passages_for(
    document: &Document,
    size: PassageSize,
    embedder: &dyn Embed,
) -> Result<Vec<Passage>, EmbedError> {
    let mut done = Vec::new();
    divide(document, &document.lines, size, embedder, &mut done)?;
    Ok(done)
}

/// Adds the passages of these lines in their order. A passage that the embedder would cut is divided into shorter ones.
fn divide(
    document: &Document,
    lines: &[DocumentLine],
    size: PassageSize,
    embedder: &dyn Embed,
    done: &mut Vec<Passage>,
) -> Result<(), EmbedError> {
    let chunks = chunks(document.unit, &pieces(lines, size.most), size);
    let texts: Vec<String> = chunks.iter().map(|chunk| text_of(chunk)).collect();
    let lengths = embedder.lengths(&texts.iter().map(String::as_str).collect::<Vec<_>>())?;
    for (chunk, length) in chunks.iter().zip(lengths) {
        match length.is_cut && size.most / 2 >= SHORT {
            true => divide(document, chunk, PassageSize { most: size.most / 2, ..size }, embedder, done)?,
            false => done.push(passage(document, chunk)),
        }
    }
    Ok(())
}

/// The lines, with long ones divided at white space.
fn pieces(lines: &[DocumentLine], most: usize) -> Vec<DocumentLine> {
    let mut pieces = Vec::new();
    for line in lines {
        let mut rest = line.text.trim_end();
        while let Some((limit, _)) = rest.char_indices().nth(most) {
            let end = rest[..limit].rfind(char::is_whitespace).filter(|end| *end > 0).unwrap_or(limit);
            pieces.push(DocumentLine { number: line.number, text: rest[..end].trim_end().to_owned() });
            rest = rest[end..].trim_start();
        }
        pieces.push(DocumentLine { number: line.number, text: rest.to_owned() });
    }
    pieces
}

/// Groups of lines, none of them blank at either end.
fn chunks(unit: DocumentUnit, pieces: &[DocumentLine], size: PassageSize) -> Vec<Vec<DocumentLine>> {
    let mut chunks = Vec::new();
    let mut open: Vec<DocumentLine> = Vec::new();
    let mut n_new = 0;
    for piece in pieces {
        let length = length_of(&open);
        let is_full = length + piece.text.chars().count() > size.most;
        let is_other_page = unit == DocumentUnit::Page && open.last().is_some_and(|last| last.number != piece.number);
        let ends_paragraph = piece.text.trim().is_empty() && length * 100 >= size.most * FULL_ENOUGH;
        if n_new > 0 && (is_full || is_other_page || ends_paragraph) {
            chunks.extend(without_blank_ends(&open));
            open = if is_full && !is_other_page { end_of(&open, size.overlap.min(size.most / 2)) } else { Vec::new() };
            n_new = 0;
            // Repeated lines must leave room for new ones.
            if length_of(&open) + piece.text.chars().count() > size.most {
                open.clear();
            }
        }
        open.push(piece.clone());
        n_new += usize::from(!piece.text.trim().is_empty());
    }
    if n_new > 0 {
        chunks.extend(without_blank_ends(&open));
    }
    chunks
}

/// The last lines whose total length does not exceed `most`.
fn end_of(lines: &[DocumentLine], most: usize) -> Vec<DocumentLine> {
    let mut length = 0;
    let fits = |line: &&DocumentLine| {
        length += line.text.chars().count() + 1;
        length <= most
    };
    let n = lines.iter().rev().take_while(fits).count();
    lines[lines.len() - n..].to_vec()
}

fn without_blank_ends(lines: &[DocumentLine]) -> Option<Vec<DocumentLine>> {
    let is_text = |line: &DocumentLine| !line.text.trim().is_empty();
    let (first, last) = (lines.iter().position(is_text)?, lines.iter().rposition(is_text)?);
    Some(lines[first..=last].to_vec())
}

/// The number of characters, including one for each line ending.
fn length_of(lines: &[DocumentLine]) -> usize {
    lines.iter().map(|line| line.text.chars().count() + 1).sum()
}

fn text_of(lines: &[DocumentLine]) -> String {
    lines.iter().map(|line| line.text.as_str()).collect::<Vec<_>>().join("\n")
}

fn passage(document: &Document, lines: &[DocumentLine]) -> Passage {
    let number = |line: Option<&DocumentLine>| line.map_or(0, |line| line.number);
    Passage { place: document.place(number(lines.first()), number(lines.last())), text: text_of(lines) }
}

#[cfg(test)]
mod tests {
    use hone_protocol::TextLength;

    use super::*;

    const SIZE: PassageSize = PassageSize { most: 40, overlap: 12 };

    fn shown(passages: &[Passage]) -> Vec<String> {
        passages.iter().map(|passage| format!("{} {:?}", passage.place, passage.text)).collect()
    }

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        assert_eq!(shown(&passages(&Document::of_text("a", text), SIZE)), expected);
    }

    #[test]
    fn passages_name_exactly_their_lines() {
        check("", &[]);
        check("\n\none\ntwo\n\n", &["a:3-4 \"one\\ntwo\""]);
        let text = "The mill was built by Anna.\nIt burned.\nIt was rebuilt of stone later.\n\nNobody knows why.";
        check(
            text,
            &[
                "a:1-2 \"The mill was built by Anna.\\nIt burned.\"",
                "a:3 \"It was rebuilt of stone later.\"",
                "a:5 \"Nobody knows why.\"",
            ],
        );
        let text = "A line of twenty-nine letters\nshort one\nanother of nineteen";
        check(
            text,
            &["a:1-2 \"A line of twenty-nine letters\\nshort one\"", "a:2-3 \"short one\\nanother of nineteen\""],
        );
    }

    #[test]
    fn every_word_of_any_text_is_in_the_passage_that_names_its_line() {
        let words = |seed: usize| (0..seed * 7 % 23).map(|word| format!("w{}", seed * 31 + word)).collect::<Vec<_>>();
        let lines: Vec<String> = (0..60).map(|seed| words(seed).join(" ")).collect();
        let found = passages(&Document::of_text("a", &lines.join("\n")), SIZE);
        assert!(found.iter().all(|passage| passage.text.chars().count() <= SIZE.most));
        for (index, line) in lines.iter().enumerate() {
            for word in line.split(' ').filter(|word| !word.is_empty()) {
                let holds = |passage: &Passage| {
                    let names = matches!(&passage.place, crate::research::PassagePlace::Lines { first, last, .. }
                        if (*first..=*last).contains(&(index + 1)));
                    names && passage.text.split_whitespace().any(|found| found == word)
                };
                assert!(found.iter().any(holds), "{word} of line {}", index + 1);
            }
        }
    }

    #[test]
    fn a_long_line_is_divided_between_words_and_one_without_any_is_cut() {
        let text = "one two three four five six seven eight nine ten";
        check(text, &["a:1 \"one two three four five six seven eight\"", "a:1 \"nine ten\""]);
        let long = "ä".repeat(90);
        let found = passages(&Document::of_text("a", &long), SIZE);
        assert_eq!(found.iter().map(|passage| passage.text.chars().count()).collect::<Vec<_>>(), [40, 40, 10]);
    }

    #[test]
    fn a_passage_stays_on_its_page() {
        let pages = ["First page.\nMore.".to_owned(), String::new(), "Third.".to_owned()];
        let found = passages(&Document::of_pages("b.pdf", &pages), SIZE);
        assert_eq!(shown(&found), ["b.pdf, page 1 \"First page.\\nMore.\"", "b.pdf, page 3 \"Third.\""]);
    }

    /// Reads 25 words of a text.
    struct Words;

    impl Embed for Words {
        fn model(&self) -> &str {
            "words"
        }

        fn embed(&self, _: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
            Ok(Vec::new())
        }

        fn lengths(&self, texts: &[&str]) -> Result<Vec<TextLength>, EmbedError> {
            let length = |text: &&str| {
                let tokens = text.split_whitespace().count();
                TextLength { tokens: tokens.min(25), is_cut: tokens > 25 }
            };
            Ok(texts.iter().map(length).collect())
        }
    }

    #[test]
    fn passages_that_the_embedder_would_cut_are_divided_again() {
        let lines: Vec<String> = (0..40).map(|line| format!("{line} a b c d e f g h i")).collect();
        let document = Document::of_text("a", &lines.join("\n"));
        let size = PassageSize { most: 400, overlap: 0 };
        let found = passages_for(&document, size, &Words).unwrap();
        assert!(found.iter().all(|passage| passage.text.split_whitespace().count() <= 25));
        let all: Vec<&str> = found.iter().flat_map(|passage| passage.text.lines()).collect();
        assert_eq!(all, lines.iter().map(String::as_str).collect::<Vec<_>>());
    }

    #[test]
    fn the_parts_of_a_long_line_keep_their_order() {
        let words: Vec<String> = (0..300).map(|word| format!("w{word}")).collect();
        let document = Document::of_text("a", &words.join(" "));
        let found = passages_for(&document, PassageSize { most: 600, overlap: 0 }, &Words).unwrap();
        let all: Vec<&str> = found.iter().flat_map(|passage| passage.text.split(' ')).collect();
        assert_eq!(all, words.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

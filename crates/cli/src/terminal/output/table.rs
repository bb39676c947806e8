//! Formats rows as lines with aligned columns.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::visible;

/// The gap between two columns.
const GAP: &str = "  ";

/// The widest cell in any column but the last if there is no screen width: every other line is padded to it.
const WIDEST_CELL: usize = 200;

/// No column is made narrower than this to fit the screen.
const NARROWEST_COLUMN: usize = 8;

/// Maximum number of lines of a fact.
const LONGEST_FACT: usize = 24;

/// Formats rows, with each column as wide as its widest cell and the last column not padded. Text that could control a
/// terminal is made visible. If `screen` gives the number of columns of a screen, each row is one line, and its cells
/// are truncated to fit. Facts, which are rows of a name and a value, are not truncated: their values continue on
/// further lines.
pub(super) fn table(rows: &[Vec<String>], screen: Option<usize>) -> Vec<String> {
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| on_one_line(cell)).collect()).collect();
    let widths = fitted(widths(&rows), screen);
    match widths[..] {
        [name, value] if screen.is_some() => rows.iter().map(|row| fact(row, name, value)).collect(),
        _ => rows.iter().map(|row| line(row, &widths)).collect(),
    }
}

fn on_one_line(cell: &str) -> String {
    visible(&cell.replace(['\n', '\t'], " ")).into_owned()
}

/// The width of each column.
fn widths(rows: &[Vec<String>]) -> Vec<usize> {
    let n_columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.width()).max();
    (0..n_columns).map(|column| widest(column).unwrap_or(0)).collect()
}

/// The widths at which a line fits the screen, as far as possible: only the widest columns shrink.
fn fitted(mut widths: Vec<usize>, screen: Option<usize>) -> Vec<usize> {
    let Some(screen) = screen else {
        let padded = widths.len().saturating_sub(1);
        widths[..padded].iter_mut().for_each(|width| *width = (*width).min(WIDEST_CELL));
        return widths;
    };
    let room = screen.saturating_sub(GAP.len() * widths.len().saturating_sub(1));
    let fits = |cap: &usize| widths.iter().map(|width| width.min(cap)).sum::<usize>() <= room;
    let cap = (NARROWEST_COLUMN..=room).rev().find(fits).unwrap_or(NARROWEST_COLUMN);
    widths.iter().map(|width| *width.min(&cap)).collect()
}

fn line(row: &[String], widths: &[usize]) -> String {
    let mut line = String::new();
    for (cell, width) in row.iter().zip(widths) {
        let cell = cut(cell, *width);
        line.push_str(&cell);
        line.extend(std::iter::repeat_n(' ', width - cell.width()));
        line.push_str(GAP);
    }
    line.truncate(line.trim_end().len());
    line
}

/// A name, and a value that continues below its beginning.
fn fact(row: &[String], name: usize, value: usize) -> String {
    let [title, text] = row else { return line(row, &[name]) };
    let mut rest = text.as_str();
    let mut lines = vec![line(&[title.clone(), take_line(&mut rest, value)], &[name, value])];
    while !rest.is_empty() && lines.len() < LONGEST_FACT {
        lines.push(line(&[String::new(), take_line(&mut rest, value)], &[name, value]));
    }
    if !rest.is_empty() {
        lines.push(line(&[String::new(), "…".to_owned()], &[name, value]));
    }
    lines.join("\n")
}

/// Takes as much of `rest` as fits into `width` columns, whole words if possible.
fn take_line(rest: &mut &str, width: usize) -> String {
    let mut taken = 0;
    let overflows = |(_, character): &(usize, char)| {
        taken += character.width().unwrap_or(0);
        taken > width
    };
    let end = rest.char_indices().find(overflows).map_or(rest.len(), |(at, _)| at);
    let at_word = rest[..end].rfind(' ').filter(|space| end < rest.len() && *space > 0);
    let (line, after) = rest.split_at(at_word.unwrap_or(end));
    *rest = after.trim_start();
    line.to_owned()
}

/// The beginning of a cell that is wider than its column.
fn cut(cell: &str, width: usize) -> String {
    if cell.width() <= width {
        return cell.to_owned();
    }
    let mut taken = 0;
    let fits = |character: &char| {
        taken += character.width().unwrap_or(0);
        taken < width
    };
    cell.chars().take_while(fits).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[&[&str]]) -> Vec<Vec<String>> {
        rows.iter().map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()).collect()
    }

    #[track_caller]
    fn check(cells: &[&[&str]], screen: Option<usize>, expected: &str) {
        assert_eq!(table(&rows(cells), screen).join("\n"), expected);
    }

    #[test]
    fn columns_line_up() {
        check(&[], None, "");
        check(&[&["a"]], None, "a");
        check(&[&["name", "size"], &["qwen3:4b", "2 GB"]], None, "name      size\nqwen3:4b  2 GB");
        check(&[&["é", "x"], &["ab", ""]], None, "é   x\nab");
        check(&[&["漢字", "x"], &["abcd", "y"]], None, "漢字  x\nabcd  y");
        check(&[&["a\u{1b}[2J\nb", "x"], &["c", "y"]], None, "a␛[2J b  x\nc        y");
    }

    #[test]
    fn cells_are_cut_to_the_screen() {
        check(&[&["name", "a rather long remark", ""]], Some(22), "name  a rather long…");
        check(&[&["name", "short", "x"]], Some(20), "name  short  x");
        check(&[&["0123456789abcdef", "0123456789abcdef", ""]], Some(26), "0123456789…  0123456789…");
        check(&[&["漢字漢字漢字", "x", ""]], Some(14), "漢字漢字…  x");
        check(&[&["0123456789abcdef", "0123456789abcdef", "x"]], Some(2), "0123456…  0123456…  x");
    }

    #[test]
    fn facts_go_on_in_further_lines() {
        check(
            &[&["name", "a rather long remark"], &["n", "x"]],
            Some(20),
            "name  a rather long\n      remark\nn     x",
        );
        check(&[&["path", "/a/b/0123456789/c"]], Some(16), "path  /a/b/01234\n      56789/c");
        let lines = table(&rows(&[&["name", &"x ".repeat(10_000)]]), Some(20));
        assert_eq!(lines[0].lines().count(), LONGEST_FACT + 1);
        assert!(lines[0].ends_with("      …"));
    }

    #[test]
    fn a_cell_of_any_length_is_shown() {
        let long = "x".repeat(100_000);
        let lines = table(&rows(&[&[&long, "a"], &["b", &long]]), None);
        assert_eq!(lines[0].chars().count(), WIDEST_CELL + GAP.len() + 1);
        assert!(lines[1].ends_with(&long), "the last column is not padded, and whole where no screen cuts it");
        assert!(table(&rows(&[&[&long, &long, &long]]), Some(80))[0].width() <= 80);
    }
}

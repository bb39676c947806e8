//! Engrams as lines of text.

use hone_memory::MemoryStore;
use hone_protocol::{Grade, QueryId};

use crate::badge;
use crate::invocation::Invocation;
use crate::terminal::Line as OutputLine;

/// Columns that the mark of a grade takes, including the space after it.
const MARK_COLUMNS: usize = 2;

/// An answer in a list.
pub(super) struct EngramLine {
    pub(super) query_id: QueryId,
    pub(super) grade: Option<Grade>,
    /// The cells after the id.
    pub(super) cells: Vec<String>,
}

/// Prints answers as lines: score, enough digits of the id to distinguish it from all others in memory, and the rest.
///
/// # Errors
/// When memory cannot be read, or stdout cannot be written.
pub(super) fn print_lines(app: &Invocation, store: &MemoryStore, lines: Vec<EngramLine>) -> anyhow::Result<()> {
    let ids: Vec<QueryId> = lines.iter().map(|line| line.query_id).collect();
    let n_digits = store.abbreviate(&ids)?.into_iter().max().unwrap_or(0);
    let (mut marks, mut rows) = (Vec::new(), Vec::new());
    for line in lines {
        let (color, mark, score) = badge::parts(line.grade.as_ref());
        marks.push((color, mark));
        rows.push([vec![score, first_digits(&line.query_id.to_string(), n_digits)], line.cells].concat());
    }
    for ((color, mark), line) in marks.into_iter().zip(app.output.table(&rows, MARK_COLUMNS)) {
        app.output.print_marked_line(&OutputLine::marked(color, mark, line))?;
    }
    Ok(())
}

fn first_digits(id: &str, n_digits: usize) -> String {
    let mut n_seen = 0;
    let is_wanted = |character: &char| {
        n_seen += usize::from(*character != '-');
        n_seen <= n_digits
    };
    id.chars().take_while(is_wanted).collect::<String>().trim_end_matches('-').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_cut_after_digits() {
        let id = "0199ab12-3456-7000-8000-000000000001";
        assert_eq!(first_digits(id, 6), "0199ab");
        assert_eq!(first_digits(id, 8), "0199ab12");
        assert_eq!(first_digits(id, 9), "0199ab12-3");
        assert_eq!(first_digits(id, 32), id);
    }
}

//! Tables of Markdown as lines with aligned columns.

use nu_ansi_term::Style;
use pulldown_cmark::Alignment;

use super::styled::Styled;

/// The gap between two columns.
const GAP: &str = "  ";

/// No column is made narrower than this; a table that needs more room is shown as a list of its cells.
const NARROWEST_COLUMN: usize = 6;

/// A table.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) alignments: Vec<Alignment>,
    /// Rows of cells; the first row holds the titles.
    pub(super) rows: Vec<Vec<Styled>>,
}

impl Table {
    /// Adds a part to the last cell.
    pub(super) fn push(&mut self, text: &str, style: Style) {
        if let Some(cell) = self.rows.last_mut().and_then(|row| row.last_mut()) {
            cell.push(&text.replace('\n', " "), style);
        }
    }

    /// The lines of the table, none of them wider than `width`.
    pub(super) fn lines(&self, width: usize) -> Vec<Styled> {
        let n_columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let room = width.saturating_sub(GAP.len() * n_columns.saturating_sub(1));
        match fitted(self.widths(n_columns), room) {
            Some(widths) => self.columns(&widths),
            None => self.list(width),
        }
    }

    /// The width of each column.
    fn widths(&self, n_columns: usize) -> Vec<usize> {
        let widest = |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(Styled::width).max();
        (0..n_columns).map(|column| widest(column).unwrap_or(0).max(1)).collect()
    }

    fn columns(&self, widths: &[usize]) -> Vec<Styled> {
        let mut lines = Vec::new();
        for (number, row) in self.rows.iter().enumerate() {
            lines.extend(self.row(row, widths));
            if number == 0 {
                let dashes: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
                lines.push(Styled::new(&dashes.join(GAP), Style::new().dimmed()));
            }
        }
        lines
    }

    /// The lines of a row, whose cells may take several.
    fn row(&self, row: &[Styled], widths: &[usize]) -> Vec<Styled> {
        let cells: Vec<Vec<Styled>> = row.iter().zip(widths).map(|(cell, width)| cell.wrapped(*width)).collect();
        let n_lines = cells.iter().map(Vec::len).max().unwrap_or(0);
        let plain = Style::new();
        let line = |number: usize| {
            let mut line = Styled::default();
            for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
                let part = cell.get(number).cloned().unwrap_or_default();
                let room = width.saturating_sub(part.width());
                let before = match self.alignments.get(column) {
                    Some(Alignment::Right) => room,
                    Some(Alignment::Center) => room / 2,
                    _ => 0,
                };
                line.push(&" ".repeat(before), plain);
                line.append(&part);
                if column + 1 < cells.len() {
                    line.push(&" ".repeat(room - before), plain);
                    line.push(GAP, plain);
                }
            }
            line
        };
        (0..n_lines).map(line).collect()
    }

    /// The cells one below the other, each after its title.
    fn list(&self, width: usize) -> Vec<Styled> {
        let (Some(titles), rows) = (self.rows.first(), self.rows.iter().skip(1)) else { return Vec::new() };
        let mut lines = Vec::new();
        for (number, row) in rows.enumerate() {
            if number > 0 {
                lines.push(Styled::default());
            }
            for (title, cell) in titles.iter().zip(row) {
                let mut line = title.clone();
                line.push(": ", Style::new());
                line.append(cell);
                lines.extend(line.wrapped(width));
            }
        }
        lines
    }
}

/// The widths at which the columns fit; only the widest shrink. `None` if they would be too narrow.
fn fitted(widths: Vec<usize>, room: usize) -> Option<Vec<usize>> {
    let sum = |cap: usize| widths.iter().map(|width| *width.min(&cap)).sum::<usize>();
    if sum(usize::MAX) <= room {
        return Some(widths);
    }
    let cap = (NARROWEST_COLUMN..=room).rev().find(|cap| sum(*cap) <= room)?;
    Some(widths.iter().map(|width| *width.min(&cap)).collect())
}

//! What is measured, as rows of a table.

use super::{Figure, Statistic};

/// How a figure reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureUnit {
    /// A coefficient.
    Coefficient,
    /// A share of 1.
    Share,
    /// A difference of shares.
    DifferenceOfShares,
    /// A difference of scores.
    Points,
    /// Seconds.
    Seconds,
}

/// A figure about items of one kind.
pub struct Measure<T> {
    /// Its name in files.
    pub key: &'static str,
    /// Its name for people.
    pub label: &'static str,
    /// How it reads.
    pub unit: FigureUnit,
    /// Which items it is about.
    pub(super) is_about: fn(&T) -> bool,
    /// Its formula.
    pub(super) statistic: fn(&[&T]) -> Statistic,
}

/// An item that belongs to a question.
pub(super) trait OfQuestion {
    /// The number of the question.
    fn question(&self) -> usize;
}

#[allow(private_bounds, reason = "the two kinds of items are known")]
impl<T: OfQuestion> Measure<T> {
    /// The figure of these items.
    pub fn figure(&self, items: &[T]) -> Figure {
        let items: Vec<&T> = items.iter().filter(|item| (self.is_about)(item)).collect();
        Figure::of(&items, T::question, self.statistic)
    }
}

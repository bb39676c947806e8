//! Measures, as rows of a table.

use super::{Figure, Statistic};

/// The unit of a figure.
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

/// A figure over items of one kind.
pub struct Measure<T> {
    /// Its name in files.
    pub key: &'static str,
    /// Its name for people.
    pub label: &'static str,
    /// Its unit.
    pub unit: FigureUnit,
    /// Whether it applies to an item.
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

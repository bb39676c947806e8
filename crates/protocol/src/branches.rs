//! A conversation with branches: a question that is asked again or replaced begins a branch and overwrites nothing.
//!
//! The items are kept in the order in which they were added. Each follows an earlier one, or begins the conversation.
//! One path, from a first item to a last one, is shown. In a file the items stay a plain list, and [`Forks`] records
//! where their order differs from that of the conversation; a conversation without branches has no forks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Items with branches.
#[derive(Clone, Debug, PartialEq)]
pub struct Branches<T> {
    nodes: Vec<Node<T>>,
    /// The shown path, as indices into `nodes`.
    shown: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq)]
struct Node<T> {
    item: T,
    /// The index of the item that it follows; `None` if it begins the conversation.
    after: Option<usize>,
}

/// Where the order of a list of items differs from that of the conversation. Items are numbered from 1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Forks {
    /// The items that do not follow the one before them in the list, and the earlier items that they follow; 0 begins
    /// the conversation.
    pub after: BTreeMap<usize, usize>,
    /// The last item that is shown; 0 shows nothing, and `None` the path to the last item of the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<usize>,
}

impl Forks {
    /// Whether the list has the order of the conversation and is shown up to its last item.
    pub fn is_empty(&self) -> bool {
        self.after.is_empty() && self.shown.is_none()
    }
}

/// The error for forks that do not belong to the list of items.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "the forks name item {number}, which is not among the {count} items or does not come before the one that follows it"
)]
pub struct WrongFork {
    number: usize,
    count: usize,
}

/// An item's position among the items that follow the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct BranchPlace {
    /// Its number, from 1, in the order in which they were added.
    pub number: usize,
    /// The number of these items.
    pub count: usize,
}

impl<T> Branches<T> {
    /// The items that are shown, first to last.
    pub fn shown(&self) -> impl DoubleEndedIterator<Item = &T> + ExactSizeIterator {
        self.shown.iter().map(|&place| &self.nodes[place].item)
    }

    /// The number of items that are shown.
    pub fn n_shown(&self) -> usize {
        self.shown.len()
    }

    /// All items, in the order in which they were added.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.nodes.iter().map(|node| &node.item)
    }

    /// Adds an item after the last one that is shown, and shows it.
    pub fn push(&mut self, item: T) {
        self.nodes.push(Node { item, after: self.shown.last().copied() });
        self.shown.push(self.nodes.len() - 1);
    }

    /// Shows only the first `n` of the shown items. An item added then begins a branch.
    pub fn show_first(&mut self, n: usize) {
        self.shown.truncate(n);
    }

    /// Shows the path to the last item that satisfies `is_wanted`; returns whether there is one.
    pub fn show_to(&mut self, is_wanted: impl Fn(&T) -> bool) -> bool {
        let Some(found) = self.nodes.iter().rposition(|node| is_wanted(&node.item)) else { return false };
        self.shown = self.path_to(found);
        true
    }

    /// The places of an item and of those before it, in the order of the conversation.
    fn path_to(&self, place: usize) -> Vec<usize> {
        let mut path: Vec<usize> = std::iter::successors(Some(place), |&place| self.nodes[place].after).collect();
        path.reverse();
        path
    }

    /// Removes the last item that is shown, and every branch that begins after it.
    pub fn remove_last(&mut self) -> Option<T> {
        let last = self.shown.pop()?;
        // Items follow earlier ones, so one pass finds everything that follows the removed one.
        let mut moved: Vec<Option<usize>> = Vec::with_capacity(self.nodes.len());
        let (mut kept, mut removed) = (Vec::new(), None);
        for (place, Node { item, after }) in std::mem::take(&mut self.nodes).into_iter().enumerate() {
            let goes = place == last || after.is_some_and(|after| moved[after].is_none());
            moved.push((!goes).then_some(kept.len()));
            if place == last {
                removed = Some(item);
            } else if !goes {
                kept.push(Node { item, after: after.and_then(|after| moved[after]) });
            }
        }
        self.nodes = kept;
        self.shown = self.shown.iter().filter_map(|&place| moved[place]).collect();
        removed
    }

    /// Adds the items of another version of this conversation that are missing here and satisfy `is_wanted`. Each follows
    /// the item that it follows there, or the nearest earlier one that exists here. They are not shown.
    pub fn merge(&mut self, other: Branches<T>, is_same: impl Fn(&T, &T) -> bool, is_wanted: impl Fn(&T) -> bool) {
        let mut places: Vec<Option<usize>> = Vec::with_capacity(other.nodes.len());
        for Node { item, after } in other.nodes {
            let follows = after.and_then(|after| places[after]);
            let known = self.nodes.iter().position(|node| is_same(&node.item, &item));
            places.push(match known {
                Some(place) => Some(place),
                None if is_wanted(&item) => {
                    self.nodes.push(Node { item, after: follows });
                    Some(self.nodes.len() - 1)
                }
                None => follows,
            });
        }
    }

    /// The position among its branches of the item that is shown at `index`.
    pub fn place(&self, index: usize) -> Option<BranchPlace> {
        let shown = *self.shown.get(index)?;
        let branches = self.followers(self.nodes[shown].after);
        let number = branches.iter().position(|&place| place == shown)? + 1;
        Some(BranchPlace { number, count: branches.len() })
    }

    /// Shows another branch at `index`: the one with this number, followed by its latest items. Returns whether it
    /// exists.
    pub fn switch(&mut self, index: usize, number: usize) -> bool {
        let Some(&shown) = self.shown.get(index) else { return false };
        let branches = self.followers(self.nodes[shown].after);
        let Some(&wanted) = number.checked_sub(1).and_then(|place| branches.get(place)) else { return false };
        self.shown.truncate(index);
        let mut next = Some(wanted);
        while let Some(place) = next {
            self.shown.push(place);
            next = self.followers(Some(place)).last().copied();
        }
        true
    }

    fn followers(&self, of: Option<usize>) -> Vec<usize> {
        (0..self.nodes.len()).filter(|&place| self.nodes[place].after == of).collect()
    }

    /// The items in the order in which they were added, and the forks between them.
    pub fn into_list(self) -> (Vec<T>, Forks) {
        let shown = self.shown.last().map_or(0, |last| last + 1);
        let shown = (shown != self.nodes.len()).then_some(shown);
        let mut after = BTreeMap::new();
        for (place, node) in self.nodes.iter().enumerate() {
            let follows = node.after.map_or(0, |after| after + 1);
            if follows != place {
                after.insert(place + 1, follows);
            }
        }
        (self.nodes.into_iter().map(|node| node.item).collect(), Forks { after, shown })
    }

    /// The inverse of [`into_list`](Branches::into_list).
    ///
    /// # Errors
    /// When the forks name items that the list does not have, or make an item follow a later one.
    pub fn from_list(items: Vec<T>, forks: &Forks) -> Result<Branches<T>, WrongFork> {
        let count = items.len();
        let wrong = |number: usize| WrongFork { number, count };
        if let Some((&number, _)) = forks.after.iter().find(|&(&number, &after)| number > count || after >= number) {
            return Err(wrong(number));
        }
        let follows = |place: usize| forks.after.get(&(place + 1)).copied().unwrap_or(place).checked_sub(1);
        let nodes = items.into_iter().enumerate().map(|(place, item)| Node { item, after: follows(place) }).collect();
        let mut branches = Branches { nodes, shown: Vec::new() };
        let shown = forks.shown.unwrap_or(count);
        if shown > count {
            return Err(wrong(shown));
        }
        branches.shown = shown.checked_sub(1).map(|last| branches.path_to(last)).unwrap_or_default();
        Ok(branches)
    }

    /// Maps the items and keeps the branches.
    pub fn map<U>(self, mut to: impl FnMut(T) -> U) -> Branches<U> {
        let node = |Node { item, after }| Node { item: to(item), after };
        Branches { nodes: self.nodes.into_iter().map(node).collect(), shown: self.shown }
    }
}

impl<T> Default for Branches<T> {
    fn default() -> Self {
        Branches { nodes: Vec::new(), shown: Vec::new() }
    }
}

impl<T> FromIterator<T> for Branches<T> {
    /// Items that follow each other.
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut branches = Branches::default();
        items.into_iter().for_each(|item| branches.push(item));
        branches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the shown items after these steps, with the place of each item that has branches, and that the branches
    /// survive the conversion to a list and back.
    ///
    /// A word is added; `<n` shows only the first n, `>word` shows the path to this item, `n/m` switches at place n to
    /// branch m, and `-` removes the last one.
    #[track_caller]
    fn check(steps: &str, expected: &str) -> Forks {
        let mut branches = Branches::default();
        for step in steps.split(' ') {
            match (step.strip_prefix('<'), step.split_once('/')) {
                (Some(n), _) => branches.show_first(n.parse().unwrap()),
                (_, Some((n, m))) => assert!(branches.switch(n.parse().unwrap(), m.parse().unwrap()), "{step}"),
                _ if step.starts_with('>') => assert!(branches.show_to(|item| *item == &step[1..]), "{step}"),
                _ if step == "-" => assert!(branches.remove_last().is_some()),
                _ => branches.push(step),
            }
        }
        let described = |(index, item): (usize, &&str)| match branches.place(index).unwrap() {
            BranchPlace { count: 1, .. } => (*item).to_owned(),
            BranchPlace { number, count } => format!("{item}({number}/{count})"),
        };
        let seen: Vec<String> = branches.shown().enumerate().map(described).collect();
        assert_eq!(seen.join(" "), expected, "{steps}");
        let (items, forks) = branches.clone().into_list();
        let text = serde_json::to_string(&forks).unwrap();
        let read: Forks = serde_json::from_str(&text).unwrap();
        assert_eq!(Branches::from_list(items, &read), Ok(branches), "{text}");
        forks
    }

    #[test]
    fn a_conversation_without_branches_is_its_list() {
        assert!(check("a b c", "a b c").is_empty());
        assert!(check("a b -", "a").is_empty());
        check("a -", "");
    }

    #[test]
    fn what_is_asked_anew_begins_a_branch() {
        let forks = check("a b c <1 d", "a d(2/2)");
        assert_eq!(serde_json::to_string(&forks).unwrap(), r#"{"after":{"4":1}}"#);
        check("a b c <1 d e", "a d(2/2) e");
        check("a <0 b <0 c", "c(3/3)");
        check("a b <1", "a");
        check("a b <0", "");
    }

    #[test]
    fn one_goes_back_and_forth_between_branches() {
        check("a b c <1 d 1/1", "a b(1/2) c");
        check("a b c <1 d 1/1 1/2", "a d(2/2)");
        check("a b c <2 d <0 e 0/1", "a(1/2) b d(2/2)");
        check("a b c <1 d 1/1 f", "a b(1/2) c f");
        check("a b c <1 d >c", "a b(1/2) c");
        check("a b c <1 d >b e", "a b(1/2) e(2/2)");
        check("a <0 b >a", "a(1/2)");
        let mut branches: Branches<&str> = ["a", "b"].into_iter().collect();
        for (index, number) in [(0, 0), (0, 2), (2, 1), (9, 9)] {
            assert!(!branches.switch(index, number));
        }
        assert_eq!(branches.place(2), None);
        assert_eq!(branches.shown().copied().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn what_is_removed_takes_what_follows_it_along() {
        check("a b c <1 d -", "a");
        check("a b c <1 d - <1 e", "a e(2/2)");
        check("a b c <1 d 1/1 <2 -", "a");
        check("a b c <1 d 1/1 <2 - x", "a x(2/2)");
        check("a <0 b c 0/1 - d", "d(2/2)");
    }

    #[test]
    fn two_versions_are_merged() {
        let of = |items: &[&'static str]| items.iter().copied().collect::<Branches<&str>>();
        let check = |mut mine: Branches<&'static str>, other, unwanted: &str, expected: &str, shown: &str| {
            mine.merge(other, |a, b| a == b, |item| *item != unwanted);
            assert_eq!(mine.shown().copied().collect::<Vec<_>>().join(" "), shown);
            let (items, forks) = mine.into_list();
            assert_eq!(format!("{} {:?}", items.join(" "), forks.after), expected);
        };
        check(of(&["a", "b", "c"]), of(&["a", "b", "d", "e"]), "", "a b c d e {4: 2}", "a b c");
        check(of(&["a"]), of(&["a", "b"]), "", "a b {}", "a");
        check(of(&["a"]), of(&["a", "b", "c"]), "b", "a c {}", "a");
        check(of(&[]), of(&["x"]), "", "x {}", "");
        check(of(&["a"]), of(&["a"]), "", "a {}", "a");
    }

    #[test]
    fn forks_that_do_not_belong_to_a_list_are_refused() {
        let check = |after: &[(usize, usize)], shown, number| {
            let forks = Forks { after: after.iter().copied().collect(), shown };
            assert_eq!(Branches::from_list(vec!['a', 'b'], &forks), Err(WrongFork { number, count: 2 }));
        };
        check(&[(3, 1)], None, 3);
        check(&[(1, 1)], None, 1);
        check(&[(2, 2)], None, 2);
        check(&[(0, 0)], None, 0);
        check(&[], Some(3), 3);
    }
}

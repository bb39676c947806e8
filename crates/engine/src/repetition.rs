//! Detects an answer that repeats itself, as small models do until they reach their token limit.

/// Length in tokens of the longest text whose repetition is detected.
const LONGEST_PERIOD: usize = 256;
/// Minimum number of consecutive occurrences of a text.
const LEAST_TIMES: usize = 4;

/// Watches the tokens of an answer.
#[derive(Clone, Debug)]
pub(crate) struct RepetitionWatch {
    /// Length in tokens at which a repetition is detected.
    limit: usize,
    tokens: Vec<u32>,
    /// For each period from 1 on, the number of last tokens that equal the token one period before them.
    equal: Vec<usize>,
}

impl RepetitionWatch {
    /// Detects a repetition once it is `limit` tokens long and its text occurs at least four times in a row.
    pub(crate) fn new(limit: usize) -> Self {
        RepetitionWatch { limit, tokens: Vec::new(), equal: vec![0; LONGEST_PERIOD] }
    }

    /// Appends a token; returns whether the answer repeats itself.
    pub(crate) fn push(&mut self, token: u32) -> bool {
        let before = self.tokens.iter().rev();
        let mut repeats = false;
        for ((period, equal), earlier) in (1..).zip(&mut self.equal).zip(before) {
            *equal = if *earlier == token { *equal + 1 } else { 0 };
            // The first text of the row has nothing before it to be equal to.
            let length = *equal + period;
            repeats |= length >= self.limit && length >= LEAST_TIMES * period;
        }
        self.tokens.push(token);
        repeats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of tokens after which a repetition is detected.
    fn noticed(limit: usize, tokens: impl IntoIterator<Item = u32>) -> Option<usize> {
        let mut watch = RepetitionWatch::new(limit);
        tokens.into_iter().position(|token| watch.push(token)).map(|index| index + 1)
    }

    #[test]
    fn what_is_said_over_and_over_is_noticed_at_the_limit() {
        assert_eq!(noticed(64, std::iter::repeat_n(7, 63)), None);
        assert_eq!(noticed(64, std::iter::repeat(7)), Some(64));
        assert_eq!(noticed(64, (0..1000).map(|index| index % 10)), Some(64));
        assert_eq!(noticed(64, (0..1000).map(|index| index % 100)), Some(400), "four times");
        assert_eq!(noticed(64, (0..100).chain((0..1000).map(|index| index % 3))), Some(164), "after another text");
        assert_eq!(noticed(64, (0..2000).map(|index| index % 257)), None, "longer than any that is looked for");
    }

    #[test]
    fn a_list_whose_items_differ_is_no_repetition() {
        let items = (0..1000).flat_map(|number| [1, 2, 3, 100 + number, 4]);
        assert_eq!(noticed(64, items), None);
    }
}

//! Textual entailment by rules: whether a passage states a claim, decided without a model.
//!
//! A claim is divided into clauses, and one clause of the passage must contain each of them: all of its words in some
//! form, in the same order, with the same numbers, negations and limits. A passive verb is first made active, phrases
//! with a preposition may move, and words that a pronoun or a conjunction leaves out are put back. Other claims may
//! still be good paraphrases: the rules answer "supported" or nothing. They know English; in other languages they only
//! recognize copied sentences.

mod alignment;
mod clauses;
mod forms;
mod grammar;
pub(super) mod numbers;
mod statement;
mod tokens;

use alignment::stands_in;
use clauses::{Clause, clauses};
use grammar::first_verb;
use statement::Statement;
use tokens::{Token, sentences};

/// Words that restrict everything in their sentence.
const CONDITIONS: [&str; 5] = ["if", "unless", "whenever", "except", "respectively"];

/// Words of which almost every English passage contains one, and which are rare in other languages.
const ENGLISH: [&str; 7] = ["the", "and", "with", "from", "that", "this", "are"];

/// Sentences with more words than this are tables or lists; a claim is only supported by copying them.
const LONGEST: usize = 120;

/// Whether one of the texts contains, in its words, everything that the claim states.
pub(super) fn is_entailed(claim: &str, texts: &[&str]) -> bool {
    let sources: Vec<Source> = texts.iter().flat_map(|text| Source::of(text)).collect();
    let said = sentences(claim);
    let is_english =
        said.iter().chain(sources.iter().map(|source| &source.tokens)).any(|sentence| is_english(sentence));
    let mut phrases = Vec::new();
    let is_entailed = |sentence: &Vec<Token>| {
        let clauses = clauses(sentence, &mut phrases);
        let is_copied = sources.iter().any(|source| is_copy(sentence, &source.tokens));
        let is_statement = is_english && sentence.len() <= LONGEST && first_verb(sentence).is_some();
        is_copied || (is_statement && clauses.iter().all(|clause| is_said(clause, sentence, &sources)))
    };
    !said.is_empty() && said.iter().all(is_entailed)
}

fn is_english(sentence: &[Token]) -> bool {
    sentence.iter().any(|token| token.is(&ENGLISH))
}

/// A sentence of a passage.
struct Source {
    tokens: Vec<Token>,
    statements: Vec<Statement>,
}

impl Source {
    fn of(text: &str) -> Vec<Source> {
        let mut phrases = Vec::new();
        let source = |tokens: Vec<Token>| {
            let clauses = if tokens.len() <= LONGEST { clauses(&tokens, &mut phrases) } else { Vec::new() };
            Source { statements: clauses.iter().flatten().map(Statement::of).collect(), tokens }
        };
        sentences(text).into_iter().map(source).collect()
    }
}

/// Whether a claim is a whole sentence of the source, word for word.
fn is_copy(claim: &[Token], source: &[Token]) -> bool {
    let words = |tokens: &[Token]| -> Vec<String> {
        tokens.iter().filter(|token| !token.is_mark()).map(|token| token.text.clone()).collect()
    };
    words(claim) == words(source)
}

/// Whether a source states one reading of a clause.
fn is_said(readings: &[Clause], sentence: &[Token], sources: &[Source]) -> bool {
    let has = |condition: &str, tokens: &[Token]| tokens.iter().any(|token| token.is(&[condition]));
    let has_no_other_condition = |source: &&Source| {
        CONDITIONS.iter().all(|condition| !has(condition, &source.tokens) || has(condition, sentence))
    };
    let resolved = readings.iter().filter(|reading| readings.len() == 1 || reading.is_completed);
    let statements = resolved.flat_map(|reading| [Some(Statement::of(reading)), Statement::turned(reading)]).flatten();
    let statements: Vec<Statement> = statements.collect();
    sources.iter().filter(has_no_other_condition).any(|source| {
        source.statements.iter().any(|known| statements.iter().any(|statement| stands_in(statement, known)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(claim: &str, text: &str, expected: bool) {
        assert_eq!(is_entailed(claim, &[text]), expected, "{claim:?} from {text:?}");
    }

    #[test]
    fn what_a_sentence_says_may_be_said_in_another_order() {
        let text = "In 1792 the mill was built by Jan Pieters. It burned down in 1871 and was sold to the town.";
        check("Jan Pieters built the mill in 1792.", text, true);
        check("The mill was built by Jan Pieters.", text, true);
        check("The mill burned down in 1871.", text, true);
        check("The mill was sold to the town, and Jan Pieters built it.", text, true);
        check("The mill built Jan Pieters.", text, false);
        check("The mill burned down in 1792.", text, false);
        check("The town was sold to the mill.", text, false);
        check("Jan Pieters burned down in 1871.", text, false);
    }

    #[test]
    fn numbers_limits_and_negations_stay_with_what_they_belong_to() {
        let text = "The house has two doors and at most seventeen windows. The cellar is not heated.";
        check("The house has 2 doors.", text, true);
        check("The house has no more than 17 windows.", text, true);
        check("The house has 17 doors.", text, false);
        check("The house has 17 windows.", text, false);
        check("The cellar is heated.", text, false);
        check("The house has no doors.", text, false);
    }

    #[test]
    fn what_is_asked_denied_to_come_or_of_another_kind_is_not_said() {
        check("The mill is open on Sunday.", "Is the mill open on Sunday? No.", false);
        check("The mill was sold.", "The company denied that the mill was sold.", false);
        check("The company sold the mill.", "The company stopped selling the mill.", false);
        check("The museum opened in 2030.", "The museum will open in 2030.", false);
        check("The museum will open in 2030.", "The museum will open in 2030 with a fair.", true);
        check("Anna Berg is the mayor of Bergen.", "Anna Berg is the former mayor of Bergen.", false);
    }

    #[test]
    fn long_lists_without_a_verb_take_no_time() {
        for item in ["Sales Director, ", "Painted, ", "restored cleaned "] {
            check("The mill was painted.", &item.repeat(50), false);
            check("The mill was painted.", &item.repeat(5000), false);
        }
    }

    #[test]
    fn a_name_alone_and_half_of_a_condition_are_not_said() {
        let text = "The valve of the boiler opens if the pressure rises. According to the maker, it never leaks.";
        check("The valve of the boiler.", text, false);
        check("The valve of the boiler opens.", text, false);
        check("The valve of the boiler opens if the pressure rises.", text, true);
        check("The boiler opens if the pressure rises.", text, false);
        check("", text, false);
    }

    #[test]
    fn in_other_languages_a_copied_sentence_is_said_and_nothing_else() {
        let text = "Das Haus brannte 1871 nicht ab. Es steht am Deich.";
        check("Das Haus brannte 1871 nicht ab.", text, true);
        check("Das Haus brannte 1871 ab.", text, false);
        check("我的自行车是红色的。", "我的自行车是红色的。今天天气很好。", true);
        check("今天天气很好。", "我的自行车是红色的。今天天气不好。", false);
    }
}

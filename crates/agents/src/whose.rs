//! Whose facts these are: "My sister was born on 14 March" does not answer when a brother was born, however similar the
//! question is. A small model takes the wrong one of two similar facts, so it is only shown those about the person or
//! the animal asked about. No model is used: the rules are two lists of English words.

use hone_protocol::RecalledEngram;

/// People of whom one speaks as one's own.
const PEOPLE: &str = "mother mum mom father dad sister brother son daughter wife husband partner girlfriend boyfriend uncle aunt \
                      niece nephew cousin grandmother grandma granny grandfather grandpa granddad mother-in-law \
                      father-in-law sister-in-law brother-in-law stepson stepdaughter stepmother stepfather godson \
                      goddaughter godfather godmother fiancé fiancée friend neighbour neighbor flatmate roommate colleague \
                      boss manager landlord landlady teacher doctor dentist child baby twin";

/// Animals that one keeps.
const ANIMALS: &str = "dog cat rabbit hamster horse pony tortoise turtle parrot budgie canary goldfish fish guinea-pig snake \
                       gecko lizard puppy kitten goat hen chicken donkey pig sheep cow duck goose ferret mouse rat";

/// Words for oneself.
const SELF: &str = "i i'm i've i'll i'd me myself mine we we're we've we'll us";

/// What a text is about.
struct Told {
    words: Vec<String>,
}

impl Told {
    fn new(text: &str) -> Told {
        let text = text.to_lowercase().replace('’', "'");
        let words = text.split(|letter: char| !letter.is_alphanumeric() && letter != '\'' && letter != '-');
        let singular = |word: &str| word.strip_suffix("'s").unwrap_or(word).trim_matches(['\'', '-']).to_owned();
        Told { words: words.map(singular).filter(|word| !word.is_empty()).collect() }
    }

    /// The words of a list that it has, also in the plural.
    fn named<'a>(&self, list: &'a str) -> Vec<&'a str> {
        let is_in = |name: &&str| {
            self.words.iter().any(|word| word == name || word.strip_suffix('s').is_some_and(|word| word == *name))
        };
        list.split_whitespace().filter(is_in).collect()
    }

    /// Whether the person speaks of themselves.
    fn is_of_self(&self) -> bool {
        self.words.iter().any(|word| SELF.split_whitespace().any(|own| own == word))
    }

    fn has(&self, word: &str) -> bool {
        self.words.iter().any(|other| other == word)
    }
}

/// Whether a question names somebody or an animal, so that facts about others must not stand in the way of theirs.
pub(crate) fn names_somebody(question: &str) -> bool {
    let question = Told::new(question);
    !question.named(PEOPLE).is_empty() || !question.named(ANIMALS).is_empty()
}

/// Keeps the facts about the person or the animal that a question names, if there are any, and leaves out those about
/// others. A question about the person alone is not answered by a fact about somebody else, if another fact is about
/// the person.
pub(crate) fn keep_those_asked_about(question: &str, found: &mut Vec<RecalledEngram>) {
    let question = Told::new(question);
    let (people, animals) = (question.named(PEOPLE), question.named(ANIMALS));
    let told: Vec<Option<Told>> = found.iter().map(|engram| engram.is_fact.then(|| Told::new(&engram.query))).collect();
    let names = |told: &Told, list: &str, asked: &[&str]| told.named(list).iter().any(|name| asked.contains(name));
    let any = |is_about: &dyn Fn(&Told) -> bool| told.iter().flatten().any(is_about);
    let is_other: Box<dyn Fn(&Told) -> bool> = if !people.is_empty() {
        if !any(&|told| names(told, PEOPLE, &people)) {
            return;
        }
        Box::new(|told| {
            let is_of_others = !told.named(PEOPLE).is_empty() || !told.named(ANIMALS).is_empty() || told.is_of_self();
            is_of_others && !names(told, PEOPLE, &people)
        })
    } else if !animals.is_empty() {
        if !any(&|told| names(told, ANIMALS, &animals)) {
            return;
        }
        Box::new(|told| !told.named(ANIMALS).is_empty() && !names(told, ANIMALS, &animals))
    } else if (question.is_of_self() || question.has("our"))
        && any(&|told| told.is_of_self() && told.named(PEOPLE).is_empty())
    {
        Box::new(|told| !told.is_of_self() && !told.named(PEOPLE).is_empty())
    } else {
        return;
    };
    let mut are_other = told.iter().map(|told| told.as_ref().is_some_and(&is_other));
    found.retain(|_| !are_other.next().unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(text: &str) -> RecalledEngram {
        RecalledEngram {
            query_id: hone_protocol::QueryId::fresh(),
            query: text.to_owned(),
            answer: String::new(),
            score: None,
            similarity: 0.5,
            relevance: 0.5,
            self_graded: false,
            judging_method: Default::default(),
            words: 0.0,
            is_fact: true,
            is_unreviewed: false,
        }
    }

    #[track_caller]
    fn check(question: &str, facts: &[&str], expected: &[&str]) {
        let mut found: Vec<RecalledEngram> = facts.iter().map(|text| fact(text)).collect();
        keep_those_asked_about(question, &mut found);
        let kept: Vec<&str> = found.iter().map(|engram| engram.query.as_str()).collect();
        assert_eq!(kept, expected, "{question}");
    }

    #[test]
    fn facts_about_others_are_left_out_where_one_is_about_whom_the_question_names() {
        let sister = "My sister was born on 14 March.";
        check(
            "When is my sister's birthday?",
            &["My brother was born in May", sister, "I was born in June"],
            &[sister],
        );
        check("What is my brother called?", &[sister, "I am called Ann"], &[sister, "I am called Ann"]);
        let both = "My mother and my sister share a birthday, 3 May";
        check("When was my mother born?", &[sister, both, "The party is on Sunday"], &[both, "The party is on Sunday"]);
        check("How old are my sons?", &["My son is 7", "My daughter is 9"], &["My son is 7"]);
        check(
            "What does our neighbour keep?",
            &["My cat is Mia", "Our neighbour keeps bees"],
            &["Our neighbour keeps bees"],
        );
    }

    #[test]
    fn an_animal_is_not_another() {
        check("What is our tortoise called?", &["My cat is Mia", "Our tortoise is Ed"], &["Our tortoise is Ed"]);
        check("What is our tortoise called?", &["My cat is Mia"], &["My cat is Mia"]);
        check(
            "What do my pets eat?",
            &["My cat eats fish", "Our dog eats meat"],
            &["My cat eats fish", "Our dog eats meat"],
        );
    }

    #[test]
    fn what_i_do_is_not_what_my_son_does() {
        let cello = "I have played the cello for ten years.";
        check("Which instrument do I play?", &["My son is learning the trumpet.", cello], &[cello]);
        check(
            "Which instrument do I play?",
            &["My son is learning the trumpet."],
            &["My son is learning the trumpet."],
        );
        let gift = "I will give my aunt a telescope";
        let married = "We married on 8 June";
        check("When is our anniversary?", &["My mother was born on 9 June", married], &[married]);
        check("What do I give away?", &[gift, "I gave Ann a book"], &[gift, "I gave Ann a book"]);
        check(
            "Which instruments are there?",
            &["My son is learning the trumpet.", cello],
            &["My son is learning the trumpet.", cello],
        );
    }
}

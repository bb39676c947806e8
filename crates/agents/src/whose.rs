//! Whose facts these are: "My sister was born on 14 March" does not answer when a brother was born, however similar the
//! question is. A small model takes the wrong one of two similar facts, so it is only shown those about the person or
//! the animal asked about. No model is used: the rules are two lists of English words.

use hone_protocol::RecalledEngram;

/// People of whom one speaks as one's own: a line for each kind, with its names.
const PEOPLE: &str = "mother mothers mum mom mummy
father fathers dad daddy
sister sisters
brother brothers
son sons
daughter daughters
husband
wife
partner girlfriend boyfriend fiancé fiancée
uncle uncles
aunt aunts auntie
niece nieces
nephew nephews
cousin cousins
grandmother grandmothers grandma granny nan
grandfather grandfathers grandpa granddad
mother-in-law
father-in-law
sister-in-law
brother-in-law
stepson
stepdaughter
stepmother
stepfather
godson
goddaughter
godfather
godmother
friend friends
neighbour neighbours neighbor neighbors
flatmate flatmates roommate roommates
colleague colleagues
boss manager
landlord landlady
teacher teachers
dentist
twin twins";

/// Animals that one keeps, in the same form.
const ANIMALS: &str = "dog dogs puppy puppies
cat cats kitten kittens
rabbit rabbits bunny
hamster hamsters
guinea
horse horses pony ponies
tortoise tortoises turtle turtles
parrot parrots budgie budgies canary canaries
goldfish
snake snakes
gecko geckos lizard lizards
goat goats
hen hens
donkey donkeys
ferret ferrets";

/// Words of questions about several people or animals, or about an unknown one.
const ANYBODY: &str = "who whose whom anyone anybody everyone everybody family relatives parents children kids siblings child baby \
                       pet pets animal animals";

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

    /// The kinds of a list that it names.
    fn named<'a>(&self, list: &'a str) -> Vec<&'a str> {
        list.lines().filter(|kind| self.has_any(kind)).collect()
    }

    fn has_any(&self, words: &str) -> bool {
        words.split_whitespace().any(|word| self.words.iter().any(|other| other == word))
    }

    /// Whether the person speaks of themselves.
    fn is_of_self(&self) -> bool {
        self.has_any(SELF)
    }
}

/// Whether a question names somebody or an animal, so that facts about others must not stand in the way of theirs.
pub(crate) fn names_somebody(question: &str) -> bool {
    let question = Told::new(question);
    !question.has_any(ANYBODY) && [PEOPLE, ANIMALS].iter().any(|list| !question.named(list).is_empty())
}

/// Keeps the facts about the person or the animal that a question names, if there are any, and leaves out those about
/// others. A question about the person alone is not answered by a fact about somebody else, if another fact is about
/// the person. Where a question is about the person, too, only facts about somebody with at least this share of the
/// highest similarity count, and no fact about the person is left out.
pub(crate) fn keep_those_asked_about(question: &str, found: &mut Vec<RecalledEngram>, nearness: f32) {
    let question = Told::new(question);
    if question.has_any(ANYBODY) {
        return;
    }
    let is_of_self = question.is_of_self();
    let (people, animals) = (question.named(PEOPLE), question.named(ANIMALS));
    let highest = found.iter().map(|engram| engram.similarity).fold(0.0, f32::max);
    let told: Vec<Option<Told>> = found.iter().map(|engram| engram.is_fact.then(|| Told::new(&engram.query))).collect();
    let names = |told: &Told, list: &str, asked: &[&str]| told.named(list).iter().any(|kind| asked.contains(kind));
    let any = |is_about: &dyn Fn(&Told) -> bool| {
        let is_near = |engram: &RecalledEngram| !is_of_self || engram.similarity >= nearness * highest;
        std::iter::zip(found.iter(), &told).any(|(engram, told)| told.as_ref().is_some_and(is_about) && is_near(engram))
    };
    let is_other: Box<dyn Fn(&Told) -> bool> = if !people.is_empty() {
        if !any(&|told| names(told, PEOPLE, &people)) {
            return;
        }
        Box::new(|told| {
            let is_of_others = [PEOPLE, ANIMALS].iter().any(|list| !told.named(list).is_empty());
            let is_of_person = told.is_of_self();
            let is_other = if is_of_self { is_of_others && !is_of_person } else { is_of_others || is_of_person };
            is_other && !names(told, PEOPLE, &people)
        })
    } else if !animals.is_empty() {
        if is_of_self || !any(&|told| names(told, ANIMALS, &animals)) {
            return;
        }
        Box::new(|told| !told.named(ANIMALS).is_empty() && !names(told, ANIMALS, &animals))
    } else if (is_of_self || question.has_any("our")) && any(&|told| told.is_of_self() && told.named(PEOPLE).is_empty())
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
        keep_those_asked_about(question, &mut found, 0.75);
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
    fn names_of_one_kind_are_one_and_questions_about_several_leave_nothing_out() {
        let mum = ["My mum likes tulips", "My mother was born on 3 May"];
        check("When is my mum's birthday?", &[&mum[..], &["My aunt was born in June"]].concat(), &mum);
        let all = ["I was born in May", "My son was born in June", "My wife was born in July"];
        check("Whose birthdays do I have to remember?", &all, &all);
        check("What did I give my parents?", &all, &all);
    }

    /// "I booked the Golden Lamb" may answer where I dine with my sister.
    #[test]
    fn a_question_about_oneself_and_somebody_leaves_out_nothing_about_oneself() {
        let booked = "I booked the Golden Lamb for Friday";
        let found = [booked, "My sister was born on 14 March", "My son likes pizza"];
        check("Which restaurant did I book for my sister?", &found, &found[..2]);
        check(
            "Can I eat fish, or does our goldfish mind?",
            &["I am allergic to hens", "Our goldfish is Ed"],
            &["I am allergic to hens", "Our goldfish is Ed"],
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

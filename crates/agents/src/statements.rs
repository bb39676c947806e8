//! Detects statements that people make about themselves and their world in their messages, and questions about these.
//!
//! "My dog is called Rex, is it fine for him to eat carrots?" states one thing and asks another. Each sentence is read
//! clause by clause up to the one in which its question begins. The text before that clause is the statement, in the
//! person's own words. No model is used: the rules are a few lists of English words. In other languages only
//! punctuation marks apply, so a sentence that does not end with a question mark counts as a statement.

use std::ops::Range;

/// Longer statements are probably pasted rather than typed.
const LONGEST: usize = 300;

/// The fewest words of a statement.
const FEWEST_WORDS: usize = 3;

/// With more statements than these, a text is probably pasted, and only statements in the first person count.
const MOST_SAID: usize = 4;

/// Words that begin a question.
const INTERROGATIVES: [&str; 26] = [
    "how", "hows", "what", "whats", "when", "whens", "where", "wheres", "which", "who", "whom", "whos", "whose", "why",
    "whys", "wat", "wats", "wot", "wots", "wen", "wer", "wich", "wher", "wud", "cud", "any",
];

/// Interrogatives that can also begin a relative clause.
const RELATIVES: [&str; 6] = ["when", "where", "which", "who", "whom", "whose"];

/// Verbs that begin a question, or the question's clause.
const AUXILIARIES: [&str; 36] = [
    "am", "is", "are", "was", "were", "do", "does", "did", "can", "could", "will", "would", "shall", "should", "may",
    "might", "must", "has", "have", "had", "isnt", "arent", "wasnt", "werent", "dont", "doesnt", "didnt", "cant",
    "couldnt", "wont", "wouldnt", "shouldnt", "hasnt", "havent", "hadnt", "aint",
];

/// Verbs that begin a request.
const IMPERATIVES: [&str; 87] = [
    "act",
    "add",
    "analyse",
    "analyze",
    "answer",
    "ask",
    "build",
    "calculate",
    "check",
    "choose",
    "classify",
    "combine",
    "compare",
    "compute",
    "continue",
    "convert",
    "correct",
    "create",
    "debug",
    "define",
    "delete",
    "describe",
    "determine",
    "develop",
    "discuss",
    "draft",
    "edit",
    "ensure",
    "estimate",
    "evaluate",
    "expand",
    "explain",
    "extract",
    "find",
    "finish",
    "fix",
    "generate",
    "give",
    "help",
    "identify",
    "imagine",
    "implement",
    "improve",
    "let",
    "list",
    "make",
    "multiply",
    "name",
    "optimise",
    "optimize",
    "paraphrase",
    "pick",
    "plan",
    "pretend",
    "proofread",
    "provide",
    "rank",
    "recite",
    "recommend",
    "refactor",
    "remind",
    "remove",
    "repeat",
    "rephrase",
    "replace",
    "rewrite",
    "say",
    "select",
    "shorten",
    "show",
    "simplify",
    "simulate",
    "sing",
    "solve",
    "sort",
    "specify",
    "spell",
    "subtract",
    "suggest",
    "summarise",
    "summarize",
    "teach",
    "tell",
    "transcribe",
    "translate",
    "turn",
    "write",
];

/// Verbs of a request about a text.
const ABOUT_TEXTS: [&str; 21] = [
    "analyse",
    "analyze",
    "classify",
    "convert",
    "correct",
    "edit",
    "extract",
    "improve",
    "paraphrase",
    "proofread",
    "rank",
    "rephrase",
    "rewrite",
    "shorten",
    "simplify",
    "sort",
    "spell",
    "summarise",
    "summarize",
    "transcribe",
    "translate",
];

/// Words for the text of such a request, if a colon does not announce it.
const ANNOUNCED: [&str; 8] = ["following", "below", "text", "passage", "paragraph", "article", "story", "email"];

/// Words without content before a statement or a question.
const FILLERS: [&str; 34] = [
    "so", "and", "but", "then", "ok", "okay", "hey", "hi", "hello", "also", "now", "an", "or", "well", "just",
    "really", "oh", "right", "alright", "thanks", "cheers", "please", "sorry", "mate", "good", "morning", "evening",
    "btw", "no", "yes", "yeah", "remember", "note", "anyway",
];

/// Conjunctions that begin a clause if one of the words of [`SUBJECTS`] or of a question follows.
const CONJUNCTIONS: [&str; 5] = ["and", "but", "so", "or", "because"];

/// Words other than those of a question that begin a clause after a conjunction.
const SUBJECTS: [&str; 16] =
    ["i", "im", "ive", "id", "my", "me", "we", "weve", "our", "he", "hes", "she", "shes", "it", "they", "theyve"];

/// Words at the beginning of a sentence that refer to another sentence.
const DANGLING: [&str; 8] = ["that", "thats", "this", "these", "those", "it", "its", "there"];

/// Words that begin a phrase which only names the topic of the question ("In French cooking, what is a roux?").
const PREPOSITIONS: [&str; 14] =
    ["about", "as", "at", "between", "by", "for", "from", "given", "in", "of", "on", "under", "with", "within"];

/// The most words of such a phrase.
const LONGEST_PHRASE: usize = 4;

/// Words of the first person.
const FIRST_PERSON: [&str; 18] = [
    "i",
    "im",
    "ive",
    "id",
    "ill",
    "my",
    "me",
    "mine",
    "myself",
    "meself",
    "we",
    "weve",
    "were",
    "wed",
    "our",
    "ours",
    "us",
    "ourselves",
];

/// Relatives, meant as one's own unless stated otherwise, and words that ask for something that was said.
const OWN: [&str; 14] = [
    "mum",
    "mom",
    "mam",
    "mummy",
    "mommy",
    "dad",
    "daddy",
    "wife",
    "husband",
    "girlfriend",
    "boyfriend",
    "missus",
    "remind",
    "remember",
];

/// Verbs after which "me" only means the recipient of the answer.
const TELLING: [&str; 12] =
    ["tell", "give", "show", "write", "let", "help", "teach", "send", "make", "find", "explain", "excuse"];

/// Words that express a change.
const CHANGES: [&str; 16] = [
    "now", "nowadays", "moved", "switched", "changed", "replaced", "swapped", "upgraded", "new", "anymore", "instead",
    "lately", "quit", "recently", "finally", "became",
];

/// Pairs of words that express a change.
const CHANGES_OF_TWO: [(&str, &str); 8] = [
    ("no", "longer"),
    ("any", "more"),
    ("these", "days"),
    ("gave", "up"),
    ("given", "up"),
    ("down", "to"),
    ("up", "to"),
    ("used", "to"),
];

/// Characters that belong to the word before them.
const CLOSING: [char; 6] = [')', '"', '”', '%', '€', '°'];

/// A person's statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statement {
    /// The statement in the person's own words.
    pub(crate) text: String,
    /// Whether it states a change.
    pub(crate) is_update: bool,
}

/// The statements in a text that a person typed.
pub(crate) fn statements_in(text: &str) -> Vec<Statement> {
    let prose = text.split("```").step_by(2);
    let own = prose.flat_map(sentences).take_while(|sentence| !announces_text(sentence));
    let mut found: Vec<Statement> = own.filter_map(|sentence| statement_in(&sentence)).collect();
    if found.len() > MOST_SAID {
        found.retain(|statement| words(&statement.text).iter().any(|word| FIRST_PERSON.contains(&word.text.as_str())));
    }
    found
}

/// Whether the sentence asks for something to be done with the text that follows, which states nothing about the person.
fn announces_text(sentence: &str) -> bool {
    let words = words(sentence);
    let has = |wanted: &[&str]| words.iter().any(|word| wanted.contains(&word.text.as_str()));
    has(&ABOUT_TEXTS) && (sentence.ends_with(':') || has(&ANNOUNCED))
}

/// Whether a question is about its asker.
pub(crate) fn is_personal(question: &str) -> bool {
    let words: Vec<String> = words(question).into_iter().map(|word| word.text).collect();
    (0..words.len()).any(|index| {
        let before = |n: usize| index.checked_sub(n).map_or("", |index| words[index].as_str());
        match words[index].as_str() {
            "me" => !TELLING.contains(&before(1)),
            "i" | "we" => !asks_for_advice(before(2), before(1)),
            word => word != "were" && (FIRST_PERSON.contains(&word) || OWN.contains(&word)),
        }
    })
}

/// Whether a question is general although "I" or "we" follows these words: "How do I change a tyre?", "What should I
/// plant?".
fn asks_for_advice(interrogative: &str, auxiliary: &str) -> bool {
    match interrogative {
        "how" => AUXILIARIES.contains(&auxiliary),
        interrogative => auxiliary == "should" && INTERROGATIVES.contains(&interrogative),
    }
}

/// A word in lower case and without apostrophes, and its position.
struct Word {
    text: String,
    place: Range<usize>,
}

fn words(text: &str) -> Vec<Word> {
    let is_part = |letter: char| letter.is_alphanumeric() || is_apostrophe(letter);
    let mut found = Vec::new();
    let mut rest = 0;
    while let Some(begin) = text[rest..].find(is_part).map(|begin| rest + begin) {
        let end = text[begin..].find(|letter| !is_part(letter)).map_or(text.len(), |end| begin + end);
        let word: String = text[begin..end].chars().filter(|letter| !is_apostrophe(*letter)).collect();
        found.push(Word { text: word.to_lowercase(), place: begin..end });
        rest = end;
    }
    found
}

fn is_apostrophe(letter: char) -> bool {
    matches!(letter, '\'' | '’')
}

/// The sentences of a text, each with the mark that ends it.
fn sentences(text: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != '\n' {
            found.last_mut().into_iter().for_each(|sentence| sentence.push(letter));
        }
        let is_end =
            matches!(letter, '.' | '!' | '?' | ';' | ':') && letters.peek().is_none_or(|next| next.is_whitespace());
        if is_end || letter == '\n' {
            found.push(String::new());
        }
    }
    found.into_iter().map(|sentence| sentence.trim().to_owned()).filter(|sentence| !sentence.is_empty()).collect()
}

/// The statement in a sentence before its question begins, if any.
fn statement_in(sentence: &str) -> Option<Statement> {
    let end = sentence.chars().last()?;
    let words = words(sentence);
    let clauses = clauses(sentence, &words);
    let mut stated: Option<Range<usize>> = None;
    for (index, clause) in clauses.iter().enumerate() {
        let clause = &words[clause.clone()];
        let Some(first) = first_of_substance(clause) else { continue };
        let is_last = index + 1 == clauses.len();
        if (end == '?' && is_last) || begins_question(&first.text, stated.is_some(), end) {
            break;
        }
        if stated.is_none() && DANGLING.contains(&first.text.as_str()) {
            return None;
        }
        let begin = stated.map_or(clause[0].place.start, |stated| stated.start);
        stated = Some(begin..clause.last()?.place.end);
    }
    statement(sentence, stated?)
}

/// The first word of a clause with content: not a filler, nor the "that" in "remember that".
fn first_of_substance(clause: &[Word]) -> Option<&Word> {
    let is_told = |word: &Word| word.text == "remember" || word.text == "note";
    let says_nothing = |index: usize| {
        let word = &clause[index];
        let follows_told = word.text == "that" && index.checked_sub(1).is_some_and(|before| is_told(&clause[before]));
        FILLERS.contains(&word.text.as_str()) || follows_told
    };
    (0..clause.len()).find(|index| !says_nothing(*index)).map(|index| &clause[index])
}

/// The statement in this range, without the conjunction before the question; `None` if it is too short, or too long to
/// have been typed.
fn statement(sentence: &str, place: Range<usize>) -> Option<Statement> {
    let mut words = words(&sentence[place.clone()]);
    while words.last().is_some_and(|word| CONJUNCTIONS.contains(&word.text.as_str())) {
        words.pop();
    }
    let end = place.start + words.last()?.place.end;
    let closing =
        sentence[end..].chars().take_while(|letter| CLOSING.contains(letter)).map(char::len_utf8).sum::<usize>();
    let text = sentence[place.start..end + closing].to_owned();
    let is_phrase = words.len() <= LONGEST_PHRASE && PREPOSITIONS.contains(&words[0].text.as_str());
    let is_whole = words.len() >= FEWEST_WORDS && text.chars().count() <= LONGEST && !is_phrase;
    is_whole.then(|| Statement { text, is_update: says_change(&words) })
}

/// Whether a clause that begins with this word is a question or a request. After a statement, `end` distinguishes a
/// question from a relative clause and from a verb after its apposition: people who omit punctuation use neither.
fn begins_question(first: &str, after_statement: bool, end: char) -> bool {
    if INTERROGATIVES.contains(&first) {
        return !(after_statement && RELATIVES.contains(&first) && end != '?');
    }
    let is_closed = matches!(end, '.' | '!' | ';' | ':');
    (AUXILIARIES.contains(&first) && !(after_statement && is_closed))
        || (IMPERATIVES.contains(&first) && !after_statement)
}

/// The clauses of a sentence, as ranges of its words.
fn clauses(sentence: &str, words: &[Word]) -> Vec<Range<usize>> {
    let mut begins: Vec<usize> = (0..words.len()).filter(|index| begins_clause(sentence, words, *index)).collect();
    begins.push(words.len());
    begins.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

fn begins_clause(sentence: &str, words: &[Word], index: usize) -> bool {
    let Some(before) = index.checked_sub(1).map(|index| &words[index]) else { return true };
    let word = words[index].text.as_str();
    let gap = &sentence[before.place.end..words[index].place.start];
    let is_separate =
        gap.contains(", ") || gap.contains(" ,") || [" - ", "–", "—"].iter().any(|dash| gap.contains(dash));
    let starts = |word| SUBJECTS.contains(&word) || INTERROGATIVES.contains(&word) || AUXILIARIES.contains(&word);
    is_separate || (CONJUNCTIONS.contains(&before.text.as_str()) && starts(word))
}

fn says_change(words: &[Word]) -> bool {
    let pairs = words.windows(2).map(|pair| (pair[0].text.as_str(), pair[1].text.as_str()));
    words.iter().any(|word| CHANGES.contains(&word.text.as_str()))
        || pairs.into_iter().any(|pair| CHANGES_OF_TWO.contains(&pair))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let found: Vec<String> = statements_in(text).into_iter().map(|statement| statement.text).collect();
        assert_eq!(found, expected, "{text:?}");
    }

    #[test]
    fn statements_are_told_from_questions() {
        check("My dog is called Rex and my name is Anna, is it fine?", &["My dog is called Rex and my name is Anna"]);
        check("I'm allergic to nuts so what else could I eat?", &["I'm allergic to nuts"]);
        check("Hi! We moved to Oslo. Our street is Storgata.", &["We moved to Oslo", "Our street is Storgata"]);
        check("my cats called tom, wot do i do", &["my cats called tom"]);
        check("rent is 900 a month and i earn 2000, is that too much", &["rent is 900 a month and i earn 2000"]);
        check(
            "My uncle Leo, who was a baker, left me a shop. How?",
            &["My uncle Leo, who was a baker, left me a shop"],
        );
        check("A friend of ours, Tom, is ill; can he eat nuts?", &["A friend of ours, Tom, is ill"]);
        check("I work at Acme (the big one), any tips?", &["I work at Acme (the big one)"]);
        check("Ich wohne in Berlin. Wie alt ist die Stadt?", &["Ich wohne in Berlin"]);
        check("Remember that my locker is 12.", &["Remember that my locker is 12"]);
        check("Reply in German, I live in Berlin.", &["Reply in German, I live in Berlin"]);
        check("My name is Anna. Please correct this text:\nI has a dog.", &["My name is Anna"]);
        check(
            "I sort letters at the post office. My text editor is Vim.",
            &["I sort letters at the post office", "My text editor is Vim"],
        );
        check("Avoid peanuts, I'm allergic to nuts.", &["Avoid peanuts, I'm allergic to nuts"]);
    }

    #[test]
    fn questions_requests_and_remarks_state_nothing() {
        for text in [
            "What is my dog called?",
            "ok really, when is a mutex fine in async code",
            "Write a poem about my dog.",
            "Say one word about the number 59.",
            "please extract the dates from my letter",
            "That's not right.",
            "Thanks mate!",
            "no",
            "",
            "```\nlet x = my_own_variable;\n```",
            "And the other one?",
            "In French cooking, what is a roux?",
            "Summarize: the cat sat on the mat. It was very happy there.",
            "Can you translate the following into French?\nMy dog is called Rex.",
        ] {
            check(text, &[]);
        }
    }

    #[test]
    fn of_a_pasted_text_only_the_first_person_counts() {
        let pasted = "The sea is blue today. The sky is grey. The sun is far away. A ship is there. My boat is red.";
        check(pasted, &["My boat is red"]);
    }

    #[test]
    fn changes_are_told() {
        let check = |text: &str, expected: bool| {
            assert_eq!(statements_in(text).first().map(|statement| statement.is_update), Some(expected), "{text:?}");
        };
        check("The manager is Oskar now.", true);
        check("I no longer eat meat.", true);
        check("My manager is Berit.", false);
    }

    #[test]
    fn questions_about_the_person_are_told() {
        let check = |question: &str, expected: bool| assert_eq!(is_personal(question), expected, "{question:?}");
        check("What is my dog called?", true);
        check("who am i dating", true);
        check("Would it suit me?", true);
        check("Which one did we settle on?", true);
        check("where does mum live", true);
        check("How do I change a tyre?", false);
        check("What should I plant under a birch tree?", false);
        check("Should I take the bus?", true);
        check("Tell me a joke", false);
        check("Who were the Romans?", false);
    }
}

//! The type of a question, recognized by its words: models differ in which types they answer best.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::words::words;

/// The type of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuestionType {
    /// Programs, queries, markup and tools for them.
    Code,
    /// Translation between languages.
    Translation,
    /// The gist of a text.
    Summary,
    /// Calculations.
    Math,
    /// Texts to write or reword.
    Writing,
    /// Everything else.
    Question,
}

/// The characters of a question that are read; a text pasted below it says little about its type.
const READ: usize = 400;

/// Words, or beginnings of words with an asterisk, and phrases that show a type. English, German, French, Spanish,
/// Italian and Portuguese.
struct Signs {
    words: &'static str,
    /// Separated by semicolons.
    phrases: &'static str,
}

const CODE: Signs = Signs {
    words: "python javascript typescript rust java kotlin golang sql regex regexp bash html css json yaml git docker \
            dockerfile kubernetes django numpy compil* debug* refactor* traceback nullpointerexception segfault \
            stacktrace code codes script api linux subroutine codebase haskell php cmake makefile vim emacs grep awk \
            sed flutter markdown readme github gitlab vscode localhost flexbox boolean nullpointer array arrays \
            database databases rebase repo npm pip pytest powershell xml http url endpoint async syntax parser \
            recursion recursive algorithm* plugin ssh cron crontab virtualenv dataframe perl scala matlab latex \
            spreadsheet excel webpack tailwind svelte flask laravel postgres postgresql mysql sqlite mongodb redis \
            nginx gradle maven xcode undefined",
    phrases: "error message; log file; unit test; unit tests; for loop; while loop; if statement; stack trace; source \
              code; text editor; pull request; merge conflict; conflict markers; command line; my loop; the loop; my \
              function; a function that; meine schleife; last commit; my commit; flex container; web page; group by",
};

const TRANSLATION: Signs = Signs { words: "translat* übersetz* tradu*", phrases: "" };

const SUMMARY: Signs = Signs {
    words: "summar* tldr zusammenfass* gist résume résumer résumez resumen resume resuma riassum* condense takeaways \
            upshot digest kernaussage* recap nutshell abridge* zusammengefasst",
    phrases: "main idea; main ideas; main message; main argument; main arguments; most important points; bottom line; \
              the essence; brief me; boil this down; boil it down; bullet points; the important bits; the important \
              parts; what matters in; das wichtigste; in kürze; kurz gesagt; en bref; l essentiel; lo esencial; in \
              breve; em resumo; in short; short version; key points; main points; sum up; sum this up; sum it up; boil \
              down; boils down; just the essentials; long story short; catch me up; un résumé; fasse zusammen; fais \
              court",
};

const MATH: Signs = Signs {
    words: "calculat* equation* integral sqrt multiply multiplied multiplication probability berechn* gleichung* \
            calcul* équation* ecuación* logarithm* perimeter factorial arithmetic hypotenuse median circumference",
    phrases: "derivative of; divided by; divide by; square root",
};

/// Signs of mathematics beside a digit.
const MATH_WITH_DIGITS: Signs = Signs {
    words: "percent percentage prozent fraction* triangle solve derivative remainder area volume ratio interest radius \
            diameter vat prime odds factor mean",
    phrases: "",
};

/// Signs of mathematics beside two numbers.
const QUANTITIES: Signs = Signs {
    words: "average remainder angle cuánt* combien quanto quanti quante quantos quantas altogether",
    phrases: "how heavy; how tall; how high; how wide; in total; what time; how often; what are the chances; wie groß; \
              wie hoch; wie schnell; wie schwer; à quelle; a qué hora; how many; how much; how old; how fast; how \
              long; how far; how likely; how big; what share; what fraction; sum of; wie viel; wie viele; wie lange; \
              wie alt; wie weit",
};

const NUMBERS: Signs = Signs {
    words: "two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty hundred thousand \
            twice half double zwei drei vier fünf sechs deux trois quatre cinq dos tres cuatro due tre quattro dois \
            três fünf sieben acht neun zehn cinco seis siete ocho diez six sept huit neuf dix cinque sei sette otto \
            nove dieci triple third quarter dozen",
    phrases: "",
};

const WRITING: Signs = Signs {
    words: "write rewrite compose draft rephrase reword proofread pen phrase poem haiku limerick schreib* verfass* \
            écri* rédige* escrib* redacta* scriv* escrev* slogan essay toast eulogy caption invitation letter email \
            mail card message speech reply carta brief discurso blurb catchier headline lyrics story song post tweet \
            bio announcement apology complaint advert vows obituary testimonial newsletter dialogue tagline motto \
            friendlier politer formulier* umformulier* einladung rede gedicht poème lettre discours poema cuento \
            lettera biglietto improve polish shorten paraphrase",
    phrases: "make this; more polite; better wording; word this; fix the grammar; correct the spelling; spelling and \
              grammar; turn this into; turn these; einen text; un texte; un texto; un testo; make it; the flow; funny \
              text; a text for; rental ad; an ad for; a story about",
};

/// The parts of a summary that are counted, and words before them besides numbers.
const LENGTHS: Signs = Signs {
    words: "sentence sentences line lines points bullets satz sätzen sätze zeilen phrase phrases lignes frase frases frasi \
            líneas linhas righe",
    phrases: "",
};

const COUNTS: Signs = Signs { words: "one a single short 1 2 3 4 5 einem einen une una uma duas numa", phrases: "" };

/// Words with which a question begins that asks for a fact, not for a text.
const ASKS: Signs = Signs {
    words: "who whose what which why how when where is are was were do does did has have had should would wer was wie \
            warum wann wo welche* qui que quoi comment pourquoi quand où quel* quién qué cómo cuándo chi che cosa come \
            perché quando quem onde por",
    phrases: "",
};

/// Languages to translate into.
const LANGUAGES: Signs = Signs {
    words: "english german french spanish italian portuguese latin greek dutch swedish norwegian danish finnish polish \
            czech hungarian russian ukrainian turkish arabic hebrew hindi chinese mandarin japanese korean vietnamese \
            thai swahili catalan englisch* deutsch* französisch* spanisch* italienisch* portugiesisch* anglais \
            allemand espagnol italien portugais inglés alemán francés inglese tedesco francese spagnolo inglês alemão \
            francês romanian bulgarian serbian croatian persian farsi urdu bengali indonesian malay icelandic irish \
            welsh basque türkisch* russisch* polnisch* japanisch* chinesisch* niederländisch*",
    phrases: "",
};

/// People who say something in another language.
const PEOPLES: Signs = Signs {
    words: "germans italians spaniards brazilians mexicans swedes swede dutchman danes dane finns finn poles czechs \
            hungarians russians ukrainians turks arabs chinese japanese koreans greeks austrians frenchman \
            argentinians portuguese parisians italian german",
    phrases: "the french; the spanish; the english; the dutch",
};

/// Words before a language to translate into.
const INTO: Signs = Signs { words: "in into to auf ins en em", phrases: "" };

/// Words for putting something into another language.
const SAYS: Signs = Signs {
    words: "say says wish sagt sage sagen heißt dit dire dice decir dire diz dizer mean means version translate called \
            express sagen diremos",
    phrases: "how do you ask; how do you write; how do i write; what s the word for; the word for; how do you call; \
              how do i ask; put that in; put this in",
};

impl Signs {
    /// The number of words that are signs.
    fn count(&self, asked: &Asked) -> usize {
        asked.words.iter().filter(|word| self.has_word(word)).count()
    }

    fn has_word(&self, word: &str) -> bool {
        self.words.split_whitespace().any(|sign| match sign.strip_suffix('*') {
            Some(beginning) => word.starts_with(beginning),
            None => word == sign,
        })
    }

    fn are_in(&self, asked: &Asked) -> bool {
        self.count(asked) > 0 || self.phrases.split("; ").any(|phrase| asked.has_phrase(phrase))
    }
}

/// A question without the texts that it quotes, whose words say nothing about its type.
struct Asked {
    words: Vec<String>,
    /// Its words, each between two spaces.
    line: String,
    quotes: bool,
}

impl Asked {
    fn new(text: &str) -> Asked {
        let (text, quotes) = without_quotations(text);
        let words: Vec<String> = words(&text).collect();
        let line = format!(" {} ", words.join(" "));
        Asked { words, line, quotes }
    }

    fn has_phrase(&self, phrase: &str) -> bool {
        self.line.contains(&format!(" {phrase} "))
    }

    /// Whether a number of sentences is asked for, and no text to write.
    fn is_summary(&self) -> bool {
        let has_length = self.words.windows(3).any(|three| {
            INTO.has_word(&three[0])
                && (COUNTS.has_word(&three[1]) || NUMBERS.has_word(&three[1]))
                && LENGTHS.has_word(&three[2])
        });
        SUMMARY.are_in(self) || (has_length && !self.is_writing())
    }

    fn is_translation(&self) -> bool {
        let says = SAYS.are_in(self);
        let is_asked_for = self.names_target() && (self.quotes || says);
        TRANSLATION.are_in(self) || is_asked_for || (says && PEOPLES.are_in(self))
    }

    /// Whether a language stands where one to translate into does: "into formal Japanese", "the Swahili for".
    fn names_target(&self) -> bool {
        let at = |index: Option<usize>| index.and_then(|index| self.words.get(index)).map_or("", String::as_str);
        let is_target = |index: usize| {
            let before = [index.checked_sub(1), index.checked_sub(2)].map(at);
            before.iter().any(|word| INTO.has_word(word)) || ["for", "version"].contains(&at(Some(index + 1)))
        };
        (0..self.words.len()).any(|index| LANGUAGES.has_word(&self.words[index]) && is_target(index))
    }

    fn is_math(&self) -> bool {
        let n_digits =
            self.words.iter().filter(|word| word.starts_with(|letter: char| letter.is_ascii_digit())).count();
        let n_numbers = n_digits + NUMBERS.count(self);
        let is_asked = QUANTITIES.are_in(self) && (n_numbers > 1 || (n_numbers == 1 && self.has_phrase("if")));
        MATH.are_in(self) || (n_digits > 0 && MATH_WITH_DIGITS.are_in(self)) || is_asked
    }

    fn is_writing(&self) -> bool {
        let asks = self.words.first().is_some_and(|word| ASKS.has_word(word));
        !asks && WRITING.are_in(self)
    }
}

impl QuestionType {
    /// The type of a question.
    pub fn of(question: &str) -> QuestionType {
        let question = without_files(question);
        let read = match question.char_indices().nth(READ) {
            Some((end, _)) => &question[..end],
            None => question,
        };
        let asked = Asked::new(read);
        match &asked {
            _ if read.contains("```") || is_code(read) => QuestionType::Code,
            asked if asked.is_translation() => QuestionType::Translation,
            asked if CODE.are_in(asked) => QuestionType::Code,
            asked if asked.is_summary() => QuestionType::Summary,
            asked if asked.is_math() || is_calculation(read) => QuestionType::Math,
            asked if asked.is_writing() => QuestionType::Writing,
            _ => QuestionType::Question,
        }
    }

    /// Its name, as used after `best:` and in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            QuestionType::Code => "code",
            QuestionType::Translation => "translation",
            QuestionType::Summary => "summary",
            QuestionType::Math => "math",
            QuestionType::Writing => "writing",
            QuestionType::Question => "question",
        }
    }
}

impl fmt::Display for QuestionType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// A question without its attached files, which precede it in fences.
fn without_files(question: &str) -> &str {
    const FILE: &str = "File: ";
    let after_files = question.rsplit_once("\n```\n\n").map(|(_, after)| after);
    after_files.filter(|_| question.starts_with(FILE)).unwrap_or(question)
}

/// A text without its quotations, and whether it has any. One that does not end takes the rest of the text, unless an
/// apostrophe begins it.
fn without_quotations(text: &str) -> (String, bool) {
    const QUOTES: [(char, char); 6] = [('\'', '\''), ('"', '"'), ('«', '»'), ('„', '“'), ('“', '”'), ('‘', '’')];
    let (mut kept, mut has_any, mut rest) = (String::with_capacity(text.len()), false, text);
    while let Some(first) = rest.chars().next() {
        let is_boundary = kept.chars().last().is_none_or(|before| !before.is_alphanumeric());
        let quote = QUOTES.iter().find(|(open, _)| *open == first && is_boundary);
        let after = &rest[first.len_utf8()..];
        match quote.and_then(|(open, close)| after_quotation(after, *open, *close)) {
            Some(after) => {
                has_any = true;
                rest = after;
                kept.push(' ');
            }
            None => {
                kept.push(first);
                rest = after;
            }
        }
    }
    (kept, has_any)
}

/// The text after a quotation, which an apostrophe within a word does not end; `None` if there is no quotation.
fn after_quotation(text: &str, open: char, close: char) -> Option<&str> {
    let is_year = open == '\'' && text.starts_with(|next: char| next.is_ascii_digit());
    let ends =
        |(at, _): &(usize, &str)| !text[at + close.len_utf8()..].starts_with(|next: char| next.is_alphanumeric());
    let end = text.match_indices(close).find(ends).map(|(at, _)| &text[at + close.len_utf8()..]);
    end.or((open != '\'').then_some("")).filter(|_| !is_year)
}

/// Whether a text looks like a program.
fn is_code(text: &str) -> bool {
    const SIGNS: [&str; 12] = ["();", "()", "=>", "->", "==", "!=", "};", "</", "#include", "c++", "c#", ".py"];
    let text = text.to_lowercase();
    SIGNS.iter().any(|sign| text.contains(sign))
}

/// Whether an operator or a word for a calculation stands between two numbers.
fn is_calculation(text: &str) -> bool {
    const BETWEEN: [&str; 12] = ["+", "-", "*", "/", "×", "÷", "^", "=", "plus", "minus", "times", "mod"];
    let text = text.replace(['?', '(', ')', ','], " ").to_lowercase();
    let mut spaced = String::with_capacity(2 * text.len());
    for sign in text.chars() {
        match sign {
            '+' | '*' | '×' | '÷' | '^' | '=' => spaced.extend([' ', sign, ' ']),
            _ => spaced.push(sign),
        }
    }
    let parts: Vec<&str> = spaced.split_whitespace().collect();
    let is_number = |part: &str| {
        let is_of_number = |sign: char| sign.is_ascii_digit() || matches!(sign, '.' | 'x' | 'y');
        part.chars().all(is_of_number) && part.contains(|sign: char| sign.is_ascii_digit())
    };
    parts.windows(3).any(|three| is_number(three[0]) && BETWEEN.contains(&three[1]) && is_number(three[2]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Typical questions, with the types that a person assigns them.
    const LABELLED: [(QuestionType, &[&str]); 6] = [
        (
            QuestionType::Code,
            &[
                "How do I reverse a list in Python?",
                "Write a function in Rust that counts words.",
                "Why does this throw? ```let x = null; x.y```",
                "Explain what a Dockerfile does.",
                "I get a segfault when I free a pointer twice, why?",
                "SELECT * FROM users WHERE age > 30 is slow, how can I speed the SQL up?",
                "Make a regex for email addresses",
                "fix this: for (int i = 0; i <= n; i++) { sum += a[i]; }",
                "What's the difference between git merge and rebase?",
                "Schreibe ein Bash-Skript, das alle Dateien umbenennt.",
                "How do I center a div with CSS?",
                "Write unit tests for my API",
            ],
        ),
        (
            QuestionType::Translation,
            &[
                "Translate to German: Where is the station?",
                "Can you give me a Spanish translation of this letter?",
                "Übersetze ins Englische: Guten Morgen, wie geht es dir?",
                "Traduis en anglais: je suis en retard",
                "Please translate the following menu into French.",
                "Traduce esta frase al inglés: hace mucho calor",
            ],
        ),
        (
            QuestionType::Summary,
            &[
                "Summarize this article in three sentences.",
                "Give me a summary of Hamlet.",
                "TLDR of the text below please",
                "Can you summarise the meeting notes?",
                "File: notes.py\n```\ndef add(): ...\n```\n\nSummarize @notes.py",
                "Fasse den Text zusammen. Gib mir eine Zusammenfassung in zwei Sätzen.",
                "What is the gist of this email?",
            ],
        ),
        (
            QuestionType::Math,
            &[
                "What is 17 times 23?",
                "Solve 3x + 5 = 20.",
                "Calculate the area of a circle with radius 4.",
                "12*13=?",
                "If a shirt costs 40 euros and is reduced by 15 percent, what does it cost?",
                "What's the probability of rolling two sixes?",
                "Find the derivative of x squared.",
                "How much is 1024 divided by 16?",
                "Berechne die Wurzel aus 144.",
                "what is 5 + 7",
            ],
        ),
        (
            QuestionType::Writing,
            &[
                "Write a short poem about autumn.",
                "Draft an email to my landlord about the broken heating.",
                "Rewrite this sentence so that it sounds friendlier.",
                "Compose a birthday message for my aunt.",
                "Schreib einen Brief an meine Schule.",
                "I need a slogan for a bakery.",
                "Proofread my cover letter.",
                "Help me with an essay about climate change",
            ],
        ),
        (
            QuestionType::Question,
            &[
                "What is the capital of Norway?",
                "Who wrote Faust?",
                "Why is the sky blue?",
                "How long do I boil an egg?",
                "Name three European countries as a list.",
                "What should I see in Rome in two days?",
                "hi",
                "My name is Mario and I live in Berlin.",
                "Is it safe to eat raw mushrooms?",
                "When did the Second World War end?",
                "Which planet is the largest?",
                "Give me ideas for a birthday present for a six-year-old.",
                "What is the plural of mouse?",
                "Which French author wrote 'Les Misérables'?",
                "What was French cinema like in the '90s?",
                "What does German efficiency mean?",
                "How many teams got three points in Group C?",
                "How do I get red wine out of a carpet?",
                "Is the library open 24/7?",
                "Name multiple rivers in Europe.",
            ],
        ),
    ];

    #[test]
    fn nine_of_ten_questions_have_the_type_that_a_person_gave_them() {
        let labelled = LABELLED.iter().flat_map(|(kind, questions)| questions.iter().map(move |text| (*kind, *text)));
        let wrong: Vec<_> = labelled
            .clone()
            .map(|(kind, text)| (kind, QuestionType::of(text), text))
            .filter(|(kind, told, _)| kind != told)
            .collect();
        println!("{wrong:#?}");
        assert!(10 * wrong.len() <= labelled.count(), "{wrong:#?}");
    }

    /// How the rules do on questions that were written to be hard for them: half of the requests of each type have no
    /// word of its list, and many have one of another type's. Rules may be changed for the even lines only.
    ///
    /// Print the figures with `cargo test -p hone-memory hard_questions -- --nocapture`.
    #[test]
    fn hard_questions_are_told_apart_better_than_by_chance() {
        #[derive(Deserialize)]
        struct Hard {
            question: String,
            answer: QuestionType,
        }
        let lines = include_str!("../../../tests/data/question-types.jsonl").lines();
        let mut right = [0, 0];
        let mut confused = std::collections::BTreeMap::new();
        for (index, line) in lines.enumerate() {
            let Hard { question, answer } = serde_json::from_str(line).unwrap();
            let found = QuestionType::of(&question);
            right[index % 2] += usize::from(found == answer);
            if found != answer {
                *confused.entry((index % 2, answer, found)).or_insert(0) += 1;
                if index % 2 == 0 {
                    println!("{answer} taken for {found}: {question}");
                }
            }
        }
        println!("right, of 120 each: {right:?}; {confused:?}");
        assert!(right[1] * 2 > 120, "{right:?}");
    }
}

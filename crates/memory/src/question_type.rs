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

/// Words, or prefixes of words if they end with an asterisk, by type. The first type with a word in the question
/// counts. English, German, French, Spanish, Italian and Portuguese.
const WORDS: [(QuestionType, &[&str]); 5] = [
    (
        QuestionType::Code,
        &[
            "python",
            "javascript",
            "typescript",
            "rust",
            "java",
            "kotlin",
            "golang",
            "sql",
            "regex",
            "regexp",
            "bash",
            "html",
            "css",
            "json",
            "yaml",
            "git",
            "docker",
            "dockerfile",
            "kubernetes",
            "django",
            "numpy",
            "compil*",
            "debug*",
            "refactor*",
            "traceback",
            "nullpointerexception",
            "segfault",
            "stacktrace",
            "code",
            "codes",
            "script",
            "api",
            "linux",
            "subroutine",
            "codebase",
            "haskell",
            "php",
            "cmake",
            "makefile",
        ],
    ),
    (QuestionType::Translation, &["translat*", "übersetz*", "tradu*"]),
    (QuestionType::Summary, &["summar*", "tldr", "zusammenfass*", "gist", "résum*", "resumen", "riassum*", "condense"]),
    (
        QuestionType::Math,
        &[
            "calculat*",
            "solve",
            "equation*",
            "integral",
            "derivative",
            "sqrt",
            "multiply",
            "multiplied",
            "multiplication",
            "divided",
            "minus",
            "percent",
            "percentage",
            "probability",
            "berechn*",
            "gleichung",
            "prozent",
            "calcul*",
            "équation",
            "ecuación",
            "fraction*",
            "logarithm",
            "triangle",
            "perimeter",
            "factorial",
            "arithmetic",
            "hypotenuse",
        ],
    ),
    (
        QuestionType::Writing,
        &[
            "write",
            "rewrite",
            "compose",
            "draft",
            "rephrase",
            "reword",
            "proofread",
            "poem",
            "haiku",
            "limerick",
            "schreib*",
            "verfass*",
            "écri*",
            "rédige*",
            "escrib*",
            "redacta*",
            "scriv*",
            "escrev*",
            "slogan",
            "essay",
        ],
    ),
];

impl QuestionType {
    /// The type of a question.
    pub fn of(question: &str) -> QuestionType {
        let question = without_files(question);
        let read = match question.char_indices().nth(READ) {
            Some((end, _)) => &question[..end],
            None => question,
        };
        if read.contains("```") || is_code(read) {
            return QuestionType::Code;
        }
        let asked: Vec<String> = words(read).collect();
        let is_in = |word: &str| match word.strip_suffix('*') {
            Some(beginning) => asked.iter().any(|asked| asked.starts_with(beginning)),
            None => asked.iter().any(|asked| asked == word),
        };
        let told = WORDS.iter().find(|(_, words)| words.iter().any(|word| is_in(word)));
        match told {
            Some((kind, _)) if *kind <= QuestionType::Math => *kind,
            _ if is_calculation(read) => QuestionType::Math,
            Some((kind, _)) => *kind,
            None => QuestionType::Question,
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

/// Whether a text looks like a program.
fn is_code(text: &str) -> bool {
    const SIGNS: [&str; 12] = ["();", "()", "=>", "->", "==", "!=", "};", "</", "#include", "c++", "c#", ".py"];
    let text = text.to_lowercase();
    SIGNS.iter().any(|sign| text.contains(sign))
}

/// Whether an operator or a word for a calculation stands between two numbers.
fn is_calculation(text: &str) -> bool {
    const BETWEEN: [&str; 12] = ["+", "-", "*", "/", "×", "÷", "^", "=", "plus", "times", "mod", "over"];
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
}

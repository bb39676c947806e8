//! Splits a text into words before a byte-level vocabulary merges (`tokenizer.ggml.pre`).
//!
//! A pre-tokenizer has one or more stages; each splits the pieces of the previous stage at its matches, and the text
//! between two matches is a piece too. The expressions come from the models' own tokenizer files. The names of the
//! pre-tokenizers, and which vocabularies prefer a whole word over merges or begin texts with BOS, are as in llama.cpp.

use std::ops::Range;

use tokenizers::pattern::Pattern;
use tokenizers::utils::SysRegex;

use super::TokenizerError;
use crate::gguf::Gguf;

const PRE: &str = "tokenizer.ggml.pre";

/// English contractions, in lower case.
macro_rules! contraction {
    () => {
        r"'(?:[sdmt]|ll|ve|re)"
    };
}
/// English contractions, in any case.
macro_rules! any_case_contraction {
    () => {
        r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])"
    };
}
/// White space: up to the last line break; all but the last character before a word; all.
macro_rules! white_space {
    () => {
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    };
}
/// Words as Llama 3 and Qwen 2 split them; the two differ in how many digits stay together.
macro_rules! words {
    ($digits:literal) => {
        concat!(
            any_case_contraction!(),
            r"|[^\r\n\p{L}\p{N}]?\p{L}+|",
            $digits,
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*",
            white_space!()
        )
    };
}
/// Words that end where lower case turns into upper case.
macro_rules! case_words {
    ($contraction:expr, $digits:literal) => {
        concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
            $contraction,
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
            $contraction,
            "|",
            $digits,
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]*",
            white_space!()
        )
    };
}
macro_rules! optional_contraction {
    () => {
        r"(?:'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE]))?"
    };
}
/// Words as DeepSeek V3 splits them.
macro_rules! punctuation_words {
    () => {
        concat!(
            r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"##,
            r"| ?[\p{P}\p{S}]+[\r\n]*",
            white_space!()
        )
    };
}

const GPT2: &str = concat!(contraction!(), r"| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+");
const LLAMA3: &str = words!(r"\p{N}{1,3}");
const QWEN2: &str = words!(r"\p{N}");
const DIGIT: &str = r"\p{N}";
const THREE_DIGITS: &str = "[0-9]{3}";
const SENTENCE_MARKS: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";
const CJK: &str = r"[\x{0800}-\x{9FA5}\x{AC00}-\x{D7FF}]+";
const HAN_AND_KANA: &str = r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+";
/// Cased letters, without the blocks that the model's own list omits.
const DEEPSEEK_LETTERS: &str = concat!(
    r"\s?[\p{LC}--[\x{560}\x{588}\x{10C6}-\x{10FF}\x{1C80}-\x{1C8F}\x{2D00}-\x{2D2F}\x{A78F}-\x{A7FF}\x{AB30}-\x{AB6F}",
    r"\x{10570}-\x{105BF}\x{16E40}-\x{16E7F}\x{1D400}-\x{1D7FF}\x{1DF00}-\x{1DFFF}]]+"
);
const SOUTH_EAST_ASIA: &str = concat!(
    r"[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{F900}-\x{FAFF}\x{3040}-\x{309F}\x{30A0}-\x{30FF}\x{FF65}-\x{FF9F}",
    r"\x{2F00}-\x{2FDF}\x{0E00}-\x{0E7F}\x{0E80}-\x{0EFF}\x{1780}-\x{17FF}\x{1000}-\x{109F}\x{AA60}-\x{AA7F}",
    r"\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+"
);
const KIMI: &str = concat!(
    r"\p{Han}+|[^\r\n\p{L}\p{N}]?[[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]&&[^\p{Han}]]*[[\p{Ll}\p{Lm}\p{Lo}\p{M}]&&[^\p{Han}]]+",
    optional_contraction!(),
    r"|[^\r\n\p{L}\p{N}]?[[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]&&[^\p{Han}]]+[[\p{Ll}\p{Lm}\p{Lo}\p{M}]&&[^\p{Han}]]*",
    optional_contraction!(),
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*",
    white_space!()
);
const JAIS2: &str = concat!(
    any_case_contraction!(),
    r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)",
    r"|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s"
);

const LINES: &str = r"[^\n]+|\n+";
const HANGUL_AND_CJK: &str = concat!(
    r"[\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+|[！…“”‘’—：；，\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]+|[\x{3105}-\x{312F}]+",
    r"|[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+"
);

/// How a vocabulary spells text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// In 256 characters, one for each byte.
    Bytes,
    /// As it is, with `▁` for a space. Characters that are not tokens become the tokens of their bytes (`<0xE2>`).
    Characters,
}

/// Which words that are a token as a whole are used without merging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WholeWords {
    No,
    Every,
    /// Words that consist of line breaks.
    LineBreaks,
}

/// One way to split pieces further.
#[derive(Clone, Copy)]
enum Cut {
    At(&'static str),
    /// Runs of digits, split in threes from the right: `1234567` is `1`, `234`, `567`.
    DigitsInThrees,
}

/// A row of the table of pre-tokenizers.
struct Definition {
    names: &'static [&'static str],
    stages: &'static [Cut],
    spelling: Spelling,
    whole_words: WholeWords,
    /// Whether BOS precedes a text by default.
    adds_bos: bool,
}

const fn plain(names: &'static [&'static str], stages: &'static [Cut]) -> Definition {
    Definition { names, stages, spelling: Spelling::Bytes, whole_words: WholeWords::No, adds_bos: false }
}

/// Like [`plain`], but words that are a token as a whole are used without merging.
const fn whole(names: &'static [&'static str], stages: &'static [Cut]) -> Definition {
    Definition { whole_words: WholeWords::Every, ..plain(names, stages) }
}

use Cut::{At, DigitsInThrees};

static DEFINITIONS: &[Definition] = &[
    plain(&["default"], &[At(r"[\p{P}\$\+<=>\^~\|]+"), At(GPT2), At(r"\p{N}+"), At(THREE_DIGITS)]),
    plain(
        &[
            "gpt-2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
            "exaone4",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
            "jina-v1-en",
            "jina-v2-code",
            "roberta-bpe",
        ],
        &[At(GPT2)],
    ),
    Definition {
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
        adds_bos: true,
        ..whole(&[], &[At(LLAMA3)])
    },
    plain(&["dbrx", "smaug-bpe", "chatglm-bpe"], &[At(LLAMA3)]),
    whole(&["glm4", "glm5"], &[At(LLAMA3)]),
    plain(
        &["qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez", "solar-open", "grok-2", "kormo", "f2llmv2"],
        &[At(QWEN2)],
    ),
    plain(&["ufakzeka"], &[At(concat!(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*", white_space!()))]),
    plain(&["laguna"], &[At(LINES), At(QWEN2)]),
    plain(
        &["qwen35"],
        &[At(concat!(
            any_case_contraction!(),
            r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
            white_space!()
        ))],
    ),
    plain(
        &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"],
        &[At(DIGIT), At(GPT2)],
    ),
    plain(&["falcon"], &[At(r"[\p{P}\$\+<=>\^~\|`]+"), At(GPT2), At(THREE_DIGITS)]),
    plain(
        &["deepseek-llm"],
        &[
            At(r"[\r\n]"),
            At(DEEPSEEK_LETTERS),
            At(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"),
            At(r"\s+$"),
            At(CJK),
            At(r"\p{N}+"),
        ],
    ),
    plain(&["deepseek-coder"], &[At(r"[\r\n]"), At(r"\s?\p{L}+"), At(r"\s?\p{P}+"), At(CJK), At(DIGIT)]),
    plain(
        &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
        &[At(r"\p{N}{1,3}"), At(HAN_AND_KANA), At(punctuation_words!())],
    ),
    plain(&["poro-chat", "bloom", "gpt3-finnish"], &[At(SENTENCE_MARKS)]),
    plain(&["viking"], &[At(SENTENCE_MARKS), At(DIGIT)]),
    Definition { adds_bos: true, ..whole(&["tekken"], &[At(case_words!("", r"\p{N}"))]) },
    plain(
        &["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"],
        &[At(case_words!(optional_contraction!(), r"\p{N}{1,3}"))],
    ),
    whole(&["granite-embed-multi-97m"], &[At(case_words!(optional_contraction!(), r"\p{N}{1,3}"))]),
    whole(&["youtu"], &[At(HANGUL_AND_CJK), At(case_words!(optional_contraction!(), r"\p{N}"))]),
    plain(&["tiny_aya", "cohere2moe"], &[DigitsInThrees, At(case_words!(optional_contraction!(), r"\p{N}{1,3}"))]),
    plain(&["superbpe"], &[DigitsInThrees]),
    plain(
        &["bailingmoe", "bailingmoe2", "llada-moe"],
        &[At(concat!(
            any_case_contraction!(),
            r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
        ))],
    ),
    plain(
        &["seed-coder"],
        &[At(concat!(
            any_case_contraction!(),
            r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+",
            white_space!()
        ))],
    ),
    plain(
        &["exaone-moe"],
        &[At(concat!(
            any_case_contraction!(),
            r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]",
            r"|\s+(?!\S)|\s+"
        ))],
    ),
    plain(&["kimi-k2"], &[At(KIMI)]),
    plain(&["afmoe"], &[DigitsInThrees, At(SOUTH_EAST_ASIA), At(punctuation_words!())]),
    plain(&["jais-2"], &[At(JAIS2)]),
    whole(&["minicpm5"], &[At(r"\p{N}{1,3}"), At(words!(r"\p{N}+"))]),
    Definition {
        spelling: Spelling::Characters,
        whole_words: WholeWords::LineBreaks,
        adds_bos: true,
        ..plain(&["gemma4", "granite-embed-multi-311m"], &[At(LINES)])
    },
    Definition { spelling: Spelling::Characters, ..plain(&["sarvam-moe"], &[At(LINES)]) },
];

/// Splits texts into words.
#[derive(Debug)]
pub(super) struct PreTokenizer {
    stages: Vec<Stage>,
    spelling: Spelling,
    whole_words: WholeWords,
    adds_bos: bool,
}

#[derive(Debug)]
enum Stage {
    Regex(SysRegex),
    DigitsInThrees,
}

impl PreTokenizer {
    /// The pre-tokenizer that the file names.
    pub(super) fn from_gguf(gguf: &Gguf) -> Result<Self, TokenizerError> {
        let name = gguf.string(PRE)?.unwrap_or_else(|| {
            tracing::warn!("the file has no {PRE}: its text is cut as \"default\" does, which may not suit the model");
            "default"
        });
        Self::named(name)
    }

    /// The pre-tokenizer with this name.
    pub(super) fn named(name: &str) -> Result<Self, TokenizerError> {
        let definition = DEFINITIONS.iter().find(|definition| definition.names.contains(&name)).ok_or_else(|| {
            let known: Vec<&str> = DEFINITIONS.iter().flat_map(|definition| definition.names).copied().collect();
            TokenizerError::Unsupported { key: PRE, found: name.to_owned(), supported: known.join(", ") }
        })?;
        let stages: Result<Vec<Stage>, TokenizerError> = definition.stages.iter().map(Stage::new).collect();
        let Definition { spelling, whole_words, adds_bos, .. } = *definition;
        Ok(PreTokenizer { stages: stages?, spelling, whole_words, adds_bos })
    }

    pub(super) fn spelling(&self) -> Spelling {
        self.spelling
    }

    /// Whether this word is used without merging if it is a token as a whole.
    pub(super) fn keeps_whole(&self, word: &str) -> bool {
        match self.whole_words {
            WholeWords::No => false,
            WholeWords::Every => true,
            WholeWords::LineBreaks => word.bytes().all(|byte| byte == b'\n'),
        }
    }

    pub(super) fn adds_bos(&self) -> bool {
        self.adds_bos
    }

    /// The ranges of the words in `text`; together they cover all of it.
    pub(super) fn words(&self, text: &str) -> Result<Vec<Range<usize>>, TokenizerError> {
        let mut pieces = vec![Range { start: 0, end: text.len() }];
        for stage in &self.stages {
            let mut cut = Vec::with_capacity(pieces.len());
            for piece in pieces {
                stage.cut(&text[piece.clone()], piece.start, &mut cut)?;
            }
            pieces = cut;
        }
        Ok(pieces)
    }
}

impl Stage {
    fn new(cut: &Cut) -> Result<Self, TokenizerError> {
        match cut {
            Cut::At(expression) => Ok(Stage::Regex(SysRegex::new(expression).map_err(TokenizerError::failed)?)),
            Cut::DigitsInThrees => Ok(Stage::DigitsInThrees),
        }
    }

    /// Appends the ranges of the parts of `piece`, which starts at `offset`.
    fn cut(&self, piece: &str, offset: usize, parts: &mut Vec<Range<usize>>) -> Result<(), TokenizerError> {
        match self {
            Stage::Regex(regex) => {
                let found = regex.find_matches(piece).map_err(TokenizerError::failed)?;
                let places = found.into_iter().filter(|((start, end), _)| start < end);
                parts.extend(places.map(|((start, end), _)| offset + start..offset + end));
            }
            Stage::DigitsInThrees => cut_digits_in_threes(piece, offset, parts),
        }
        Ok(())
    }
}

fn cut_digits_in_threes(piece: &str, offset: usize, parts: &mut Vec<Range<usize>>) {
    let mut rest = piece;
    let mut start = offset;
    while let Some(first) = rest.chars().next() {
        let run_is_digits = first.is_numeric();
        let run_len = rest.find(|letter: char| letter.is_numeric() != run_is_digits).unwrap_or(rest.len());
        let (run, tail) = rest.split_at(run_len);
        if run_is_digits {
            let n_digits = run.chars().count();
            // A cut comes before every digit whose distance to the end, including itself, is a multiple of three.
            let cuts = run.char_indices().enumerate().skip(1).filter(|(index, _)| (n_digits - index) % 3 == 0);
            let mut from = start;
            for (_, (place, _)) in cuts {
                parts.push(from..start + place);
                from = start + place;
            }
            parts.push(from..start + run_len);
        } else {
            parts.push(start..start + run_len);
        }
        start += run_len;
        rest = tail;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, text: &str, expected: &[&str]) {
        let words = PreTokenizer::named(name).unwrap().words(text).unwrap();
        let words: Vec<&str> = words.into_iter().map(|place| &text[place]).collect();
        assert_eq!(words, expected, "{name}: {text:?}");
    }

    #[test]
    fn every_definition_compiles_and_keeps_the_whole_text() {
        let text = "Hello, y'all'RE  1234567 ½ Ⅷ été\u{301} ÄÖü camelCase HTTPServer\r\n\n\t x \u{a0}我想在apple工作1314151天～ \
                    กขค Привет, мир! ირ ꜣ 𝐀 '''' <|x|> a_b \u{0} \u{fffd} 🚀🦙   ";
        for name in DEFINITIONS.iter().flat_map(|definition| definition.names) {
            let words = PreTokenizer::named(name).unwrap().words(text).unwrap();
            let mut end = 0;
            for word in words {
                assert_eq!(word.start, end, "{name}");
                assert!(word.end > word.start, "{name}");
                end = word.end;
            }
            assert_eq!(end, text.len(), "{name}");
        }
    }

    #[test]
    fn digits_stay_together_as_the_model_wants() {
        check("gpt-2", "a1234567", &["a", "1234567"]);
        check("smollm", "a1234", &["a", "1", "2", "3", "4"]);
        check("llama-bpe", "a1234567", &["a", "123", "456", "7"]);
        check("qwen2", "a12", &["a", "1", "2"]);
        check("falcon", "a1234567", &["a", "123", "456", "7"]);
        check("afmoe", "a1234567", &["a", "1", "234", "567"]);
        check("tiny_aya", "1234", &["1", "234"]);
        check("superbpe", "so it is 12345 at 678", &["so it is ", "12", "345", " at ", "678"]);
    }

    #[test]
    fn spaces_go_with_the_word_that_follows() {
        check("gpt-2", "Hello  world \n", &["Hello", " ", " world", " \n"]);
        check("llama-bpe", "Hello  world \n\nx", &["Hello", " ", " world", " \n\n", "x"]);
        check("smollm", "in 2 days ", &["in", " ", "2", " days", " "]);
        check("deepseek-llm", "two words\n", &["two", " words", "\n"]);
    }

    #[test]
    fn contractions_stand_alone() {
        check("gpt-2", "I'll we'RE", &["I", "'ll", " we", "'", "RE"]);
        check("qwen2", "I'LL", &["I", "'LL"]);
        check("gpt-4o", "I'LL seeIt", &["I'LL", " see", "It"]);
        check("tekken", "I'll seeIt", &["I", "'ll", " see", "It"]);
        check("ufakzeka", "I'll", &["I", "'ll"]);
        check("default", "I'll", &["I", "'", "ll"]);
    }

    #[test]
    fn lines_are_kept_apart() {
        check("gemma4", "Hello  world 12\n\n\tx", &["Hello  world 12", "\n\n", "\tx"]);
        check("laguna", "a b\n\nc", &["a", " b", "\n\n", "c"]);
    }

    #[test]
    fn scripts_are_kept_apart() {
        check("kimi-k2", "abc我想", &["abc", "我想"]);
        check("deepseek-v3", "abc我想x", &["abc", "我想", "x"]);
        check("deepseek-llm", "abc我想x", &["abc", "我想", "x"]);
        check("poro-chat", "yes, no", &["yes", ",", " no"]);
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let error = PreTokenizer::named("elvish").unwrap_err().to_string();
        assert!(error.contains("\"elvish\"") && error.contains("qwen2") && error.contains("smollm"), "{error}");
    }
}

//! Constrains generated text to a form: one of several texts, a regular expression, a JSON schema, or free text that
//! ends in a form.
//!
//! Before every token, the constraint determines which tokens may come next and excludes all others, so the text always
//! has the form, up to the point where it is cut off. `llguidance` does the parsing, over a trie of the bytes of all
//! tokens that is built once per vocabulary. The work per token is bounded: a form that is too complex is an error and
//! never a hang.
//!
//! Free text costs nothing per token: its bytes are watched for the marker, and the parser takes over once the marker
//! is written, or inserted because the free text has ended. The parser's grammar consists of the marker and the form
//! after it. The parser is told which part is already written, so that a marker begun by the model is completed rather
//! than doubled.

mod free_text;
mod json_text;
mod limits;
mod references;
mod schema;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use hone_protocol::Constraint;
use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::{Matcher, ParserFactory};
use regex_syntax::ast::Span;
use serde_json::{Value, json};
use thiserror::Error;
use toktrie::{ApproximateTokEnv, InferenceCapabilities, SimpleVob, TokEnv, TokRxInfo, TokTrie};

use crate::tokenizer::Tokenizer;
use free_text::MarkerWatch;
use json_text::{JsonText, leading_digits};
pub(crate) use references::STACK_BYTES;

/// Maximum length in bytes of a token in a constrained text; the trie holds at most 1024.
const MAX_TOKEN_BYTES: usize = 1000;
/// Maximum number of nodes in the trie, and of tokens.
const MAX_TRIE_NODES: usize = (1 << 22) - 1;

/// Maximum number of bytes added to complete a truncated JSON text.
const MOST_CLOSING_BYTES: usize = 4096;

/// Why a form cannot be enforced.
#[derive(Debug, Error)]
pub enum ConstraintError {
    /// The vocabulary is too large for the trie of tokens.
    #[error(
        "the vocabulary has {n_tokens} tokens of {n_bytes} bytes: constraints work with {MAX_TRIE_NODES} bytes at most"
    )]
    Vocabulary {
        /// Number of tokens.
        n_tokens: usize,
        /// Their total number of bytes.
        n_bytes: usize,
    },
    /// The form itself is invalid, or uses an unsupported feature.
    #[error("the {form} cannot be used: {reason}")]
    Form {
        /// The kind of form: a choice, a regular expression, a JSON schema.
        form: &'static str,
        /// The problem.
        reason: String,
    },
    /// A chosen token does not fit the form.
    #[error("token {token} does not fit the answer's constraint")]
    Refused {
        /// The token.
        token: u32,
    },
    /// The form took more work than allowed for one token.
    #[error("the answer's constraint is too complex: {0}; simplify it")]
    TooInvolved(String),
}

/// Makes constraints for one vocabulary.
pub(crate) struct ConstraintFactory {
    parsers: ParserFactory,
    n_tokens: usize,
    /// The tokens that begin with digits, and how many digits each begins with.
    digits: Arc<[(u32, usize)]>,
}

impl ConstraintFactory {
    /// Builds the trie of the vocabulary's tokens. This takes a moment; do it once per model, when it is first needed.
    ///
    /// # Errors
    /// When the vocabulary is too large.
    pub(crate) fn new(tokenizer: &Tokenizer) -> Result<Self, ConstraintError> {
        let trie = token_trie(tokenizer)?;
        let environment: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let slices = SlicedBiasComputer::general_slices();
        let mut parsers = ParserFactory::new(&environment, InferenceCapabilities::default(), &slices)
            .map_err(|error| ConstraintError::TooInvolved(error.to_string()))?;
        parsers.quiet();
        *parsers.limits_mut() = ParserLimits { verbose_errors: false, ..ParserLimits::default() };
        let n_tokens = tokenizer.n_tokens();
        let begins = (0..n_tokens as u32).map(|id| (id, leading_digits(tokenizer.token_bytes(id))));
        let digits = begins.filter(|(_, n_digits)| *n_digits > 0).collect();
        Ok(ConstraintFactory { parsers, n_tokens, digits })
    }

    /// Starts a text constrained by `constraint`.
    ///
    /// # Errors
    /// When the form is invalid, uses an unsupported feature, or is too complex.
    pub(crate) fn start(&self, constraint: &Constraint) -> Result<ConstraintState, ConstraintError> {
        on_a_large_stack(|| {
            let mut state = self.parsing(form_name(constraint), grammar(constraint))?;
            state.json = is_json(constraint).then(JsonText::default);
            match constraint {
                Constraint::FreeThenRegex { free_tokens, marker, .. } => state.with_free_text(*free_tokens, marker),
                _ => state.with_first_mask(),
            }
        })
    }

    /// Starts a text that is free up to `marker`, which is inserted after `free_tokens` tokens, and then constrained by
    /// `constraint`, or free again.
    ///
    /// # Errors
    /// When the form is invalid, uses an unsupported feature, or is too complex.
    pub(crate) fn start_after(
        &self,
        marker: &str,
        free_tokens: usize,
        constraint: Option<&Constraint>,
    ) -> Result<ConstraintState, ConstraintError> {
        on_a_large_stack(|| {
            let grammar = match constraint {
                None => Ok(TopLevelGrammar::from_regex(&escaped(marker))),
                Some(constraint) => grammar_after(marker, constraint),
            };
            let mut state = self.parsing(constraint.map_or(FREE_THEN_REGEX, form_name), grammar)?;
            state.ends_with_marker = constraint.is_none();
            state.json = constraint.is_some_and(is_json).then(JsonText::default);
            state.with_free_text(free_tokens, marker)
        })
    }

    /// Starts a text that is free, and may hold JSON that `schema` accepts between `open` and `close`, any number of
    /// times from some place on to its end.
    ///
    /// # Errors
    /// When the schema is invalid, uses an unsupported feature, or is too complex.
    pub(crate) fn start_calls(
        &self,
        open: &str,
        schema: &Value,
        close: &str,
    ) -> Result<ConstraintState, ConstraintError> {
        on_a_large_stack(|| {
            let mut state = self.parsing(CALLS, grammar_of_calls(open, schema, close))?;
            state.json = Some(JsonText::default());
            state.is_optional = true;
            state.with_free_text(usize::MAX, open)
        })
    }

    fn parsing(
        &self,
        form: &'static str,
        grammar: Result<TopLevelGrammar, String>,
    ) -> Result<ConstraintState, ConstraintError> {
        let wrong = |reason: String| ConstraintError::Form { form, reason };
        let grammar = grammar.map_err(wrong)?;
        let parser = self.parsers.create_parser(grammar).map_err(|error| wrong(first_lines(&error)))?;
        let mut matcher = Matcher::new(Ok(parser));
        if let Some(error) = matcher.get_error() {
            return Err(wrong(error));
        }
        if !matcher.grammar_warnings().is_empty() {
            tracing::warn!("the {form} is only partly enforced: {}", matcher.grammar_warnings().join("; "));
        }
        let mask = TokenMask { allowed: SimpleVob::alloc(self.n_tokens), n_tokens: self.n_tokens };
        Ok(ConstraintState {
            matcher,
            tokens: self.parsers.tok_env().clone(),
            mask,
            mask_is_current: false,
            free: None,
            ends_with_marker: false,
            is_optional: false,
            is_released: false,
            was_concluded: false,
            json: None,
            digits: Arc::clone(&self.digits),
        })
    }
}

/// The state of a constrained text that is being written.
#[derive(Clone)]
pub(crate) struct ConstraintState {
    matcher: Matcher,
    tokens: TokEnv,
    mask: TokenMask,
    mask_is_current: bool,
    /// The free text before the form, until it is over.
    free: Option<FreeText>,
    /// Whether everything is allowed after the marker.
    ends_with_marker: bool,
    /// Whether the text may end without the marker.
    is_optional: bool,
    /// Whether everything is allowed from now on.
    is_released: bool,
    was_concluded: bool,
    /// The JSON text so far.
    json: Option<JsonText>,
    /// The tokens that begin with digits, and how many digits each begins with.
    digits: Arc<[(u32, usize)]>,
}

/// Free text that is being written.
#[derive(Clone)]
struct FreeText {
    watch: MarkerWatch,
    /// Number of tokens it may still have.
    n_left: usize,
    /// Whether it ends with the current sentence.
    is_concluding: bool,
}

/// The outcome of accepting a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It was appended to the text.
    Appended,
    /// It was not appended, and the allowed tokens have changed: choose another. Either the model wanted to end the
    /// free text, in which case the marker is now required, or a single token held the marker and a continuation that
    /// does not fit.
    ChooseAgain,
}

impl ConstraintState {
    /// The tokens that may come next; `None` stands for all. If the text may end here, they include the tokens that end
    /// the model's turn.
    ///
    /// # Errors
    /// When the form takes too much work.
    pub(crate) fn allowed(&mut self) -> Result<Option<&TokenMask>, ConstraintError> {
        if !self.mask_is_current {
            if self.free.is_some() || self.is_released {
                return Ok(None);
            }
            match self.matcher.compute_mask_or_eos() {
                Ok(allowed) => self.mask.allowed = allowed,
                Err(error) => {
                    self.give_up(too_involved(&error))?;
                    return Ok(None);
                }
            }
            self.end_number();
            self.mask_is_current = true;
        }
        Ok(Some(&self.mask))
    }

    /// Releases the rest of the text if the form is optional: a form that was not requested is not worth an error.
    fn give_up(&mut self, error: ConstraintError) -> Result<(), ConstraintError> {
        if !self.is_optional {
            return Err(error);
        }
        tracing::debug!("the rest of the answer is free: {error}");
        self.is_released = true;
        self.mask_is_current = false;
        Ok(())
    }

    /// Forbids the digits that would make a number too long, unless nothing else is allowed.
    fn end_number(&mut self) {
        let Some(left) = self.json.map(|json| json.digits_left()) else { return };
        let mut shorter = None;
        for (token, _) in self.digits.iter().filter(|(_, n_digits)| *n_digits > left) {
            shorter.get_or_insert_with(|| self.mask.allowed.clone()).disallow_token(*token);
        }
        if let Some(shorter) = shorter.filter(|shorter| !shorter.is_zero()) {
            self.mask.allowed = shorter;
        }
    }

    /// The bytes that complete a JSON text cut off here; `None` if they cannot be determined or the text is not JSON.
    pub(crate) fn closing(&self) -> Option<Vec<u8>> {
        let mut json = self.json.filter(|_| self.free.is_none() && !self.is_released)?;
        let (mut matcher, mut closing) = (self.matcher.clone(), Vec::new());
        while closing.len() < MOST_CLOSING_BYTES {
            if matcher.is_stopped() || matcher.is_accepting().ok()? {
                return Some(closing);
            }
            let forced = matcher.compute_ff_bytes();
            let next = match forced.is_empty() {
                true => vec![json.closers().find(|byte| self.can_follow(&mut matcher, &[*byte]))?],
                false => forced,
            };
            let tokens = self.tokens.tok_trie().greedy_tokenize(&next);
            if matcher.try_consume_tokens(&tokens).ok()? < tokens.len() {
                return None;
            }
            json.push(&next);
            closing.extend(next);
        }
        None
    }

    fn can_follow(&self, matcher: &mut Matcher, bytes: &[u8]) -> bool {
        let tokens = self.tokens.tok_trie().greedy_tokenize(bytes);
        !tokens.is_empty() && matcher.validate_tokens(&tokens).is_ok_and(|n_valid| n_valid == tokens.len())
    }

    fn note(&mut self, bytes: &[u8]) {
        if let Some(json) = &mut self.json {
            json.push(bytes);
        }
    }

    /// Accepts a token that was chosen among those allowed.
    ///
    /// # Errors
    /// When the token is not allowed, which leaves the text as it was, or when the form takes too much work.
    pub(crate) fn accept(&mut self, token: u32) -> Result<Taken, ConstraintError> {
        if self.mask_is_current && !self.mask.allows(token) {
            return Err(ConstraintError::Refused { token });
        }
        if let Some(free) = self.free.take() {
            let taken = self.accept_free(free, token);
            return taken.or_else(|error| self.give_up(error).map(|()| Taken::Appended));
        }
        if self.is_released {
            return Ok(Taken::Appended);
        }
        let n_accepted = match self.matcher.try_consume_tokens(&[token]) {
            Ok(n_accepted) => n_accepted,
            Err(error) => return self.give_up(too_involved(&error)).map(|()| Taken::Appended),
        };
        if n_accepted == 0 {
            return Err(ConstraintError::Refused { token });
        }
        self.mask_is_current = false;
        let tokens = self.tokens.clone();
        self.note(text_of(&tokens, token));
        self.release_after_marker()?;
        Ok(Taken::Appended)
    }

    /// Number of leading tokens that are allowed in sequence, as far as that is cheap to determine: in free text, where
    /// it is not, all are assumed to be allowed.
    pub(crate) fn n_allowed(&mut self, tokens: &[u32]) -> usize {
        match &self.free {
            Some(_) => tokens.len(),
            None if self.is_released => tokens.len(),
            None => self.matcher.validate_tokens(tokens).unwrap_or(0).min(self.n_before_long_number(tokens)),
        }
    }

    /// Number of tokens before a number with too many digits.
    fn n_before_long_number(&self, tokens: &[u32]) -> usize {
        let Some(mut json) = self.json else { return tokens.len() };
        let fits = |token: &&u32| {
            let text = text_of(&self.tokens, **token);
            let fits = leading_digits(text) <= json.digits_left();
            json.push(text);
            fits
        };
        tokens.iter().take_while(fits).count()
    }

    /// Whether the text is complete: nothing may follow.
    pub(crate) fn is_complete(&self) -> bool {
        self.free.is_none() && !self.is_released && self.matcher.is_stopped()
    }

    /// Whether the text may end here, though more might follow.
    ///
    /// # Errors
    /// When the form takes too much work.
    #[cfg(test)]
    pub(crate) fn may_end(&mut self) -> Result<bool, ConstraintError> {
        if self.free.is_some() {
            return Ok(false);
        }
        Ok(self.is_released
            || self.is_complete()
            || self.matcher.is_accepting().map_err(|error| too_involved(&error))?)
    }

    /// Ends the free text at the end of a sentence, and after at most `most_tokens` more tokens.
    pub(crate) fn conclude(&mut self, most_tokens: usize) {
        if let Some(free) = self.free.as_mut().filter(|_| !self.is_optional) {
            free.n_left = free.n_left.min(most_tokens.max(1));
            free.is_concluding = true;
        }
    }

    /// Whether the whole text may be free.
    pub(crate) fn is_optional(&self) -> bool {
        self.is_optional
    }

    /// Whether the free text was ended by [`conclude`](ConstraintState::conclude).
    pub(crate) fn was_concluded(&self) -> bool {
        self.was_concluded
    }

    /// Computes the tokens that the form may begin with, so that a form that is too complex is detected before anything
    /// is written.
    fn with_first_mask(mut self) -> Result<Self, ConstraintError> {
        self.allowed()?;
        Ok(self)
    }

    /// Puts free text before the form; the parser begins with the marker.
    fn with_free_text(mut self, n_tokens: usize, marker: &str) -> Result<Self, ConstraintError> {
        let watch = MarkerWatch::new(marker.as_bytes());
        if self.parser_after(watch.marker())?.is_none() {
            let reason = format!("the vocabulary cannot write its marker {marker:?}");
            return Err(ConstraintError::Form { form: FREE_THEN_REGEX, reason });
        }
        self.free = (n_tokens > 0).then_some(FreeText { watch, n_left: n_tokens, is_concluding: false });
        Ok(self)
    }

    fn accept_free(&mut self, mut free: FreeText, token: u32) -> Result<Taken, ConstraintError> {
        if self.tokens.tok_trie().eos_tokens().contains(&token) {
            if self.is_optional {
                self.free = Some(free);
                return Ok(Taken::Appended);
            }
            self.end_free_text(free.watch.written())?;
            return Ok(Taken::ChooseAgain);
        }
        let before = free.clone();
        free.n_left -= 1;
        let tokens = self.tokens.clone();
        match free.watch.push(text_of(&tokens, token)) {
            Some(_) if self.ends_with_marker => self.is_released = true,
            Some(rest) => match self.parser_after(&[free.watch.marker(), rest].concat())? {
                Some(matcher) => {
                    self.note(rest);
                    self.begin_form(matcher);
                }
                None => {
                    self.forbid_wrong_ends(&before)?;
                    self.free = Some(before);
                    return Ok(Taken::ChooseAgain);
                }
            },
            None if free.n_left == 0 || free.is_concluding && ends_sentence(text_of(&tokens, token)) => {
                self.was_concluded = free.is_concluding;
                self.end_free_text(free.watch.written())?;
            }
            None => {
                self.free = Some(free);
                self.mask_is_current = false;
            }
        }
        Ok(Taken::Appended)
    }

    /// Switches to the form, after the beginning of the marker that is already written.
    fn end_free_text(&mut self, written: &[u8]) -> Result<(), ConstraintError> {
        let matcher = self.parser_after(written)?.expect("the marker was written whole when the text was begun");
        self.begin_form(matcher);
        Ok(())
    }

    /// Allows everything once the marker is written, if no form follows it.
    fn release_after_marker(&mut self) -> Result<(), ConstraintError> {
        self.is_released =
            self.ends_with_marker && self.matcher.is_accepting().map_err(|error| too_involved(&error))?;
        Ok(())
    }

    fn begin_form(&mut self, matcher: Matcher) {
        self.matcher = matcher;
        self.mask_is_current = false;
    }

    /// The parser's state after a text, however tokenized; `None` if the text does not fit.
    fn parser_after(&self, text: &[u8]) -> Result<Option<Matcher>, ConstraintError> {
        let trie = self.tokens.tok_trie();
        let tokens = trie.greedy_tokenize(text);
        let n_bytes: usize = tokens.iter().map(|token| trie.token(*token).len()).sum();
        let mut matcher = self.matcher.clone();
        let n_accepted = matcher.try_consume_tokens(&tokens).map_err(|error| too_involved(&error))?;
        Ok((n_bytes == text.len() && n_accepted == tokens.len()).then_some(matcher))
    }

    /// Forbids tokens that complete the marker and continue in a way that does not fit.
    fn forbid_wrong_ends(&mut self, free: &FreeText) -> Result<(), ConstraintError> {
        let tokens = self.tokens.clone();
        let mut allowed = SimpleVob::alloc_ones(self.mask.n_tokens);
        for token in 0..self.mask.n_tokens as u32 {
            if let Some(rest) = free.watch.clone().push(text_of(&tokens, token))
                && self.parser_after(&[free.watch.marker(), rest].concat())?.is_none()
            {
                allowed.disallow_token(token);
            }
        }
        self.mask.allowed = allowed;
        self.mask_is_current = true;
        Ok(())
    }
}

/// Compiles a form on a thread with a large stack: its levels and its parts take stack, and callers' threads have
/// little.
fn on_a_large_stack<T: Send>(
    compile: impl FnOnce() -> Result<T, ConstraintError> + Send,
) -> Result<T, ConstraintError> {
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("hone-form".into()).stack_size(STACK_BYTES);
        let running = builder.spawn_scoped(scope, compile);
        let running = running.map_err(|error| ConstraintError::TooInvolved(format!("no thread for it: {error}")))?;
        running.join().unwrap_or_else(|_| Err(ConstraintError::TooInvolved("it cannot be compiled".to_owned())))
    })
}

/// Whether a token ends a sentence.
fn ends_sentence(text: &[u8]) -> bool {
    matches!(text.trim_ascii_end().last(), Some(b'.' | b'!' | b'?')) || text.ends_with(b"\n")
}

/// A token's text, as a reader sees it.
fn text_of(tokens: &TokEnv, token: u32) -> &[u8] {
    match tokens.tok_trie().token(token) {
        [TokTrie::SPECIAL_TOKEN_MARKER, _, ..] => &[],
        bytes => bytes,
    }
}

/// A set of tokens.
#[derive(Clone)]
pub(crate) struct TokenMask {
    allowed: SimpleVob,
    n_tokens: usize,
}

impl TokenMask {
    /// Whether the token is in the set.
    pub(crate) fn allows(&self, token: u32) -> bool {
        let token = token as usize;
        token < self.n_tokens.min(self.allowed.len()) && self.allowed.get(token)
    }

    /// The tokens in the set, in ascending order.
    #[cfg(test)]
    pub(crate) fn tokens(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.n_tokens as u32).filter(|token| self.allows(*token))
    }

    /// Sets the logits of all tokens outside the set to minus infinity, including those past the vocabulary.
    pub(crate) fn apply(&self, logits: &mut [f32]) {
        for (token, logit) in (0u32..).zip(logits) {
            if !self.allows(token) {
                *logit = f32::NEG_INFINITY;
            }
        }
    }
}

fn token_trie(tokenizer: &Tokenizer) -> Result<TokTrie, ConstraintError> {
    let mut words: Vec<Vec<u8>> = (0..tokenizer.n_tokens() as u32).map(|id| trie_word(tokenizer, id)).collect();
    let n_bytes = words.iter().map(Vec::len).sum();
    if n_bytes > MAX_TRIE_NODES || words.len() >= MAX_TRIE_NODES {
        return Err(ConstraintError::Vocabulary { n_tokens: words.len(), n_bytes });
    }
    let mut ends: Vec<u32> = tokenizer.eos().into_iter().collect();
    ends.extend(tokenizer.end_of_generation_tokens().filter(|id| Some(*id) != tokenizer.eos()));
    if ends.is_empty() {
        // The trie requires a token that ends the text. This one is outside the vocabulary and can never be chosen.
        ends.push(words.len() as u32);
        words.push(special_word(b"<|end|>"));
    }
    let information = TokRxInfo::new(words.len() as u32, ends[0]);
    Ok(TokTrie::from(&information, &words).with_eos_tokens(&ends))
}

/// The bytes of a token as the trie expects them: names of special tokens are marked, so that no text matches them,
/// except reasoning tags, which end reasoning.
fn trie_word(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    let bytes = tokenizer.token_bytes(id);
    match bytes.len() {
        MAX_TOKEN_BYTES.. => Vec::new(),
        _ if tokenizer.is_end_of_generation(id) => special_word(bytes),
        _ if tokenizer.is_control(id) && !tokenizer.is_reasoning_tag(id) => special_word(bytes),
        _ => bytes.to_vec(),
    }
}

fn special_word(name: &[u8]) -> Vec<u8> {
    [&[TokTrie::SPECIAL_TOKEN_MARKER], name].concat()
}

const CALLS: &str = "schema of the tools";
const FREE_THEN_REGEX: &str = "free text with a form after it";

fn form_name(constraint: &Constraint) -> &'static str {
    match constraint {
        Constraint::Choice(_) => "choice",
        Constraint::Regex(_) => "regular expression",
        Constraint::JsonSchema(_) => "JSON schema",
        Constraint::FreeThenRegex { .. } => FREE_THEN_REGEX,
    }
}

fn is_json(constraint: &Constraint) -> bool {
    matches!(constraint, Constraint::JsonSchema(_))
}

fn grammar(constraint: &Constraint) -> Result<TopLevelGrammar, String> {
    match constraint {
        Constraint::Choice(texts) if texts.is_empty() => Err("it has no texts to choose from".to_owned()),
        Constraint::Choice(texts) if texts.iter().any(String::is_empty) => Err("one of its texts is empty".to_owned()),
        Constraint::Choice(texts) => {
            limits::check_choice(texts)?;
            let texts: Vec<String> = texts.iter().map(|text| escaped(text)).collect();
            Ok(TopLevelGrammar::from_regex(&texts.join("|")))
        }
        Constraint::Regex(expression) => Ok(TopLevelGrammar::from_regex(without_anchors(expression)?)),
        Constraint::JsonSchema(schema) => {
            limits::check_schema(schema)?;
            references::check(schema)?;
            Ok(TopLevelGrammar::from_json_schema(on_one_line(&schema::enforceable(schema))))
        }
        Constraint::FreeThenRegex { marker, .. } if marker.is_empty() => Err("its marker is empty".to_owned()),
        Constraint::FreeThenRegex { marker, regex, .. } => {
            Ok(TopLevelGrammar::from_regex(&format!("{}(?:{})", escaped(marker), without_anchors(regex)?)))
        }
    }
}

/// The grammar of `marker` and a form after it.
fn grammar_after(marker: &str, constraint: &Constraint) -> Result<TopLevelGrammar, String> {
    let marker_then = |regex: &str| TopLevelGrammar::from_regex(&format!("{}(?:{regex})", escaped(marker)));
    match constraint {
        Constraint::Choice(texts) => {
            grammar(constraint)?;
            Ok(marker_then(&texts.iter().map(|text| escaped(text)).collect::<Vec<_>>().join("|")))
        }
        Constraint::Regex(expression) => Ok(marker_then(without_anchors(expression)?)),
        Constraint::JsonSchema(schema) => {
            let (marker, schema) = (Value::from(marker), embeddable(schema)?);
            Ok(TopLevelGrammar::from_lark(format!("start: {marker} answer\nanswer: %json {schema}\n")))
        }
        Constraint::FreeThenRegex { .. } => Err("it has free text of its own".to_owned()),
    }
}

/// The grammar of calls between marks.
fn grammar_of_calls(open: &str, schema: &Value, close: &str) -> Result<TopLevelGrammar, String> {
    let (open, schema, close) = (Value::from(open), embeddable(schema)?, Value::from(close));
    let rules = format!(
        "start: call (\"\\n\"? call)*\ncall: {open} \"\\n\"? answer \"\\n\"? {close}\nanswer: %json {schema}\n"
    );
    Ok(TopLevelGrammar::from_lark(rules))
}

/// A schema as a part of a grammar.
fn embeddable(schema: &Value) -> Result<Value, String> {
    limits::check_schema(schema)?;
    references::check(schema)?;
    Ok(on_one_line(&schema::enforceable(schema)))
}

/// The regular expression that matches exactly `text`.
fn escaped(text: &str) -> String {
    const META: &str = r"\.+*?()|[]{}^$#&-~";
    let mut expression = String::with_capacity(text.len());
    for letter in text.chars() {
        if META.contains(letter) {
            expression.push('\\');
        }
        expression.push(letter);
    }
    expression
}

/// The expression without its outer anchors, which are redundant because it must match the whole text.
fn without_anchors(expression: &str) -> Result<&str, String> {
    let n_backslashes = |text: &str| text.len() - text.trim_end_matches('\\').len();
    let inner = expression.strip_prefix('^').unwrap_or(expression);
    let inner = match inner.strip_suffix('$') {
        Some(rest) if n_backslashes(rest).is_multiple_of(2) => rest,
        _ => inner,
    };
    match inner {
        "" => Err("it is empty".to_owned()),
        _ if !n_backslashes(inner).is_multiple_of(2) => Err("it ends in a backslash".to_owned()),
        _ => check_expression(inner).map(|()| inner),
    }
}

/// Validates an expression; the error's wording does not depend on the form parser.
fn check_expression(expression: &str) -> Result<(), String> {
    limits::check_expression(expression)?;
    let mut parser = regex_syntax::ParserBuilder::new().utf8(false).build();
    let parsed = parser.parse(expression).map_err(|error| match error {
        regex_syntax::Error::Parse(error) => at_fault(error.kind(), error.pattern(), error.span()),
        regex_syntax::Error::Translate(error) => at_fault(error.kind(), error.pattern(), error.span()),
        other => first_lines(&other),
    })?;
    let properties = parsed.properties();
    if properties.minimum_len().is_none() {
        return Err("it matches no text".to_owned());
    }
    match properties.look_set().is_empty() {
        true => Ok(()),
        false => Err("anchors and word boundaries within it are not supported".to_owned()),
    }
}

/// An error with the part of the pattern that it refers to.
fn at_fault(error: &impl std::fmt::Display, pattern: &str, span: &Span) -> String {
    match pattern.get(span.start.offset..span.end.offset).filter(|part| !part.is_empty()) {
        Some(part) => format!("{error}: {part}"),
        None => error.to_string(),
    }
}

/// The schema with a request for JSON on one line with a space after each comma and colon: free choice of white space
/// leads small models astray. A schema with such options of its own keeps them.
fn on_one_line(schema: &Value) -> Value {
    const KEY: &str = "x-guidance";
    let layout = json!({"whitespace_flexible": false, "item_separator": ", ", "key_separator": ": "});
    match schema {
        Value::Object(fields) if !fields.contains_key(KEY) => {
            let mut fields = fields.clone();
            fields.insert(KEY.to_owned(), layout);
            Value::Object(fields)
        }
        Value::Bool(true) => json!({ KEY: layout }),
        other => other.clone(),
    }
}

/// An error's message, without the traces that follow it.
fn first_lines(error: &impl std::fmt::Display) -> String {
    let text = error.to_string();
    let end = ["<backtrace>", "<non-verbose/>"].iter().filter_map(|mark| text.find(mark)).min();
    text[..end.unwrap_or(text.len())].trim().to_owned()
}

fn too_involved(error: &impl std::fmt::Display) -> ConstraintError {
    ConstraintError::TooInvolved(first_lines(error))
}

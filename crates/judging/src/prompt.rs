//! Templates with places for texts, and the single chat turn built from them.

/// Fills the places of a template with values, in one pass: a place name inside a value stays text. Braces around any
/// other text are kept, too.
pub fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut filled = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(brace) = rest.find('{') {
        filled.push_str(&rest[..brace]);
        rest = &rest[brace..];
        match values.iter().find_map(|(name, value)| Some((value, after_place(rest, name)?))) {
            Some((value, after)) => {
                filled.push_str(value);
                rest = after;
            }
            None => {
                filled.push('{');
                rest = &rest[1..];
            }
        }
    }
    filled.push_str(rest);
    filled
}

/// Whether a template has a place with this name.
pub fn has_place(template: &str, name: &str) -> bool {
    template.match_indices('{').any(|(brace, _)| after_place(&template[brace..], name).is_some())
}

/// The part of a template before the first of these places.
fn before_places<'a>(template: &'a str, values: &[(&str, &str)]) -> &'a str {
    let is_place = |brace: &usize| values.iter().any(|(name, _)| after_place(&template[*brace..], name).is_some());
    let first = template.match_indices('{').map(|(brace, _)| brace).find(is_place);
    &template[..first.unwrap_or(template.len())]
}

/// A prompt to a judge.
#[derive(Clone)]
pub struct JudgePrompt {
    /// The system text, if it is a separate message.
    pub(crate) system: Option<String>,
    /// The user's turn.
    pub(crate) text: String,
    /// The part shared by all prompts of its kind.
    pub(crate) beginning: String,
}

impl JudgePrompt {
    /// Builds a prompt from a system text and a template, filling the places of both with `shared` values, which all
    /// prompts of its kind have, and its `own`.
    pub(crate) fn new(
        system: &str,
        system_message: bool,
        template: &str,
        shared: &[(&str, &str)],
        own_values: &[(&str, &str)],
    ) -> JudgePrompt {
        let values = [shared, own_values].concat();
        let filled = fill(system, &values);
        let common = |text: &str| fill(before_places(text, own_values), shared);
        let (own, before) = match system_message && !filled.trim().is_empty() {
            true => (Some(filled.trim().to_owned()), ""),
            false => (None, filled.as_str()),
        };
        let text = one_turn(before, &fill(template, &values));
        let beginning = match before_places(system, own_values) == system {
            _ if own.is_some() => common(template),
            true => one_turn(before, &common(template)),
            false => common(system),
        };
        JudgePrompt { system: own, text, beginning }
    }

    /// Characters of the whole prompt.
    pub(crate) fn characters(&self) -> usize {
        let system = self.system.as_deref().unwrap_or_default();
        system.chars().count() + self.text.chars().count()
    }
}

/// Joins the system text, a blank line and the prompt in one turn, for models whose chats have no system text.
fn one_turn(system: &str, prompt: &str) -> String {
    match system.trim() {
        "" => prompt.to_owned(),
        system => format!("{system}\n\n{prompt}"),
    }
}

/// The text after `{name}` if `text` begins with it.
fn after_place<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.strip_prefix('{')?.strip_prefix(name)?.strip_prefix('}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(template: &str, expected: &str) {
        assert_eq!(fill(template, &[("query", "Q {answer}"), ("answer", "{rubric}"), ("rubric", "R")]), expected);
    }

    #[test]
    fn values_are_put_in_their_places_once() {
        check("{query}|{answer}|{rubric}", "Q {answer}|{rubric}|R");
        check("{answer}{answer}", "{rubric}{rubric}");
        check("", "");
        check("{query", "{query");
        check("{ query } {{rubric}} {other} {}", "{ query } {R} {other} {}");
        check("{quer{answer}y} {", "{quer{rubric}y} {");
        assert!(has_place("a {b} c", "b") && has_place("{{b}", "b"));
        assert!(!has_place("a {bb} {b c", "b"));
    }

    #[test]
    fn what_stands_before_the_places_is_common() {
        let check = |template, expected| assert_eq!(before_places(template, &[("a", ""), ("b", "")]), expected);
        check("Grade {c}: {b} by {a}", "Grade {c}: ");
        check("{a}", "");
        check("nothing", "nothing");
    }

    #[test]
    fn a_turn_is_the_system_text_a_blank_line_and_the_prompt() {
        assert_eq!(one_turn("Be fair.\n", "Grade:"), "Be fair.\n\nGrade:");
        assert_eq!(one_turn(" \n", "Grade:"), "Grade:");
    }

    #[test]
    fn a_system_text_is_a_message_of_its_own_where_the_judge_has_one() {
        let (shared, own) = ([("rubric", "R")], [("a", "A")]);
        let check = |system, system_message, template, expected| {
            let prompt = JudgePrompt::new(system, system_message, template, &shared, &own);
            let seen = (prompt.system.as_deref(), prompt.text.as_str(), prompt.beginning.as_str());
            assert_eq!(seen, expected);
        };
        check("Be fair: {rubric}", true, "Grade {a}", (Some("Be fair: R"), "Grade A", "Grade "));
        check("Be fair: {rubric}", false, "Grade {a}", (None, "Be fair: R\n\nGrade A", "Be fair: R\n\nGrade "));
        check("", true, "By {rubric}: {a}", (None, "By R: A", "By R: "));
        check("Of {a}:", false, "By {rubric}", (None, "Of A:\n\nBy R", "Of "));
        let whole = JudgePrompt::new("Be fair: {rubric}", true, "Grade {a}", &shared, &own);
        assert_eq!(whole.characters(), 17);
    }
}

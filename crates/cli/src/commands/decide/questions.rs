//! Questions as the command line and its files write them.

use std::path::Path;

use anyhow::Context;
use hone_app::decisions::{Named, Question};
use serde_json::{Value, json};

use crate::arguments::DecideArguments;
use crate::failure::usage;

/// All questions with their names.
///
/// # Errors
/// When there are none, two have the same name, or one is malformed.
pub(super) fn named_questions(arguments: &DecideArguments) -> anyhow::Result<Vec<(String, Question)>> {
    let mut questions = match &arguments.questions {
        Some(file) => of_file(file)?,
        None => Vec::new(),
    };
    for text in &arguments.question {
        let (name, instructions) = named(text, "--question NAME=TEXT")?;
        questions.push((name, question(&json!({"type": "noul", "instructions": instructions}))?));
    }
    for text in &arguments.choice {
        let (name, instructions, options) = with_options(text, "--choice NAME=TEXT:A,B")?;
        let criteria = Named::new(options.into_iter().map(|option| (option, Value::Null)));
        let criteria = criteria.map_err(|reason| usage(format!("{text:?}: {reason}")))?;
        questions.push((name, Question::Choice { instructions: json!(instructions), criteria }));
    }
    for text in &arguments.score {
        let (name, instructions, levels) = with_options(text, "--score NAME=TEXT:A,B")?;
        questions.push((name, question(&json!({"type": "score", "instructions": instructions, "criteria": levels}))?));
    }
    if questions.is_empty() {
        return Err(usage("there is no question: --question, --choice, --score or --questions asks one"));
    }
    for (index, (name, _)) in questions.iter().enumerate() {
        if questions[..index].iter().any(|(other, _)| other == name) {
            return Err(usage(format!("two questions have the name {name:?}")));
        }
    }
    Ok(questions)
}

fn question(value: &Value) -> anyhow::Result<Question> {
    serde_json::from_value(value.clone()).map_err(|error| usage(error.to_string()))
}

fn of_file(file: &Path) -> anyhow::Result<Vec<(String, Question)>> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read the questions {}", file.display()))?;
    let is_json = file.extension().is_some_and(|extension| extension == "json");
    let read: Result<Named<Question>, String> = match is_json {
        true => serde_json::from_str(&text).map_err(|error| error.to_string()),
        // It keeps the order of questions and options, on which answers depend.
        false => toml_edit::de::from_str(&text).map_err(|error| error.to_string()),
    };
    let questions = read.map_err(|error| usage(format!("the questions {} are not valid: {error}", file.display())))?;
    Ok(questions.entries().to_vec())
}

fn named(text: &str, form: &str) -> anyhow::Result<(String, String)> {
    match text.split_once('=') {
        Some((name, rest)) if !name.trim().is_empty() && !rest.trim().is_empty() => {
            Ok((name.trim().to_owned(), rest.trim().to_owned()))
        }
        _ => Err(usage(format!("{text:?} is not of the form {form}"))),
    }
}

fn with_options(text: &str, form: &str) -> anyhow::Result<(String, String, Vec<String>)> {
    let (name, rest) = named(text, form)?;
    let Some((instructions, options)) = rest.rsplit_once(':') else {
        return Err(usage(format!("{text:?} is not of the form {form}")));
    };
    let options: Vec<String> = options.split(',').map(|option| option.trim().to_owned()).collect();
    if options.iter().any(String::is_empty) {
        return Err(usage(format!("{text:?} has an empty option")));
    }
    Ok((name, instructions.trim().to_owned(), options))
}

/// The minimum probability of an option.
pub(super) struct Threshold {
    /// The question and the option, for display.
    pub(super) name: String,
    /// The index of the question.
    pub(super) question: usize,
    /// The index of the option.
    pub(super) option: usize,
    pub(super) least: f64,
}

impl Threshold {
    /// Reads `NAME=P` or `NAME:OPTION=P`.
    pub(super) fn read(text: &str, questions: &[(String, Question)]) -> anyhow::Result<Threshold> {
        let wrong = |reason: String| usage(format!("--at-least {text}: {reason}"));
        let (name, least) = text.rsplit_once('=').ok_or_else(|| wrong("it is not of the form NAME=P".to_owned()))?;
        let least = least.trim().parse().ok().filter(|least| (0.0..=1.0).contains(least));
        let least = least.ok_or_else(|| wrong("P is not a probability from 0 to 1".to_owned()))?;
        let name = name.trim();
        let of_name = |name: &str| questions.iter().position(|(other, _)| other == name);
        let (question, option) = match (of_name(name), name.rsplit_once(':')) {
            (Some(question), _) => (question, None),
            (None, Some((name, option))) => {
                let question = of_name(name).ok_or_else(|| wrong(format!("there is no question {name:?}")))?;
                (question, Some(option))
            }
            (None, None) => return Err(wrong(format!("there is no question {name:?}"))),
        };
        let option = index_of(&questions[question].1, option).map_err(wrong)?;
        Ok(Threshold { name: name.to_owned(), question, option, least })
    }
}

fn index_of(question: &Question, option: Option<&str>) -> Result<usize, String> {
    let names = question.option_names();
    match (question, option) {
        (Question::Noul { .. }, None) => Ok(1),
        (_, None) => Err(format!("an option is missing, as in NAME:{}=P", names.first().map_or("OPTION", |name| name))),
        (_, Some(option)) => names
            .iter()
            .position(|name| name == option)
            .ok_or_else(|| format!("there is no option {option:?}: there are {}", names.join(", "))),
    }
}

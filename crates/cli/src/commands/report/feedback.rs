//! The commonest feedback: suggestions of tools and critics, and judges' remarks on answers that were not good.

use hone_judging::{ReportRow, clustered, counted};
use serde::Serialize;

use crate::invocation::Invocation;

/// Maximum number of distinct texts to group, the commonest and then the latest ones: each is embedded.
const MOST_TEXTS: usize = 300;
/// Maximum number of groups to name.
const MOST_GROUPS: usize = 10;

/// The commonest feedback.
#[derive(Debug, Default, Serialize)]
pub(super) struct CommonFeedback {
    /// How texts were grouped.
    pub(super) grouped_by: Grouping,
    /// Each with its count, the commonest first.
    pub(super) groups: Vec<(String, usize)>,
}

/// The criterion for grouping texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Grouping {
    /// They mean the same to the embedding model.
    Meaning,
    /// They are identical.
    #[default]
    Text,
}

/// The commonest feedback on these rows, grouped by meaning if the embedding model is installed.
pub(super) fn commonest(app: &Invocation, rows: &[ReportRow]) -> CommonFeedback {
    // Latest first, so that these come first among equally common ones.
    let mut latest: Vec<&ReportRow> = rows.iter().filter(|row| !row.suggestions.is_empty()).collect();
    latest.sort_by_key(|row| std::cmp::Reverse(row.at));
    let texts = latest.iter().flat_map(|row| &row.suggestions).map(String::as_str);
    let mut texts = counted(texts);
    texts.truncate(MOST_TEXTS);
    let mut feedback = match vectors(app, &texts) {
        Ok(vectors) => CommonFeedback { grouped_by: Grouping::Meaning, groups: clustered(&texts, &vectors) },
        Err(error) => {
            app.output.note(&format!("feedback is grouped by its text, not by its meaning: {error:#}"));
            CommonFeedback { grouped_by: Grouping::Text, groups: texts }
        }
    };
    feedback.groups.truncate(MOST_GROUPS);
    feedback
}

fn vectors(app: &Invocation, texts: &[(String, usize)]) -> anyhow::Result<Vec<Vec<f32>>> {
    let texts: Vec<&str> = texts.iter().map(|(text, _)| text.as_str()).collect();
    if texts.is_empty() {
        return Ok(Vec::new());
    }
    Ok(app.embedder()?.embed(&texts)?)
}

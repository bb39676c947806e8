//! How thoroughly a model reasons, as named in requests.

use hone_protocol::{Effort, ThinkingOptions};
use serde::Deserialize;
use utoipa::ToSchema;

/// The name of an effort. Names without an equivalent in hone stand for the nearest effort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EffortName {
    None,
    Minimal,
    Low,
    Medium,
    High,
    XHigh,
    Max,
}

impl EffortName {
    /// The effort; `None` if the model does not reason.
    pub(crate) fn effort(self) -> Option<Effort> {
        match self {
            EffortName::None => None,
            EffortName::Minimal | EffortName::Low => Some(Effort::Low),
            EffortName::Medium => Some(Effort::Medium),
            EffortName::High | EffortName::XHigh | EffortName::Max => Some(Effort::High),
        }
    }

    /// Reasoning of this effort.
    pub(crate) fn thinking(self) -> ThinkingOptions {
        let effort = self.effort();
        ThinkingOptions { is_on: Some(effort.is_some()), effort, budget: None }
    }
}

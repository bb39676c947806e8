//! The critic that challenges texts.

use std::sync::Arc;

use hone_agents::{BackgroundCritic, Criticize};
use hone_judging::{CritiqueSettings, Review, critique_result};
use hone_protocol::{ContentType, CritiqueResult, Generate, Lane};
use serde::Serialize;

use super::lender::{Lender, named_or_judge};
use crate::app::App;
use crate::judge::is_named_by_hand;

/// A critic of the texts of one author.
pub struct Critic {
    lender: Lender,
    settings: CritiqueSettings,
    /// Whether the author is the critic.
    is_author: bool,
}

impl Critic {
    /// The critic of the texts of the model `author`, or of an unknown author. It uses this engine, or one that is started
    /// when it is first asked. One that was named on the command line is asked although it has not passed its
    /// examination, but blocks nothing then.
    pub fn new(app: &App, author: Option<&str>, lane: Lane, generator: Option<&Arc<dyn Generate>>) -> Critic {
        let settings = app.config.critique.clone();
        let by_hand = is_named_by_hand(&app.config);
        let configured = settings.critic_of(author.unwrap_or_default()).filter(|_| !by_hand).unwrap_or_default();
        let lender = Lender::of_model(app, named_or_judge(&app.config, configured), generator).in_lane(lane);
        let is_author = author == Some(lender.model());
        Critic { lender: if by_hand { lender.lifting_bar() } else { lender }, settings, is_author }
    }
}

/// The critic of this configuration that reviews what is remembered while nobody waits; `None` where there is none whose word
/// counts.
pub fn background_critic(app: &App, generator: &Arc<dyn Generate>) -> Option<BackgroundCritic> {
    let critic = Critic::new(app, None, Lane::Batch, Some(generator));
    let judge = critic.lender.obstacle().and_then(|obstacle| match obstacle {
        None => critic.lender.judge().map(Some),
        Some(_) => Ok(None),
    });
    let judge = judge.unwrap_or_else(|error| {
        tracing::info!("nothing is reviewed while nobody waits: {error:#}");
        None
    })?;
    // One that was asked for by name although it has not passed blocks nothing.
    critic.lender.lifted().is_none().then(|| BackgroundCritic { judge, settings: Arc::new(critic.settings) })
}

/// Who criticizes texts of unknown authors.
#[derive(Debug, Serialize)]
pub struct CriticStanding {
    /// The model.
    pub model: String,
    /// Why it gives no verdict; `None` if it does.
    pub obstacle: Option<String>,
}

impl CriticStanding {
    /// The critic of this configuration. No model is loaded.
    ///
    /// # Errors
    /// When the rubric or the profile that the configuration names does not exist.
    pub fn of(app: &App) -> anyhow::Result<CriticStanding> {
        let critic = Critic::new(app, None, Lane::Background, None);
        Ok(CriticStanding { model: critic.lender.model().to_owned(), obstacle: critic.lender.obstacle()? })
    }
}

impl Criticize for Critic {
    fn criticize(&self, kind: ContentType, content: &str, context: &str) -> CritiqueResult {
        let review = match self.is_author && !self.settings.self_critique {
            true => Review::failed(format!(
                "{} wrote the text and may not criticize it (critique.self_critique is false): name another model with \
                 critique.model",
                self.lender.model()
            )),
            false => self.lender.review(&self.settings.task(kind, content, context)),
        };
        let unblocked = match (self.is_author, self.lender.lifted()) {
            (true, _) => Some(format!("{} criticizes its own text", self.lender.model())),
            (false, lifted) => lifted.map(str::to_owned),
        };
        let mut result = critique_result(kind, &review, unblocked.as_deref());
        result.judging.self_graded = self.is_author;
        result
    }
}

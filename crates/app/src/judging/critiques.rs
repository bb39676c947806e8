//! The critic that challenges texts.

use std::collections::BTreeMap;
use std::sync::Arc;

use hone_agents::{BackgroundCritic, Criticize};
use hone_judging::{CriticMarks, CritiqueSettings, Review, Share, critique_result};
use hone_protocol::{ContentType, CritiqueResult, Generate, Lane};
use serde::Serialize;

use super::critic_examination::{self, critic_model};
use super::lender::Lender;
use crate::app::App;

/// A critic of the texts of one author.
pub struct Critic {
    app: App,
    lender: Lender,
    settings: CritiqueSettings,
    /// Whether the author is the critic.
    is_author: bool,
}

impl Critic {
    /// The critic of the texts of the model `author`, or of an unknown author. It uses this engine, or one that is
    /// started on first use. A critic that has not passed its examination is still asked, but blocks nothing.
    pub fn new(app: &App, author: Option<&str>, lane: Lane, generator: Option<&Arc<dyn Generate>>) -> Critic {
        let model = critic_model(&app.config, author);
        let lender = Lender::of_model(app, model, generator).in_lane(lane).lifting_bar();
        let is_author = author == Some(lender.model());
        Critic { app: app.with_config(app.config.clone()), lender, settings: app.config.critique.clone(), is_author }
    }
}

/// The configured critic for reviewing memories in idle time; `None` if it is not installed.
pub fn background_critic(app: &App, generator: &Arc<dyn Generate>) -> Option<BackgroundCritic> {
    let critic = Critic::new(app, None, Lane::Batch, Some(generator));
    app.store.show(critic.lender.model()).ok()?;
    let judge = critic.lender.judge();
    let judge = judge.map_err(|error| tracing::info!("nothing is reviewed while nobody waits: {error:#}")).ok()?;
    let settings = Arc::new(critic.settings.clone());
    Some(BackgroundCritic { judge, settings, unproven: Arc::new(move |kind| critic.unproven(kind)) })
}

/// The critic of texts of unknown authors.
#[derive(Debug, Serialize)]
pub struct CriticStanding {
    /// The model.
    pub model: String,
    /// The reason why it gives no verdict; `None` if it does.
    pub obstacle: Option<String>,
    /// Its examinations, by type of text.
    pub examinations: BTreeMap<&'static str, ExaminedCritic>,
}

/// The examination results of a critic for one type of text.
#[derive(Debug, Serialize)]
pub struct ExaminedCritic {
    /// The reason why its verdicts do not count; `None` if they count.
    pub unproven: Option<String>,
    /// The number of texts that it has read there; `None` if it has not taken the examination.
    pub texts: Option<u64>,
    /// The share of its blocks that were right.
    pub precision: Option<Share>,
    /// The share of critical flaws that it did not block.
    pub missed: Option<Share>,
    /// The share of sound texts that it blocked.
    pub sound_blocked: Option<Share>,
    /// Texts without a verdict that counts.
    pub without_verdict: Option<u64>,
}

impl CriticStanding {
    /// The critic of this configuration. No model is loaded.
    pub fn of(app: &App) -> CriticStanding {
        let model = critic_model(&app.config, None);
        CriticStanding {
            model: model.to_owned(),
            obstacle: app.store.show(model).err().map(|error| error.to_string()),
            examinations: ContentType::ALL.map(|kind| (kind.name(), ExaminedCritic::of(app, model, kind))).into(),
        }
    }
}

impl ExaminedCritic {
    /// The examination results of this critic for this type of text.
    pub fn of(app: &App, model: &str, kind: ContentType) -> ExaminedCritic {
        let marks = critic_examination::find(app, model, kind);
        let marks = marks.as_ref();
        ExaminedCritic {
            unproven: critic_examination::unproven(app, model, kind),
            texts: marks.map(|marks| marks.n_texts),
            precision: marks.map(CriticMarks::precision),
            missed: marks.map(CriticMarks::missed),
            sound_blocked: marks.map(CriticMarks::sound_blocked),
            without_verdict: marks.map(|marks| marks.n_without_verdict),
        }
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
        let unblocked = match self.is_author {
            true => Some(format!("{} criticizes its own text", self.lender.model())),
            false => self.unproven(kind),
        };
        let mut result = critique_result(kind, &review, unblocked.as_deref());
        result.judging.self_graded = self.is_author;
        result
    }

    fn unproven(&self, kind: ContentType) -> Option<String> {
        critic_examination::unproven(&self.app, self.lender.model(), kind)
    }
}

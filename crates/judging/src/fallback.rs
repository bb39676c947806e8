//! The stand-in for a judge that is not installed or has not passed its examination.

use std::sync::Arc;

use crate::judge::Judge;
use crate::likelihood::{Fit, LIKELIHOOD, Likelihood};
use crate::settings::Fallback;
use crate::standing::Standing;

/// The stand-in for the configured judge.
#[derive(Clone, Debug)]
pub(crate) enum FallbackJudge {
    /// The model that answered.
    Generator,
    /// The likelihood judge.
    Likelihood(Arc<Likelihood>),
}

impl Judge {
    /// The reason why answers of the model `answered_by` get no verdict, as far as known before a judge is asked.
    pub fn refusal(&self, answered_by: &str) -> Option<String> {
        if self.settings().model == LIKELIHOOD {
            return self.permitted_likelihood(answered_by).err();
        }
        match self.standings().judge {
            Standing::Barred(reason) => match self.fallback(answered_by) {
                Ok(_) => None,
                Err(other) if other.is_empty() => Some(reason),
                Err(other) => Some(format!("{reason}; {other}")),
            },
            _ => None,
        }
    }

    /// The stand-in from the first attempt on, in place of the configured judge's model.
    pub(crate) fn first_stand_in(&self, answered_by: &str) -> Option<FallbackJudge> {
        if self.settings().model == LIKELIHOOD {
            return self.likelihood().map(FallbackJudge::Likelihood);
        }
        let is_barred = matches!(self.standings().judge, Standing::Barred(_));
        self.fallback(answered_by).ok().filter(|_| is_barred)
    }

    /// The stand-in for the judge of this model's answers.
    ///
    /// # Errors
    /// The reason why there is no stand-in; empty if none is configured.
    pub(crate) fn fallback(&self, answered_by: &str) -> Result<FallbackJudge, String> {
        match self.settings().fallback {
            Fallback::None => Err(String::new()),
            Fallback::Likelihood => self.permitted_likelihood(answered_by).map(FallbackJudge::Likelihood),
            Fallback::Generator if answered_by.is_empty() || answered_by == self.settings().model => Err(String::new()),
            Fallback::Generator => match self.standings().generator {
                Standing::Barred(reason) => Err(reason),
                _ => Ok(FallbackJudge::Generator),
            },
        }
    }

    fn permitted_likelihood(&self, answered_by: &str) -> Result<Arc<Likelihood>, String> {
        let likelihood = self.likelihood().ok_or("there are no coefficients for the likelihood judge")?;
        let Fit { auc, .. } = self.fit(&likelihood, answered_by);
        let bar = self.settings().least_auc;
        match self.standings().likelihood {
            Standing::Barred(reason) => Err(reason),
            Standing::Passed if auc.low <= bar => {
                let whose = if self.is_own(&likelihood, answered_by) { "own answers" } else { "answers of others" };
                Err(format!(
                    "the likelihood judge does not grade here: with {} it tells good {whose} from bad ones with an AUC of \
                     {auc}, and the lower end must be above {bar}",
                    likelihood.name
                ))
            }
            _ => Ok(likelihood),
        }
    }
}

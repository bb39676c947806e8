//! The examination that a critic takes before it may block: texts with planted flaws of known severity, each paired
//! with a sound text about the same subject, 40 pairs for each type of text, written for this purpose
//! (`config/critique-examination`).

use hone_protocol::{ContentType, CritiqueLevel, CritiqueResult};
use serde::{Deserialize, Serialize};

use crate::critique::{CritiqueSettings, keeps_out};
use crate::report::Share;
use crate::review::ReviewTask;

/// Maximum share of critical flaws that a critic may miss.
const MOST_MISSED: f64 = 0.5;

/// A text without a flaw, and a similar one with a flaw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlantedFlaw {
    /// Its name.
    pub id: String,
    /// The context of both texts.
    pub context: String,
    /// The text without a flaw.
    pub sound: String,
    /// The text with the flaw.
    pub flawed: String,
    /// How grave the flaw is.
    pub severity: CritiqueLevel,
    /// The planted flaw.
    pub flaw: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FlawsFile {
    text: Vec<PlantedFlaw>,
}

impl PlantedFlaw {
    /// The pairs for examining a critic of texts of this type.
    pub fn shipped(kind: ContentType) -> Vec<PlantedFlaw> {
        let file = match kind {
            ContentType::General => include_str!("../../../config/critique-examination/general.toml"),
            ContentType::Intention => include_str!("../../../config/critique-examination/intention.toml"),
            ContentType::Research => include_str!("../../../config/critique-examination/research.toml"),
            ContentType::Consolidation => include_str!("../../../config/critique-examination/consolidation.toml"),
        };
        toml::from_str::<FlawsFile>(file).unwrap_or_else(|error| unreachable!("{kind}: {error}")).text
    }

    /// The critique tasks for the sound text and the flawed one.
    pub fn tasks(&self, settings: &CritiqueSettings, kind: ContentType) -> [ReviewTask; 2] {
        [&self.sound, &self.flawed].map(|text| settings.task(kind, text, &self.context))
    }
}

/// The result of examining a critic of one type of text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CriticMarks {
    /// The number of criticized texts, half of them sound, half flawed.
    pub n_texts: u64,
    /// Texts with a flaw that should block them.
    pub n_critical: u64,
    /// Texts that the critic blocked.
    pub n_blocked: u64,
    /// Texts that it rightly blocked.
    pub n_rightly_blocked: u64,
    /// Sound texts that it blocked.
    pub n_sound_blocked: u64,
    /// Texts without a verdict that counts.
    pub n_without_verdict: u64,
}

impl CriticMarks {
    /// The marks of a critic with these results for the sound and the flawed text of each pair.
    pub fn of(flaws: &[PlantedFlaw], said: &[[CritiqueResult; 2]]) -> CriticMarks {
        let mut marks = CriticMarks::default();
        for (flaw, [of_sound, of_flawed]) in flaws.iter().zip(said) {
            let is_critical = keeps_out(of_flawed.content_type, flaw.severity);
            let [sound, flawed] = [of_sound, of_flawed].map(blocks);
            marks.n_texts += 2;
            marks.n_critical += u64::from(is_critical);
            marks.n_blocked += u64::from(sound) + u64::from(flawed);
            marks.n_rightly_blocked += u64::from(flawed && is_critical);
            marks.n_sound_blocked += u64::from(sound);
            let uncounted = [of_sound, of_flawed].into_iter().filter(|result| !counts(result));
            marks.n_without_verdict += uncounted.count() as u64;
        }
        marks
    }

    /// The share of right blocks.
    pub fn precision(&self) -> Share {
        Share::new(self.n_rightly_blocked, self.n_blocked)
    }

    /// The share of missed texts among those that should have been blocked.
    pub fn missed(&self) -> Share {
        Share::new(self.n_critical - self.n_rightly_blocked, self.n_critical)
    }

    /// The share of blocked texts among sound ones.
    pub fn sound_blocked(&self) -> Share {
        Share::new(self.n_sound_blocked, self.n_texts / 2)
    }

    /// Whether its verdict counts. Its blocks must be right at least this often, and more often than not with 95 %
    /// confidence. As texts that it does not block count as reviewed, it must also miss no more than half of the texts
    /// that should be blocked.
    pub fn passes(&self, least_precision: f64) -> bool {
        let Share { share, interval, .. } = self.precision();
        let finds = self.missed().share.is_some_and(|share| share <= MOST_MISSED);
        finds && share.is_some_and(|share| share >= least_precision) && interval.is_some_and(|[low, _]| low > 0.5)
    }
}

fn counts(result: &CritiqueResult) -> bool {
    result.level.is_some() && result.disregarded.is_none()
}

fn blocks(result: &CritiqueResult) -> bool {
    counts(result) && result.level.is_some_and(|level| keeps_out(result.content_type, level))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The marks of a critic with these responses to each sound text and each flawed one.
    fn marks(
        kind: ContentType,
        of_sound: impl Fn(usize) -> CritiqueLevel,
        of_flawed: impl Fn(usize, &PlantedFlaw) -> CritiqueLevel,
    ) -> CriticMarks {
        let flaws = PlantedFlaw::shipped(kind);
        let result = |level| CritiqueResult { content_type: kind, level: Some(level), ..CritiqueResult::default() };
        let said: Vec<_> =
            flaws.iter().enumerate().map(|(n, flaw)| [of_sound(n), of_flawed(n, flaw)].map(result)).collect();
        CriticMarks::of(&flaws, &said)
    }

    #[test]
    fn every_type_has_forty_pairs_and_more_texts_to_let_pass_than_to_block() {
        for kind in ContentType::ALL {
            let flaws = PlantedFlaw::shipped(kind);
            assert_eq!(flaws.len(), 40, "{kind}");
            let of_level = |level| flaws.iter().filter(|flaw| flaw.severity == level).count();
            assert_eq!(CritiqueLevel::ALL.map(of_level), [0, 8, 8, 24], "{kind}");
            let mut ids: Vec<_> = flaws.iter().map(|flaw| &flaw.id).collect();
            ids.dedup();
            assert_eq!(ids.len(), 40, "{kind}");
            let are_whole =
                flaws.iter().all(|it| ![&it.context, &it.sound, &it.flawed, &it.flaw].iter().any(|it| it.is_empty()));
            assert!(are_whole && flaws.iter().all(|it| it.sound != it.flawed), "{kind}");
        }
    }

    /// A critic must not pass by going by the length of a text and blocking those above a limit.
    #[test]
    fn length_tells_nothing_about_a_text() {
        for kind in ContentType::ALL {
            let flaws = PlantedFlaw::shipped(kind);
            let longer = flaws.iter().filter(|flaw| flaw.flawed.len() > flaw.sound.len()).count();
            assert!((13..=27).contains(&longer), "{kind}: {longer} of the flawed texts are longer");
        }
    }

    #[test]
    fn who_tells_flawed_from_sound_passes_and_who_guesses_does_not() {
        let (pass, block) = (CritiqueLevel::Pass, CritiqueLevel::Block);
        for kind in ContentType::ALL {
            let knowing = marks(kind, |_| pass, |_, flaw| flaw.severity);
            let n_critical = if kind == ContentType::Consolidation { 32 } else { 24 };
            assert_eq!(
                (knowing.n_critical, knowing.n_blocked, knowing.n_texts),
                (n_critical, n_critical, 80),
                "{kind}"
            );
            assert!(knowing.passes(0.8) && knowing.missed().share == Some(0.0), "{kind}: {knowing:?}");
            let careful = marks(kind, |_| pass, |n, flaw| if n < 20 { flaw.severity } else { pass });
            assert!(careful.passes(0.8) && careful.missed().share >= Some(0.4), "{kind}: {careful:?}");
            for wrong in [
                marks(kind, |_| block, |_, _| block),
                marks(kind, |_| pass, |_, _| pass),
                marks(
                    kind,
                    |n| if n.is_multiple_of(2) { block } else { pass },
                    |n, _| if n.is_multiple_of(2) { pass } else { block },
                ),
                marks(kind, |_| pass, |n, flaw| if n < 15 { flaw.severity } else { pass }),
                marks(kind, |n| if n < 10 { block } else { pass }, |_, flaw| flaw.severity),
            ] {
                assert!(!wrong.passes(0.8), "{kind}: {wrong:?}");
            }
        }
    }
}

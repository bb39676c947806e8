//! Keys of earlier versions: what to set instead.

/// The prompts of the judge, which were in `critic.toml` before every kind of judge had prompts of its own.
const JUDGE_PROMPTS: [&str; 5] = [
    "critic.absolute_system",
    "critic.absolute_prompt",
    "critic.absolute_reference_prompt",
    "critic.pairwise_system",
    "critic.pairwise_prompt",
];

/// Where the key is now; `None` where no version had it.
pub(super) fn new_place(key: &str) -> Option<String> {
    let (_, name) = JUDGE_PROMPTS.iter().find(|prompt| **prompt == key)?.split_once('.')?;
    Some(format!(
        "the prompts are now those of the judge's profile: set {name} in judges.toml, under [prometheus] for Prometheus, or \
         under a name of your own that critic.profile names"
    ))
}

/// The keys that have a new place.
pub(super) fn keys() -> impl Iterator<Item = &'static str> {
    JUDGE_PROMPTS.into_iter()
}

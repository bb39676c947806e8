//! Keys of earlier versions. Renamed keys are still read; for the others, an error says what to set instead.

/// The former name of the judge's section. The critic, which challenges texts, is something else.
pub(super) const FORMER_SECTION: &str = "critic";
const SECTION: &str = "judge";

/// The prompts of the judge, which were in `critic.toml` before every kind of judge had prompts of its own.
const JUDGE_PROMPTS: [&str; 5] = [
    "critic.absolute_system",
    "critic.absolute_prompt",
    "critic.absolute_reference_prompt",
    "critic.pairwise_system",
    "critic.pairwise_prompt",
];

/// A message about the key's new place; `None` if no version had the key.
pub(super) fn new_place(key: &str) -> Option<String> {
    let (_, name) = JUDGE_PROMPTS.iter().find(|prompt| **prompt == key)?.split_once('.')?;
    Some(format!(
        "the prompts are now those of the judge's profile: set {name} in judges.toml, under [prometheus] for Prometheus, or \
         under a name of your own that judge.profile names"
    ))
}

/// The current name of this key, if it was renamed.
pub(super) fn new_name(key: &str) -> Option<String> {
    let name = key.strip_prefix(FORMER_SECTION)?.strip_prefix('.')?;
    (!JUDGE_PROMPTS.contains(&key)).then(|| format!("{SECTION}.{name}"))
}

/// The former name of this key, if it was renamed.
pub(super) fn former_name(key: &str) -> Option<String> {
    Some(format!("{FORMER_SECTION}.{}", key.strip_prefix(SECTION)?.strip_prefix('.')?))
}

/// The keys that have moved.
pub(super) fn keys() -> impl Iterator<Item = &'static str> {
    JUDGE_PROMPTS.into_iter()
}

//! Keys of earlier versions: those that have another name now are still read, and for the others it is said what to set instead.

/// What the section of the judge was called, as if it were the critic, which challenges texts.
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

/// Where the key is now; `None` where no version had it.
pub(super) fn new_place(key: &str) -> Option<String> {
    let (_, name) = JUDGE_PROMPTS.iter().find(|prompt| **prompt == key)?.split_once('.')?;
    Some(format!(
        "the prompts are now those of the judge's profile: set {name} in judges.toml, under [prometheus] for Prometheus, or \
         under a name of your own that judge.profile names"
    ))
}

/// The name that this key has now, if it was renamed.
pub(super) fn new_name(key: &str) -> Option<String> {
    let name = key.strip_prefix(FORMER_SECTION)?.strip_prefix('.')?;
    (!JUDGE_PROMPTS.contains(&key)).then(|| format!("{SECTION}.{name}"))
}

/// The name that this key had before, if it was renamed.
pub(super) fn former_name(key: &str) -> Option<String> {
    Some(format!("{FORMER_SECTION}.{}", key.strip_prefix(SECTION)?.strip_prefix('.')?))
}

/// The keys that have a new place.
pub(super) fn keys() -> impl Iterator<Item = &'static str> {
    JUDGE_PROMPTS.into_iter()
}

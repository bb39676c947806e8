//! The response shapes of hone's own API.

use serde_json::Value;

use crate::shapes::{anything, documented, flag, list, map, nullable, number, object, one_of, open, text, whole};

documented! {
    /// Whether an answer was in progress and has been stopped.
    HoneStopped = object([("stopped", flag())], []);
    /// Whether anything was removed.
    HoneRemoved = object([("removed", flag())], []);
    /// Whether a conversation was removed, and how many of its memories were forgotten.
    HoneConversationRemoved = object([("removed", flag()), ("forgotten", whole())], []);
    /// A new name.
    HoneRenamed = object([("name", text())], []);
    /// Saved conversations, the most recently written first.
    HoneConversations = object([("conversations", list(conversation()))], []);
    /// A conversation with the grades of its answers.
    HoneConversation = object(
        [
            ("name", text()),
            ("title", text()),
            ("model", text()),
            ("system", text()),
            ("exchanges", list(exchange())),
            ("is_answering", flag()),
        ],
        [],
    );
    /// A conversation as a file.
    HoneExport = object(
        [("name", text()), ("model", text()), ("system", text()), ("exchanges", list(exported()))],
        [],
    );
    /// A grade, or the state of a pending one.
    HoneCritique = critique();
    /// A grade. Its score is null if the judge failed, for the reason in `failure`, or if the likelihood judge gave a
    /// `probability` instead.
    HoneGrade = grade();
    /// The choice between two answers; the winner is null for a tie, and if `failure` says why there is no verdict.
    HonePreference = open([
        ("winner", nullable(one_of(&["A", "B"]))),
        ("log_odds", number()),
        ("consistent", flag()),
        ("reason", text()),
        ("by", text()),
    ]);
    /// A published rating.
    HoneRated = object([("query_id", text()), ("rating", nullable(rating()))], []);
    /// Good or bad; null takes an earlier rating back.
    HoneRating = nullable(rating());
    /// The judges with their marks.
    HoneJudges = object([("judges", list(map(anything())))], []);
    /// The critic's state: the mode that a person has set for every gate, statistics, and the latest blocks.
    HoneCritic = object(
        [("mode", nullable(mode())), ("statistics", map(anything())), ("blocks", list(block()))],
        [],
    );
    /// The state of an engram after a person has reviewed its block.
    HoneReviewed = object([("state", vetting())], []);
    /// Engrams.
    HoneEngrams = object([("engrams", list(engram([], [("similarity", number())])))], []);
    /// Everything about one engram.
    HoneEngram = engram([("html", text()), ("fields", nullable(map(anything())))], []);
    /// The models that can be installed by name, and how well each would run on this machine.
    HoneCatalog = object([("models", list(known_model()))], []);
    /// The installed models, and the one that answers by default.
    HoneModels = object([("default", text()), ("models", list(model())), ("respondent_b", respondent_b())], []);
    /// Named settings for a chat: configuration keys and their values; and whether this client can save some.
    HonePresets = object(
        [
            ("presets", list(object([("name", text()), ("settings", map(anything()))], []))),
            ("can_save", flag()),
        ],
        [],
    );
    /// The preset that was saved.
    HonePresetSaved = object([("name", text())], []);
    /// The running hone processes.
    HoneProcesses = object(
        [
            ("version", text()),
            ("grades", flag()),
            ("grades_due", whole()),
            ("processes", list(map(anything()))),
            ("fleet", nullable(map(anything()))),
        ],
        [],
    );
    /// Markdown as HTML.
    HoneRendered = object([("html", text())], []);
    /// The text of a file.
    HoneText = object([("text", text())], []);
    /// Statistics about the quality of the answers, with graphs.
    HoneReport = object(
        [
            ("judges", list(judge())),
            ("trend", nullable(trend())),
            ("win_rates", nullable(win_rates())),
            ("statistics", map(anything())),
        ],
        [],
    );
}

fn critique() -> Value {
    open([
        ("query_id", text()),
        ("status", one_of(&["pending", "graded", "ungraded"])),
        ("score", nullable(score())),
        ("badge", nullable(badge())),
        ("rating", nullable(rating())),
        ("comparison", nullable(comparison())),
        ("is_comparing", flag()),
        ("other", nullable(other())),
        ("other_failure", nullable(text())),
    ])
}

fn comparison() -> Value {
    object(
        [
            ("winner", nullable(one_of(&["A", "B"]))),
            ("consistent", flag()),
            ("reason", text()),
            ("by", text()),
            ("failure", nullable(text())),
        ],
        [],
    )
}

fn other() -> Value {
    object(
        [
            ("query_id", nullable(text())),
            ("answer", text()),
            ("html", text()),
            ("model", text()),
            ("temperature", number()),
            ("grade", grade()),
        ],
        [],
    )
}

fn score() -> Value {
    serde_json::json!({"type": "integer", "minimum": 1, "maximum": 5})
}

fn rating() -> Value {
    one_of(&["good", "bad"])
}

fn kind() -> Value {
    one_of(&["episodic", "fact", "intention", "research", "consolidation"])
}

fn badge() -> Value {
    object([("mark", text()), ("text", text()), ("tone", one_of(&["good", "fair", "poor"])), ("color", text())], [])
}

fn grade() -> Value {
    let remark = open([("about", text()), ("holds", flag()), ("probability", number()), ("model", text())]);
    open([("score", nullable(score())), ("badge", nullable(badge())), ("remarks", list(remark)), ("remarked", text())])
}

fn conversation() -> Value {
    object([("name", text()), ("title", text()), ("written", whole())], [])
}

fn exchange() -> Value {
    object(
        [
            ("branch", nullable(branch())),
            ("recalled", list(object([("query_id", text()), ("query", text())], []))),
            ("question", text()),
            ("answer", text()),
            ("thinking", text()),
            ("html", text()),
            ("model", text()),
            ("finish_reason", nullable(text())),
            ("is_cut_off", flag()),
            ("timings", map(number())),
            ("query_id", nullable(text())),
        ],
        [("grade", critique()), ("rating", nullable(rating()))],
    )
}

/// The place of an exchange among the branches that begin there.
fn branch() -> Value {
    object([("number", whole()), ("count", whole())], [])
}

fn exported() -> Value {
    object([("question", text()), ("answer", text()), ("model", text()), ("query_id", nullable(text()))], [])
}

/// An engram, with additional required and optional keys.
fn engram<const N: usize, const M: usize>(more: [(&str, Value); N], optional: [(&str, Value); M]) -> Value {
    let keys = [
        ("query_id", text()),
        ("kind", kind()),
        ("at", whole()),
        ("query", text()),
        ("answer", text()),
        ("model", text()),
        ("grade", grade()),
        ("rating", nullable(rating())),
        ("vetting", vetting()),
    ];
    object(keys.into_iter().chain(more), optional)
}

fn mode() -> Value {
    one_of(&["hard", "soft", "off"])
}

fn vetting() -> Value {
    one_of(&["unreviewed", "reviewed", "blocked"])
}

fn block() -> Value {
    object(
        [
            ("query_id", text()),
            ("at", whole()),
            ("content_type", text()),
            ("mode", mode()),
            ("state", vetting()),
            ("text", text()),
            ("reason", text()),
            ("challenges", list(text())),
            ("right", nullable(flag())),
        ],
        [],
    )
}

fn model() -> Value {
    object(
        [
            ("name", text()),
            ("bytes", whole()),
            ("installed", whole()),
            ("answers", flag()),
            ("context", nullable(whole())),
            ("elsewhere", flag()),
        ],
        [],
    )
}

fn known_model() -> Value {
    let estimate = object(
        [
            ("needs_memory", whole()),
            ("fits", nullable(flag())),
            ("is_divided", flag()),
            ("runs_from_file", flag()),
            ("tokens_per_second", nullable(number())),
            ("speed_is_seen", flag()),
        ],
        [],
    );
    object(
        [
            ("name", text()),
            ("role", one_of(&["generator", "judge", "embedder", "reranker"])),
            ("family", text()),
            ("parameters", text()),
            ("quantization", text()),
            ("licence", text()),
            ("context", whole()),
            ("bytes", whole()),
            ("installed", flag()),
            ("suggested", flag()),
            ("estimate", estimate),
        ],
        [],
    )
}

fn respondent_b() -> Value {
    object([("is_on", flag()), ("model", text()), ("temperature", number())], [])
}

fn judge() -> Value {
    object(
        [
            ("judge", text()),
            ("rubric", text()),
            ("scored", whole()),
            ("mean_score", nullable(number())),
            ("scores", list(whole())),
            ("svg", text()),
        ],
        [],
    )
}

fn win_rates() -> Value {
    let rate = object([("of", text()), ("compared", whole()), ("won", whole())], []);
    object([("rates", list(rate)), ("svg", text())], [])
}

fn trend() -> Value {
    let point = object([("at", whole()), ("score", score())], []);
    object([("judge", text()), ("points", list(point)), ("svg", text())], [])
}

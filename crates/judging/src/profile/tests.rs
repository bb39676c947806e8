use super::*;
use crate::form::FormKind;

fn profiles() -> JudgeProfiles {
    JudgeProfiles::shipped()
}

/// The shipped profiles and the profiles in `text`.
fn with(text: &str) -> Result<JudgeProfiles, String> {
    let mut tables: BTreeMap<String, toml::Table> = toml::from_str(SHIPPED).unwrap();
    tables.extend(toml::from_str::<BTreeMap<String, toml::Table>>(text).unwrap());
    tables.try_into().map_err(|error: InvalidProfile| error.to_string())
}

#[test]
fn every_shipped_profile_is_sound_and_says_where_it_comes_from() {
    let profiles = profiles();
    let names: Vec<&str> = profiles.iter().map(|profile| profile.name.as_str()).collect();
    assert_eq!(names, ["flow_judge", "mr3", "plain", "prometheus", "prometheus_letter_first", "selene"]);
    let cited = |profile: &&JudgeProfile| profile.about.contains("github.com/");
    assert_eq!(profiles.iter().filter(cited).count(), 4);
    let kinds = |name: &str| {
        let profile = profiles.get(name).unwrap();
        (profile.score.kind, profile.choice.kind, profile.thinking_tokens())
    };
    assert_eq!(kinds("plain"), (FormKind::Marker, FormKind::Marker, 0));
    assert_eq!(kinds("prometheus"), (FormKind::Marker, FormKind::Marker, 0));
    assert_eq!(kinds("prometheus_letter_first"), (FormKind::Marker, FormKind::First, 0));
    assert_eq!(kinds("mr3"), (FormKind::Json, FormKind::Json, 1024));
    assert_eq!(kinds("selene"), (FormKind::Marker, FormKind::Marker, 0));
    assert_eq!(kinds("flow_judge"), (FormKind::Tag, FormKind::Tag, 0));
}

#[test]
fn a_model_has_the_profile_that_its_name_suggests() {
    let check = |model: &str, expected: &str| assert_eq!(profiles().for_model(model).name, expected, "{model}");
    check("prometheus:13b", "prometheus");
    check("/models/Prometheus-7b-v2.0.Q4_K_M.gguf", "prometheus");
    check("M-Prometheus-3B.Q4_K_M.gguf", "prometheus");
    check("mR3-Qwen3-8B-en-prompt-en-thinking.Q4_K_M.gguf", "mr3");
    check("C:\\models\\Selene-1-Mini-Llama-3.1-8B.gguf", "selene");
    check("flow-judge-v0.1-Q4_K_M.gguf", "flow_judge");
    check("smollm2:135m", "plain");
    check("/prometheus/qwen3-8b.gguf", "plain");
    let own = with("[mine]\nlike = 'mr3'\nmodels = ['mR3-QWEN3-4b']").unwrap();
    assert_eq!(own.for_model("mR3-Qwen3-4B.gguf").name, "mine", "the longest part decides");
}

#[test]
fn a_profile_takes_from_another_what_it_does_not_say() {
    let own = with("[a]\nlike = 'b'\ncontext = 512\n[b]\nlike = 'selene'\ntemperature = 0.5").unwrap();
    let (a, selene) = (own.get("a").unwrap(), own.get("selene").unwrap());
    assert_eq!((a.context, a.temperature, &a.absolute_prompt), (512, 0.5, &selene.absolute_prompt));
    assert_eq!((&a.score.place, &a.pairwise_prompt), (&selene.score.place, &selene.pairwise_prompt));
    let plain = with("[a]\ncontext = 512").unwrap();
    assert_eq!(plain.get("a").unwrap().absolute_prompt, plain.get("plain").unwrap().absolute_prompt);
}

#[test]
fn a_profile_whose_own_prompt_asks_for_reasons_gets_them() {
    let feedback = |text: &str| with(text).unwrap().get("a").unwrap().feedback;
    let prompt = "absolute_prompt = '{query} {answer} {rubric}'";
    assert_eq!(feedback(&format!("[a]\n{prompt}")), FeedbackMode::Always);
    assert_eq!(feedback(&format!("[a]\nlike = 'b'\n[b]\n{prompt}")), FeedbackMode::Always);
    assert_eq!(feedback(&format!("[a]\n{prompt}\nfeedback = 'on_request'")), FeedbackMode::OnRequest);
    assert_eq!(feedback("[a]\nabsolute_prompt = '{query} {answer} {rubric} {ending}'"), FeedbackMode::OnRequest);
    assert_eq!(feedback("[a]\nscores = ['0', '1']"), FeedbackMode::OnRequest);
}

#[test]
fn a_wrong_profile_is_named_with_its_key() {
    let check = |text: &str, name: &str, reason: &str| {
        let expected = format!("the judge profile {name:?} cannot be used: {reason}");
        assert_eq!(with(text).unwrap_err(), expected);
    };
    check(
        "[a]\ntone = 1",
        "a",
        &format!("unknown field `tone`, expected one of {}", KEYS.map(|key| format!("`{key}`")).join(", ")),
    );
    check("[a]\ncontext = '1'", "a", "invalid type: string \"1\", expected i64");
    check("[a]\nlike = 'b'\n[b]\nlike = 'a'", "a", "like leads in a circle: a, b and a");
    check("[plain]\nlike = 'mr3'", "flow_judge", "like leads in a circle: flow_judge, plain, mr3 and plain");
    let rubric = "absolute_prompt has no place for the rubric: write {rubric} where it belongs";
    check("[a]\nabsolute_prompt = '{query} {answer} {scores}'", "a", rubric);
    let answer = "pairwise_prompt has no place for the answer_b: write {answer_b} where it belongs";
    check("[a]\npairwise_prompt = '{query} {answer_a} {answer}'", "a", answer);
    let reference = "absolute_reference_prompt has no place for the reference: write {reference} where it belongs";
    check("[a]\nabsolute_reference_prompt = '{query} {answer} {rubric}'", "a", reference);
    let reasons = "score_reasons is \"score\": it must be another place like score_place, or empty";
    check("[a]\nlike = 'mr3'\nscore_reasons = 'score'", "a", reasons);
    check(
        "[a]\nthinking_tokens = 1\nthinking_end = ''",
        "a",
        "thinking_end is empty: it must be the text that ends the judge's thoughts",
    );
    check("[a]\nscores = ['1', ' 2']", "a", "scores has \" 2\", which is empty or has white space around it");
    assert!(with("[a]\nabsolute_prompt = '{query} {answer} {criterion}: {scores}'").is_ok());
    assert!(with("[a]\nabsolute_system = '{rubric}'\nabsolute_prompt = '{query} {answer}'").is_ok());
}

const KEYS: [&str; 28] = [
    "about",
    "models",
    "temperature",
    "context",
    "grade_timeout",
    "feedback",
    "system_message",
    "thinking_tokens",
    "thinking_end",
    "rubric_criterion",
    "rubric_score",
    "scores",
    "score_form",
    "score_place",
    "score_reasons",
    "score_ending",
    "score_ending_alone",
    "choices",
    "choice_form",
    "choice_place",
    "choice_reasons",
    "choice_ending",
    "choice_ending_alone",
    "absolute_system",
    "absolute_prompt",
    "absolute_reference_prompt",
    "pairwise_system",
    "pairwise_prompt",
];

#[test]
fn rubrics_are_written_as_the_judge_reads_them() {
    let rubric = Rubric::parse("r", "criterion = 'Good?'\nscores = ['a', 'b', 'c', 'd', 'e']").unwrap();
    let written = |profiles: &JudgeProfiles, name: &str| {
        let (criterion, scores) = profiles.get(name).unwrap().written(&rubric);
        format!("{criterion}|{}", scores.replace('\n', "|"))
    };
    let shipped = profiles();
    assert_eq!(written(&shipped, "prometheus"), "[Good?]|Score 1: a|Score 2: b|Score 3: c|Score 4: d|Score 5: e");
    assert_eq!(written(&shipped, "mr3"), "Good?|1: a|2: b|3: c|4: d|5: e");
    assert_eq!(
        written(&shipped, "flow_judge"),
        "Good?|- Score 1: a|- Score 2: b|- Score 3: c|- Score 4: d|- Score 5: e"
    );
    let own = with("[yes]\nscores = ['no', 'yes']\n[three]\nscores = ['0', '1', '2']").unwrap();
    assert_eq!(written(&own, "yes"), "[Good?]|Score no: a|Score yes: e");
    assert_eq!(written(&own, "three"), "[Good?]|Score 0: a|Score 1: c|Score 2: e");
}

#[test]
fn scores_are_spread_over_1_to_5() {
    let scores = |names: &[&str]| {
        let labels = crate::form::Labels::new(names.iter().map(|name| (*name).to_owned()).collect());
        (0..names.len()).map(|label| labels.score(label)).collect::<Vec<_>>()
    };
    assert_eq!(scores(&["1", "2", "3", "4", "5"]), [1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(scores(&["0", "1"]), [1.0, 5.0]);
    assert_eq!(scores(&["0", "1", "2"]), [1.0, 3.0, 5.0]);
    let ten = scores(&["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]);
    assert_eq!((ten[0], ten[9]), (1.0, 5.0));
    assert_eq!(ten.iter().map(|score| score.round() as u8).collect::<Vec<_>>(), [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]);
}

#[test]
fn thinking_can_be_shortened() {
    let mr3 = JudgeProfile::shipped("mr3").unwrap().thinking_at_most(24);
    assert_eq!((mr3.thinking_tokens(), mr3.choice.thinking.tokens), (24, 24));
    assert_eq!(JudgeProfile::shipped("plain").unwrap().thinking_at_most(24).thinking_tokens(), 0);
}

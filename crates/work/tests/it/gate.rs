//! Tests of the gate, with scenarios in `data/gate.txt`, and of the critic and the rules, with small workspaces.

use std::collections::BTreeMap;

use hone_protocol::{
    Category, CriterionResult, CriticScore, EvaluationResult, EvaluationStatus, GateAction, Metrics, TestCounts,
};
use hone_work::{Assignment, EvaluationContext, GateConfig, WorkspaceFiles, decide, rule_critic, rules, tests_kept};

fn defaults() -> toml::Table {
    include_str!("../../../../config/gate.toml").parse().unwrap()
}

fn bare(name: &str, status: EvaluationStatus) -> EvaluationResult {
    EvaluationResult {
        evaluator: name.to_owned(),
        category: Category::Compliance,
        deterministic: true,
        status,
        feedback: String::new(),
        criteria: Vec::new(),
        suggestions: Vec::new(),
        tests: None,
        not_contained: Vec::new(),
        seconds: 0.0,
    }
}

fn scored(name: &str, category: Category, score: f64) -> EvaluationResult {
    let status = if score >= 0.7 { EvaluationStatus::Passed { score } } else { EvaluationStatus::Failed { score } };
    EvaluationResult { category, feedback: format!("{name} says {score}"), ..bare(name, status) }
}

enum Found {
    Result(EvaluationResult),
    Critic(CriticScore),
}

fn found(text: &str) -> Found {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words[..] {
        ["critic", score, ..] => {
            let score: f64 = score.parse().unwrap();
            let mut metrics = Metrics::default();
            for (name, value) in words.iter().filter_map(|word| word.split_once('=')) {
                assert_eq!(name, "test_coverage");
                metrics.test_coverage = Some(value.parse().unwrap());
            }
            Found::Critic(CriticScore {
                critic: "critic".into(),
                score: Some(score),
                passed: score >= 0.7,
                feedback: String::new(),
                suggestions: Vec::new(),
                metrics,
                evidence: Vec::new(),
            })
        }
        [name, "blocked", score] => {
            let score: f64 = score.parse().unwrap();
            let criterion = CriterionResult {
                criterion: "works".into(),
                passed: false,
                score,
                message: "broken".into(),
                evidence: None,
            };
            let failed = bare(name, EvaluationStatus::Failed { score });
            Found::Result(EvaluationResult { criteria: vec![criterion], ..failed })
        }
        [name, "skipped"] => Found::Result(bare(name, EvaluationStatus::Skipped { reason: "no tool".into() })),
        [name, "unscored"] => {
            let unscored = bare(name, EvaluationStatus::Unscored { reason: "no model".into() });
            Found::Result(EvaluationResult { feedback: "no model".into(), ..unscored })
        }
        [name, score] => Found::Result(scored(name, Category::Compliance, score.parse().unwrap())),
        _ => panic!("{text:?} is no finding"),
    }
}

#[test]
fn scenarios() {
    let mut n_decisions = 0;
    let (mut table, mut agents, mut scenario) = (defaults(), Vec::<String>::new(), "");
    let mut decided = None;
    for line in include_str!("data/gate.txt").lines() {
        let line = line.trim_end();
        if let Some(name) = line.strip_prefix("scenario ") {
            (table, agents, scenario) = (defaults(), Vec::new(), name);
        } else if let Some(given) = line.strip_prefix("given ") {
            table.extend(given.parse::<toml::Table>().unwrap());
        } else if let Some(attempt) = line.strip_prefix("attempt ") {
            let (agent, findings) = attempt.split_once(": ").unwrap();
            agents.push(agent.to_owned());
            let (mut results, mut critics) = (Vec::new(), Vec::new());
            for finding in findings.split(", ") {
                match found(finding) {
                    Found::Result(result) => results.push(result),
                    Found::Critic(critic) => critics.push(critic),
                }
            }
            let config: GateConfig = table.clone().try_into().unwrap();
            config.check().unwrap();
            let agents: Vec<&str> = agents.iter().map(String::as_str).collect();
            decided = Some(decide(&config, &results, &critics, &agents));
        } else if let Some(expected) = line.strip_prefix("  ") {
            let decision = decided.take().unwrap();
            let agent = decision.agent.map(|agent| format!(" {agent}")).unwrap_or_default();
            assert_eq!(format!("{}{agent}: {}", decision.action, decision.reason), expected, "in {scenario:?}");
            n_decisions += 1;
        } else {
            assert!(line.is_empty() || line.starts_with('#'), "{line:?} is not understood");
        }
    }
    assert!(n_decisions >= 20, "{n_decisions} decisions");
}

#[test]
fn what_failed_is_told_to_the_next_attempt_each_once() {
    let config: GateConfig = defaults().try_into().unwrap();
    let mut result = scored("pytest", Category::Functionality, 0.2);
    result.suggestions = vec!["fix test_area".into()];
    let critic = rule_critic(std::slice::from_ref(&result), 0.7);
    let decision = decide(&config, &[result, scored("ruff", Category::Compliance, 1.0)], &[critic], &["small"]);
    assert_eq!(decision.action, GateAction::Retry);
    assert_eq!(decision.feedback, "pytest: pytest says 0.2\n- fix test_area");
}

#[test]
fn what_the_rules_have_weighed_counts_once() {
    let config: GateConfig = defaults().try_into().unwrap();
    let others =
        [("ruff", Category::Compliance), ("files", Category::Correctness), ("tests-kept", Category::TestCoverage)];
    for tests in [0.0, 0.67] {
        let mut results: Vec<EvaluationResult> = others.map(|(name, category)| scored(name, category, 1.0)).into();
        results.push(scored("pytest", Category::Functionality, tests));
        let critic = rule_critic(&results, 0.7);
        let decision = decide(&config, &results, std::slice::from_ref(&critic), &["small"]);
        assert!(decision.score == critic.score && decision.score.unwrap() < 0.5, "{decision:?}");
    }
}

#[test]
fn a_configuration_is_checked() {
    let check = |line: &str, part: &str| {
        let mut table = defaults();
        table.extend(line.parse::<toml::Table>().unwrap());
        let error = table.try_into::<GateConfig>().map_err(|error| error.to_string()).and_then(|config| config.check());
        let error = error.unwrap_err();
        assert!(error.contains(part), "{error}");
    };
    check("threshold = 1.5", "threshold");
    check("attempts_per_agent = 0", "attempts_per_agent");
    check("critics = [\"oracle\"]", "oracle");
    check("required_metrics = [\"beauty\"]", "beauty");
    check("unscored = \"maybe\"", "maybe");
    check("colour = 1", "colour");
}

#[test]
fn the_critic_weighs_five_checks() {
    let all = |tests| {
        vec![
            scored("pytest", Category::Functionality, tests),
            scored("ruff", Category::Compliance, 1.0),
            scored("files", Category::Correctness, 1.0),
            scored("tests-kept", Category::TestCoverage, 1.0),
            scored("requirements", Category::Correctness, 1.0),
        ]
    };
    let good = rule_critic(&all(1.0), 0.7);
    assert_eq!((good.score, good.passed), (Some(1.0), true));
    // Seed 003: failing tests give less than half, and are named.
    let bad = rule_critic(&all(0.6), 0.7);
    assert!(bad.score.unwrap() < 0.5 && !bad.passed, "{bad:?}");
    assert_eq!(bad.feedback, "pytest: pytest says 0.6");
    // Missing files lower completeness.
    let mut missing = all(1.0);
    missing[2] = scored("files", Category::Correctness, 0.0);
    let missing = rule_critic(&missing, 0.7);
    assert_eq!(missing.metrics.completeness, Some(0.5));
    assert!((missing.score.unwrap() - 0.85).abs() < 1e-9, "{missing:?}");
    // Checks that did not run have no weight.
    let lint_alone = rule_critic(&[scored("ruff", Category::Compliance, 0.8)], 0.7);
    assert!((lint_alone.score.unwrap() - 0.8).abs() < 1e-9);
    assert_eq!(lint_alone.metrics.correctness, None);
    assert!(lint_alone.evidence.contains(&"tests pass: not checked".to_owned()), "{:?}", lint_alone.evidence);
    assert_eq!(rule_critic(&[], 0.7).score, None);
}

struct Files(BTreeMap<&'static str, &'static str>);

impl WorkspaceFiles for Files {
    fn text(&self, path: &str) -> Option<String> {
        self.0.get(path).map(|text| (*text).to_owned())
    }

    fn exists(&self, path: &str) -> bool {
        self.0.contains_key(path)
    }

    fn paths(&self) -> Vec<String> {
        self.0.keys().map(|path| (*path).to_owned()).collect()
    }
}

#[track_caller]
fn check_rule(name: &str, task: &str, changed: Option<&[&str]>, expected: &str, feedback: &str) {
    let assignment = Assignment::parse(&format!("goal = \"x\"\n{task}")).unwrap();
    let workspace = Files(BTreeMap::from([("src/a.py", "class A: pass"), ("README.md", "text")]));
    let changed: Option<Vec<String>> = changed.map(|paths| paths.iter().map(|path| (*path).to_owned()).collect());
    let changed = changed.as_deref();
    let context = EvaluationContext {
        phase: "coding",
        output: "",
        assignment: &assignment,
        workspace: &workspace,
        changed,
        diff: "",
        plans: None,
    };
    let rules = rules();
    let rule = rules.iter().find(|rule| rule.name() == name).unwrap();
    let result = rule.evaluate(&context);
    let status = serde_json::to_value(&result.status).unwrap();
    assert_eq!((status["status"].as_str().unwrap(), result.feedback.as_str()), (expected, feedback));
}

#[test]
fn rules_look_at_files() {
    check_rule("files", "files = [\"src/a.py\"]", None, "passed", "1 of 1 hold");
    check_rule("files", "files = [\"src/a.py\", \"src/b.py\"]", None, "failed", "src/b.py is missing");
    check_rule("files", "", None, "skipped", "the task names no files");
    let requirement = |rest: &str| format!("[[requirements]]\ntext = \"has a class\"\n{rest}");
    check_rule(
        "requirements",
        &requirement("file = \"src/a.py\"\ncontains = \"class A\""),
        None,
        "passed",
        "1 of 1 hold",
    );
    let unmet = "has a class: src/a.py does not contain \"class B\"";
    check_rule("requirements", &requirement("file = \"src/a.py\"\ncontains = \"class B\""), None, "failed", unmet);
    check_rule("requirements", &requirement(""), None, "skipped", "no requirement names a file that shows it");
    check_rule("within-paths", "paths = [\"src\"]", Some(&["src/a.py"]), "passed", "1 of 1 hold");
    let outside = "README.md is outside of the paths that the task allows";
    check_rule("within-paths", "paths = [\"src\"]", Some(&["src/a.py", "README.md"]), "failed", outside);
    let unknown = "the task allows all paths, or what has changed is unknown";
    check_rule("within-paths", "paths = [\"src\"]", None, "skipped", unknown);
}

#[test]
fn no_test_is_lost_or_disabled() {
    let with = |counts: [usize; 3]| {
        let [passed, failed, skipped] = counts;
        let tests = Some(TestCounts { passed, failed, skipped });
        vec![EvaluationResult { tests, ..scored("pytest", Category::Functionality, 1.0) }]
    };
    let before = [("pytest".to_owned(), TestCounts { passed: 3, failed: 1, skipped: 1 })];
    let check = |after: [usize; 3], passed: bool| {
        let result = tests_kept(&before, &with(after));
        assert_eq!(result.is_passed(), passed, "{result:?}");
    };
    check([4, 0, 1], true);
    check([9, 0, 0], true);
    check([3, 0, 1], false);
    check([3, 0, 2], false);
    assert_eq!(tests_kept(&[], &with([1, 0, 0])).score(), None);
}

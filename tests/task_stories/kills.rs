//! A run that is killed at random moments, again and again, until it has ended: no work is done twice, and the next run
//! completes a workspace that was changed in part.
//!
//! `HONE_TORTURE=1` kills a hundred times, `HONE_TORTURE_SEED` draws other moments.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use hone_app::authoring::EngineAuthor;
use hone_protocol::scripted::{Script, Scripted};
use hone_protocol::{GateAction, GenerateRequest, Prompt};
use hone_work::{
    EvaluatorTool, GateConfig, Reviewers, TaskPhase, TaskRecord, TaskRunner, TaskState, TaskStore, ToolSettings,
};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::support::wait_until;
use crate::task_stories::stage::{PLAN, Stage, actions, launcher, prompt_of};

/// Set only for the process that is to be killed: the folder of tasks.
const TASKS: &str = "HONE_TEST_KILLED_TASKS";
/// Number of files that the work changes; every other one exists before.
const N_FILES: usize = 30;
/// Microseconds by which the delivery is likely to be done.
const LONGEST_DELIVERY: u64 = 15_000;
const TASK: &str =
    "goal = \"many files\"\n[[requirements]]\ntext = \"they are new\"\nfile = \"file0.txt\"\ncontains = \"new\"\n";
/// A tool that takes a moment.
const TOOLS: &str = "\
[quick]
command = [\"sh\", \"-c\", \"sleep 0.02; printf '1..1\\\\nok 1 - it works\\\\n'\"]
reads = \"tap\"
category = \"functionality\"
files = [\"*.txt\"]
seconds = 10.0
missing = \"failed\"
";

/// The files of the work; the first attempt does not meet the requirement.
fn work(is_good: bool) -> String {
    let text = if is_good { "new" } else { "other" };
    (0..N_FILES).map(|n| format!("=== write file{n}.txt\n{text} {n}\n=== end\n")).collect()
}

fn runner(tasks: &Path) -> TaskRunner {
    let generator = Scripted::new(|request| {
        let prompt = prompt_of(request);
        let answer = match () {
            () if prompt.contains("Write no other file") => PLAN.to_owned(),
            () => work(prompt.contains("attempt 2 of")),
        };
        Script::saying(&[&answer])
    });
    let gate: GateConfig = toml::from_str(include_str!("../../config/gate.toml")).unwrap();
    let mut phases = TaskPhase::all(toml::Table::new()).unwrap();
    phases[1].candidates = 2;
    let mut tools = EvaluatorTool::all(&TOOLS.parse().unwrap()).unwrap();
    tools.retain(|tool| tool.name == "quick");
    TaskRunner {
        author: Arc::new(EngineAuthor::new(Arc::new(generator), HashMap::new())),
        request: GenerateRequest::new("", Prompt::Chat(Vec::new())),
        agent: "small".into(),
        phases,
        tools,
        tool_settings: ToolSettings {
            launcher: launcher(),
            workspace: tasks.to_owned(),
            environment: std::env::vars().collect(),
            is_cancelled: Arc::new(|| false),
        },
        reviewers: Reviewers::default(),
        gate,
        publish: Box::new(|_| ()),
        store: TaskStore::new(tasks),
    }
}

/// The process that is killed; started by the test below.
#[test]
#[ignore = "a test below starts it in a process of its own, and kills it"]
fn killed_process() {
    let Some(tasks) = std::env::var_os(TASKS) else { return };
    let runner = runner(Path::new(&tasks));
    let (records, errors) = runner.store.list();
    assert!(errors.is_empty(), "{errors:?}");
    for record in records {
        runner.run(record, &mut |_| {}).unwrap();
    }
}

fn start(stage: &Stage) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["task_stories::kills::killed_process", "--exact", "--ignored", "--quiet"])
        .env(TASKS, stage.home.path("data/tasks"))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Every file of the workspace.
fn files(stage: &Stage) -> BTreeMap<String, String> {
    let entries =
        fs::read_dir(stage.workspace()).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    entries.map(|path| (name(&path), fs::read_to_string(&path).unwrap())).collect()
}

fn before() -> BTreeMap<String, String> {
    (0..N_FILES).step_by(2).map(|n| (format!("file{n}.txt"), format!("old {n}\n"))).collect()
}

fn after() -> BTreeMap<String, String> {
    (0..N_FILES).map(|n| (format!("file{n}.txt"), format!("new {n}\n"))).collect()
}

fn new_stage() -> Stage {
    let before = before();
    let files: Vec<(&str, &str)> = before.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let stage = Stage::new(&files);
    stage.task(TASK);
    stage
}

fn record(stage: &Stage) -> TaskRecord {
    let (records, errors) = stage.store().list();
    assert!(errors.is_empty() && records.len() == 1, "{errors:?}");
    records.into_iter().next().unwrap()
}

/// Waits until the work is being written to the workspace, or the process has ended.
fn wait_for_delivery(stage: &Stage, child: &mut Child) {
    wait_until("the work is delivered", || {
        record(stage).state != TaskState::Working || child.try_wait().unwrap().is_some()
    });
}

/// Checks the invariants after a kill.
fn check(record: &TaskRecord, files: &BTreeMap<String, String>) {
    let steps: Vec<(&str, usize)> =
        record.attempts.iter().map(|attempt| (attempt.phase.as_str(), attempt.number)).collect();
    let all = [("discovery", 1), ("coding", 1), ("coding", 2), ("verification", 1)];
    assert!(all.starts_with(&steps), "an attempt is counted twice: {steps:?}");
    match record.state {
        TaskState::Working => assert_eq!(*files, before(), "the workspace is touched before acceptance"),
        TaskState::Accepted => assert_eq!(*files, after()),
        TaskState::Delivering => {
            // Some may be written and others not; the next run resumes. None is written in part.
            let whole = |path: &String| [before().get(path).cloned(), after().get(path).cloned()];
            let texts = files.iter().filter(|(path, _)| !path.starts_with('.'));
            texts.for_each(|(path, text)| assert!(whole(path).contains(&Some(text.clone())), "{path}: {text:?}"));
        }
        TaskState::Waiting | TaskState::Rejected => panic!("{record:#?}"),
    }
}

fn is_at_the_end(record: &TaskRecord) -> bool {
    use GateAction::{Accept, Retry};
    let expected = [
        ("discovery", "small", Accept),
        ("coding", "small", Retry),
        ("coding", "small", Accept),
        ("verification", "small", Accept),
    ];
    actions(record) == expected
}

#[test]
fn a_run_that_is_killed_at_any_moment_resumes_and_does_nothing_twice() {
    let n_kills = if std::env::var_os("HONE_TORTURE").is_some() { 100 } else { 10 };
    let seed = std::env::var("HONE_TORTURE_SEED").map_or(1, |seed| seed.parse().unwrap());
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let undisturbed = new_stage();
    let began = Instant::now();
    assert!(start(&undisturbed).wait().unwrap().success());
    let longest = began.elapsed().as_millis() as u64;
    assert!(is_at_the_end(&record(&undisturbed)), "{:#?}", record(&undisturbed));

    let (mut killed, mut states, mut n_tasks) = (0, BTreeMap::<&str, usize>::new(), 0);
    while killed < n_kills {
        let stage = new_stage();
        n_tasks += 1;
        loop {
            let mut child = start(&stage);
            // The moment is random on purpose.
            if random.next_u32().is_multiple_of(2) {
                wait_for_delivery(&stage, &mut child);
                sleep(Duration::from_micros(random.next_u64() % LONGEST_DELIVERY));
            } else {
                sleep(Duration::from_millis(random.next_u64() % longest));
            }
            let has_ended = child.try_wait().unwrap().is_some();
            child.kill().unwrap();
            let output = child.wait_with_output().unwrap();
            let record = record(&stage);
            check(&record, &files(&stage));
            if has_ended {
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                assert!(is_at_the_end(&record), "{record:#?}");
                assert_eq!(files(&stage), after());
                break;
            }
            killed += 1;
            *states.entry(record.state.as_str()).or_default() += 1;
        }
    }
    println!("{killed} kills of {n_tasks} tasks, in the states {states:?}; undisturbed, a run takes {longest} ms");
}
